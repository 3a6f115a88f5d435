"""A pretend CUDA graph, on the CPU: the operations of a step recorded once, then repeated on the same tensors.

As on a GPU: Python is not run again, so that a number that it chose stays as it was, and a value that it read is refused. Random
operations draw anew. Unlike on a GPU: recording carries the step out, and so the first replay does nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal")  # what Python would have to wait for


class Tape(TorchDispatchMode):
    """Every operation of a block, with what it was given and what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func._schema.name.split("::")[-1] not in READS, f"{func} while capturing"
        out = func(*args, **(kwargs or {}))
        self.calls.append((func, args, kwargs or {}, out))
        return out

    @torch.no_grad()
    def replay(self) -> None:
        for func, args, kwargs, out in self.calls:
            if is_view(func):  # of memory that the other operations fill again
                continue
            for old, new in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs)), strict=True):
                if isinstance(old, torch.Tensor) and old is not new:
                    old.copy_(new)


def is_view(func: Any) -> bool:
    return any(out.alias_info is not None and not out.alias_info.is_write for out in func._schema.returns)


def capture(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """In the place of `pipelines.aligners.vec2vec.graph.capture`."""
    with Tape() as tape:
        step()
    carried_out = [True]  # by recording
    return lambda: None if carried_out and carried_out.pop() else tape.replay()
