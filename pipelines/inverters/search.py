"""Correction: guess, embed the guess, keep what comes closer to the vector. Every embedded text is a query, and is
counted.

guided_beam: ZSInvert (Zhang et al. 2025, arXiv 2504.00147): beams grow by a few sub-words, and those whose embedding
is nearest to the target vector stay. splice: pieces of the attacker's own texts, put together (splice.py). substitute: one
sub-word at a time is swapped for another that the inverter thinks likely there. iterate: vec2text (Morris et al. 2023, arXiv
2310.06816): a corrector that has been shown (target vector, vector of the guess, difference, guess) proposes better guesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pipelines.inverters import EMPTY, Draft, Inverter, Queries
from pipelines.inverters.corrector import memory_of, shown_to
from pipelines.inverters.decoder import Decoder
from pipelines.inverters.splice import splice
from pipelines.runtime.progress import progress
from pipelines.runtime.settings import check_settings


@dataclass(frozen=True)
class Settings:
    """How much is spent on one vector."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    samples: int = 8  # first guesses, one of them greedy
    nearest: int = 1  # of the attacker's own texts, which are first guesses too
    splices: int = 0  # rounds of splicing pieces of the nearest texts together
    pool: int = 20  # texts whose pieces these are
    pieces: int = 12  # tried in each round
    beams: int = 0  # 0: no guided beam search
    branches: int = 4  # continuations tried of each beam
    stride: int = 8  # sub-words a beam grows by between queries
    rounds: int = 4  # of substitution
    swaps: int = 8  # tried in each round
    corrections: int = 0  # rounds of the learnt corrector
    width: int = 4  # corrections tried in each round
    temperature: float = 0.7
    fluency: float = 0.0  # weight of the mean log-probability of a sub-word beside the cosine

    @property
    def near(self) -> int:
        """How many of the attacker's own texts a search asks for."""
        return max(self.nearest, self.pool if self.splices else 1)

    def __post_init__(self) -> None:
        ones = ("samples", "pool", "pieces", "branches", "stride", "swaps", "width")
        zeros = ("nearest", "splices", "beams", "rounds", "corrections", "temperature", "fluency")
        check_settings(self, dict.fromkeys(ones, 1) | dict.fromkeys(zeros, 0))


@dataclass(frozen=True)
class Guess:
    """The best so far for one vector."""

    draft: Draft
    cosine: float  # of its embedding to the vector that was attacked, centred


def first_guesses(inverter: Inverter, vectors: Tensor, generator: torch.Generator) -> list[Draft]:
    """Greedy, without a single query."""
    return inverter.propose(vectors, [EMPTY] * len(vectors), inverter.tokens, 0.0, generator)


def search(
    inverter: Inverter, vectors: Tensor, queries: Queries, s: Settings, seed: int, corrector: Decoder | None = None,
    near: Sequence[Sequence[str]] | None = None,
) -> list[Guess]:  # fmt: skip
    """Unit vectors (n, e) -> the guess whose embedding is nearest to each, after every kind of correction that `s` asks for.

    near: for each vector, the attacker's own texts, nearest first: to begin with, beside the inverter's own, and for pieces.
    """
    generator = torch.Generator().manual_seed(seed)
    pools = [[d] for d in first_guesses(inverter, vectors, generator)]
    for pool, texts in zip(pools, near or [[]] * len(pools), strict=True):
        pool += [inverter.draft(text) for text in texts[: s.nearest]]
    if near and s.splices:
        nearest = [texts[: s.pool] for texts in near]
        spliced = splice(
            vectors,
            nearest,
            queries,
            lambda t: len(inverter.draft(t).ids) < inverter.tokens,
            s.splices,
            s.pieces,
        )
        for pool, text in zip(pools, spliced, strict=True):
            pool.append(inverter.draft(text))
    if s.samples > 1:
        rows = torch.arange(len(vectors)).repeat_interleave(s.samples - 1)
        drafts = inverter.propose(
            vectors[rows], [EMPTY] * len(rows), inverter.tokens, s.temperature, generator
        )
        for row, draft in zip(rows.tolist(), drafts, strict=True):
            pools[row].append(draft)
    if s.beams:
        for pool, drafts in zip(pools, guided_beam(inverter, vectors, queries, s, generator), strict=True):
            pool += drafts
    best = _best(inverter, vectors, queries, pools, s, None)
    for _ in progress(range(s.rounds), what="swap words", unit="rounds"):
        pools = inverter.alternatives(vectors, [g.draft for g in best], s.swaps, generator)
        best = _best(inverter, vectors, queries, pools, s, best)
    if corrector is not None:
        best = iterate(inverter, corrector, vectors, queries, best, s, generator)
    return best


