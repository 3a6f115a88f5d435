"""nli: a sentence, one that it entails, and one that contradicts it, for supervised SimCSE."""

from typing import Any

import polars as pl

from pipelines.corpora.core import paired, texts
from pipelines.study import TextCorpus

SOURCES = ("hub", "path")
USUAL = {
    "text": ("text", "anchor", "sent0"),
    "positive": ("positive", "pos", "sent1"),
    "negative": ("negative", "neg", "hard_neg"),
}


def rows(p: TextCorpus, source: Any) -> pl.DataFrame:
    """Return id, text (the anchor), positive, negative, and split if there is one. No triple occurs twice."""
    return texts.distinct(paired.rows(p, source.table(p), USUAL), texts.name_of(p), USUAL)
