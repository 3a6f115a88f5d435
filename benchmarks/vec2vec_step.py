"""Time a training step of vec2vec in the released configuration, with 768 dimensions on both sides.

    python -m benchmarks.vec2vec_step [--kinds float32 bf16 graph] [--rounds 4] [--steps 2] [--threads 2]

`reference` is the plain step of the tests, without dropout. Rounds of all kinds are interleaved and the best
round counts, so that other load on the machine affects all kinds alike. On a busy machine use `--threads 1
--clock cpu`.
Prints the largest difference of a loss from the reference, steps per second, and hours for the paper's
312,000 steps.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import normalize

from pipelines.aligners.vec2vec import Batches, Settings
from pipelines.aligners.vec2vec.networks import Vec2Vec
from pipelines.aligners.vec2vec.training import Training
from tests.reference_vec2vec import Reference

DIMS = {"source": 768, "target": 768}
STEPS = 312_000  # of the paper
KINDS: dict[str, dict[str, Any]] = {
    "float32": {},
    "bf16": {"precision": "bf16"},
    "graph": {"graph": True},  # differs on CUDA only
}


def new_training(device: str, **keys: Any) -> Training:
    """Return a training that always starts from the same weights."""
    settings = Settings(**keys)
    torch.manual_seed(0)
    return Training(Vec2Vec(DIMS, **settings.shape).to(device), DIMS, settings)


def new_batches(device: str) -> dict[str, Batches]:
    torch.manual_seed(1)
    rows = {name: normalize(torch.randn(2560, size), dim=1).to(device) for name, size in DIMS.items()}
    return {name: Batches(cloud, 256, seed) for seed, (name, cloud) in enumerate(rows.items())}


def difference(device: str) -> float:
    """Return the largest difference of a loss of the first step from the reference's."""
    ours = new_training(device, dropout=0.0)  # the reference has none
    reference, x = (
        Reference(ours, *DIMS.values()),
        {name: draw(0) for name, draw in new_batches(device).items()},
    )
    want, got = reference.step(*x.values()), ours.step(x)
    return max(abs(float(got[name]) - value) for name, value in want.items())


def contestants(device: str, kinds: list[str]) -> dict[str, Callable[[], object]]:
    reference, x = (
        Reference(new_training(device), *DIMS.values()),
        [d(0) for d in new_batches(device).values()],
    )
    steps: dict[str, Callable[[], object]] = {"reference": lambda: reference.step(*x)}
    for kind in kinds:
        training, batches = new_training(device, **KINDS[kind]), new_batches(device)
        steps[kind] = lambda t=training, b=batches: t.step({name: draw(t.done) for name, draw in b.items()})
    return steps


def timed(step: Callable[[], object], steps: int, device: str, clock: Callable[[], float]) -> float:
    """Return seconds per step."""
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
    default = list(KINDS) if device == "cuda" else ["float32", "bf16"]
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
    steps = contestants(asked.device, asked.kinds)
    for step in steps.values():  # warm up
        for _ in range(3):
            step()
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(asked.rounds):
        for name, step in steps.items():
            best[name] = min(best[name], timed(step, asked.steps, asked.device, clock))
    for name, seconds in best.items():
        faster, hours = best["reference"] / seconds, seconds * STEPS / 3600
        print(f"{name:10} {1 / seconds:8.2f} steps/s  {faster:5.2f} x  {hours:7.1f} h for {STEPS:,} steps")


if __name__ == "__main__":
    main()
