"""Collect a corpus: read its rows from the source, draw some of them, split them into train and test."""

import math
from importlib import import_module
from typing import Any

import numpy as np
import polars as pl

from pipelines.corpora.core.documents import document_of_each, with_documents
from pipelines.corpora.core.texts import as_text, distinct, name_of, refuse, rows
from pipelines.runtime.errors import BadInput
from pipelines.study import AnyCorpus, LibraryCorpus, SyntheticCorpus

FIRST = ("id", "text", "split", "labels")  # columns that every corpus has
REPEATING = {"pair", "positive", "image", "judgements", "task"}  # with one of these, texts may repeat


def collect(row: AnyCorpus) -> pl.DataFrame:
    """Return the corpus of a row: id str, text str, split str, labels list[str], then its other columns.

    `row.rows` texts are drawn with `row.seed` and keep the order of the source. Columns `document` and
    `same_as` tell which texts belong together. A text without a document gets its id as document, so the
    first message of a thread joins the replies that name it. A source's own split is kept. Train texts whose
    document is also in another split are dropped. Without a split, `row.test` texts are "test", of documents
    that have no text in "train". If chunks overlap (`stride`), those of "test" do not. The same row and
    source give the same frame. Raises BadInput if too few rows are left.
    """
    frame = _read(row)
    if (row.rows or 0) > len(frame):
        print(f"{name_of(row)}: {row.rows} rows were asked for, there are {len(frame)}")
    drawn = np.random.default_rng(row.seed).permutation(len(frame))[: row.rows]
    frame = frame[np.sort(drawn)]
    frame = frame.with_columns(document=document_of_each())
    if row.source not in ("synthetic", "vectors") and not REPEATING & set(frame.columns):
        frame = with_documents(frame, name_of(row))
    frame = _split(frame, row)
    if "labels" not in frame.columns:
        frame = frame.with_columns(labels=pl.lit([], dtype=pl.List(pl.String)))
    return frame.select(*FIRST, *(c for c in frame.columns if c not in FIRST))


def _read(row: AnyCorpus) -> pl.DataFrame:
    source: Any = import_module(f"pipelines.corpora.sources.{row.source}")
    if row.source == "vectors":
        return source.rows(row)
    if isinstance(row, LibraryCorpus | SyntheticCorpus):
        frame = source.rows(row)
    else:
        kind: Any = import_module(f"pipelines.corpora.kinds.{row.kind}")
        frame = kind.rows(row, source) if hasattr(kind, "rows") else rows(row, source.table(row))
    frame = _checked(frame, row)
    repeats = row.source == "path" or REPEATING & set(frame.columns)
    return frame if repeats else distinct(frame, row.source)


def _checked(frame: pl.DataFrame, row: AnyCorpus) -> pl.DataFrame:
    """Return what `rows` of a kind returned, with id, text, split and labels as strings.

    Raises BadInput for what is no frame of texts with ids, and for texts that should be cut and are not.
    """
    where = f"{name_of(row)}: kind {row.kind}: `rows`"
    if not isinstance(frame, pl.DataFrame):
        raise BadInput(f"{where} returns {type(frame).__name__}, not a polars DataFrame")
    if lacking := ", ".join(sorted({"id", "text"} - {*frame.columns})):
        raise BadInput(f"{where} returns no column {lacking}")
    if frame.is_empty():
        raise BadInput(f"{where} returns no rows")
    frame = as_text(frame, where)
    refuse(frame, frame["id"].is_null() | frame["text"].is_null(), where, "rows have no id or no text")
    if getattr(row, "chunk", None) and not frame["id"].str.contains(r"#\d+$").all():
        raise BadInput(f"{where} ignores `chunk`; it must call texts.rows or texts.cleaned(..., p.chunk)")
    return frame


def _split(frame: pl.DataFrame, row: AnyCorpus) -> pl.DataFrame:
    """Hold out `row.test` texts that do not overlap. The rest of a test document is dropped."""
    chunk = getattr(row, "chunk", None)
    apart = np.ones(len(frame), bool)  # rows that may be held out together
    if chunk and chunk.step < chunk.size:  # chunks of one text have words in common
        every = math.ceil(chunk.size / chunk.step)
        apart = (frame["id"].str.extract(r"#(\d+)$").cast(pl.Int64) % every == 0).to_numpy()
    if "split" in frame.columns:
        frame = frame.filter((pl.col("split") == "train") | apart)
        return _without_held_documents(frame, name_of(row))
    if row.test >= apart.sum():
        raise BadInput(f"{name_of(row)}: test: {row.test} leaves no row of {apart.sum()} to train on")
    names, document = np.unique(frame["document"], return_inverse=True)
    sizes = np.bincount(document[apart], minlength=len(names))
    held = _held_out(sizes, row.test, row.seed)[document]  # rows of test documents
    if held.all():
        raise BadInput(f"{name_of(row)}: test: {row.test} leaves no document to train on")
    kept = ~held
    kept[np.flatnonzero(apart & held)[: row.test]] = True
    split = pl.Series(np.where(held, "test", "train"), dtype=pl.String)
    return frame.with_columns(split=split).filter(kept)


def _without_held_documents(frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Leave out the train texts of documents that have texts in another split of the source."""
    train = frame["split"].eq_missing("train")  # a text without a split is refused later, not dropped
    shared = train & frame["document"].is_in(frame["document"].filter(~train).unique().implode())
    if shared.any():
        print(f"{where}: {shared.sum()} train texts of documents in another split dropped")
    return frame.filter(~shared)


def _held_out(sizes: np.ndarray, test: int, seed: int) -> np.ndarray:
    """Return a mask of documents (n,) that have `test` texts together, or a few more.

    Documents are taken in random order if they still fit. If texts are still missing, the smallest document
    that is left is added.
    """
    mask = np.zeros(len(sizes), bool)
    for document in np.random.default_rng(seed).permutation(len(sizes)):
        if 0 < sizes[document] <= test:
            mask[document], test = True, test - int(sizes[document])
    if test:
        left = np.flatnonzero(~mask & (sizes > 0))
        mask[left[sizes[left].argmin()]] = True
    return mask
