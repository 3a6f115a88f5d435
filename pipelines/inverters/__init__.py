"""Inverters write a text from a vector of the target space. They learn from the attacker's own texts only.

attacker.py     what an attacker has: texts, their vectors, a trained inverter
decoder.py      a small decoder trained from scratch
hub.py          a T5 from the Hugging Face hub, fine-tuned
vec2text.py     vec2text's released weights
writer.py       what decoder.py and hub.py share
vocabulary.py   sub-words learnt from the attacker's texts
consensus.py    the text and the facts that the nearest texts agree on
search.py       guesses, chosen and improved by queries to the target encoder
splice.py       guesses built from pieces of the attacker's texts
corrector.py    vec2text's corrector, trained here
judge.py        an optional yes/no judge
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

Item = TypeVar("Item")
Encode = Callable[[Sequence[str]], Tensor]  # texts -> raw vectors (n, d)


@dataclass(frozen=True)
class Draft:
    """A text under construction: its sub-words so far, and whether it has ended."""

    ids: tuple[int, ...]
    done: bool


EMPTY = Draft((), False)


@dataclass(frozen=True)
class Space:
    """The target space as inverters see it: centred on the attacker's texts, rows of unit length."""

    mean: Tensor  # (e,)

    @classmethod
    def of(cls, vectors: Tensor) -> Self:
        return cls(vectors.float().mean(0))

    def __call__(self, vectors: Tensor) -> Tensor:
        """Centre and normalise raw vectors. (n, e) on any device -> (n, e) on the device of the mean"""
        return normalize(vectors.to(self.mean.device).float() - self.mean, dim=1)


class Queries:
    """Embed texts with the target encoder, each distinct text once, and count them.

    space: raw vectors -> what is returned.
    """

    def __init__(self, encode: Encode, space: Callable[[Tensor], Tensor]) -> None:
        self.count, self.encode, self.space = 0, encode, space
        self._known: dict[str, Tensor] = {}

    def __call__(self, texts: Sequence[str]) -> Tensor:
        new = [t for t in dict.fromkeys(texts) if t not in self._known]
        if new:
            self.count += len(new)
            vectors = self.space(self.encode([t or "." for t in new]))  # an encoder may refuse an empty text
            self._known |= dict(zip(new, vectors, strict=True))
        return torch.stack([self._known[t] for t in texts])


def in_lists(flat: Iterable[Item], sizes: Iterable[int]) -> list[list[Item]]:
    """Divide items into lists of these sizes."""
    rest = iter(flat)
    return [list(islice(rest, size)) for size in sizes]


def weights(module: nn.Module) -> dict[str, Tensor]:
    """Return the state of a module on the CPU."""
    return {name: x.cpu() for name, x in module.state_dict().items()}
