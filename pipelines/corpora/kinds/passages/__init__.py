"""passages: prose to train translators on. The vec2vec paper uses Natural Questions' Wikipedia passages."""

from typing import Any

import polars as pl

from pipelines.corpora.core import texts
from pipelines.study import HubCorpus, PathCorpus

SOURCES = ("library", "synthetic", "hub", "path")


def rows(p: HubCorpus | PathCorpus, source: Any) -> pl.DataFrame:
    """Return id, text, and what else the row maps. Of the hub: jxm/nq_corpus_dpr, or any set of texts."""
    return texts.rows(p, source.table(p))
