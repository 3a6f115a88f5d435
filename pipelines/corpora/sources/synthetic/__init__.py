"""Generate texts with labels and planted facts, which freely available real texts lack.

Generated texts are marked wherever a number about them is shown. People, companies, addresses and dates come
from Faker. The texts have the shape of language: few broad domains with many fields, Zipf frequencies, words
that belong together. `kinds/<kind>/synthetic.py` writes the texts of a kind.
"""

from importlib import import_module

import polars as pl

from pipelines.study import SyntheticCorpus


def rows(p: SyntheticCorpus) -> pl.DataFrame:
    """Return `p.rows` generated rows of the kind."""
    return import_module(f"pipelines.corpora.kinds.{p.kind}.synthetic").rows(p)
