"""Clinical notes with several conditions each, written from one specialty's words, with planted identities."""

from __future__ import annotations

from datetime import date

import polars as pl

from pipelines.corpora.synthetic.conditions import SPECIALTIES
from pipelines.corpora.synthetic.engine import Draft, Pen, Scope, corpus, split
from pipelines.study import SyntheticCorpus

FACTS = ("conditions", "names", "dates", "addresses")
YEARS = date(2008, 1, 1), date(2019, 12, 31)  # fixed, so that a seed means the same text on every day

HEADS = (
    "{patient!names} is a {age}-year-old {sex} with a history of {condition} who presents with {symptom}.",
    "CHIEF COMPLAINT: {Symptom}. HISTORY: {age}-year-old {sex} seen on {date!dates} for {symptom} and {symptom}.",
    "Admitted on {date!dates} from {address!addresses}. {Symptom} for {days} days.",
    "Dear Dr. {doctor!names}, thank you for referring {patient!names}, a {age}-year-old {sex} with {condition}.",
    "The patient, a {age}-year-old {job}, returns for follow-up of {condition}.",
    "{Condition}, doing better. Denies {symptom}.",
    "Discharge summary for {patient!names}, {sex}, aged {age}. Admitted {date!dates}.",
)
BODIES = (
    "On examination there was {finding}.",
    "Workup showed {finding} and {finding}.",
    "{Procedure} was performed on {date!dates} without complications.",
    "Medications: {drug} {dose} mg daily, {drug} {dose} mg twice daily.",
    "Past medical history is significant for {condition} and {condition}.",
    "{Drug} was started and {drug} stopped because of side effects.",
    "Reports {symptom} for {days} days, worse at night, without {symptom}.",
    "Vital signs: blood pressure {pressure}, pulse {pulse}, afebrile.",
    "{Condition} is stable on {drug}.",
    "Family history: the mother had {condition}.",
    "The patient lives at {address!addresses} and works as a {job}.",
    "Risks and benefits of {procedure} were discussed, and the patient agreed.",
)
ENDS = (
    "IMPRESSION: {Condition}. PLAN: {drug}, then {procedure}.",
    "Assessment: 1. {Condition}. 2. {Condition}.",
    "Will return to Dr. {doctor!names} in {days} weeks.",
    "Continue {drug}. Call if {symptom} recurs.",
    "Follow-up on {date!dates} with Dr. {doctor!names}.",
)


def notes(p: SyntheticCorpus) -> pl.DataFrame:
    """Generated notes: id, text, labels = conditions, specialty, and the planted conditions, names, dates,
    addresses."""
    frame = corpus(p, "note", FACTS, _note)
    by_condition = {c: s for s, words in SPECIALTIES.items() for c in split(words["conditions"])}
    return frame.with_columns(
        specialty=pl.col("labels").list.first().replace_strict(by_condition, return_dtype=pl.String)
    )


def _note(pen: Pen, _: int) -> tuple[str, Draft]:
    specialty = pen.skewed(tuple(SPECIALTIES), 0.6)
    draft = Draft()
    scope = _scope(pen, specialty, draft)
    pen.write(pen.skewed(HEADS, 0.5), scope, draft)
    for template in pen.several(BODIES, pen.skewed((2, 3, 1, 4, 5), 0.7), 0.4):
        pen.write(template, scope, draft)
    if pen.chance(0.7) or len(draft.labels) < 2:
        pen.write(ENDS[1] if len(draft.labels) < 2 else pen.skewed(ENDS, 0.4), scope, draft)
    draft.facts["conditions"] = [_as_written(c, draft.text()) for c in draft.labels]
    return draft.text(), draft


def _as_written(condition: str, text: str) -> str:
    """The condition in the capitals that the text has it in: as it is, or at the start of a sentence."""
    return condition if condition in text else _capital(condition)


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _scope(pen: Pen, specialty: str, draft: Draft) -> Scope:
    """One patient: two or three conditions of the specialty that go together, sometimes a common one of another."""
    words = {name: split(line) for name, line in SPECIALTIES[specialty].items()}
    place = float(pen.rng.beta(0.8, 1.1))
    elsewhere = SPECIALTIES[pen.skewed(tuple(SPECIALTIES), 0.8)]
    patient = {"M": pen.faker.name_male, "F": pen.faker.name_female}
    sex = "F" if specialty == "women's health" or pen.chance(0.5) else "M"
    name, age, job = patient[sex](), pen.number(19, 91), pen.faker.job().split(",")[0].lower()

    def condition() -> str:
        from_other = draft.labels and pen.chance(0.2)
        value = (
            pen.skewed(split(elsewhere["conditions"]), 0.8)
            if from_other
            else pen.near(words["conditions"], place, 0.13)
        )
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
        "address": lambda: pen.faker.street_address(),
    }
    capitals = {
        _capital(k): (lambda k=k: _capital(scope[k]())) for k in ("condition", "symptom", "procedure", "drug")
    }
    return {**scope, **capitals}
