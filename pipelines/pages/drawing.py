"""Every picture of a study, drawn from the tables and the metrics that its stages left in results/:
report/pictures/<verb>.<row>.<picture>.png, and of all rows of a kind together report/pictures/across.<picture>.png.

Stages that compute write tables only, so that a change of a legend draws again and trains nothing (docs/decisions/0012).
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
from pipelines.study import Attributes, EvaluateImageText, Geometry, Invert, params

FOLDER = store.REPORT / "pictures"
Draw = Callable[
    [Path, pl.DataFrame, Any, params.Study], None
]  # where to, the table, the row of params.yaml, the study
Show = Callable[[Path, dict[str, Any], Any, params.Study], None]  # the row's metrics in the table's place


def draw(study: params.Study) -> list[Path]:
    """Draw what has a table with rows in it. -> the pictures"""
    drawn = []
    for verb, picture, table, function in PICTURES:
        for name, row in getattr(study, verb).items():
            source = store.plots_path(verb, name) / table
            if source.is_file() and len(frame := store.read_csv(source)):
                drawn.append(picture_path(verb, name, picture))
                function(drawn[-1], frame, row, study)
    for verb, picture, show in MEASURED:
        measured = store.read_metrics(verb)
        for name, row in getattr(study, verb).items():
            if name in measured:
                drawn.append(picture_path(verb, name, picture))
                show(drawn[-1], measured[name], row, study)
    drawn += [_aligners(FOLDER / "across.top1.png", study), _trainings(FOLDER / "across.training.png", study)]
    return [path for path in drawn if path.is_file()]


def picture_path(verb: str, name: str, picture: str) -> Path:
    """Where a row's picture is drawn. No row name has a dot in it."""
    return FOLDER / f"{verb}.{name}.{picture}.png"


def _spectra(path: Path, frame: pl.DataFrame, row: Any, study: params.Study) -> None:
    """Columns: rank, and one of singular values for each line."""
    lines = {column: frame[column].to_numpy() for column in frame.columns if column != "rank"}
    pictures.spectra(
        path, {row.encoder if line == "value" else line: values for line, values in lines.items()}
    )


def encoders(study: params.Study, row: Any) -> tuple[str, str]:
    """The encoders of a row's source and target."""
    spaces = study.spaces()
    return spaces[row.source].encoder, spaces[row.target].encoder


def _matrix(frame: pl.DataFrame, column: str) -> tuple[list[str], np.ndarray]:
    """Pairs of encoders -> their names, and the symmetric matrix of one measure with 1 on its diagonal. (k, k)"""
    names = list(dict.fromkeys([*frame["first"], *frame["second"]]))
    values = np.eye(len(names))
    for first, second, value in frame.select("first", "second", column).iter_rows():
        i, j = names.index(first), names.index(second)
        values[i, j] = values[j, i] = value
    return names, values


def _cka(path: Path, frame: pl.DataFrame, row: Geometry, study: params.Study) -> None:
    pictures.similarity_map(path, *_matrix(frame, "cka"), f"linear CKA on {row.corpus}")


def _neighbours(path: Path, frame: pl.DataFrame, row: Geometry, study: params.Study) -> None:
    title = f"shared among {NEIGHBOURS} nearest, on {row.corpus}"
    pictures.similarity_map(path, *_matrix(frame, "overlap"), title)


PICTURES: tuple[tuple[str, str, str, Draw], ...] = (  # verb, picture, table, how it is drawn
    (
        "finetune",
        "curve",
        "curve.csv",
        lambda path, frame, row, study: pictures.curves(path, frame.to_dicts()),
    ),
    ("finetune", "spectrum", "spectrum.csv", _spectra),
    ("similarity", "spectrum", "spectrum.csv", _spectra),
    (
        "similarity",
        "layers",
        "layers.csv",
        lambda path, frame, row, study: pictures.layer_cosines(path, frame),
    ),
    (
        "evaluate",
        "heatmap",
        "heatmap.csv",
        lambda path, frame, row, study: pictures.heatmap(path, frame, *encoders(study, row)),
    ),
    (
        "evaluate",
        "spaces",
        "spaces.csv",
        lambda path, frame, row, study: pictures.spaces(path, frame, *encoders(study, row)),
    ),
    ("geometry", "cka", "pairs.csv", _cka),
    ("geometry", "neighbours", "pairs.csv", _neighbours),
    (
        "train_image_text",
        "curve",
        "curve.csv",
        lambda path, frame, row, study: pictures.contrast_curves(path, frame),
    ),
    (
        "evaluate_image_text",
        "pmi",
        "pmi.csv",
        lambda path, frame, row, study: pictures.similarity_against_pmi(path, frame),
    ),
)


