"""Claims (who does what, where) and sentences that say them, for sentence pairs and triples."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipelines.corpora.sources.synthetic.engine import Pen, lexicon

WORLD = lexicon(__file__)  # domain -> {kinds, fields: field -> {subjects, parts, acts, settings}}

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
        text = template.format(**{slot: self.words(slot)[getattr(self, slot)] for slot in SLOTS})
        return text[0].upper() + text[1:]


def claim(pen: Pen) -> Claim:
    """Draw a claim whose subject, act and setting are from the same stretch of their lists."""
    domain = pen.any(tuple(WORLD))
    field = pen.any(tuple(WORLD[domain]["fields"]))
    bare = Claim(domain, field, 0, 0, 0)
    place = pen.rng.random()
    return replace(bare, **{slot: round(place * (len(bare.words(slot)) - 1)) for slot in SLOTS})


def other(pen: Pen, claim: Claim, slot: str, nearby: bool) -> Claim:
    """Return the claim with another subject, act or setting: a neighbour in its list, or one far from it."""
    size, at = len(claim.words(slot)), getattr(claim, slot)
    if nearby:
        choices = [i for i in (at - 1, at + 1) if 0 <= i < size]
    else:
        choices = [i for i in range(size) if abs(i - at) > 2] or [i for i in range(size) if i != at]
    return replace(claim, **{slot: pen.any(choices)})
