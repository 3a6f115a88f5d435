"""Calibrates the verdict of pipelines/aligners/core/verdict.py on runs that really succeed and really fail.

    python -m benchmarks.verdict collect RUNS.csv [--draws 20]   # on the embeddings of the active study; again: more
    python -m benchmarks.verdict fit RUNS.csv [MORE.csv ...]

collect: random pairs of embeddings, three quarters of one corpus, a quarter of two; of the dumps one in eight has texts of
another corpus for a half of it, and one in eight every vector twice; 1,500 to 12,000 vectors a side, and few candidates, so
that many fail. True pairs of the first corpus tell afterwards which. fit: a logistic regression of `FOSCTTM <= 0.1` on the
agreement; each pair of corpora, then each encoder, is left out in turn and predicted from the others.
benchmarks/verdict.csv has the runs behind the constants; few tweets are the same draw again, and count once.
"""

from __future__ import annotations

import argparse
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import torch

from pipelines.aligners import wasserstein_procrustes as aligner
from pipelines.aligners.core.verdict import agreement
from pipelines.fitting.splitting import halves
from pipelines.measures.translation import paired_scores
from pipelines.runtime import store
from pipelines.runtime.threads import side_by_side
from pipelines.study import Align, params

CHEAP = {"rounds": (1000, 1000, 1500), "refinements": 40}
TOGETHER = 4  # fits of one draw
SUCCESS = 0.1  # FOSCTTM


