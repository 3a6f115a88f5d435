"""sts: pairs of sentences with a human score of similarity, 0 to 5: STS12 to STS16, STS-B, SICK-R (there 1 to 5)."""

from __future__ import annotations

import polars as pl

from pipelines.corpora import paired, synthetic
from pipelines.runtime.errors import BadInput
from pipelines.study import AnyCorpus, HubCorpus, PathCorpus, SyntheticCorpus

USUAL = {
    "text": ("text", "sentence1"),
    "pair": ("pair", "sentence2"),
    "score": ("score", "relatedness_score"),
}


def rows(p: AnyCorpus) -> pl.DataFrame:
    """id, text, pair, score float, split where there is one. Several subsets of a task are one list of pairs ("all")."""
    match p:
        case SyntheticCorpus():
            return synthetic.sts(p)
        case HubCorpus() | PathCorpus():
            frame = paired.rows(p, USUAL, repeats=True)  # published numbers are over all of them
            try:
                return frame.with_columns(pl.col("score").cast(pl.Float64))
            except pl.exceptions.InvalidOperationError as error:
                raise BadInput(f"{p.path}: a score is not a number: {str(error).splitlines()[0]}") from None
    raise BadInput(f"corpora: sts has no source {p.source}: use synthetic, hub or path")