def guided_beam(
    inverter: Inverter, vectors: Tensor, queries: Queries, s: Settings, generator: torch.Generator
) -> list[list[Draft]]:
    """`beams` drafts per vector (n, e), nearest first."""
    beams: list[list[Draft]] = [[EMPTY] for _ in vectors]
    for _ in progress(range(-(-inverter.tokens // s.stride)), what="guided beam", unit="steps"):
        rows = [
            (i, d) for i, drafts in enumerate(beams) for d in drafts if not d.done for _ in range(s.branches)
        ]
        if not rows:
            break
        index = [i for i, _ in rows]
        grown = inverter.propose(vectors[index], [d for _, d in rows], s.stride, s.temperature, generator)
        pools = [[d for d in drafts if d.done] for drafts in beams]
        for i, draft in zip(index, grown, strict=True):
            pools[i].append(draft)
        beams = [
            [draft for _, draft in ranked[: s.beams]]
            for ranked in _ranked(inverter, vectors, queries, pools, s)
        ]
    return beams


def _ranked(
    inverter: Inverter, vectors: Tensor, queries: Queries, pools: Sequence[Sequence[Draft]], s: Settings
) -> list[list[tuple[float, Draft]]]:
    """Each pool's distinct drafts with their cosine, best first."""
    pools = [list({inverter.text(d): d for d in reversed(pool)}.values()) for pool in pools]
    flat = [(i, d) for i, pool in enumerate(pools) for d in pool]
    out: list[list[tuple[float, float, Draft]]] = [[] for _ in pools]
    if flat:
        embedded = queries([inverter.text(d) for _, d in flat])  # (all drafts, e)
        cosine = (embedded * vectors[[i for i, _ in flat]]).sum(1).tolist()
        for (i, draft), c in zip(flat, cosine, strict=True):
            out[i].append((c + s.fluency * draft.logprob / max(len(draft.ids), 1), c, draft))
    return [[(c, d) for _, c, d in sorted(scored, key=lambda x: -x[0])] for scored in out]


def _best(
    inverter: Inverter,
    vectors: Tensor,
    queries: Queries,
    pools: Sequence[Sequence[Draft]],
    s: Settings,
    before: Sequence[Guess] | None,
) -> list[Guess]:
    """The best of each pool, unless what was there before is nearer."""
    out = []
    for i, ranked in enumerate(_ranked(inverter, vectors, queries, pools, s)):
        new = Guess(ranked[0][1], ranked[0][0]) if ranked else None
        old = before[i] if before is not None else None
        out.append(new if old is None or (new is not None and new.cosine > old.cosine) else old)
    return out


# ---------------------------------------------------------------- vec2text


def iterate(
    inverter: Inverter,
    corrector: Decoder,
    vectors: Tensor,
    queries: Queries,
    best: list[Guess],
    s: Settings,
    generator: torch.Generator,
) -> list[Guess]:
    """`corrections` rounds: the corrector proposes `width` texts from what the last round knew, and the nearest stays."""
    rows = torch.arange(len(vectors)).repeat_interleave(s.width)
    for _ in progress(range(s.corrections), what="correct", unit="rounds"):
        shown = shown_to(vectors, queries([inverter.text(g.draft) for g in best]))[rows]
        memory = memory_of([g.draft.ids for g in best], corrector.memory, corrector.vocabulary.pad)[rows]
        drafts = corrector.propose(
            shown, [EMPTY] * len(rows), corrector.tokens, s.temperature, generator, memory
        )
        pools = [drafts[i * s.width : (i + 1) * s.width] for i in range(len(vectors))]
        best = _best(inverter, vectors, queries, pools, s, best)
    return best
