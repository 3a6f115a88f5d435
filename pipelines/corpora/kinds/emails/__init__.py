"""emails: business e-mails, whose people, companies, dates and amounts an inversion may leak."""

from typing import Any

import polars as pl

from pipelines.corpora.core import texts
from pipelines.study import HubCorpus, PathCorpus

SOURCES = ("synthetic", "hub", "path")


def rows(p: HubCorpus | PathCorpus, source: Any) -> pl.DataFrame:
    """Return id, text, and what else the row maps, such as `columns: {labels: owner}`.

    Of the hub: snoop2head/enron_aeslc_emails, or any set. Of a path: a table, an mbox or a tree of mails.
    """
    return texts.rows(p, source.table(p))
