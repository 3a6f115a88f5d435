"""Guesses put together from pieces of the attacker's own texts: matching pursuit (Mallat and Zhang 1993) in the target space.

The pieces are sentences and facts of the texts nearest to the vector. What the guess so far does not explain of the vector
ranks them; the best few are added to the guess or put in the place of one of its sentences, sentences are left out, and what
the encoder finds nearest to the vector stays. A name that a decoder would have to spell is here one piece.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from pipelines.measures import facts
from pipelines.runtime.progress import progress

SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")


def sentences(text: str) -> list[str]:
    """Split at line ends and after full stops; never empty."""
    return [s for part in SENTENCES.split(text) if (s := part.strip())] or [text]


def pieces(texts: Sequence[str]) -> list[str]:
    """Sentences and facts of texts, each once."""
    return list(dict.fromkeys(p for text in texts for p in (*sentences(text), *facts.stated(text))))


def splice(
    vectors: Tensor, near: Sequence[Sequence[str]], queries: Callable[[Sequence[str]], Tensor], fits: Callable[[str], bool],
    rounds: int, tried: int,
) -> list[str]:  # fmt: skip
    """Unit vectors (n, e), each one's nearest texts, nearest first -> a text each, at least as near as the nearest one.

    queries: texts -> unit vectors; fits: whether a text is short enough; tried: pieces in each round.
    """
    offered = [pieces(texts) for texts in near]
    bounds = torch.tensor([len(p) for p in offered]).cumsum(0)[:-1]
    parts = queries([p for texts in offered for p in texts]).tensor_split(bounds)  # n x (pieces, e)
    guesses = [sentences(texts[0]) for texts in near]
    for _ in progress(range(rounds), what="splice", unit="rounds"):
        reached = queries([joined(g) for g in guesses])
        rest = vectors - (reached * vectors).sum(1, keepdim=True) * reached
        best = [(p @ r).topk(min(tried, len(p))).indices.tolist() for p, r in zip(parts, rest, strict=True)]
        tries = [_changed(g, [offered[i][j] for j in best[i]]) for i, g in enumerate(guesses)]
        guesses = _nearer(
            vectors, guesses, [[t for t in changed if fits(joined(t))] for changed in tries], queries
        )
    return [joined(g) for g in guesses]


def joined(parts: Sequence[str]) -> str:
    """A guess as a text."""
    return "\n".join(parts)


def _nearer(
    vectors: Tensor,
    guesses: list[list[str]],
    tries: list[list[list[str]]],
    queries: Callable[[Sequence[str]], Tensor],
) -> list[list[str]]:
    """Of each guess and its tries the nearest to its vector."""
    pools = [[guess, *changed] for guess, changed in zip(guesses, tries, strict=True)]
    reached = queries([joined(t) for pool in pools for t in pool]).split([len(pool) for pool in pools])
    return [
        pool[int((embedded @ v).argmax())] for pool, embedded, v in zip(pools, reached, vectors, strict=True)
    ]


def _changed(guess: list[str], offered: list[str]) -> list[list[str]]:
    """The guess without one sentence, with a piece more, and with a piece in the place of a sentence."""
    new = [p for p in offered if p not in guess]
    without = [guess[:k] + guess[k + 1 :] for k in range(len(guess))] if len(guess) > 1 else []
    swapped = [[*guess[:k], p, *guess[k + 1 :]] for p in new for k in range(len(guess))]
    return without + [[*guess, p] for p in new] + swapped
