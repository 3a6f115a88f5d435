"""nli: triples of a sentence, one that follows from it, and one that contradicts it: what supervised SimCSE learns from."""

from __future__ import annotations

import polars as pl

from pipelines.corpora import paired, synthetic
from pipelines.runtime.errors import BadInput
from pipelines.study import AnyCorpus, HubCorpus, PathCorpus, SyntheticCorpus

USUAL = {
    "text": ("text", "anchor", "sent0"),
    "positive": ("positive", "pos", "sent1"),
    "negative": ("negative", "neg", "hard_neg"),
}


def rows(p: AnyCorpus) -> pl.DataFrame:
    """id, text (the anchor), positive, negative, split where there is one."""
    match p:
        case SyntheticCorpus():
            return synthetic.nli(p)
        case HubCorpus() | PathCorpus():
            return paired.rows(p, USUAL, repeats=False)
    raise BadInput(f"corpora: nli has no source {p.source}: use synthetic, hub or path")
