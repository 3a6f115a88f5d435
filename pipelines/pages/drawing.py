"""Every picture of a study, drawn from the tables that its stages left in results/: report/pictures/<verb>.<row>.<picture>.png.

Stages that compute write tables only, so that a change of a legend draws again and trains nothing (docs/decisions/0012).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from pipelines.pages import pictures
from pipelines.runtime import store
from pipelines.study import Geometry, params

FOLDER = store.REPORT / "pictures"
Draw = Callable[[Path, pl.DataFrame, Any], None]  # where to, the table, the row of params.yaml


def draw(study: params.Study) -> list[Path]:
    """Draw what has a table with rows in it. -> the pictures"""
    drawn = []
    for verb, picture, table, function in PICTURES:
        for name, row in getattr(study, verb).items():
            source = store.plots_path(verb, name) / table
            if source.is_file() and len(frame := pl.read_csv(source)):
                drawn.append(picture_path(verb, name, picture))
                function(drawn[-1], frame, row)
    return drawn


def picture_path(verb: str, name: str, picture: str) -> Path:
    """Where a row's picture is drawn. No row name has a dot in it."""
    return FOLDER / f"{verb}.{name}.{picture}.png"


def _spectra(path: Path, frame: pl.DataFrame, row: Any) -> None:
    """Columns: rank, and one of singular values for each line."""
    lines = {column: frame[column].to_numpy() for column in frame.columns if column != "rank"}
    pictures.spectra(path, {row.encoder if line == "value" else line: values for line, values in lines.items()})


def _matrix(frame: pl.DataFrame, column: str) -> tuple[list[str], np.ndarray]:
    """Pairs of encoders -> their names, and the symmetric matrix of one measure with 1 on its diagonal. (k, k)"""
    names = list(dict.fromkeys([*frame["first"], *frame["second"]]))
    values = np.eye(len(names))
    for first, second, value in frame.select("first", "second", column).iter_rows():
        i, j = names.index(first), names.index(second)
        values[i, j] = values[j, i] = value
    return names, values


def _cka(path: Path, frame: pl.DataFrame, row: Geometry) -> None:
    pictures.similarity_map(path, *_matrix(frame, "cka"), f"linear CKA on {row.corpus}")


def _neighbours(path: Path, frame: pl.DataFrame, row: Geometry) -> None:
    title = f"shared among {row.neighbours} nearest, on {row.corpus}"
    pictures.similarity_map(path, *_matrix(frame, "overlap"), title)


PICTURES: tuple[tuple[str, str, str, Draw], ...] = (  # verb, picture, table, how it is drawn
    ("finetune", "curve", "curve.csv", lambda path, frame, row: pictures.curves(path, frame.to_dicts())),
    ("finetune", "spectrum", "spectrum.csv", _spectra),
    ("similarity", "spectrum", "spectrum.csv", _spectra),
    ("similarity", "layers", "layers.csv", lambda path, frame, row: pictures.layer_cosines(path, frame)),
    ("evaluate", "heatmap", "heatmap.csv", lambda path, frame, row: pictures.heatmap(path, frame)),
    ("evaluate", "spaces", "spaces.csv", lambda path, frame, row: pictures.spaces(path, frame)),
    ("geometry", "cka", "pairs.csv", _cka),
    ("geometry", "neighbours", "pairs.csv", _neighbours),
    ("train_image_text", "curve", "curve.csv", lambda path, frame, row: pictures.contrast_curves(path, frame)),
    ("evaluate_image_text", "pmi", "pmi.csv", lambda path, frame, row: pictures.similarity_against_pmi(path, frame)),
)