def _labels(path: Path, metrics: dict[str, Any], row: Attributes, study: params.Study) -> None:
    """Top-k of the row's first k and first wording: the attack between its floor and its ceiling."""
    source, target = encoders(study, row)
    names = {
        "majority": "floor: the commonest labels",
        "naive": f"{source}, untranslated",
        "translated": f"{source}, translated to {target}",
        "ideal target": f"true {target} (ORACLE)",
    }
    scores, measure, n = metrics[row.wordings[0]], f"top{row.k[0]}", metrics["examples"]
    shares = {method: share(scores[method][measure] * n, n) for method in names}
    first = "first" if row.k[0] == 1 else f"among the first {row.k[0]}"
    _attack(path, names, shares, f"texts of {row.corpus} with a right label {first}")


def _facts(path: Path, metrics: dict[str, Any], row: Invert, study: params.Study) -> None:
    """Private facts that correction brings back: the attack between its floor and its ceiling."""
    source, target = encoders(study, row)
    names = {
        "mismatched": "floor: vectors of other texts",
        "translated": f"{source}, translated to {target}",
        "ceiling": f"true {target} (ORACLE)",
    }
    counts = {
        attack: metrics.get(attack, {}).get("corrected", {}).get("facts", {}).get("all") for attack in names
    }
    known = {attack: count for attack, count in counts.items() if count and count["recoverable"]}
    shares = {attack: share(count["recovered"], count["recoverable"]) for attack, count in known.items()}
    if shares:
        _attack(path, names, shares, f"private facts of {row.corpus} that come back")


def _attack(path: Path, names: dict[str, str], shares: dict[str, Interval], title: str) -> None:
    """What is read from translated vectors, among what it is to be compared with, which is grey."""
    plain = tuple(name for attack, name in names.items() if attack != "translated")
    pictures.bars(path, {names[attack]: value for attack, value in shares.items()}, title, plain)


def _shared(path: Path, metrics: dict[str, Any], row: Geometry, study: params.Study) -> None:
    """The pairs of encoders that share most of a text's nearest texts, at most ten, and chance."""
    pairs = {pair.replace(":", " and "): m["overlap"] for pair, m in metrics.items() if isinstance(m, dict)}
    best = dict(sorted(pairs.items(), key=lambda pair: -pair[1])[:10]) | {"chance": metrics["chance"]}
    shares = {name: Interval(value, value, value) for name, value in best.items()}
    pictures.bars(path, shares, f"shared among the {NEIGHBOURS} nearest texts of {row.corpus}", ("chance",))


def _zero_shot(path: Path, metrics: dict[str, Any], row: EvaluateImageText, study: params.Study) -> None:
    """Every pair of encoders measured on the corpus, in one picture: that of its first row."""
    measured = store.read_metrics("evaluate_image_text")
    rows = {
        n: r
        for n, r in study.evaluate_image_text.items()
        if r.corpus == row.corpus and "zero_shot" in measured.get(n, {})
    }
    if not rows or path != picture_path("evaluate_image_text", next(iter(rows)), "zero-shot"):
        return
    shares = {n: Interval.normal(measured[n]["zero_shot"], measured[n]["zero_shot_error"]) for n in rows}
    plain = tuple(n for n, r in rows.items() if study.train_image_text[r.encoders].head.kind == "vector")
    pictures.bars(path, shares, f"{row.corpus}, zero-shot right (grey: one vector, as CLIP)", plain)


MEASURED: tuple[tuple[str, str, Show], ...] = (
    ("attributes", "floor", _labels),
    ("invert", "floor", _facts),
    ("geometry", "shared", _shared),
    ("evaluate_image_text", "zero-shot", _zero_shot),
)


def _aligners(path: Path, study: params.Study) -> Path:
    """Top-1 of every row of `evaluate`, with Wilson's interval over texts."""
    measured, fits = store.read_metrics("evaluate"), study.translators()
    rows = {n: row for n, row in study.evaluate.items() if n in measured}
    shares = {n: share(measured[n]["top1"] * measured[n]["pairs"], measured[n]["pairs"]) for n in rows}
    plain = tuple(n for n, row in rows.items() if fits[row.translator].supervision in ("naive", "oracle"))
    if shares:
        pictures.bars(path, shares, "held-out texts found again at rank 1\n(grey: naive, oracles)", plain)
    return path


CURVES = (  # verb, column of its curve.csv, what it is
    ("finetune", "spearman", "SimCSE: STS dev, Spearman x 100"),
    ("train_image_text", "loss", "image and text: symmetric InfoNCE (nats)"),
)


def _trainings(path: Path, study: params.Study) -> Path:
    """The curves of all that was trained here, over one another; mean over seeds."""
    panels = {}
    for verb, measure, label in CURVES:
        tables = {name: store.plots_path(verb, name) / "curve.csv" for name in getattr(study, verb)}
        frames = {name: store.read_csv(table) for name, table in tables.items() if table.is_file()}
        if frames:
            panels[label] = {
                n: frame.group_by("step").agg(pl.col(measure).mean()).sort("step")
                for n, frame in frames.items()
            }
    if panels:
        pictures.overlaid(path, panels)
    return path
