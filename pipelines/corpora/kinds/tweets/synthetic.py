"""Short informal texts with one to three TweetTopic labels, some with planted people, places and dates."""

from datetime import datetime

import polars as pl

from pipelines.corpora.sources.synthetic.engine import Draft, Pen, corpus, lexicon, people
from pipelines.study import SyntheticCorpus

WORDS = lexicon(__file__)
TEMPLATES, LEXICON = WORDS["templates"], WORDS["topics"]
LATEST = datetime(2026, 11, 23, 20)  # without it, Faker draws dates up to now: other texts each day
FACTS = ("names", "dates", "places")


def rows(p: SyntheticCorpus) -> pl.DataFrame:
    """Return generated tweets: id, text, labels (topics), names, dates, places."""
    pen = Pen(p.seed)
    known = people(pen, max(50, p.count // 10))
    return corpus(p, FACTS, lambda: _tweet(pen, known))


def _tweet(pen: Pen, known: list[str]) -> Draft:
    topics = [pen.skewed(tuple(LEXICON), 0.7)]
    while len(topics) < 3 and pen.chance(0.45):
        other = pen.skewed(LEXICON[topics[0]]["goes_with"], 0.8)
        if other not in topics:
            topics.append(other)
    draft = Draft(labels=sorted(topics))
    for topic in topics:  # each label has a sentence of its own, so that the text shows it
        words = LEXICON[topic]
        place = pen.rng.random()
        scope = {
            "thing": lambda w=words, at=place: pen.near(w["things"], at, 0.15),
            "doing": lambda w=words, at=place: pen.near(w["doings"], at, 0.15),
            "view": lambda w=words: pen.skewed(w["views"], 0.4),
            "tag": lambda w=words: pen.skewed(w["tags"], 0.5),
            "person": lambda: pen.skewed(known, 0.8),
            "place": pen.faker.city,
            "date": lambda: f"{pen.faker.date('%B', LATEST)} {pen.number(1, 28)}",
            "count": lambda: str(pen.number(2, 365)),
        }
        planted = pen.chance(0.35)
        template = pen.any(TEMPLATES["planted"]) if planted else pen.skewed(TEMPLATES["plain"], 0.4)
        pen.write(template, scope, draft)
    _make_informal(pen, draft)
    return draft


def _make_informal(pen: Pen, draft: Draft) -> None:
    """Shuffle the sentences. In one of three texts they begin in lower case, except planted facts."""
    sentences = [draft.sentences[i] for i in pen.rng.permutation(len(draft.sentences))]
    facts = tuple(fact for column in draft.facts.values() for fact in column)
    if pen.chance(0.33):
        sentences = [s if s.startswith(facts) else s[0].lower() + s[1:] for s in sentences]
    draft.sentences = sentences