def collect(path: Path, count: int) -> None:
    """Append `count` draws of TOGETHER runs, each a replicate of the others: what, how it ended (true pairs), the agreement."""
    study = params.load()
    spaces = {name: store.read_embeddings(name) for name in study.embed}
    at = {(row.corpus, row.encoder): name for name, row in study.embed.items()}
    runs = pl.read_csv(path).rows(named=True) if path.exists() else []
    for number in range(len(runs) // TOGETHER, len(runs) // TOGETHER + count):
        draw = random.Random(number)
        source = draw.choice(sorted(name for name in spaces if len(spaces[name].rows("test")) > 1))
        corpus = study.embed[source].corpus
        encoder = draw.choice(sorted({e for c, e in at if c == corpus} - {study.embed[source].encoder}))
        others = sorted(
            {c for c, e in at if e == encoder and c != corpus and len(spaces[at[c, e]].rows("train")) > 2000}
        )
        target = at[draw.choice(others) if others and draw.random() < 1 / 4 else corpus, encoder]
        size, repeats = int(1500 * 8 ** draw.random()), draw.choice((5, 15, 30))
        row = Align.model_validate({"source": source, "target": target, "aligner": "identity", "limit": size})
        drawn = [halves(spaces[source], spaces[target], row, seed) for seed in range(TOGETHER)]
        dump = draw.choices(("plain", "mixture", "twice"), (6, 1, 1))[0]
        if dump != "plain":
            beside = draw.choice(
                sorted({c for c, e in at if e == study.embed[source].encoder and c != corpus})
            )
            other = spaces[at[beside, study.embed[source].encoder]] if dump == "mixture" else None
            drawn = [replace(data, source=half(data.source, other, seed)) for seed, data in enumerate(drawn)]
        cheap = aligner.Settings(**CHEAP | {"repeats": repeats})
        fitted = side_by_side(
            [partial(aligner.fit, data.source, data.target, cheap, seed) for seed, data in enumerate(drawn)]
        )
        rows = spaces[source].rows("test")[:2048]
        x, y = spaces[source].vectors[rows], spaces[at[corpus, encoder]].vectors[rows]
        for seed, (data, translator) in enumerate(zip(drawn, fitted, strict=True)):
            scores = paired_scores(translator(x), y)
            vectors = min(len(data.source), len(data.target))  # a corpus may have fewer than asked for
            run = {
                "study": study.study,
                "source": source,
                "target": target,
                "size": vectors,
                "repeats": repeats,
                "seed": seed,
            }
            run |= {"dump": dump}
            run |= {
                k: round(float(scores[k].double().mean()), 5) for k in ("centred_cosine", "top1", "foscttm")
            }
            agreed = agreement(
                data.source, translator(data.source), [other for other in fitted if other is not translator]
            )
            runs.append(run | {"agreement": round(agreed, 5)})
            print(runs[-1], flush=True)
        pl.DataFrame(runs).write_csv(path)


def half(source: torch.Tensor, other: store.Embeddings | None, seed: int) -> torch.Tensor:
    """A dump (n, d) whose second half is of another corpus, other rows of it for each of TOGETHER seeds, or is its first half."""
    kept = source[: len(source) // 2]
    if other is None:
        return torch.cat([kept, kept])
    return torch.cat([kept, other.vectors[other.rows("train")[seed::TOGETHER][: len(kept)]]])


def fit(paths: list[Path]) -> None:
    """Print the constants, and what they are worth on corpora that they were not fitted on."""
    columns = ["study", "source", "target", "dump", "foscttm", "agreement"]
    runs = pl.concat(pl.read_csv(path).select(columns) for path in paths).unique(
        maintain_order=True
    )  # few tweets: draws repeat
    x = torch.tensor(runs["agreement"].to_list(), dtype=torch.float64)
    y = torch.tensor((runs["foscttm"] <= SUCCESS).to_list(), dtype=torch.float64)
    sides = runs.select(source="source", target="target").to_numpy()
    named = np.array(
        [[side.rsplit("-", 1) for side in pair] for pair in sides]
    )  # (runs, 2, corpus and encoder)
    corpora = np.array(
        [" ".join((study, *pair)) for study, pair in zip(runs["study"], named[:, :, 0], strict=True)]
    )
    encoders = named[:, :, 1]
    print(f"{len(y)} runs, {int(y.sum())} succeeded; AUC of the agreement {auc(x, y):.4f}")
    report("pair of corpora", x, y, [corpora == left_out for left_out in np.unique(corpora)])
    report("encoder", x, y, [(encoders == left_out).any(1) for left_out in np.unique(encoders)])
    slope, middle = logistic(x, y)
    print(f"SLOPE, MIDDLE = {slope:.1f}, {middle:.3f}")
    for dump in runs["dump"].unique(maintain_order=True):
        of_kind = torch.tensor((runs["dump"] == dump).to_list())
        print(f"dumps that are {dump}:")
        calls(torch.sigmoid(slope * (x[of_kind] - middle)), y[of_kind])


def report(what: str, x: torch.Tensor, y: torch.Tensor, groups: list[np.ndarray]) -> None:
    """Scores of each group of runs, by the constants of all runs outside it; a run of two groups counts twice."""
    scores, truth = [], []
    for out in map(torch.from_numpy, groups):
        if len(y[~out].unique()) == 2:
            slope, middle = logistic(x[~out], y[~out])
            scores.append(torch.sigmoid(slope * (x[out] - middle)))
            truth.append(y[out])
    if not scores:  # two encoders: without one there is no pair
        return
    held_out, y = torch.cat(scores), torch.cat(truth)
    print(f"one {what} left out: AUC {auc(held_out, y):.4f}")
    calls(held_out, y)


def calls(scores: torch.Tensor, y: torch.Tensor) -> None:
    """How many scores make the word, how many of these are wrong, and how many successes go without it."""
    for threshold in (0.5, 0.95):
        called = scores >= threshold
        wrong, missed = (called & (y == 0)).sum(), (~called & (y == 1)).sum()
        print(
            f"  score >= {threshold}: {called.sum()} of {len(y)} called, {wrong} of them wrong, {missed} missed"
        )


def logistic(x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """Slope and middle of a logistic regression of y (n,) on x (n,). Newton; a slope of 60 has the weight of one run."""
    w = torch.zeros(2, dtype=x.dtype)
    Z = torch.stack([x - x.mean(), torch.ones_like(x)], 1)
    penalty = torch.tensor([1 / 60**2, 1e-6], dtype=x.dtype)
    for _ in range(100):
        p = torch.sigmoid(Z @ w)
        step = torch.linalg.solve((Z.T * (p * (1 - p))) @ Z + penalty.diag(), Z.T @ (p - y) + penalty * w)
        w = w - step * min(1.0, 10 / float(step.abs().max()))  # separable data: the full step overshoots
    return float(w[0]), float(x.mean() - w[1] / w[0])


def auc(scores: torch.Tensor, y: torch.Tensor) -> float:
    """Probability that a success scores above a failure; ties count half."""
    above = scores[y == 1][:, None] - scores[y == 0][None]
    return float(((above > 0).double() + (above == 0).double() / 2).mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["collect", "fit"])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.what == "collect":
        collect(arguments.files[0], arguments.draws)
    else:
        fit(arguments.files)
