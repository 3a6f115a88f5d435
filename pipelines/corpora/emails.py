"""emails: business e-mails, whose people, companies, dates and amounts an inversion may leak."""

from __future__ import annotations

import polars as pl

from pipelines.corpora import hub, path, synthetic
from pipelines.runtime.errors import BadInput
from pipelines.study import AnyCorpus, HubCorpus, PathCorpus, SyntheticCorpus


def rows(p: AnyCorpus) -> pl.DataFrame:
    """synthetic: generated; hub: snoop2head/enron_aeslc_emails or any with a mapping; path: table, mbox or mail tree.

    The text is the column `text`, or the body where there is one; `columns: {text: "subject + body", labels: owner}`
    says otherwise.
    """
    match p:
        case SyntheticCorpus():
            return synthetic.emails(p)
        case HubCorpus():
            return hub.rows(p)
        case PathCorpus():
            return path.rows(p, text=("text", "body"))
    raise BadInput(f"corpora: emails has no source {p.source}: use synthetic, hub or path")
