"""Repeat the update of a training step as one CUDA graph.

With `recipe: released` the host starts some 1,640 operations a step. CUDA records them once, and then
starts all of them with one call. On an H200 a step takes 10 ms instead of 42 (docs/experiments/vec2vec.md).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

WARM_UP = 3  # updates before the recording, in which optimisers make their state

Rows = dict[str, Tensor]  # (b, d) of each encoder


class Replayed:
    """Run an update WARM_UP times in Python, then record it, then replay the record.

    A graph repeats operations on the same memory, without Python. So new rows overwrite the recorded ones,
    and anything else that changes must be a tensor on the device. Each replay draws new dropout masks.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.calls = device, 0
        self.rows: Rows = {}

    def __call__(self, update: Callable[[Rows], Tensor], rows: Rows) -> Tensor:
        """Return what `update` of these rows returns, as a copy. Each call must pass the same `update`."""
        self.calls += 1
        if self.calls <= WARM_UP:
            with side_stream(self.device):
                return update(rows)
        if not self.rows:
            self.rows = {name: x.clone() for name, x in rows.items()}
            self.replay, self.result = record(lambda: update(self.rows), self.device)
        for name, x in rows.items():
            self.rows[name].copy_(x)
        self.replay()
        return self.result.clone()


def record(update: Callable[[], Tensor], device: torch.device) -> tuple[Callable[[], None], Tensor]:
    """Record an update without running it. Return a function that runs it, and its result."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.device(device), torch.cuda.graph(graph, stream=torch.cuda.Stream(device)):
        result = update()
    return graph.replay, result


@contextmanager
def side_stream(device: torch.device) -> Iterator[None]:
    """Run a block on another stream than the default one, as CUDA requires before a recording."""
    main, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        yield
    main.wait_stream(side)
