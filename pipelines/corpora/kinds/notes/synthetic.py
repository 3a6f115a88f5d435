"""Clinical notes with several conditions each, in the words of one specialty, with planted identities."""

from datetime import date

import polars as pl

from pipelines.corpora.sources.synthetic.engine import Draft, Pen, Scope, capital, corpus, lexicon
from pipelines.study import SyntheticCorpus

WORDS = lexicon(__file__)
TEMPLATES, SPECIALTIES = WORDS["templates"], WORDS["specialties"]
FACTS = ("conditions", "names", "dates", "addresses")
YEARS = date(2008, 1, 1), date(2019, 12, 31)  # fixed, so that a seed means the same text on every day


def rows(p: SyntheticCorpus) -> pl.DataFrame:
    """Return generated notes: id, text, labels (conditions), specialty, and the planted facts of `FACTS`."""
    pen = Pen(p.seed)
    return corpus(p, FACTS, lambda: _note(pen))


def _note(pen: Pen) -> Draft:
    specialty = pen.skewed(tuple(SPECIALTIES), 0.6)
    draft = Draft(more={"specialty": specialty})
    scope = _scope(pen, specialty, draft)
    pen.write(pen.skewed(TEMPLATES["heads"], 0.5), scope, draft)
    for template in pen.several(TEMPLATES["bodies"], pen.skewed((2, 3, 1, 4, 5), 0.7), 0.4):
        pen.write(template, scope, draft)
    ends = pen.chance(0.7)
    if len(draft.labels) < 2:
        pen.write(TEMPLATES["ends"][1], scope, draft)  # it names two conditions
    elif ends:
        pen.write(pen.skewed(TEMPLATES["ends"], 0.4), scope, draft)
    text = draft.text()
    written = [c if c in text else capital(c) for c in draft.labels]  # a condition may begin a sentence
    draft.facts["conditions"] = dict.fromkeys(written)
    return draft


def _scope(pen: Pen, specialty: str, draft: Draft) -> Scope:
    """Return words for one patient: related conditions of the specialty, sometimes one of another."""
    words = SPECIALTIES[specialty]
    place = pen.rng.beta(0.8, 1.1)
    elsewhere = SPECIALTIES[pen.skewed(tuple(SPECIALTIES), 0.8)]
    patient = {"M": pen.faker.name_male, "F": pen.faker.name_female}
    sex = "F" if specialty == "women's health" or pen.chance(0.5) else "M"
    name, age, job = patient[sex](), pen.number(19, 91), pen.faker.job().split(",")[0].lower()

    def condition() -> str:
        if draft.labels and pen.chance(0.2):
            value = pen.skewed(elsewhere["conditions"], 0.8)
        else:
            value = pen.near(words["conditions"], place, 0.13)
        if value not in draft.labels and value not in draft.used:
            draft.labels.append(value)
        return value

    def one(kind: str, spread: float = 0.12) -> str:
        return pen.near(words[kind], place, spread)

    scope: Scope = {
        "condition": condition,
        "symptom": lambda: one("symptoms"),
        "finding": lambda: one("findings"),
        "drug": lambda: one("drugs"),
        "procedure": lambda: one("procedures", 0.2),
        "patient": lambda: name,
        "doctor": pen.faker.last_name,
        "age": lambda: str(age),
        "sex": lambda: {"M": "man", "F": "woman"}[sex],
        "job": lambda: job,
        "days": lambda: str(pen.number(2, 21)),
        "dose": lambda: str(5 * pen.number(1, 40)),
        "pressure": lambda: f"{pen.number(95, 185)}/{pen.number(55, 105)}",
        "pulse": lambda: str(pen.number(48, 118)),
        "date": lambda: pen.faker.date_between_dates(*YEARS).strftime("%m/%d/%Y"),
        "address": pen.faker.street_address,
    }
    capitals = {
        capital(k): (lambda k=k: capital(scope[k]())) for k in ("condition", "symptom", "procedure", "drug")
    }
    return {**scope, **capitals}
