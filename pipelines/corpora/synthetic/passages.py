"""Passages like an encyclopedia's: domain, field, subject, then sentences about it, each choice narrower than the one
before."""

from __future__ import annotations

import polars as pl

from pipelines.corpora.synthetic.engine import Draft, Pen, Scope, corpus, split
from pipelines.corpora.synthetic.knowledge import KINDS, WORLD
from pipelines.study import SyntheticCorpus

OPENINGS = (
    "{subject} {act}.",
    "{subject} {act} and {act}.",
    "In {setting}, {subject} {act}.",
    "{subject} is {kind} known for its {part}.",
    "As a rule, {subject} {act}, although the {part} may differ.",
    "{subject}, which {act}, is often mentioned together with {other}.",
    "The {part} of {subject} has been studied since {year}.",
    "Few {kinds} are as closely tied to {setting} as {subject}.",
)
MIDDLES = (
    "It {act}.",
    "The {part} and the {part} are typical of {setting}.",
    "Unlike {other}, it {act}.",
    "By {year}, the {part} had become the best known example in {setting}.",
    "There are about {count} of them in {setting} today.",
    "{other}, by contrast, {act}.",
    "A {part} is found in most {kinds} of this sort, together with a {part}.",
    "{scholar} described the {part} in {year}, noting that {subject} {act}.",
    "According to a survey of {year}, {percent} percent of accounts from {setting} mention the {part}.",
    "This is why {subject} {act}, and why the {part} matters so much in {setting}.",
    "The word for {part} comes from {setting}.",
    "Its {part} was long confused with the {part}.",
)
CLOSINGS = (
    "Since {year} the {part} has been protected in {setting}.",
    "Today {subject} {act}.",
    "Whether {other} {act} is still debated.",
    "It remains one of the most visited examples of a {part} in {setting}.",
    "The best known {part} is in {setting}.",
    "Most books on {field} begin with it.",
)


def passages(p: SyntheticCorpus) -> pl.DataFrame:
    """Generated passages: id, text, labels = [domain, field]. No private facts are planted."""
    return corpus(p, "passage", (), _passage)


def _passage(pen: Pen, _: int) -> tuple[str, Draft]:
    domain = pen.skewed(tuple(WORLD), 0.7)
    field = pen.skewed(tuple(WORLD[domain]), 0.6)
    draft = Draft(labels=[domain, field])
    scope = _scope(pen, domain, field)
    pen.write(pen.skewed(OPENINGS, 0.6), scope, draft)
    for template in pen.several(MIDDLES, pen.skewed((1, 2, 0, 3), 0.8), 0.5):
        pen.write(template, scope, draft)
    if pen.chance(0.45):
        pen.write(pen.skewed(CLOSINGS, 0.5), scope, draft)
    return draft.text(), draft


def _scope(pen: Pen, domain: str, field: str) -> Scope:
    """What each slot may become, all near one subject of one field."""
    words = {name: split(line) for name, line in WORLD[domain][field].items()}
    subjects, kinds = words["subjects"], split(KINDS[domain])
    which = pen.number(0, len(subjects) - 1)
    place = which / (len(subjects) - 1)
    century = 1500 + int(500 * pen.rng.beta(4, 1.3))

    def other() -> str:
        return pen.near([s for s in subjects if s != subjects[which]], place, 0.15)

    return {
        "subject": lambda: subjects[which],
        "other": other,
        "part": lambda: pen.near(words["parts"], place),
        "act": lambda: pen.near(words["acts"], place, 0.07),
        "setting": lambda: pen.near(words["settings"], place, 0.12),
        "kind": lambda: "a " + pen.skewed(kinds),
        "kinds": lambda: {"species": "species"}.get(
            k := pen.skewed(kinds), f"{k[:-1]}ies" if k.endswith("y") else f"{k}s"
        ),
        "field": lambda: field,
        "year": lambda: str(century + pen.number(-9, 9)),
        "count": lambda: f"{pen.number(2, 99) * 10 ** pen.number(0, 3):,}",
        "percent": lambda: str(pen.number(3, 96)),
        "scholar": lambda: pen.faker.last_name(),
    }
