"""Guesses put together from pieces of the attacker's texts: matching pursuit (Mallat and Zhang 1993) in the
target space.

The pieces are sentences and facts of the texts nearest to the vector. They are ranked by what the guess so
far does not explain of the vector. The best few are added to the guess, or replace one of its sentences;
sentences are also left out. The variant whose embedding is nearest to the vector stays. A name that a decoder
would have to spell is one piece here.
"""

import re
from collections.abc import Callable, Sequence
from itertools import chain

from torch import Tensor

from pipelines.measures import facts
from pipelines.runtime.progress import progress

SENTENCES = re.compile(r"(?<=[.!?])\s+|\n+")
joined = "\n".join  # the parts of a guess as a text


def splice(
    vectors: Tensor,
    near: Sequence[Sequence[str]],
    queries: Callable[[Sequence[str]], Tensor],
    fits: Callable[[str], bool],
    rounds: int,
    tried: int,
) -> list[str]:
    """Return one text for each of the unit `vectors` (n, e), at least as near as the start: the nearest text,
    one sentence per line.

    near: the texts nearest to each vector, nearest first. queries: texts -> unit vectors. fits: whether a
    text is short enough. tried: pieces in each round.
    """
    offered = [pieces(texts) for texts in near]
    parts = queries(list(chain(*offered))).split([len(own) for own in offered])  # n x (pieces, e)
    guesses = [sentences(texts[0]) for texts in near]
    for _ in progress(range(rounds), what="splice", unit="rounds"):
        reached = queries(list(map(joined, guesses)))
        rest = vectors - (reached * vectors).sum(1, keepdim=True) * reached
        pools = []
        for guess, own, embedded, unexplained in zip(guesses, offered, parts, rest, strict=True):
            best = (embedded @ unexplained).topk(min(tried, len(own))).indices.tolist()
            variants = changed(guess, [own[j] for j in best])
            pools.append([guess, *(v for v in variants if fits(joined(v)))])
        embedded = queries(list(map(joined, chain(*pools)))).split([len(pool) for pool in pools])
        variants_of_each = zip(pools, embedded, vectors, strict=True)
        guesses = [pool[int((e @ vector).argmax())] for pool, e, vector in variants_of_each]
    return list(map(joined, guesses))


def sentences(text: str) -> list[str]:
    """Split at line ends and after full stops. Never empty."""
    return [s for part in SENTENCES.split(text) if (s := part.strip())] or [text]


def pieces(texts: Sequence[str]) -> list[str]:
    """Return the distinct sentences and facts of texts."""
    return list(dict.fromkeys(p for text in texts for p in (*sentences(text), *facts.stated(text))))


def changed(guess: list[str], offered: list[str]) -> list[list[str]]:
    """Return variants of a guess: without one sentence, with one more piece, with a piece in a sentence's
    place.
    """
    new = [p for p in offered if p not in guess]
    without = [guess[:k] + guess[k + 1 :] for k in range(len(guess))] if len(guess) > 1 else []
    added = [[*guess, p] for p in new]
    swapped = [[*guess[:k], p, *guess[k + 1 :]] for p in new for k in range(len(guess))]
    return without + added + swapped
