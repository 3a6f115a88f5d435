"""Corpora: texts (or bare vectors) from the library, the generator, the hub or the user's own files, in one schema.

One file per corpus (`nq.py`, `tweets.py`, `mimic.py`, `enron.py`), each with `rows(p)`; one file per source
(`library.py`, `sample/`, `hub.py`, `path.py`, `vectors.py`). What all corpora share is here: distinct texts, the draw,
the split, the columns.
"""

from __future__ import annotations

import importlib

import numpy as np
import polars as pl

from pipelines.runtime.errors import BadInput
from pipelines.study import AnyCorpus, VectorsCorpus

ROWS_DISTINCT = ("sts", "nli", "scenes", "images")  # kinds in which rows are distinct, not texts


def collect(row: AnyCorpus) -> pl.DataFrame:
    """The corpus that a row of `corpora` describes: id str, text str, split str, labels list[str], then what else it
    has.

    `row.rows` texts are drawn with `row.seed` and keep the order of the source. A source's own split is kept;
    otherwise the last `row.test` of a seeded permutation are "test" and the rest "train". With `chunk: {whole: true}` both
    count the texts that were cut. Same row and source: same frame. Raises BadInput if there are no rows, or no more than `test`.
    """
    if isinstance(row, VectorsCorpus):
        from pipelines.corpora import vectors

        frame = vectors.rows(row)
    else:
        frame = importlib.import_module(f"pipelines.corpora.{row.kind}").rows(row)
        if row.source in ("library", "synthetic", "hub") and row.kind not in ROWS_DISTINCT:
            frame = distinct(frame, row.source)
    return _ordered(_split(frame, row))


def distinct(frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Without empty texts, and with the first of each set of equal texts; prints one line if that drops any."""
    kept = frame.filter(pl.col("text").fill_null("").str.strip_chars() != "").unique("text", keep="first", maintain_order=True)
    if dropped := len(frame) - len(kept):
        print(f"{where}: {dropped} empty or repeated texts of {len(frame)} dropped")
    return kept


def _split(frame: pl.DataFrame, row: AnyCorpus) -> pl.DataFrame:
    """Draw `row.rows`, then split."""
    if len(frame) == 0:
        raise BadInput(f"{_name(row)}: no rows")
    chunk = getattr(row, "chunk", None)
    unit = np.arange(len(frame))  # what is drawn, and split: the rows themselves, or the texts that they were cut from
    if chunk is not None and chunk.whole:
        unit = frame["id"].str.replace(r"#\d+$", "").rle_id().to_numpy()  # pieces of a text are neighbours
    n = int(unit[-1]) + 1
    if row.rows is not None and row.rows > n:
        print(f"{_name(row)}: {row.rows} rows were asked for, there are {n}")
    drawn = np.random.default_rng(row.seed).permutation(n)[: row.rows]
    if "split" not in frame.columns:
        if row.test >= len(drawn):
            raise BadInput(f"{_name(row)}: test: {row.test} leaves no row of {len(drawn)} to train on")
        test = np.isin(unit, drawn[len(drawn) - row.test :])
        frame = frame.with_columns(split=pl.Series(np.where(test, "test", "train"), dtype=pl.String))
    return frame.filter(np.isin(unit, drawn))


def _ordered(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns of the contract first; labels, if there are none, are empty lists."""
    if "labels" not in frame.columns:
        frame = frame.with_columns(labels=pl.lit([], dtype=pl.List(pl.String)))
    first = ["id", "text", "split", "labels"]
    return frame.select(*first, *(c for c in frame.columns if c not in first))


def _name(row: AnyCorpus) -> str:
    return row.id if row.source == "hub" else row.path
