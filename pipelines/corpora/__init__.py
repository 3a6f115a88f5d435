"""Corpora: texts (or bare vectors) from the library, the generator, the hub or the user's own files, in one schema.

One file per kind (`passages.py`, `tweets.py`, `notes.py`, `emails.py`, `sts.py`, `nli.py`, `scenes.py`, `images.py`), each with
`rows(p)`, and one line in `KINDS`; one module per source (`library.py`, `synthetic/`, `hub.py`, `path.py` with `mail.py` for
mailboxes, `vectors.py`). `chunk.py` cuts long texts, `paired.py` reads pairs and triples, `dumps.py` reads dumps of vectors for
the audit. This module has what all corpora share: distinct texts, the draw, the split, the columns.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from pipelines.corpora import emails, images, nli, notes, passages, scenes, sts, tweets, vectors
from pipelines.corpora.path import distinct
from pipelines.runtime.errors import BadInput
from pipelines.study import AnyCorpus, VectorsCorpus

KINDS = {
    "passages": passages.rows,
    "tweets": tweets.rows,
    "notes": notes.rows,
    "emails": emails.rows,
    "sts": sts.rows,
    "nli": nli.rows,
    "scenes": scenes.rows,
    "images": images.rows,
}
SECOND = {"pair", "positive", "image"}  # with one of these columns rows are distinct, and texts may repeat


def collect(row: AnyCorpus) -> pl.DataFrame:
    """The corpus that a row of `corpora` describes: id str, text str, split str, labels list[str], then its other columns.

    `row.rows` texts are drawn with `row.seed` and keep the order of the source. A source's own split is kept;
    otherwise the last `row.test` of a seeded permutation are "test" and the rest "train". With `chunk: {whole: true}` both
    count the texts that were cut. Where pieces overlap (`stride`), those of texts that are not "train" are thinned until none do,
    so that nothing is measured twice. Same row and source: same frame. Raises BadInput if there are no rows, or no more than
    `test`.
    """
    if isinstance(row, VectorsCorpus):
        frame = vectors.rows(row)
    else:
        frame = KINDS[row.kind](row)
        if row.source in ("library", "synthetic", "hub") and not SECOND & set(frame.columns):
            frame = distinct(frame, row.source)
    return _ordered(_split(frame, row))


def _split(frame: pl.DataFrame, row: AnyCorpus) -> pl.DataFrame:
    """Draw `row.rows`, then split."""
    if len(frame) == 0:
        raise BadInput(f"{_name(row)}: no rows")
    chunk = getattr(row, "chunk", None)
    unit = np.arange(
        len(frame)
    )  # what is drawn, and split: the rows themselves, or the texts that they were cut from
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
    frame = frame.filter(np.isin(unit, drawn))
    return _thinned(frame, -(-chunk.size // chunk.step)) if chunk is not None and chunk.overlaps else frame


def _thinned(frame: pl.DataFrame, every: int) -> pl.DataFrame:
    """All pieces of the train texts, and of each other text pieces 0, `every`, 2 `every`, ..."""
    piece = pl.col("id").str.extract(r"#(\d+)$").cast(pl.Int64)
    return frame.filter((pl.col("split") == "train") | (piece % every == 0))


def _ordered(frame: pl.DataFrame) -> pl.DataFrame:
    """The columns of the contract first; labels, if there are none, are empty lists."""
    if "labels" not in frame.columns:
        frame = frame.with_columns(labels=pl.lit([], dtype=pl.List(pl.String)))
    first = ["id", "text", "split", "labels"]
    return frame.select(*first, *(c for c in frame.columns if c not in first))


def _name(row: AnyCorpus) -> str:
    return row.id if row.source == "hub" else row.path
