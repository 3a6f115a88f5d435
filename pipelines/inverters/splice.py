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

SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")


def sentences(text: str) -> list[str]:
    """Split at line ends and after full stops; never empty."""
    return [s for part in SENTENCES.split(text) if (s := part.strip())] or [text]


def pieces(texts: Sequence[str]) -> list[str]:
    """Sentences and facts of texts, each once."""
    return list(dict.fromkeys(p for t in texts for p in (*sentences(t), *(f for own in facts.annotate(t).values() for f in own))))


def splice(
    vectors: Tensor, near: Sequence[Sequence[str]], queries: Callable[[Sequence[str]], Tensor], fits: Callable[[str], bool],
    rounds: int, tried: int,
) -> list[str]:  # fmt: skip
    """Unit vectors (n, e), each one's nearest texts, nearest first -> a text each, at least as near as the nearest one.

    queries: texts -> unit vectors; fits: whether a text is short enough; tried: pieces in each round.
    """
    own = [pieces(texts) for texts in near]
    bounds = torch.tensor([len(p) for p in own]).cumsum(0)[:-1]
    parts = queries([p for some in own for p in some]).tensor_split(bounds)  # n x (pieces, e)
    guesses = [sentences(texts[0]) for texts in near]
    for _ in range(rounds):
        found = queries(["\n".join(g) for g in guesses])
        cosine = (found * vectors).sum(1, keepdim=True)
        rest = vectors - cosine * found
        tries = []
        for i, guess in enumerate(guesses):
            best = (parts[i] @ rest[i]).topk(min(tried, len(own[i]))).indices.tolist()
            tries.append([t for t in _changed(guess, [own[i][j] for j in best]) if fits("\n".join(t))])
        new = queries(["\n".join(t) for some in tries for t in some] or ["."])
        for i, scores in enumerate(new.split([len(some) for some in tries]) if any(tries) else []):
            if len(scores) and (closeness := scores @ vectors[i]).max() > cosine[i]:
                guesses[i] = tries[i][int(closeness.argmax())]
    return ["\n".join(g) for g in guesses]


def _changed(guess: list[str], offered: list[str]) -> list[list[str]]:
    """The guess without one sentence, with a piece more, and with a piece in the place of a sentence."""
    new = [p for p in offered if p not in guess]
    without = [guess[:k] + guess[k + 1 :] for k in range(len(guess))] if len(guess) > 1 else []
    swapped = [guess[:k] + [p] + guess[k + 1 :] for p in new for k in range(len(guess))]
    return without + [[*guess, p] for p in new] + swapped
