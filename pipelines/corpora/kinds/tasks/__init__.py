"""tasks: sentences with one label each, of several classification tasks: SentEval's MR, SST2, TREC."""

from typing import Any

import polars as pl

from pipelines.corpora.core import texts
from pipelines.corpora.core.paired import with_dev
from pipelines.study import TextCorpus

SOURCES = ("hub", "path")


def rows(p: TextCorpus, source: Any) -> pl.DataFrame:
    """Return id, text, labels, task, and split if there is one.

    A task with a split "test" is trained on its "train", and "dev" selects. Any other has ten folds. Texts
    may repeat, as they do in published tasks; empty ones are dropped. Raises BadInput for any other number of
    labels than one, for a row without a task, and for a task with the name of the mean over tasks.
    """
    where = texts.name_of(p)
    frame = texts.mapped(source.table(p), {"labels": "labels", "task": "task"} | p.columns, where)
    texts.refuse(frame, frame["labels"].list.len() != 1, where, "rows do not have exactly one label")
    texts.refuse(frame, texts.empty(frame["task"]), where, "rows have no task")
    mean = frame["task"].cast(pl.String) == "average"
    texts.refuse(frame, mean, where, "rows have the task 'average', as the mean over tasks is called")
    empty = texts.empty(frame["text"])  # seven of CR's
    if empty.any():
        print(f"{where}: {empty.sum()} empty texts of {len(frame)} dropped")
    return with_dev(frame.filter(~empty).with_columns(pl.col("task").cast(pl.String)))
