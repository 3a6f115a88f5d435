"""What the nearest of the attacker's texts agree on. It does not query the target encoder.

The text nearest to a translated vector is often wrong, but its neighbours together are right more often.

text: minimum Bayes risk (Kumar and Byrne, NAACL 2004). Of the nearest texts, take the one with the largest
token F1 against all of them, weighted by nearness. facts: take those that are commoner among the nearest
texts than among all. They are ranked by their term of the log-likelihood ratio (Dunning, Computational
Linguistics 1993), count * log(count / expected). A name that occurs everywhere, or in a single neighbour,
ranks low.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from math import log

import torch
from torch import Tensor

from pipelines.measures import facts
from pipelines.measures.inversion import words
from pipelines.measures.vectors import neighbours
from pipelines.runtime.progress import progress
from pipelines.runtime.settings import Checked, Natural

NEAR = 50  # texts that vote on a text
CONCENTRATION = 10.0  # a text weighs exp(CONCENTRATION * cosine)
VOTERS = 100  # texts that vote on facts


@dataclass(frozen=True)
class Settings(Checked):
    """How many facts are added to a guess."""

    facts: Natural = 0  # largest number of facts added to a guess


def consensus(vectors: Tensor, known: Tensor, texts: list[str]) -> list[str]:
    """Return the text that the nearest NEAR agree on, for each of the unit `vectors` (n, e).

    known: the unit vectors (m, e) of `texts`.
    """
    nearest = neighbours(vectors, known, NEAR)  # (n, NEAR)
    cosines = (known[nearest] @ vectors[:, :, None])[:, :, 0]
    weights = (CONCENTRATION * cosines).softmax(1).cpu()
    out = []
    pairs = zip(nearest.tolist(), weights, strict=True)
    for rows, weight in progress(pairs, what="consensus", unit="texts", total=len(vectors)):
        voters = [texts[j] for j in rows]
        out.append(voters[int((agreement(voters) @ weight).argmax())])
    return out


def agreement(texts: Sequence[str]) -> Tensor:
    """Return the token F1 of each text against each, (k, k); 0 for a text without a word."""
    bags = [Counter(words(text)) for text in texts]
    distinct = set().union(*bags)
    counts = torch.tensor([[bag[word] for word in distinct] for bag in bags], dtype=torch.float32)
    length = counts.sum(1)
    common = torch.minimum(counts[:, None], counts[None]).sum(2)
    return 2 * common / (length[:, None] + length[None]).clamp_min(1)


def peculiar_facts(vectors: Tensor, known: Tensor, stated: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the facts that are commoner among the VOTERS texts nearest to each of the unit `vectors` (n, e)
    than among all, ranked.

    known: the unit vectors (m, e) of all texts. stated: the facts that each text states.
    """
    common = Counter(chain.from_iterable(stated))  # number of texts per fact
    ranked = []
    voters: list[list[int]] = neighbours(vectors, known, VOTERS).tolist()
    for near in voters:
        counts = Counter(fact for j in near for fact in stated[j])
        share = len(near) / len(stated)
        surprise = {fact: n * log(n / (share * common[fact])) for fact, n in counts.items()}
        by_surprise = sorted(surprise, key=lambda fact: -surprise[fact])
        ranked.append([fact for fact in by_surprise if surprise[fact] > 0])
    return ranked


def stating(guesses: Sequence[str], peculiar: Sequence[Sequence[str]], count: int) -> list[str]:
    """Add a last line to each guess: the first `count` peculiar facts that it does not state."""
    out = []
    for guess, ranked in zip(guesses, peculiar, strict=True):
        unstated = (fact for fact in ranked if not facts.recovers(guess, fact))
        line = "; ".join(islice(unstated, count))
        out.append(f"{guess}\n{line}" if line else guess)
    return out
