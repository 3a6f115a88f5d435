"""tweets: short texts with some of the 19 TweetTopic labels (Antypas et al. 2022), which attribute inference is
measured on."""

from __future__ import annotations

import polars as pl

from pipelines.corpora import hub, path, synthetic
from pipelines.corpora.synthetic.tweets import TOPICS
from pipelines.runtime.errors import BadInput
from pipelines.study import AnyCorpus, HubCorpus, PathCorpus, SyntheticCorpus


def rows(p: AnyCorpus) -> pl.DataFrame:
    """synthetic: generated; hub: cardiffnlp/tweet_topic_multilingual (config en) or tweet_topic_multi; path: the user's
    own.

    Labels given as numbers 0..18 or as 19 zeros and ones become the names of `TOPICS`.
    """
    match p:
        case SyntheticCorpus():
            return synthetic.tweets(p)
        case HubCorpus():
            columns = p.columns if "labels" in p.columns else {**p.columns, "labels": "label"}
            frame = hub.rows(p.model_copy(update={"columns": columns}))
        case PathCorpus():
            frame = path.rows(p)
        case _:
            raise BadInput(f"corpora: tweets has no source {p.source}: use synthetic, hub or path")
    return named(frame)


def named(frame: pl.DataFrame) -> pl.DataFrame:
    """Labels as topic names, whatever way the source writes them."""
    if "labels" not in frame.columns:
        return frame
    names = [_names(labels) for labels in frame["labels"].to_list()]
    return frame.with_columns(labels=pl.Series(names, dtype=pl.List(pl.String)))


def _names(labels: list[str]) -> list[str]:
    if len(labels) == len(TOPICS) and all(x in ("0", "1") for x in labels):
        return [topic for topic, x in zip(TOPICS, labels, strict=True) if x == "1"]
    return [TOPICS[int(x)] if x.isdigit() and int(x) < len(TOPICS) else x for x in labels]
