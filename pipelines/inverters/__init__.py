"""Inverters: from a vector of the target space back to a text. All that an inverter has seen is the attacker's own
texts.

attacker.py all of that together · decoder.py a small decoder from scratch · hub.py the same from a hub language model ·
retrieval.py nearest texts of the attacker · search.py correction with encoder queries · judge.py an optional yes/no judge ·
vocabulary.py sub-words learnt from the attacker's texts
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import normalize

__all__ = ["Draft", "Inverter", "Space"]


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
        self, vectors: Tensor, drafts: Sequence[Draft], length: int, temperature: float, generator: torch.Generator
    ) -> list[Draft]:
        """Each draft continued by at most `length` sub-words, conditioned on its row of `vectors` (n, e); 0: greedily."""
        ...

    def text(self, draft: Draft) -> str:
        """What a draft says."""
        ...

    def draft(self, text: str) -> Draft:
        """A text that somebody wrote, as a finished draft; its likelihood is not asked for."""
        ...

    def alternatives(self, vectors: Tensor, drafts: Sequence[Draft], count: int, generator: torch.Generator) -> list[list[Draft]]:
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
        """(n, e) raw -> (n, e) unit rows"""
        return normalize(vectors.float() - self.mean, dim=1)
