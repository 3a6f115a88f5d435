"""Passages like those of an encyclopedia: a domain, a field, a subject, then sentences about it."""

import polars as pl

from pipelines.corpora.sources.synthetic.engine import Draft, Pen, Scope, corpus, lexicon
from pipelines.corpora.sources.synthetic.world import WORLD
from pipelines.study import SyntheticCorpus

TEMPLATES = lexicon(__file__)["templates"]


def rows(p: SyntheticCorpus) -> pl.DataFrame:
    """Return generated passages: id, text, labels = [domain, field]. No private facts are planted."""
    pen = Pen(p.seed)
    return corpus(p, (), lambda: _passage(pen))


def _passage(pen: Pen) -> Draft:
    domain = pen.skewed(tuple(WORLD), 0.7)
    field = pen.skewed(tuple(WORLD[domain]["fields"]), 0.6)
    draft = Draft(labels=[domain, field])
    scope = _scope(pen, domain, field)
    pen.write(pen.skewed(TEMPLATES["openings"], 0.6), scope, draft)
    for template in pen.several(TEMPLATES["middles"], pen.skewed((1, 2, 0, 3), 0.8), 0.5):
        pen.write(template, scope, draft)
    if pen.chance(0.45):
        pen.write(pen.skewed(TEMPLATES["closings"], 0.5), scope, draft)
    return draft


def _scope(pen: Pen, domain: str, field: str) -> Scope:
    """Return what each slot may become: words near one subject of one field."""
    words, kinds = WORLD[domain]["fields"][field], WORLD[domain]["kinds"]
    subjects = words["subjects"]
    which = pen.number(0, len(subjects) - 1)
    place = which / (len(subjects) - 1)
    century = 1500 + int(500 * pen.rng.beta(4, 1.3))

    def other() -> str:
        return pen.near([s for s in subjects if s != subjects[which]], place, 0.15)

    def plural() -> str:
        kind = pen.skewed(kinds)
        if kind == "species":
            return kind
        return f"{kind[:-1]}ies" if kind.endswith("y") else f"{kind}s"

    return {
        "subject": lambda: subjects[which],
        "other": other,
        "part": lambda: pen.near(words["parts"], place),
        "act": lambda: pen.near(words["acts"], place, 0.07),
        "setting": lambda: pen.near(words["settings"], place, 0.12),
        "kind": lambda: "a " + pen.skewed(kinds),
        "kinds": plural,
        "field": lambda: field,
        "year": lambda: str(century + pen.number(-9, 9)),
        "count": lambda: f"{pen.number(2, 99) * 10 ** pen.number(0, 3):,}",
        "percent": lambda: str(pen.number(3, 96)),
        "scholar": pen.faker.last_name,
    }
