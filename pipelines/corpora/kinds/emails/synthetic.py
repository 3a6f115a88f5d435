"""Business e-mails like those of the Enron set, with planted people, companies, dates, amounts, orders."""

from datetime import date

import polars as pl

from pipelines.corpora.sources.synthetic.engine import Draft, Pen, Scope, corpus, lexicon, once, people
from pipelines.study import SyntheticCorpus

WORDS = lexicon(__file__)
TEMPLATES, MATTERS, ORDERS = WORDS["templates"], WORDS["matters"], WORDS["orders"]
FACTS = ("names", "companies", "dates", "amounts", "addresses", "orders")
YEARS = date(1999, 1, 1), date(2002, 6, 30)  # fixed, so that a seed means the same text on every day


def rows(p: SyntheticCorpus) -> pl.DataFrame:
    """Return generated e-mails: id, text, labels = [matter], sender, subject, planted facts (`FACTS`)."""
    pen, count = Pen(p.seed), p.count
    staff = people(pen, max(60, count // 8))
    firms = once(pen.faker.company, max(40, count // 12))
    return corpus(p, FACTS, lambda: _email(pen, staff, firms))


def _email(pen: Pen, staff: list[str], firms: list[str]) -> Draft:
    matter = pen.skewed(tuple(MATTERS), 0.5)
    draft = Draft(labels=[matter])
    scope, sender, subject = _scope(pen, matter, staff, firms)
    draft.more = {"sender": sender, "subject": subject}
    if greeting := pen.skewed(TEMPLATES["greetings"], 0.4):
        pen.write(greeting, scope, draft)
    for _ in range(pen.skewed((2, 3, 1, 4, 5), 0.6)):
        lunch = matter == "lunch" and pen.chance(0.7)
        template = pen.any(TEMPLATES["lunch"]) if lunch else pen.skewed(TEMPLATES["lines"], 0.35)
        pen.write(template, scope, draft)
    if ending := pen.skewed(TEMPLATES["endings"], 0.4):
        pen.write(ending, scope, draft)
    draft.separator = "\n" if pen.chance(0.4) else " "
    return draft


def _scope(pen: Pen, matter: str, staff: list[str], firms: list[str]) -> tuple[Scope, str, str]:
    """Return words near one topic of a matter, the sender, the subject. A sender deals with few firms."""
    words = MATTERS[matter]
    place = pen.rng.random()
    sender = pen.skewed(staff, 0.8)
    desk = staff.index(sender) * 7 % len(firms)
    dealt = [firms[(desk + k) % len(firms)] for k in range(5)]
    subject = pen.near(words["topics"], place)

    def one(kind: str, spread: float = 0.12) -> str:
        return pen.near(words[kind], place, spread)

    def order() -> str:
        return f"{pen.skewed(ORDERS['dishes'], 0.5)} with {pen.skewed(ORDERS['sides'], 0.5)}"

    def amount() -> str:
        if matter == "lunch":
            return f"${pen.number(5, 19)}.{pen.number(0, 99):02d}"
        thousands = f"${pen.number(1, 999)},{pen.number(0, 999):03d}"
        millions = f"${pen.number(11, 995) / 10:.1f} million"
        return pen.skewed((thousands, millions, f"${pen.number(20, 990)}"), 0.7)

    scope: Scope = {
        "topic": lambda: one("topics"),
        "act": lambda: one("acts"),
        "request": lambda: one("requests", 0.2),
        "paper": lambda: one("papers", 0.2),
        "to": lambda: pen.skewed(staff, 0.7),
        "from": lambda: sender,
        "person": lambda: pen.skewed(staff, 0.5),
        "company": lambda: pen.skewed(dealt, 0.8),
        "date": lambda: _date(pen),
        "amount": amount,
        "address": lambda: f"{pen.faker.street_address()}, {pen.faker.city()}",
        "order": order,
        "extension": lambda: str(pen.number(30000, 59999)),
    }
    return scope, sender, subject


def _date(pen: Pen) -> str:
    day = pen.faker.date_between_dates(*YEARS)
    forms = (
        f"{day:%B} {day.day}",
        f"{day.month}/{day.day}/{day:%y}",
        f"{day:%A}, {day:%B} {day.day}",
        f"{day:%B} {day.day}, {day.year}",
    )
    return pen.skewed(forms, 0.6)
