"""What the nearest of the attacker's own texts agree on, without a query: a translated vector is off by more than a name, so that
its neighbourhood is right where its nearest text is not.

text: minimum Bayes risk (Kumar and Byrne, NAACL 2004): of the nearest texts the one whose token F1 against all of them, weighted
by nearness, is greatest. facts: those that are commoner among the nearest texts than among all, by their term of the
log-likelihood ratio (Dunning, Computational Linguistics 1993), count * log(count / expected): a name that everybody writes is no
news, and one that a single neighbour writes is no evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import log
from typing import Any, ClassVar

import torch
from torch import Tensor

from pipelines.measures import facts
from pipelines.measures.inversion import words
from pipelines.measures.vectors import neighbours
from pipelines.runtime.settings import check_settings


@dataclass(frozen=True)
class Settings:
    """Who votes, and on how much."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    near: int = 50  # texts that agree on a text
    concentration: float = 10.0  # a text weighs exp(concentration * cosine)
    voters: int = 100  # texts that agree on facts
    facts: int = 0  # added to a guess

    def __post_init__(self) -> None:
        check_settings(self, {"near": 1, "concentration": 0, "voters": 1, "facts": 0})


def consensus(vectors: Tensor, known: Tensor, texts: list[str], s: Settings) -> list[str]:
    """For each of the unit `vectors` (n, e) the text that its nearest agree on; `known`: the unit vectors (m, e) of `texts`."""
    nearest = neighbours(vectors, known, s.near)  # (n, near)
    weights = (
        (s.concentration * (known[nearest] @ vectors[:, :, None])[:, :, 0]).softmax(1).cpu()
    )  # beside the texts
    out = []
    for rows, weight in zip(nearest.tolist(), weights, strict=True):
        voters = [texts[j] for j in rows]
        out.append(voters[int((agreement(voters) @ weight).argmax())])
    return out


def agreement(texts: Sequence[str]) -> Tensor:
    """Token F1 of each text against each, (k, k)."""
    bags = [Counter(words(text)) for text in texts]
    column = {word: j for j, word in enumerate(dict.fromkeys(word for bag in bags for word in bag))}
    counts = torch.zeros(len(texts), len(column))
    for row, bag in zip(counts, bags, strict=True):
        row[[column[word] for word in bag]] = torch.tensor(list(bag.values()), dtype=torch.float32)
    length = counts.sum(1)
    common = torch.minimum(counts[:, None], counts[None]).sum(2)
    return 2 * common / (length[:, None] + length[None]).clamp_min(1)


class Voters:
    """The attacker's texts as voters on facts. texts: all of them, in the order of `known` (m, e), their unit vectors."""

    def __init__(self, known: Tensor, texts: Sequence[str]) -> None:
        self.known, self.stated = known, [facts.stated(text) for text in texts]
        self.common = Counter(fact for stated in self.stated for fact in stated)  # in how many texts it is

    def peculiar(self, vectors: Tensor, s: Settings) -> list[list[str]]:
        """Facts that are commoner near each of the unit `vectors` (n, e) than in all texts, the most so first."""
        return [self._ranked(near) for near in neighbours(vectors, self.known, s.voters).tolist()]

    def _ranked(self, near: Sequence[int]) -> list[str]:
        counts = Counter(fact for j in near for fact in self.stated[j])
        share = len(near) / len(self.stated)
        surprise = {fact: count * log(count / (share * self.common[fact])) for fact, count in counts.items()}
        return [fact for fact in sorted(surprise, key=lambda fact: -surprise[fact]) if surprise[fact] > 0]


def stating(guesses: Sequence[str], peculiar: Sequence[Sequence[str]], s: Settings) -> list[str]:
    """Each guess and, in a last line, the first `s.facts` of its facts that it does not state already."""
    new = (
        (fact for fact in ranked if not facts.recovers(guess, fact))
        for guess, ranked in zip(guesses, peculiar, strict=True)
    )
    lines = ["; ".join(islice(unstated, s.facts)) for unstated in new]
    return [f"{guess}\n{line}" if line else guess for guess, line in zip(guesses, lines, strict=True)]
