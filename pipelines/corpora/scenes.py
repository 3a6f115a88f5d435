"""scenes: rendered scenes with many captions each, generated here; p(image, caption) is known."""

from __future__ import annotations

import polars as pl

from pipelines.corpora import synthetic
from pipelines.runtime.errors import BadInput
from pipelines.study import AnyCorpus, SyntheticCorpus


def rows(p: AnyCorpus) -> pl.DataFrame:
    """id, text, labels, captions, image, scene: see `synthetic.scenes`. Raises BadInput for any other source than synthetic."""
    if not isinstance(p, SyntheticCorpus):
        raise BadInput(
            f"corpora: scenes has no source {p.source}: use synthetic (your own images are of kind images)"
        )
    return synthetic.scenes(p)
