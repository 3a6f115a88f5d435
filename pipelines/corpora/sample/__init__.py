"""The generator: texts with labels and planted facts, for what real text on every machine cannot have.

Marked as generated wherever a number of it is shown. People, companies, addresses and dates come from Faker; the shape
is that of language: few broad domains with many fields under them, Zipf frequencies, words that belong together.
"""

from __future__ import annotations

from pipelines.corpora.sample.emails import emails
from pipelines.corpora.sample.nli import nli
from pipelines.corpora.sample.notes import notes
from pipelines.corpora.sample.passages import passages
from pipelines.corpora.sample.scenes import scenes
from pipelines.corpora.sample.sts import sts
from pipelines.corpora.sample.tweets import tweets

__all__ = ["emails", "nli", "notes", "passages", "scenes", "sts", "tweets"]
