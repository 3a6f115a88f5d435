"""Calibrate the verdict of pipelines/aligners/core/verdict.py on runs whose outcome is known.

    python -m benchmarks.verdict collect RUNS.csv [--draws 20]   # on the embeddings of the active study
    python -m benchmarks.verdict fit RUNS.csv [MORE.csv ...]
    python -m benchmarks.verdict count docs/numbers/*.json

collect: fit random pairs of embeddings and append the outcomes to RUNS.csv. A quarter of the pairs has two
corpora. Of the dumps, one in eight is half of another corpus, and one in eight has every vector twice. Sizes
are 1,500 to 12,000 vectors a side. Few candidates make many fits fail. True pairs of the source's corpus tell
which. fit: regress `FOSCTTM <= 0.1` on the agreement (logistic regression). Each pair of corpora, then each
encoder, is left out in turn and predicted from the others. benchmarks/verdict.csv has the runs behind the
constants. Repeated draws of a small corpus count once. count: print how the unpaired fits by document of
studies were labelled, and the bound on wrong labels.
"""

import argparse
import json
import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from pipelines.aligners import wasserstein_procrustes as aligner
from pipelines.aligners.core.verdict import RIGHT, agreement, verdict_of
from pipelines.fitting.splitting import halves
from pipelines.measures.translation import paired_scores
from pipelines.runtime import store
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading
from pipelines.runtime.threads import side_by_side
from pipelines.study import Align, params
from pipelines.study.expand import expand
from pipelines.study.reading import read

TOGETHER = 4  # fits of one draw


