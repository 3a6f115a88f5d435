"""Short informal texts over the 19 TweetTopic labels, one to three each, with people, places and dates planted in
some."""

from __future__ import annotations

import polars as pl

from pipelines.corpora.synthetic.engine import Draft, Pen, corpus, people, split
from pipelines.corpora.synthetic.topics import AFFINITY, LEXICON
from pipelines.study import SyntheticCorpus

TOPICS = tuple(sorted(LEXICON))  # in TweetTopic's own order, which is that of their numbers
FACTS = ("names", "dates", "places")

FORMS = (
    "{doing}. {view}.",
    "{thing} today... {view}!",
    "{view}. {thing} proves it.",
    "can we talk about {thing}? {view}",
    "{doing} and thinking about {thing} {tag}",
    "just me {doing}",
    "honestly, {thing} is all I needed. {view} {tag}",
    "{thing} > everything else {tag}",
    "nobody: ... me: {doing}",
    "ok but {thing}?? {view}. {view}. {tag} {tag}",
    "RT if {thing} is on your mind. {view} {tag}",
    "day {count} of {doing}. {view}",
    "unpopular opinion: {view}. and {thing} will not change that.",
)
PLANTED = (
    "{doing} with {person!names}. {view} {tag}",
    "happy birthday {person!names}! {view}",
    "thank you {person!names} for {thing}. {view}",
    "{person!names} said it best: {view} {tag}",
    "see you in {place!places} on {date!dates} for {thing}! {tag}",
    "{thing} in {place!places} tonight. {view}",
    "mark {date!dates}: {doing} in {place!places}",
    "me and {person!names}, {doing}, {place!places}, {date!dates}. {view}",
)


def tweets(p: SyntheticCorpus) -> pl.DataFrame:
    """Generated tweets: id, text, labels (topics), names, dates, places."""
    known: list[str] = []

    def write(pen: Pen, _: int) -> tuple[str, Draft]:
        if not known:
            known.extend(people(pen, max(50, (p.rows or 2000) // 10)))
        return _tweet(pen, known)

    return corpus(p, "tweet", FACTS, write)


def _tweet(pen: Pen, known: list[str]) -> tuple[str, Draft]:
    topics = [pen.skewed(tuple(LEXICON), 0.7)]
    while len(topics) < 3 and pen.chance(0.45):
        topics += [t for t in (pen.skewed(AFFINITY[topics[0]], 0.8),) if t not in topics]
    draft = Draft(labels=sorted(topics))
    for topic in topics:  # each label has a sentence of its own, so that it can be told from the text
        words = {name: split(line) for name, line in LEXICON[topic].items()}
        place = float(pen.rng.random())
        scope = {
            "thing": lambda w=words, at=place: pen.near(w["things"], at, 0.15),
            "doing": lambda w=words, at=place: pen.near(w["doings"], at, 0.15),
            "view": lambda w=words: pen.skewed(w["views"], 0.4),
            "tag": lambda w=words: pen.skewed(w["tags"], 0.5),
            "person": lambda: pen.skewed(known, 0.8),
            "place": pen.faker.city,
            "date": lambda: f"{pen.faker.month_name()} {pen.number(1, 28)}",
            "count": lambda: str(pen.number(2, 365)),
        }
        pen.write(pen.any(PLANTED) if pen.chance(0.35) else pen.skewed(FORMS, 0.4), scope, draft)
    return _informal(pen, draft), draft


def _informal(pen: Pen, draft: Draft) -> str:
    """The sentences in some order; one in three texts in lower case, planted facts excepted."""
    sentences = [draft.sentences[i] for i in pen.rng.permutation(len(draft.sentences))]
    facts = [fact for column in draft.facts.values() for fact in column]
    if pen.chance(0.33):
        sentences = [
            s[0].lower() + s[1:] if not any(s.startswith(f) for f in facts) else s for s in sentences
        ]
    return " ".join(sentences)
