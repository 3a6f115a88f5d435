"""The small grammar of the generator: skewed draws, words that belong together, templates, planted facts.

A template is a sentence with slots: "{subject} {act}". A slot is looked up in a scope of functions; `{slot!facts}` also
records the word as a planted fact of the column `facts`. Every draw comes from one seeded generator.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from faker import Faker

from pipelines.runtime.progress import progress
from pipelines.study import SyntheticCorpus

Scope = dict[str, Callable[[], str]]
_SLOT = re.compile(r"\{(\w+)(?:!(\w+))?\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=(?:[aeio]|u[mnlrps](?!i))\w|8\d|1[18]-)")


@functools.cache
def zipf(n: int, exponent: float = 1.0) -> np.ndarray:
    """Cumulative probabilities (n,) of Zipf's law: the k-th of n is drawn in proportion to k**-exponent."""
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return np.cumsum(weights / weights.sum())


@functools.cache
def split(items: str) -> tuple[str, ...]:
    """The items of a lexicon's line."""
    return tuple(item.strip() for item in items.split(";"))


@dataclass
class Draft:
    """A text being written and the facts planted in it, by column."""

    sentences: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    facts: dict[str, list[str]] = field(default_factory=dict)
    used: set[str] = field(
        default_factory=set
    )  # words in slots so far, which are avoided where there is a choice

    def text(self, separator: str = " ") -> str:
        return separator.join(self.sentences)


class Pen:
    """Draws and writes, from one seed: a numpy generator and a Faker instance of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.faker = Faker("en_US")
        self.faker.seed_instance(seed)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def number(self, low: int, high: int) -> int:
        """Uniform in low..high, both included."""
        return int(self.rng.integers(low, high + 1))

    def skewed(self, items: Sequence, exponent: float = 1.0):
        """One of `items`, the first ones by far the most often."""
        return items[min(int(np.searchsorted(zipf(len(items), exponent), self.rng.random())), len(items) - 1)]

    def any(self, items: Sequence):
        return items[int(self.rng.integers(len(items)))]

    def near(self, items: Sequence[str], place: float, spread: float = 0.1) -> str:
        """One of `items` near `place` in [0, 1] of the list: neighbours in a lexicon belong together."""
        at = round((place + spread * self.rng.standard_normal()) * (len(items) - 1))
        return items[min(max(at, 0), len(items) - 1)]

    def several(self, items: Sequence, count: int, exponent: float = 1.0) -> list:
        """At most `count` different items, in the order drawn."""
        return list(dict.fromkeys(self.skewed(items, exponent) for _ in range(2 * count)))[:count]

    def fill(self, template: str, scope: Scope, draft: Draft) -> str:
        """The template's sentence, its planted facts recorded in `draft`; slots avoid the words of earlier ones."""

        def word(match: re.Match[str]) -> str:
            for _ in range(4):
                value = scope[match[1]]()
                if value not in draft.used:
                    break
            draft.used.add(value)
            if match[2]:
                known = draft.facts.setdefault(match[2], [])
                known.extend([value] if value not in known else [])
            return value

        sentence = _ARTICLE.sub(r"\1n ", _SLOT.sub(word, template))
        return sentence[0].upper() + sentence[1:]

    def write(self, template: str, scope: Scope, draft: Draft) -> None:
        draft.sentences.append(self.fill(template, scope, draft))


def people(pen: Pen, count: int) -> list[str]:
    """Names without titles, each once."""
    return _once(lambda: f"{pen.faker.first_name()} {pen.faker.last_name()}", count)


def companies(pen: Pen, count: int) -> list[str]:
    return _once(pen.faker.company, count)


def _once(make: Callable[[], str], count: int) -> list[str]:
    return list(dict.fromkeys(make() for _ in range(count)))


def corpus(
    p: SyntheticCorpus, name: str, facts: Iterable[str], write: Callable[[Pen, int], tuple[str, Draft]]
) -> pl.DataFrame:
    """`p.rows` different texts by `write(pen, count)`: id, text, labels and a list[str] column of planted facts for
    each of `facts`.

    Texts that differ only in case, digits or punctuation count as alike. Every fact occurs verbatim in its text.
    """
    pen, count = Pen(p.seed), p.rows or 2000
    seen: set[str] = set()
    rows: list[dict] = []
    with progress(what=f"generated {name}", unit="texts", total=count) as bar:
        while len(rows) < count:
            text, draft = write(pen, len(rows))
            key = re.sub(r"[\W\d]+", " ", text.lower())
            if key in seen:
                continue
            seen.add(key)
            planted = {column: [f for f in draft.facts.get(column, []) if f in text] for column in facts}
            rows.append({"id": f"{name}-{len(rows):06d}", "text": text, "labels": draft.labels, **planted})
            bar.update()
    lists = {column: pl.List(pl.String) for column in ("labels", *facts)}
    return pl.DataFrame(rows, schema={"id": pl.String, "text": pl.String, **lists})
