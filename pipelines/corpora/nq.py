"""nq: encyclopedic prose, what translators are trained on. The paper's is Natural Questions' Wikipedia passages."""

from __future__ import annotations

import polars as pl

from pipelines.corpora import hub, library, path, sample
from pipelines.rows import AnyCorpus, HubCorpus, LibraryCorpus, PathCorpus, SampleCorpus


def rows(p: AnyCorpus) -> pl.DataFrame:
    """library: docstrings; sample: generated passages; hub: any, e.g. jxm/nq_corpus_dpr; path: the user's own."""
    match p:
        case LibraryCorpus():
            return library.rows(p)
        case SampleCorpus():
            return sample.passages(p)
        case HubCorpus():
            return hub.rows(p)
        case PathCorpus():
            return path.rows(p)
    raise AssertionError(p)
