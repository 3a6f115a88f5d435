"""What corpora of sentence pairs and triples share: several text columns, whose rows, not texts, are distinct."""

from __future__ import annotations

import polars as pl

from pipelines.corpora import hub, path
from pipelines.runtime.errors import BadInput
from pipelines.study import HubCorpus, PathCorpus

SPLITS = {"validation": "dev", "val": "dev"}


def rows(p: HubCorpus | PathCorpus, usual: dict[str, tuple[str, ...]], repeats: bool) -> pl.DataFrame:
    """id, the columns of `usual` (ours -> what they are called where `p.columns` does not say), and split.

    Rows without one of them raise BadInput, naming the first. Unless `repeats`, rows that repeat all of them are dropped.
    """
    where = f"hub {p.id}" if isinstance(p, HubCorpus) else p.path
    table = hub.raw(p) if isinstance(p, HubCorpus) else path.read(path.located(p.path))
    columns = {
        ours: next((t for t in theirs if t in table.columns), theirs[0]) for ours, theirs in usual.items()
    } | p.columns
    frame = path.mapped(table, columns, where)
    for column in usual:
        empty = frame[column].cast(pl.String).fill_null("").str.strip_chars() == ""
        if empty.any():
            row = int(empty.arg_max() or 0)
            raise BadInput(
                f"{where}: {empty.sum()} rows have no {column}, the first is row {row + 1} (id {frame['id'][row]!r})"
            )
    kept = frame if repeats else frame.unique(list(usual), keep="first", maintain_order=True)
    if len(kept) < len(frame):
        print(f"{where}: {len(frame) - len(kept)} repeated rows of {len(frame)} dropped")
    if "split" in kept.columns:
        kept = kept.with_columns(pl.col("split").replace(SPLITS))
    return kept
