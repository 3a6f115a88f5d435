"""scenes: rendered scenes with many captions each, generated here; p(image, caption) is known."""

from __future__ import annotations

import polars as pl

from pipelines.corpora import sample
from pipelines.errors import BadInput
from pipelines.rows import AnyCorpus, SampleCorpus


def rows(p: AnyCorpus) -> pl.DataFrame:
    """id, text, labels, captions, image, scene: see `sample.scenes`. Raises BadInput for any other source than sample."""
    if not isinstance(p, SampleCorpus):
        raise BadInput(f"corpora: scenes has no source {p.source}: use sample (your own images are of kind images)")
    return sample.scenes(p)
