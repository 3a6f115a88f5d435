"""Tables of sentence pairs and triples, where rows are distinct but texts may repeat."""

import polars as pl

from pipelines.corpora.core import texts
from pipelines.study import TextCorpus

SPLITS = {"validation": "dev", "val": "dev"}


def rows(p: TextCorpus, table: pl.DataFrame, usual: dict[str, tuple[str, ...]]) -> pl.DataFrame:
    """Return id, the columns of `usual`, and split if there is one.

    `usual` gives each column of ours the names that it has in tables where `p.columns` does not say. Raises
    BadInput for the first row that lacks one of them.
    """
    where = texts.name_of(p)
    found = texts.chosen(table.columns, p.columns, where, usual, usual)
    frame = texts.mapped(table, found, where)
    for column in usual:
        texts.refuse(frame, texts.empty(frame[column]), where, f"rows have no {column}")
    return with_dev(frame)


def with_dev(frame: pl.DataFrame) -> pl.DataFrame:
    """Name the validation split "dev", if there is a column `split`."""
    return frame.with_columns(pl.col("^split$").replace(SPLITS))
