"""What passages and pairs are about: domain -> kinds and fields -> subjects, parts, acts, settings."""

from pipelines.corpora.sources.synthetic.engine import lexicon

WORLD = lexicon(__file__)
