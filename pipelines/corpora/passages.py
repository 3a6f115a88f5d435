"""passages: encyclopedic prose, what translators are trained on. The paper's is Natural Questions' Wikipedia passages."""

from __future__ import annotations

import polars as pl

from pipelines.corpora import hub, library, path, synthetic
from pipelines.study import AnyCorpus, HubCorpus, LibraryCorpus, PathCorpus, SyntheticCorpus


def rows(p: AnyCorpus) -> pl.DataFrame:
    """library: docstrings; synthetic: generated passages; hub: any, e.g. jxm/nq_corpus_dpr; path: the user's own."""
    match p:
        case LibraryCorpus():
            return library.rows(p)
        case SyntheticCorpus():
            return synthetic.passages(p)
        case HubCorpus():
            return hub.rows(p)
        case PathCorpus():
            return path.rows(p)
    raise AssertionError(p)
