"""The generator: distinct texts, facts verbatim, labels, a skewed hierarchy, one seed one corpus."""

from datetime import datetime

import polars as pl
import pytest

from pipelines.corpora.core import collect
from pipelines.corpora.kinds.notes.synthetic import SPECIALTIES
from pipelines.corpora.kinds.tweets import TOPICS
from pipelines.corpora.sources.synthetic import rows
from pipelines.runtime.store import check_corpus
from pipelines.study import SyntheticCorpus

FACTS = {
    "passages": [],
    "tweets": ["names", "dates", "places"],
    "notes": ["conditions", "names", "dates", "addresses"],
    "emails": ["names", "companies", "dates", "amounts", "addresses", "orders"],
}


def row(kind, count=400, **more):
    return SyntheticCorpus(kind=kind, source="synthetic", path="x", rows=count, **more)


@pytest.fixture(scope="module", params=FACTS)
def made(request):
    return request.param, collect(row(request.param, test=50))


def test_a_corpus_is_valid_and_its_facts_are_in_its_texts(made):
    kind, frame = made
    check_corpus(kind, frame)
    assert frame.columns[:4] == ["id", "text", "split", "labels"]
    assert (len(frame), (frame["split"] == "test").sum()) == (400, 50)
    assert (frame["labels"].list.len() > 0).all()
    assert not frame["text"].str.contains(r"!\w|\{|\}").any()  # no slot is left open
    for column in FACTS[kind]:
        assert frame[column].dtype == pl.List(pl.String)
        assert frame[column].list.len().sum() > 0
        for text, facts in zip(frame["text"], frame[column].to_list(), strict=True):
            assert all(fact in text for fact in facts)
            assert len(set(facts)) == len(facts)


class Later(datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime(2040, 5, 6, tzinfo=tz)


@pytest.mark.parametrize("kind", FACTS)
def test_one_seed_one_corpus_on_every_day(kind, monkeypatch):
    first, other = (collect(row(kind, 60, seed=seed)) for seed in (3, 4))
    monkeypatch.setattr("faker.providers.date_time.datetime", Later)
    assert collect(row(kind, 60, seed=3)).equals(first)
    assert not first["text"].equals(other["text"])


def test_tweets_carry_the_19_labels_several_at_once():
    frame = rows(row("tweets", 1500))
    assert len(TOPICS) == 19
    assert set(frame["labels"].explode()) == set(TOPICS)
    assert 0.3 < (frame["labels"].list.len() > 1).mean() < 0.7


def test_notes_have_many_conditions_several_per_note():
    known = [c for words in SPECIALTIES.values() for c in words["conditions"]]
    assert len(known) == len(set(known)) >= 150
    frame = rows(row("notes"))
    assert set(frame["labels"].explode()) <= set(known)
    assert frame["labels"].list.len().mean() > 2
    for text, labels in zip(frame["text"].str.to_lowercase(), frame["labels"].to_list(), strict=True):
        assert all(label.lower() in text for label in labels)


def test_email_has_a_sender_and_a_subject_of_its_own():
    frame = rows(row("emails", 300))
    signed = frame.filter(pl.col("text").str.ends_with(pl.col("sender")))
    assert len(signed) > 100
    assert (frame["subject"].str.len_chars() > 0).all()
    assert (signed["names"].list.contains(signed["sender"])).all()


def test_many_passages_are_distinct_and_skewed():
    frame = rows(row("passages", 10_000))
    assert frame["text"].n_unique() == 10_000
    counts = frame["labels"].list.first().value_counts(sort=True)["count"]
    assert counts[0] > 3 * counts[-1]


def test_generated_pairs_are_graded_and_the_same_each_time():
    frame, again = (collect(row("sts", 600)) for _ in range(2))
    assert frame.equals(again)
    assert frame["score"].unique().sort().to_list() == [0, 1, 2, 3, 4, 5]
    texts, partners = (frame[side].str.to_lowercase().str.split(" ") for side in ("text", "pair"))
    words = texts.list.set_intersection(partners).list.len()
    means = frame.select("score", words=words).group_by("score").mean().sort("score")["words"]
    assert means[0] < means[2] < means[5]
