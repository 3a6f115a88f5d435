"""How training steps run, `step` of the recipe: one by one, or as one CUDA graph.

    plain     `Training.step`: the host starts every operation, about 1,500 in the released configuration.
    graph     `step_on`: the same operations on tensors at fixed places on the device. CUDA records them once and repeats them
              with one launch a step; other devices run them one by one, and gain nothing.
    compiled  as `graph`, after torch.compile has fused the operations of the forward pass and of the losses. Compiling takes
              minutes and, on a CPU, a C++ compiler.
    auto      graph on CUDA, plain elsewhere.

A graph repeats operations on the same places and nothing of Python. What changes from step to step, which rows make the batch
and the schedule, is therefore read from `Buffers`, which the host fills for a stretch of steps at once; what steps have measured
waits there to be read. Dropout and noise are drawn anew at each replay: capture registers the device's default generator, and a
replay moves it on as the operations would (CUDA graphs in the notes of torch). The starts of a competition, of a few dozen steps
each, run plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from pipelines.aligners.vec2vec.step import Scheduled, Training

WARM_UP = 3  # steps before a capture: optimisers make their state in them, libraries their workspaces
LONGEST = 1000  # steps of a stretch


class Draws(Protocol):
    """The batches of one cloud: `rows` (n, d), and which of them each step takes (b,)."""

    rows: Tensor

    def indices(self, step: int) -> Tensor: ...

    def __call__(self, step: int) -> Tensor: ...


@dataclass
class Buffers:
    """What the steps of one stretch read and write, at fixed places on the device."""

    clouds: dict[str, Tensor]  # (n, d) by encoder
    rows: dict[str, Tensor]  # (stretch, b) int64: which rows of a cloud each step takes
    schedule: Tensor  # (stretch, 5): `Scheduled` of each step
    at: Tensor  # (1,) int64: the place in the stretch, which a step moves on
    metrics: Tensor | None = (
        None  # (stretch, m): what each step has measured, as `Training.names`; the first step makes it
    )


def step_on(training: Training, buffers: Buffers) -> None:
    """One step, exactly what is captured: Python decides nothing that changes between steps, and waits for nothing."""
    at = buffers.at
    x = {
        name: cloud.index_select(0, buffers.rows[name].index_select(0, at)[0])
        for name, cloud in buffers.clouds.items()
    }
    lr, disc_lr, *others = buffers.schedule.index_select(0, at)[0].unbind()
    training.now = Scheduled(lr, disc_lr, *(value.float() for value in others))
    metrics = torch.stack(list(training.update(x).values()))
    if buffers.metrics is None:
        buffers.metrics = metrics.new_zeros(len(buffers.schedule), len(metrics))
    buffers.metrics.index_copy_(0, at, metrics[None])
    at.add_(1)


def stepper(training: Training, batches: Mapping[str, Draws], stretch: int) -> Callable[[], object]:
    """What moves a training on by one step at each call, in the way of its recipe; the next step is always `training.done`.

    `stretch`: the host prepares and reads so many steps at once, at most `LONGEST`. A call raises BadInput as
    `Training.check` does, where a stretch ends.
    """
    kind = training.settings.step
    if kind == "plain" or (kind == "auto" and training.device.type != "cuda"):
        return lambda: training.step({name: draw(training.done) for name, draw in batches.items()})
    if kind == "compiled":
        compile_losses(training)
    return Stretches(training, batches, min(stretch, LONGEST))


def compile_losses(training: Training) -> None:
    """The forward pass and all losses through torch.compile, drawing the random numbers that they drew before."""
    for name in ("forward", "discriminator_losses", "translator_losses"):
        setattr(training, name, torch.compile(getattr(training, name), options={"fallback_random": True}))


class Stretches:
    """Steps on `Buffers`, stretch by stretch. After warm-up steps, which are steps like others, they are captured and replayed.

    `Training.narrow` and `restore` are noticed, and a `done` that someone else has set: the stretch is filled again, and after
    the first two the step is captured again.
    """

    def __init__(self, training: Training, batches: Mapping[str, Draws], stretch: int) -> None:
        self.training, self.batches, self.stretch = training, batches, stretch
        device = training.device
        exact = torch.float64 if device.type == "cpu" else torch.float32  # what fused optimisers read there
        sizes = {name: len(draw.indices(training.done)) for name, draw in batches.items()}
        self.buffers = Buffers(
            clouds={name: draw.rows for name, draw in batches.items()},
            rows={
                name: torch.zeros(stretch, size, dtype=torch.int64, device=device)
                for name, size in sizes.items()
            },
            schedule=torch.zeros(stretch, len(astuple(training.now)), dtype=exact, device=device),
            at=torch.zeros(1, dtype=torch.int64, device=device),
        )
        self._begin()

    def __call__(self) -> None:
        training = self.training
        if training.version != self.version:
            self._begin()
        if self.place == self.stretch or training.done != self.next:
            self._fill()
        self._advance()
        assert self.buffers.metrics is not None
        training.unread.append(self.buffers.metrics[self.place])
        training.done += 1
        self.place, self.next = self.place + 1, training.done

    def _begin(self) -> None:
        """Forget a captured step."""
        self._optimisers(capturable=False)  # torch warns of steps that are not captured and could be
        self.version, self.next, self.place = self.training.version, self.training.done, self.stretch
        self.warm, self.replay = 0, None

    def _fill(self) -> None:
        """Put the batches and the schedule of the next stretch in place, after what the last one measured was read."""
        training, buffers = self.training, self.buffers
        training.check()
        steps = range(training.done, training.done + self.stretch)
        for name, draw in self.batches.items():
            buffers.rows[name].copy_(torch.stack([draw.indices(step) for step in steps]))
        schedule = [astuple(training.scheduled(step)) for step in steps]
        buffers.schedule.copy_(torch.tensor(schedule, dtype=buffers.schedule.dtype))
        buffers.at.zero_()
        self.place = 0

    def _advance(self) -> None:
        step = partial(step_on, self.training, self.buffers)
        if self.warm < WARM_UP:
            self.warm += 1
            with aside(self.training.device):
                return step()
        if self.replay is None:
            self._optimisers(capturable=True)
            self.replay = capture(step, self.training.device)
        self.replay()

    def _optimisers(self, capturable: bool) -> None:
        for group in (*self.training.optimiser.param_groups, *self.training.disc_optimiser.param_groups):
            group |= {
                "fused": True,
                "capturable": capturable,
            }  # fused ones read a learning rate on the device


def capture(step: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """What repeats a step, which is recorded here and not carried out. Where there are no graphs, `step` itself."""
    if device.type != "cuda":
        return step
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.Stream(device)):
        step()
    return graph.replay


@contextmanager
def aside(device: torch.device) -> Iterator[None]:
    """On a side stream of CUDA, where steps before a capture belong; elsewhere nothing."""
    if device.type != "cuda":
        yield
        return
    main, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        yield
    main.wait_stream(side)
