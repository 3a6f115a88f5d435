"""Collect a corpus: read its rows from the source, draw some of them, split them into train and test."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import polars as pl

from pipelines.corpora.core.texts import distinct, name_of
from pipelines.runtime.errors import BadInput
from pipelines.study import AnyCorpus

FIRST = ("id", "text", "split", "labels")  # columns that every corpus has
SECOND = {"pair", "positive", "image"}  # with one of these, rows are distinct but texts may repeat


def collect(row: AnyCorpus) -> pl.DataFrame:
    """Return the corpus of a row: id str, text str, split str, labels list[str], then its other columns.

    `row.rows` texts are drawn with `row.seed` and keep the order of the source. A source's own split is kept.
    Otherwise the last `row.test` of a seeded permutation are "test" and the rest "train". With
    `chunk: {whole: true}` both numbers count texts before chunking. If chunks overlap (`stride`), only chunks
    of "train" texts do: the other texts keep chunks without common words. The same row and source give the
    same frame. Raises BadInput if the kind has no such source, or too few rows are left.
    """
    frame = _split(_read(row), row)
    if "labels" not in frame.columns:
        frame = frame.with_columns(labels=pl.lit([], dtype=pl.List(pl.String)))
    return frame.select(*FIRST, *(c for c in frame.columns if c not in FIRST))


def _read(row: AnyCorpus) -> pl.DataFrame:
    source: Any = import_module(f"pipelines.corpora.sources.{row.source}")
    if row.source == "vectors":
        return source.rows(row)
    kind: Any = import_module(f"pipelines.corpora.kinds.{row.kind}")
    if row.source not in kind.SOURCES:
        raise BadInput(
            f"corpora: {row.kind} has no source {row.source}; its sources are {', '.join(kind.SOURCES)}"
        )
    made_here = row.source in ("library", "synthetic")
    frame = source.rows(row) if made_here else kind.rows(row, source)
    repeats = row.source == "path" or SECOND & set(frame.columns)
    return frame if repeats else distinct(frame, row.source)


def _split(frame: pl.DataFrame, row: AnyCorpus) -> pl.DataFrame:
    """Draw `row.rows` units, then split them. A unit is a row or, with `whole`, the text it was cut from."""
    if len(frame) == 0:
        raise BadInput(f"{name_of(row)}: no rows")
    chunk = getattr(row, "chunk", None)
    unit = np.arange(len(frame))
    if chunk is not None and chunk.whole:
        unit = frame["id"].str.replace(r"#\d+$", "").rle_id().to_numpy()  # chunks of a text are neighbours
    count = int(unit[-1]) + 1
    if row.rows is not None and row.rows > count:
        print(f"{name_of(row)}: {row.rows} rows were asked for, there are {count}")
    drawn = np.random.default_rng(row.seed).permutation(count)[: row.rows]
    if "split" not in frame.columns:
        if row.test >= len(drawn):
            raise BadInput(f"{name_of(row)}: test: {row.test} leaves no row of {len(drawn)} to train on")
        test = np.isin(unit, drawn[len(drawn) - row.test :])
        frame = frame.with_columns(split=pl.Series(np.where(test, "test", "train"), dtype=pl.String))
    frame = frame.filter(np.isin(unit, drawn))
    if chunk is None or not chunk.overlaps:
        return frame
    every = -(-chunk.size // chunk.step)
    number = pl.col("id").str.extract(r"#(\d+)$").cast(pl.Int64)
    return frame.filter((pl.col("split") == "train") | (number % every == 0))
