"""Draw every picture of a study from the tables and metrics that its stages left in results/.

A row's picture is report/pictures/<verb>.<row>.<picture>.png.
Stages write tables only, so a changed legend redraws pictures and reruns no training (docs/decisions/0012).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.measures.geometry import NEIGHBOURS
from pipelines.measures.intervals import Interval, share
from pipelines.pages import pictures
from pipelines.runtime import store
from pipelines.study import Attributes, Evaluate, EvaluateImageText, Geometry, Invert, Similarity
from pipelines.study.params import Study

FOLDER = store.REPORT / "pictures"
Draw = Callable[[Path, pl.DataFrame, Any, Study], None]  # path, the stage's table, its row, the study
Show = Callable[[Path, dict[str, Any], Any, Study], None]  # path, the stage's metrics, its row, the study


def draw(study: Study) -> list[Path]:
    """Draw all that has a table with rows in it, or metrics. Returns the pictures."""
    drawn = []
    for verb, picture, table, function in FROM_TABLES:
        for name, row in getattr(study, verb).items():
            source = store.plots_path(verb, name) / table
            if source.is_file() and len(frame := store.read_csv(source)):
                drawn.append(picture_path(verb, name, picture))
                function(drawn[-1], frame, row, study)
    for verb, picture, show in FROM_METRICS:
        metrics = store.read_metrics(verb)
        for name, row in getattr(study, verb).items():
            if name in metrics:
                drawn.append(picture_path(verb, name, picture))
                show(drawn[-1], metrics[name], row, study)
    return [path for path in drawn if path.is_file()]


def picture_path(verb: str, name: str, picture: str) -> Path:
    """Return where a row's picture is drawn. Row names have no dot."""
    return FOLDER / f"{verb}.{name}.{picture}.png"


def encoders(study: Study, row: Any) -> tuple[str, str]:
    """Return the encoders of a row's source and target."""
    spaces = study.spaces()
    return spaces[row.source].encoder, spaces[row.target].encoder


# ---------------------------------------------------------------- from tables


def plain(function: Callable[[Path, pl.DataFrame], None]) -> Draw:
    """Adapt a picture that needs the table alone."""
    return lambda path, frame, row, study: function(path, frame)


def spaces(path: Path, frame: pl.DataFrame, row: Evaluate, study: Study) -> None:
    pictures.spaces(path, frame, *encoders(study, row))


def neighbours(path: Path, frame: pl.DataFrame, row: Geometry, study: Study) -> None:
    """Draw the symmetric matrix of shared neighbours, whose diagonal is 1."""
    names = list(dict.fromkeys([*frame["first"], *frame["second"]]))
    values = np.eye(len(names))
    for first, second, value in frame.select("first", "second", "overlap").iter_rows():
        i, j = names.index(first), names.index(second)
        values[i, j] = values[j, i] = value
    title = f"shared among {NEIGHBOURS} nearest, on {row.corpus}"
    pictures.similarity_map(path, names, values, title)


def layers(path: Path, frame: pl.DataFrame, row: Similarity, study: Study) -> None:
    """Draw how similar a token's vectors are in every two layers (SBERT-WK, section III)."""
    title = f"cosine of a token's vectors in two layers of {row.encoder}"
    pictures.similarity_map(path, frame.columns, frame.to_numpy(), title)


def pmi(path: Path, frame: pl.DataFrame, row: EvaluateImageText, study: Study) -> None:
    pictures.similarity_against_pmi(path, frame, f"{row.encoders} on {row.corpus}")


FROM_TABLES: tuple[tuple[str, str, str, Draw], ...] = (  # verb, picture, table, function
    ("finetune", "curve", "curve.csv", plain(pictures.curves)),
    ("finetune", "steps", "curve.csv", plain(pictures.steps)),
    ("similarity", "layers", "layers.csv", layers),
    ("evaluate", "spaces", "spaces.csv", spaces),
    ("geometry", "neighbours", "pairs.csv", neighbours),
    ("evaluate_image_text", "pmi", "pmi.csv", pmi),
)

# ---------------------------------------------------------------- from metrics


def labels(path: Path, metrics: dict[str, Any], row: Attributes, study: Study) -> None:
    """Top-k for the first k and wording: the attack between its floor and its ceiling."""
    source, target = encoders(study, row)
    names = {
        "majority": "floor: the commonest labels",
        "naive": f"{source}, untranslated",
        "translated": f"{source}, translated to {target}",
        "ideal target": f"true {target} (ORACLE)",
    }
    scores, k, n = metrics[row.wordings[0]], row.k[0], metrics["examples"]
    shares = {method: share(scores[method][f"top{k}"] * n, n) for method in names}
    first = "first" if k == 1 else f"among the first {k}"
    attack(path, names, shares, f"texts of {row.corpus} with a right label {first}")


def facts(path: Path, metrics: dict[str, Any], row: Invert, study: Study) -> None:
    """Private facts that correction recovers: the attack between its floor and its ceiling."""
    source, target = encoders(study, row)
    names = {
        "mismatched": "floor: vectors of other texts",
        "translated": f"{source}, translated to {target}",
        "ceiling": f"true {target} (ORACLE)",
    }
    shares = {}
    for method in names:
        count = metrics.get(method, {}).get("corrected", {}).get("facts", {}).get("all")
        if count and count["recoverable"]:
            shares[method] = share(count["recovered"], count["recoverable"])
    if shares:
        attack(path, names, shares, f"private facts of {row.corpus} that are recovered")


def attack(path: Path, names: dict[str, str], shares: dict[str, Interval], title: str) -> None:
    """Draw translated vectors in colour, and floors and ceilings in grey."""
    grey = tuple(name for method, name in names.items() if method != "translated")
    pictures.bars(path, {names[method]: value for method, value in shares.items()}, title, grey)


def plane(path: Path, metrics: dict[str, Any], row: Similarity, study: Study) -> None:
    """Draw all encoders that were measured on the row's pairs, once: for the first of their rows."""
    results, pairs = store.read_metrics("similarity"), (row.corpus, row.split)
    points = {
        name: tuple(results[name][measure] for measure in ("uniformity", "alignment", "spearman"))
        for name, other in study.similarity.items()
        if (other.corpus, other.split) == pairs and "alignment" in results.get(name, {})
    }
    if points and path == picture_path("similarity", next(iter(points)), "plane"):
        pictures.plane(path, points)


def zero_shot(path: Path, metrics: dict[str, Any], row: EvaluateImageText, study: Study) -> None:
    """All encoders that were measured on the corpus, drawn once: for the corpus's first row."""
    results = store.read_metrics("evaluate_image_text")
    rows = {
        name: other
        for name, other in study.evaluate_image_text.items()
        if other.corpus == row.corpus and "zero_shot" in results.get(name, {})
    }
    if not rows or path != picture_path("evaluate_image_text", next(iter(rows)), "zero-shot"):
        return
    shares = {n: Interval.normal(results[n]["zero_shot"], results[n]["zero_shot_error"]) for n in rows}
    grey = tuple(n for n, r in rows.items() if study.train_image_text[r.encoders].head.kind == "vector")
    pictures.bars(path, shares, f"{row.corpus}, zero-shot accuracy (grey: one vector, as CLIP)", grey)


FROM_METRICS: tuple[tuple[str, str, Show], ...] = (
    ("similarity", "plane", plane),
    ("attributes", "floor", labels),
    ("invert", "floor", facts),
    ("evaluate_image_text", "zero-shot", zero_shot),
)