def collect(path: Path, count: int) -> None:
    """Append `count` draws of TOGETHER runs. The runs of a draw are replicates of each other."""
    study = params.load()
    spaces = {name: store.read_embeddings(name) for name in study.embed}
    runs = pl.read_csv(path).rows(named=True) if path.exists() else []
    for number in range(len(runs) // TOGETHER, len(runs) // TOGETHER + count):
        for run in one_draw(study, spaces, random.Random(number)):
            runs.append({"study": study.study} | run)
            print(runs[-1], flush=True)
        pl.DataFrame(runs).write_csv(path)


def one_draw(study: params.Study, spaces: dict[str, store.Embeddings], draw: random.Random) -> list[dict]:
    """Fit one random pair of embeddings with TOGETHER seeds. Return the outcome and agreement of each."""
    at = {(row.corpus, row.encoder): name for name, row in study.embed.items()}
    # 1. Source and target; the target is of another corpus in a quarter of the draws
    source = draw.choice(sorted(name for name in spaces if len(spaces[name].rows("test")) > 1))
    corpus, source_encoder = study.embed[source].corpus, study.embed[source].encoder
    encoder = draw.choice(sorted({e for c, e in at if c == corpus} - {source_encoder}))
    large = {name for name in spaces if len(spaces[name].rows("train")) > 2000}
    others = sorted({c for (c, e), name in at.items() if e == encoder and c != corpus and name in large})
    target = at[draw.choice(others) if others and draw.random() < 1 / 4 else corpus, encoder]
    # 2. Vectors of both sides, for each seed
    size, repeats = int(1500 * 8 ** draw.random()), draw.choice((5, 15, 30))
    row = Align.model_validate({"source": source, "target": target, "aligner": "identity", "limit": size})
    drawn = [halves(spaces[source], spaces[target], row, seed) for seed in range(TOGETHER)]
    dump = draw.choices(("plain", "mixture", "twice"), (6, 1, 1))[0]
    if dump != "plain":
        other = None
        if dump == "mixture":
            beside = draw.choice(sorted({c for c, e in at if e == source_encoder and c != corpus}))
            other = spaces[at[beside, source_encoder]]
        drawn = [replace(data, source=half(data.source, other, seed)) for seed, data in enumerate(drawn)]
    # 3. Cheap fits
    settings = aligner.Settings(
        repeats=(repeats,),
        rounds=(1000, 1000, 1500),
        refinements=40,
        passes=8,
        groups=1,
        equalise=0,
        rotations=0,
    )
    fits = [partial(aligner.fit, data.source, data.target, settings, seed) for seed, data in enumerate(drawn)]
    fitted = side_by_side(fits)
    # 4. Outcome on true pairs, and agreement with the other fits
    rows, runs = spaces[source].rows("test")[:2048], []
    x, y = spaces[source].vectors[rows], spaces[at[corpus, encoder]].vectors[rows]
    for seed, (data, translator) in enumerate(zip(drawn, fitted, strict=True)):
        vectors = min(len(data.source), len(data.target))  # a corpus may have fewer than asked for
        run = {
            "source": source,
            "target": target,
            "size": vectors,
            "repeats": repeats,
            "seed": seed,
            "dump": dump,
        }
        scores = paired_scores(translator(x), y)
        for name in ("centred_cosine", "top1", "foscttm"):
            run[name] = round(float(scores[name].double().mean()), 5)
        replicates = [other for other in fitted if other is not translator]
        run["agreement"] = round(agreement(data.source, translator(data.source), replicates), 5)
        runs.append(run)
    return runs


def half(source: torch.Tensor, other: store.Embeddings | None, seed: int) -> torch.Tensor:
    """Return a dump (n, d) whose second half is of another corpus, or repeats its first half if `other` is
    None.

    Each of TOGETHER seeds gets other rows of the other corpus.
    """
    kept = source[: len(source) // 2]
    if other is None:
        return torch.cat([kept, kept])
    return torch.cat([kept, other.vectors[other.rows("train")[seed::TOGETHER][: len(kept)]]])


def fit(paths: list[Path]) -> None:
    """Print the constants, and how well they predict corpora and encoders that were left out."""
    columns = ["study", "source", "target", "dump", "foscttm", "agreement"]
    tables = []
    for path in paths:
        with reading(path):
            tables.append(pl.read_csv(path).select(columns))
    runs = pl.concat(tables).unique(maintain_order=True)
    x = torch.tensor(runs["agreement"].to_list(), dtype=torch.float64)
    y = torch.tensor((runs["foscttm"] <= RIGHT).to_list(), dtype=torch.float64)
    sides = runs.select("source", "target").to_numpy()
    named = np.array(
        [[side.rsplit("-", 1) for side in pair] for pair in sides]
    )  # (runs, 2, corpus and encoder)
    studies, encoders = runs["study"], named[:, :, 1]
    corpora = np.array(
        [" ".join((study, *pair)) for study, pair in zip(studies, named[:, :, 0], strict=True)]
    )
    print(f"{len(y)} runs, {int(y.sum())} succeeded; AUC of the agreement {roc_auc_score(y, x):.4f}")
    report("pair of corpora", x, y, [corpora == left_out for left_out in np.unique(corpora)])
    report("encoder", x, y, [(encoders == left_out).any(1) for left_out in np.unique(encoders)])
    slope, middle = logistic(x, y)
    print(f"SLOPE, MIDDLE = {slope:.1f}, {middle:.3f}")
    for dump in runs["dump"].unique(maintain_order=True):
        of_kind = torch.tensor((runs["dump"] == dump).to_list())
        print(f"dumps of kind {dump}:")
        calls(torch.sigmoid(slope * (x[of_kind] - middle)), y[of_kind])


def counted(paths: Iterable[Path]) -> list[str]:
    """Return how the unpaired fits by document of docs/numbers/<study>.json were labelled, in Markdown.

    A split of the texts counts once below the table, whatever was fitted to it.
    """
    runs = pl.DataFrame([run for path in paths for run in outcomes(path)], orient="row")
    right, aligned = pl.col("right"), pl.col("aligned")
    counts = {"fits": pl.len(), "right": right.sum(), "aligned": aligned.sum()}
    counts |= {"wrong": (aligned & ~right).sum(), "not aligned": (right & ~aligned).sum()}
    rows = runs.group_by("study", "aligner", maintain_order=True).agg(**counts).rows()
    rows.append(("all", "", *runs.select(**counts).row(0)))
    head = "| study | aligner | fits | right | *aligned* | of these wrong | right, not *aligned* |"
    splits = runs.filter("aligned").group_by("split").agg(wrong=(~right).any())
    bound = 1 - 0.05 ** (1 / len(splits))  # exact if none is wrong
    last = f"{len(splits)} splits have an *aligned* map, {splits['wrong'].sum()} a wrong one."
    bounded = f"So at most {100 * bound:.1f} % of splits would have a wrong one (95 % bound)."
    return [head, "|---" * 7 + "|", *(f"| {' | '.join(map(str, row))} |" for row in rows), last, bounded]


def outcomes(path: Path) -> Iterator[dict]:
    """Yield study, aligner, split, aligned and right of each unpaired fit by document.

    A split is known by its texts, and by its seed or `splits`: two chunkings of one file share theirs.
    """
    with reading(path):
        numbers = json.loads(path.read_bytes())
    rows = path.resolve().parents[2] / "studies" / f"{path.stem}.yaml"
    if not rows.exists():
        raise BadInput(f"{path}: there is no study {rows}")
    study = params.Study.model_validate(expand(read(rows)))
    fits = study.translators()
    for name, row in study.evaluate.items():
        fit = fits.get(row.translator)
        if fit is None or fit.supervision != "unpaired" or fit.halves == "rows":
            continue
        corpora = study.corpora_of(fit)
        if study.spaces()[row.source].corpus != corpora[0]:
            continue  # measured on other texts
        del fits[row.translator]  # one row measures a map
        texts = [getattr(study.corpora[corpus], "path", corpus) for corpus in corpora]
        joint, _, pair = row.translator.partition("/")
        of = f"align_jointly.{joint}.{pair}" if pair else f"align.{joint}"
        for seed in fit.seeds:
            if f"{of}.seed-{seed}.agreement" in numbers:
                said = [numbers[f"{of}.seed-{seed}.{key}"] for key in ("agreement", "dimensions", "share")]
                yield {
                    "study": path.stem,
                    "aligner": fit.aligner,
                    "split": str((*texts, *(fit.splits or [seed]))),
                    "aligned": verdict_of(*said).label == "aligned",
                    "right": numbers[f"evaluate.{name}.seed-{seed}.foscttm"] <= RIGHT,
                }


def report(what: str, x: torch.Tensor, y: torch.Tensor, groups: list[np.ndarray]) -> None:
    """Print how well each group of runs is predicted by constants fitted on all other runs."""
    scores, truth = [], []
    for out in map(torch.from_numpy, groups):
        if len(y[~out].unique()) == 2:
            slope, middle = logistic(x[~out], y[~out])
            scores.append(torch.sigmoid(slope * (x[out] - middle)))
            truth.append(y[out])
    if not scores:  # two encoders: without one there is no pair
        return
    held_out, y = torch.cat(scores), torch.cat(truth)
    print(f"one {what} left out: AUC {roc_auc_score(y, held_out):.4f}")
    calls(held_out, y)


def calls(scores: torch.Tensor, y: torch.Tensor) -> None:
    """Print for each threshold how many runs are labelled, how many of these failed, and how many were
    missed.
    """
    for threshold in (0.5, 0.95):
        called = scores >= threshold
        wrong, missed = (called & (y == 0)).sum(), (~called & (y == 1)).sum()
        labelled = f"{called.sum()} of {len(y)} labelled"
        print(f"  score >= {threshold}: {labelled}, {wrong} of them wrong, {missed} missed")


def logistic(x: torch.Tensor, y: torch.Tensor) -> tuple[float, float]:
    """Return slope and middle of a logistic regression of y (n,) on x (n,).

    A weak ridge penalty keeps the slope finite for separable data.
    """
    fitted = LogisticRegression(C=60**2, tol=1e-10).fit(x[:, None].numpy(), y.numpy())
    slope = float(fitted.coef_[0, 0])
    return slope, -float(fitted.intercept_[0]) / slope


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["collect", "fit", "count"])
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--draws", type=int, default=20)
    arguments = parser.parse_args()
    try:
        if arguments.what == "collect":
            collect(arguments.files[0], arguments.draws)
        elif arguments.what == "fit":
            fit(arguments.files)
        else:
            print(*counted(arguments.files), sep="\n")
    except (BadInput, OSError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
