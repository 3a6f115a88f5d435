"""Inverters: from a vector of the target space back to a text. All that an inverter has seen is the attacker's own
texts.

attacker.py all of that together · decoder.py a small decoder from scratch · hub.py the same from a hub language model ·
retrieval.py nearest texts of the attacker · consensus.py what they agree on · search.py correction with encoder queries ·
splice.py guesses from pieces of those texts · corrector.py vec2text's, learnt · vec2text.py vec2text's released weights ·
judge.py an optional yes/no judge · vocabulary.py sub-words learnt from the attacker's texts
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["EMPTY", "Draft", "Inverter", "Queries", "Space"]


@dataclass(frozen=True)
class Draft:
    """A text in the making: sub-words so far, their log-probability, and whether it has ended."""

    ids: tuple[int, ...]
    logprob: float
    done: bool


class Inverter(Protocol):
    """What search needs of a generative inverter."""

    tokens: int  # the longest text, in its own sub-words

    def propose(
        self,
        vectors: Tensor,
        drafts: Sequence[Draft],
        length: int,
        temperature: float,
        generator: torch.Generator,
    ) -> list[Draft]:
        """Each draft continued by at most `length` sub-words, conditioned on its row of `vectors` (n, e); 0: greedily."""
        ...

    def text(self, draft: Draft) -> str:
        """What a draft says."""
        ...

    def draft(self, text: str) -> Draft:
        """A text that somebody wrote, as a finished draft; its likelihood is not asked for."""
        ...

    def alternatives(
        self, vectors: Tensor, drafts: Sequence[Draft], count: int, generator: torch.Generator
    ) -> list[list[Draft]]:
        """For each draft, `count` drafts that differ from it in one sub-word."""
        ...


@dataclass(frozen=True)
class Space:
    """Target space as the attacker sees it: centred on the attacker's own texts, unit length.

    Guides search and conditions decoders.
    """

    mean: Tensor  # (e,)

    @classmethod
    def of(cls, vectors: Tensor) -> Space:
        return cls(vectors.float().mean(0))

    def __call__(self, vectors: Tensor) -> Tensor:
        """(n, e) raw, on any device -> (n, e) unit rows, on the mean's"""
        return normalize(vectors.to(self.mean.device).float() - self.mean, dim=1)


EMPTY = Draft((), 0.0, False)


class Queries:
    """The target encoder as the attacker uses it: texts -> unit vectors (n, e), each distinct text once, counted."""

    def __init__(self, encode: Callable[[Sequence[str]], Tensor], space: Callable[[Tensor], Tensor]) -> None:
        self.count, self.encode, self.space = 0, encode, space
        self._known: dict[str, Tensor] = {}

    def __call__(self, texts: Sequence[str]) -> Tensor:
        new = [t for t in dict.fromkeys(texts) if t not in self._known]
        if new:
            self.count += len(new)
            vectors = self.space(self.encode([t or "." for t in new]))  # an encoder may refuse an empty text
            self._known |= dict(zip(new, vectors, strict=True))
        return torch.stack([self._known[t] for t in texts])
