"""The grammar of the generator: skewed draws, words that belong together, templates, planted facts.

A template is a sentence with slots: "{subject} {act}". A scope gives each slot a function that returns its
words. `{slot!facts}` also records the words as a planted fact of column `facts`. All draws come from one
seed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import yaml
from faker import Faker

from pipelines.runtime.progress import progress
from pipelines.study import SyntheticCorpus

Scope = dict[str, Callable[[], str]]
_SLOT = re.compile(r"\{(\w+)(?:!(\w+))?\}")
_ARTICLE = re.compile(r"\b([Aa]) (?=(?:[aeio]|u[mnlrps](?!i))\w|8\d|1[18]-)")


@functools.cache
def zipf(n: int, exponent: float = 1.0) -> np.ndarray:
    """Return cumulative probabilities (n,) of Zipf's law: the k-th of n has weight k**-exponent."""
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return np.cumsum(weights / weights.sum())


def lexicon(module: str) -> dict[str, Any]:
    """Return words.yaml beside a module: mappings to tuples, of a list or of the words between semicolons."""
    return _tuples(yaml.safe_load(Path(module).with_name("words.yaml").read_text("utf-8")))


def _tuples(words: Any) -> Any:
    if isinstance(words, dict):
        return {key: _tuples(inner) for key, inner in words.items()}
    return tuple(words) if isinstance(words, list) else tuple(item.strip() for item in words.split(";"))


@dataclass
class Draft:
    """Hold a text that is being written, and the facts planted in it, by column."""

    sentences: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    facts: dict[str, list[str]] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)  # words in slots so far; later slots avoid them

    def text(self, separator: str = " ") -> str:
        """Return the sentences as one text."""
        return separator.join(self.sentences)


class Pen:
    """Draw and write from one seed, with a numpy generator and a Faker instance of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.faker = Faker("en_US")
        self.faker.seed_instance(seed)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return bool(self.rng.random() < probability)

    def number(self, low: int, high: int) -> int:
        """Draw uniformly from low..high, both included."""
        return int(self.rng.integers(low, high + 1))

    def skewed(self, items: Sequence, exponent: float = 1.0):
        """Draw one of `items` by Zipf's law: the first ones by far the most often."""
        return items[min(int(np.searchsorted(zipf(len(items), exponent), self.rng.random())), len(items) - 1)]

    def any(self, items: Sequence):
        """Draw one of `items` uniformly."""
        return items[int(self.rng.integers(len(items)))]

    def near(self, items: Sequence[str], place: float, spread: float = 0.1) -> str:
        """Draw one of `items` near `place` in [0, 1] of the list: neighbours in a lexicon belong together."""
        at = round((place + spread * self.rng.standard_normal()) * (len(items) - 1))
        return items[min(max(at, 0), len(items) - 1)]

    def several(self, items: Sequence, count: int, exponent: float = 1.0) -> list:
        """Draw at most `count` different items by Zipf's law."""
        return list(dict.fromkeys(self.skewed(items, exponent) for _ in range(2 * count)))[:count]

    def fill(self, template: str, scope: Scope, draft: Draft) -> str:
        """Return the template's sentence, and record its planted facts in `draft`."""

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
        """Add the template's sentence to `draft`."""
        draft.sentences.append(self.fill(template, scope, draft))


def people(pen: Pen, count: int) -> list[str]:
    """Draw at most `count` different names without titles."""
    return once(lambda: f"{pen.faker.first_name()} {pen.faker.last_name()}", count)


def once(make: Callable[[], str], count: int) -> list[str]:
    """Call `make` `count` times and return the different values."""
    return list(dict.fromkeys(make() for _ in range(count)))


def corpus(
    p: SyntheticCorpus, name: str, facts: Iterable[str], write: Callable[[Pen, int], tuple[str, Draft]]
) -> pl.DataFrame:
    """Return `p.rows` different texts: id, text, labels, and a list[str] column of planted facts for each of
    `facts`.

    `write(pen, number of texts so far)` writes one. Texts that differ only in case, digits or punctuation
    count as equal. Every fact occurs verbatim in its text.
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
