"""The grammar of the generator: skewed draws, words that belong together, templates, planted facts.

A template is a sentence with slots: "{subject} {act}". A scope gives each slot a function that returns its
words. `{slot!facts}` also records the words as a planted fact of column `facts`. All draws come from one
seed.
"""

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
# "a" before a vowel sound, such as "a umbrella" or "a 18-month", but not "a union"
_ARTICLE = re.compile(r"\b([Aa]) (?=(?:[aeio]|u[mnlrps](?!i))\w|8\d|1[18]-)")


@functools.cache
def zipf(n: int, exponent: float = 1.0) -> np.ndarray:
    """Return cumulative probabilities (n,) of Zipf's law: the k-th of n has weight k**-exponent."""
    weights = np.arange(1, n + 1, dtype=np.float64) ** -exponent
    return np.cumsum(weights / weights.sum())


def lexicon(module: str) -> dict[str, Any]:
    """Return words.yaml beside a module. Lists, and strings separated by semicolons, become tuples."""
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
    facts: dict[str, dict[str, None]] = field(default_factory=dict)  # ordered, none twice
    used: set[str] = field(default_factory=set)  # words in slots so far; later slots avoid them
    more: dict[str, str] = field(default_factory=dict)  # other columns
    separator: str = " "  # between sentences

    def text(self) -> str:
        """Return the sentences as one text."""
        return self.separator.join(self.sentences)


class Pen:
    """Draw and write from one seed, with a numpy generator and a Faker instance of its own."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.faker = Faker("en_US")
        self.faker.seed_instance(seed)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

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
        return once(lambda: self.skewed(items, exponent), 2 * count)[:count]

    def write(self, template: str, scope: Scope, draft: Draft) -> None:
        """Add the template's sentence and its planted facts to `draft`."""

        def word(match: re.Match[str]) -> str:
            for _ in range(4):
                value = scope[match[1]]()
                if value not in draft.used:
                    break
            draft.used.add(value)
            if match[2]:
                draft.facts.setdefault(match[2], {})[value] = None
            return value

        sentence = _ARTICLE.sub(r"\1n ", _SLOT.sub(word, template))
        draft.sentences.append(capital(sentence))


def capital(words: str) -> str:
    """Return words with a capital first letter."""
    return words[0].upper() + words[1:]


def people(pen: Pen, count: int) -> list[str]:
    """Draw at most `count` different names without titles."""
    return once(lambda: f"{pen.faker.first_name()} {pen.faker.last_name()}", count)


def once(make: Callable[[], str], count: int) -> list[str]:
    """Call `make` `count` times and return the different values."""
    return list(dict.fromkeys(make() for _ in range(count)))


def corpus(p: SyntheticCorpus, facts: Iterable[str], write: Callable[[], Draft]) -> pl.DataFrame:
    """Return `p.rows` different texts: id, text, labels, a list[str] column of planted facts for each of
    `facts`, and the columns of `more`.

    `write()` writes one. Texts that differ only in case, digits or punctuation count as equal. Every fact
    occurs verbatim in its text.
    """
    name, count = p.kind.removesuffix("s"), p.count
    seen: set[str] = set()
    rows: list[dict] = []
    with progress(what=f"generated {name}", unit="texts", total=count) as bar:
        while len(rows) < count:
            draft = write()
            text = draft.text()
            key = re.sub(r"[\W\d]+", " ", text.lower())
            if key in seen:
                continue
            seen.add(key)
            planted = {column: [f for f in draft.facts.get(column, []) if f in text] for column in facts}
            known = {"id": f"{name}-{len(rows):06d}", "text": text, "labels": draft.labels}
            rows.append(known | planted | draft.more)
            bar.update()
    lists = {column: pl.List(pl.String) for column in ("labels", *facts)}
    return pl.DataFrame(rows, schema_overrides=lists)
