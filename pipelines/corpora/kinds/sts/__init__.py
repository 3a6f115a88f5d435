"""sts: sentence pairs with a human score of similarity from 0 to 5 (SICK-R: 1 to 5), as in STS12 to STS16,
STS-B and SICK-R.
"""

from typing import Any

import polars as pl

from pipelines.corpora.core import paired, texts
from pipelines.corpora.core.files import quiet
from pipelines.runtime.errors import BadInput
from pipelines.study import TextCorpus

SOURCES = ("synthetic", "hub", "path")
USUAL = {
    "text": ("text", "sentence1"),
    "pair": ("pair", "sentence2"),
    "score": ("score", "relatedness_score"),
}


def rows(p: TextCorpus, source: Any) -> pl.DataFrame:
    """Return id, text, pair, score float, and split if there is one.

    All subsets of a task are one list of pairs ("all"). Repeated pairs stay: published numbers include them.
    """
    frame, where = paired.rows(p, source.table(p), USUAL), texts.name_of(p)
    with quiet(where, "a score is not a number"):
        frame = frame.with_columns(pl.col("score").cast(pl.Float64))
    texts.refuse(frame, ~frame["score"].is_finite(), where, "scores are not finite")
    if not 1 < max(frame["score"], default=5) <= 5:  # at most 1: they go from 0 to 1
        raise BadInput(f"{where}: scores must go from 0 to 5: scale them")
    return frame
