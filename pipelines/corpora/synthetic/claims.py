"""What sentence pairs and triples are made of: a claim (who does what, where), and the sentences that can say it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipelines.corpora.synthetic.engine import Pen, split
from pipelines.corpora.synthetic.knowledge import WORLD

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


@dataclass(frozen=True)
class Claim:
    """Indices into one field's lists; neighbours in a list belong together."""

    domain: str
    field: str
    subject: int
    act: int
    setting: int

    def words(self, slot: str) -> tuple[str, ...]:
        return split(WORLD[self.domain][self.field][f"{slot}s"])

    def say(self, template: str) -> str:
        """The sentence of a template with the slots subject, act, setting."""
        text = template.format(
            **{slot: self.words(slot)[getattr(self, slot)] for slot in ("subject", "act", "setting")}
        )
        return text[0].upper() + text[1:]


def claim(pen: Pen) -> Claim:
    """Any claim: act and setting from the stretch of their lists that the subject is from."""
    domain = pen.any(tuple(WORLD))
    field = pen.any(tuple(WORLD[domain]))
    bare = Claim(domain, field, 0, 0, 0)
    place = pen.rng.random()
    return replace(
        bare, **{slot: round(place * (len(bare.words(slot)) - 1)) for slot in ("subject", "act", "setting")}
    )


def other(pen: Pen, claim: Claim, slot: str, nearby: bool) -> Claim:
    """The claim with another subject, act or setting: the next in its list, or one from elsewhere in it."""
    size, at = len(claim.words(slot)), getattr(claim, slot)
    if nearby:
        choices = [i for i in (at - 1, at + 1) if 0 <= i < size]
    else:
        choices = [i for i in range(size) if abs(i - at) > 2] or [i for i in range(size) if i != at]
    return replace(claim, **{slot: pen.any(choices)})
