"""tweets: short texts with some of the 19 TweetTopic labels (Antypas et al. 2022)."""

from typing import Any

import polars as pl

from pipelines.corpora.core import texts
from pipelines.study import TextCorpus

SOURCES = ("synthetic", "hub", "path")
CHUNKED = True  # rows may have `chunk` and `document`
TOPICS = (  # a label's number in TweetTopic is its place here
    "arts_&_culture",
    "business_&_entrepreneurs",
    "celebrity_&_pop_culture",
    "diaries_&_daily_life",
    "family",
    "fashion_&_style",
    "film_tv_&_video",
    "fitness_&_health",
    "food_&_dining",
    "gaming",
    "learning_&_educational",
    "music",
    "news_&_social_concern",
    "other_hobbies",
    "relationships",
    "science_&_technology",
    "sports",
    "travel_&_adventure",
    "youth_&_student_life",
)


def rows(p: TextCorpus, source: Any) -> pl.DataFrame:
    """Return id, text, labels (names of topics), and what else the row maps.

    On the hub it reads cardiffnlp/tweet_topic_multilingual (config en) or tweet_topic_multi. Labels given as
    numbers 0 to 18, or as 19 zeros and ones, become names.
    """
    table = source.table(p)
    if "labels" not in {*p.columns, *table.columns} and "label" in table.columns:
        table = table.rename({"label": "labels"})
    frame = texts.rows(p, table)
    if "labels" in frame.columns:
        labels = [named(of_a_text) for of_a_text in frame["labels"].to_list()]
        frame = frame.with_columns(labels=pl.Series(labels, dtype=pl.List(pl.String)))
    return frame


def named(labels: list[str]) -> list[str]:
    """Return the labels of a text as names of topics."""
    if len(labels) == len(TOPICS) and {*labels} <= {"0", "1"}:
        return [topic for topic, label in zip(TOPICS, labels, strict=True) if label == "1"]
    return [TOPICS[int(x)] if x.isdecimal() and int(x) < len(TOPICS) else x for x in labels]
