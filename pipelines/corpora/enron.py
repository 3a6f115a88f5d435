"""enron: business e-mails, whose people, companies, dates and amounts an inversion may leak."""

from __future__ import annotations

import polars as pl

from pipelines.corpora import hub, path, sample
from pipelines.errors import BadInput
from pipelines.rows import AnyCorpus, HubCorpus, PathCorpus, SampleCorpus


def rows(p: AnyCorpus) -> pl.DataFrame:
    """sample: generated; hub: snoop2head/enron_aeslc_emails or any with a mapping; path: table, mbox or mail tree.

    The text is the column `text`, or the body where there is one; `columns: {text: "subject + body", labels: owner}`
    says otherwise.
    """
    match p:
        case SampleCorpus():
            return sample.emails(p)
        case HubCorpus():
            return hub.rows(p)
        case PathCorpus():
            return path.rows(p, text=("text", "body"))
    raise BadInput(f"corpora: enron has no source {p.source}: use sample, hub or path")
