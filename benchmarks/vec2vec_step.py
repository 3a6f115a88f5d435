"""Speed of one vec2vec training step at the released configuration, each kind beside a straightforward eager one, in one run.

    python -m benchmarks.vec2vec_step [--kinds plain graph bf16 compiled] [--rounds 4] [--steps 2] [--threads 2] [--device cuda]

Width 1024, batch 256, 768 dimensions on both sides. `eager` is the reference of the tests; plain, graph and compiled are `step`
of the recipe in float32 (on CUDA with TF32), bf16 is `auto` in bf16. Rounds are interleaved and each contestant's best round
counts, so that what else the machine does falls on all alike; on a crowded machine `--threads 1 --clock cpu` is fairer. For each:
steps a second; milliseconds in kernels; launches, which on a CPU are ATen operations that are no views (not counted of compiled
code); hours for the paper's 312,000 steps. Wants: plain >= 1 x eager with losses equal to 1e-5, graph
on CUDA three launches a step: the graph, and two by which torch tells it the seed and offset of its random numbers.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import normalize
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

from pipelines.aligners.vec2vec import Batches, Settings
from pipelines.aligners.vec2vec.graph import WARM_UP, stepper
from pipelines.aligners.vec2vec.networks import Vec2Vec
from pipelines.aligners.vec2vec.step import Training
from tests.pretend_graph import is_view
from tests.reference_vec2vec import Reference

DIMS = {"source": 768, "target": 768}
STEPS = 312_000  # of the paper
KINDS = {
    "plain": {"step": "plain"},
    "graph": {"step": "graph"},
    "bf16": {"precision": "bf16"},
    "compiled": {"step": "compiled"},
}


class Counter(TorchDispatchMode):
    """How many operations ran that are no views."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += not is_view(func)
        return func(*args, **(kwargs or {}))


def training(device: str, **keys: Any) -> Training:
    """Always from the same weights."""
    settings = Settings(**keys)
    torch.manual_seed(0)
    return Training(Vec2Vec(DIMS, **settings.shape).to(device), DIMS, settings)


def clouds(device: str) -> dict[str, Batches]:
    torch.manual_seed(1)
    rows = {name: normalize(torch.randn(2560, size), dim=1).to(device) for name, size in DIMS.items()}
    return {name: Batches(cloud, 256, seed) for seed, (name, cloud) in enumerate(rows.items())}


def difference(device: str) -> float:
    """Largest difference of a loss of the first step from the reference's."""
    ours = training(device, step="plain", tf32=False)
    reference, x = Reference(ours, *DIMS.values()), {name: draw(0) for name, draw in clouds(device).items()}
    torch.manual_seed(2)  # the dropout masks
    want = reference.step(*x.values())
    torch.manual_seed(2)
    got = ours.step(x)
    return max(abs(float(got[name]) - value) for name, value in want.items())


def contestants(device: str, kinds: list[str], stretch: int) -> dict[str, Callable[[], object]]:
    reference, x = Reference(training(device), *DIMS.values()), [draw(0) for draw in clouds(device).values()]
    steps = {kind: stepper(training(device, **KINDS[kind]), clouds(device), stretch) for kind in kinds}
    return {"eager": lambda: reference.step(*x), **steps}


def measured(step: Callable[[], object], device: str, compiled: bool) -> tuple[float, int | None]:
    """Milliseconds in kernels of one step, and how many were launched."""
    if device == "cpu":
        with Counter() as counter:
            _ = compiled or step()
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            step()
        return sum(
            e.self_cpu_time_total for e in seen.key_averages()
        ) / 1000, None if compiled else counter.count
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        step()
        torch.cuda.synchronize()
    events = seen.key_averages()
    return sum(e.self_device_time_total for e in events) / 1000, sum(
        e.count for e in events if "Launch" in e.key
    )


def timed(step: Callable[[], object], steps: int, device: str, clock: Callable[[], float]) -> float:
    """Seconds a step."""
    start = clock()
    for _ in range(steps):
        step()
    if device != "cpu":
        torch.cuda.synchronize()
    return (clock() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    default = list(KINDS) if device == "cuda" else ["plain", "graph", "bf16"]
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=default)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--device", default=device)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    clock = time.perf_counter if asked.clock == "wall" else time.process_time
    print(f"largest difference of a loss, float32: {difference(asked.device):.1e}", flush=True)
    steps = contestants(asked.device, asked.kinds, asked.rounds * asked.steps + 10)
    for step in steps.values():
        for _ in range(1 if asked.device == "cpu" else WARM_UP + 1):
            step()
    kernels = {name: measured(step, asked.device, name == "compiled") for name, step in steps.items()}
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(asked.rounds):
        for name, step in steps.items():
            best[name] = min(best[name], timed(step, asked.steps, asked.device, clock))
    for name, seconds in best.items():
        busy, launches = kernels[name]
        speed = f"{1 / seconds:8.2f} steps/s  {best['eager'] / seconds:5.2f} x  {busy:8.1f} ms in kernels"
        print(
            f"{name:8} {speed}  {launches or '-':>6} launches  {seconds * STEPS / 3600:7.1f} h for {STEPS:,} steps"
        )


if __name__ == "__main__":
    main()
