"""Speed of one vec2vec training step at the released configuration, beside a straightforward eager one, in one run.

    python -m benchmarks.vec2vec_step [--rounds 4] [--steps 2] [--threads 2] [--clock wall]

Width 1024, batch 256, 768 dimensions on both sides. Rounds are interleaved and each contestant's best round counts, so that
what else the machine does falls on all alike; on a crowded machine `--threads 1 --clock cpu` is fairer. Wants: float32
>= 1 x with losses equal to 1e-5; bf16 >= 1.5 x where the CPU has it.
"""

from __future__ import annotations

import argparse
import copy
import time

import torch
from torch.nn.functional import normalize

from pipelines.aligners.vec2vec import Settings
from pipelines.aligners.vec2vec.networks import Vec2Vec
from pipelines.aligners.vec2vec.step import Training
from tests.reference_vec2vec import Reference

D, E = 768, 768


def trainings() -> tuple[Reference, Training, Training]:
    """The reference, float32 and bf16, from the same weights."""
    torch.manual_seed(0)
    model = Vec2Vec({"source": D, "target": E}, **Settings().shape)
    torch.manual_seed(1)
    plain = Training(copy.deepcopy(model), {"source": D, "target": E}, Settings())
    torch.manual_seed(1)
    bf16 = Training(model, {"source": D, "target": E}, Settings(precision="bf16"))
    return Reference(plain, D, E), plain, bf16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    reference, plain, bf16 = trainings()
    x, y = (normalize(torch.randn(256, n), dim=1) for n in (D, E))
    torch.manual_seed(2)  # the dropout masks
    want = reference.step(x, y)
    torch.manual_seed(2)
    got = plain.step({"source": x, "target": y})
    print(f"largest difference of a loss, float32: {max(abs(float(got[k]) - v) for k, v in want.items()):.1e}")
    bf16.step({"source": x, "target": y})
    steps = {
        "eager": lambda: reference.step(x, y),
        "float32": lambda: plain.step({"source": x, "target": y}),
        "bf16": lambda: bf16.step({"source": x, "target": y}),
    }
    best = dict.fromkeys(steps, float("inf"))
    for _ in range(options.rounds):
        for name, step in steps.items():
            start = clock()
            for _ in range(options.steps):
                step()
            best[name] = min(best[name], (clock() - start) / options.steps)
    for name, seconds in best.items():
        print(f"{name:8} {1 / seconds:6.2f} steps/s  {best['eager'] / seconds:5.2f} x")


if __name__ == "__main__":
    main()
