"""The generator: texts with labels and planted facts, for what real text on every machine cannot have.

Marked as generated wherever a number of it is shown. People, companies, addresses and dates come from Faker; the shape
is that of language: few broad domains with many fields under them, Zipf frequencies, words that belong together.
"""

from __future__ import annotations

from pipelines.corpora.synthetic.emails import emails
from pipelines.corpora.synthetic.nli import nli
from pipelines.corpora.synthetic.notes import notes
from pipelines.corpora.synthetic.passages import passages
from pipelines.corpora.synthetic.scenes import scenes
from pipelines.corpora.synthetic.sts import sts
from pipelines.corpora.synthetic.tweets import tweets

__all__ = ["emails", "nli", "notes", "passages", "scenes", "sts", "tweets"]
