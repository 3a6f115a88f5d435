"""Pairs of generated sentences. The score, 0 to 5, says how much of a claim they share."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import polars as pl

from pipelines.corpora.sources.synthetic.engine import Pen, capital
from pipelines.corpora.sources.synthetic.world import WORLD
from pipelines.study import SyntheticCorpus

WITH_PLACE = (
    "In {setting}, {subject} {act}.",
    "{subject} {act}, as anyone in {setting} can tell.",
    "Visitors to {setting} learn that {subject} {act}.",
    "{subject} {act}: this is well known in {setting}.",
    "It is said in {setting} that {subject} {act}.",
)
PLAIN = (
    "{subject} {act}.",
    "It is known that {subject} {act}.",
    "As a matter of fact, {subject} {act}.",
    "We read that {subject} {act}.",
)
SLOTS = ("subject", "act", "setting")


@dataclass(frozen=True)
class Claim:
    """Hold indices into the lists of one field; neighbours in a list belong together."""

    domain: str
    field: str
    subject: int
    act: int
    setting: int

    def words(self, slot: str) -> tuple[str, ...]:
        """Return the list that a slot indexes."""
        return WORLD[self.domain]["fields"][self.field][f"{slot}s"]

    def say(self, template: str) -> str:
        """Return the sentence of a template with slots subject, act, setting."""
        words = {slot: self.words(slot)[getattr(self, slot)] for slot in SLOTS}
        return capital(template.format(**words))


def rows(p: SyntheticCorpus) -> pl.DataFrame:
    """Return generated pairs: id, text, pair, score, split ("dev", second half "test"). No pair occurs twice.

    Score 5: one claim in two wordings. 4: the second leaves out the place. 3: the act is a related one.
    2: one subject, another act and place. 1: another subject and act, the same place. 0: another domain.
    The templates are drawn at random, so shared words only partly predict the score.
    """
    wanted, scores = p.count, {}
    for text, pair, score in _pairs(Pen(p.seed)):
        scores.setdefault((text, pair), score)
        if len(scores) == wanted:
            break
    made = [
        (f"sts-{i:06d}", text, pair, score, "dev" if 2 * i < wanted else "test")
        for i, ((text, pair), score) in enumerate(scores.items())
    ]
    return pl.DataFrame(made, schema=["id", "text", "pair", "score", "split"], orient="row")


def _pairs(pen: Pen) -> Iterator[tuple[str, str, float]]:
    for i in count():
        score, a = i % 6, claim(pen)
        templates = pen.rng.permutation(len(WITH_PLACE))
        text = a.say(WITH_PLACE[templates[0]])
        second = pen.any(PLAIN) if score == 4 else WITH_PLACE[templates[1]]
        yield text, _counterpart(pen, a, score).say(second), float(score)


def _counterpart(pen: Pen, a: Claim, score: int) -> Claim:
    match score:
        case 3:
            return other(pen, a, "act", nearby=True)
        case 2:
            return other(pen, other(pen, a, "act"), "setting")
        case 1:
            return other(pen, other(pen, a, "subject"), "act")
        case 0:
            while (b := claim(pen)).domain == a.domain:
                pass
            return b
    return a


def claim(pen: Pen) -> Claim:
    """Draw a claim whose subject, act and setting are from the same relative place in their lists."""
    domain = pen.any(tuple(WORLD))
    field = pen.any(tuple(WORLD[domain]["fields"]))
    words = WORLD[domain]["fields"][field]
    place = pen.rng.random()
    return Claim(domain, field, *(round(place * (len(words[f"{slot}s"]) - 1)) for slot in SLOTS))


def other(pen: Pen, old: Claim, slot: str, nearby: bool = False) -> Claim:
    """Return a claim with another subject, act or setting: a neighbour in its list, or one far from it."""
    size, at = len(old.words(slot)), getattr(old, slot)
    if nearby:
        choices = [i for i in (at - 1, at + 1) if 0 <= i < size]
    else:
        choices = [i for i in range(size) if abs(i - at) > 2] or [i for i in range(size) if i != at]
    return replace(old, **{slot: pen.any(choices)})
