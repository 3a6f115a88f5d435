"""Improve guesses at a text: embed many, and keep the one nearest to the attacked vector.

Each distinct text that is embedded counts as one query of the target encoder. First guesses come from the
inverter, from the attacker's texts, and from two searches:

splice          puts pieces of the attacker's texts together (splice.py)
guided_beams    grows texts by a few sub-words at a time, and keeps those whose embedding is nearest to the
                vector (ZSInvert: Zhang et al. 2025, arXiv 2504.00147)

Two further searches improve the best of them:

swap            replaces one sub-word at a time by another that the inverter finds likely
correct         asks a corrector, which reads the vector, the guess and the guess's vector, for better guesses
                (vec2text: Morris et al. 2023, arXiv 2310.06816)
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import torch
from torch import Tensor

from pipelines.inverters import EMPTY, Draft, Queries, in_lists
from pipelines.inverters.corrector import inputs
from pipelines.inverters.decoder import Decoder
from pipelines.inverters.splice import splice
from pipelines.inverters.writer import Writer
from pipelines.runtime.progress import progress
from pipelines.runtime.settings import Checked, Count, Natural


@dataclass(frozen=True)
class Settings(Checked):
    """How much is spent on one vector."""

    samples: Count = 8  # first guesses, one of them greedy
    nearest: Natural = 1  # how many of the attacker's texts are first guesses, too
    splices: Natural = 0  # rounds of splicing pieces of the nearest texts together
    pool: Count = 20  # texts whose pieces are spliced
    pieces: Count = 12  # tried in each round
    beams: Natural = 0  # 0: no guided beam search
    branches: Count = 4  # continuations tried of each beam
    stride: Count = 8  # sub-words that a beam grows by between queries
    rounds: Natural = 4  # rounds in which sub-words are swapped
    swaps: Count = 8  # tried in each round
    corrections: Natural = 0  # rounds of the corrector
    width: Count = 4  # corrections tried in each round

    @property
    def texts_needed(self) -> int:
        """Number of the attacker's texts that a search needs for each vector."""
        return max(self.nearest, self.pool if self.splices else 1)


@dataclass(frozen=True)
class Guess:
    """A draft, and the cosine of its embedding to the attacked vector."""

    draft: Draft
    cosine: float


def search(
    inverter: Writer,
    vectors: Tensor,
    queries: Queries,
    s: Settings,
    seed: int,
    corrector: Decoder | None,
    near: Sequence[Sequence[str]],
) -> tuple[list[Draft], list[Guess]]:
    """Return the greedy first guess for each of the unit `vectors` (n, e), and the best after all searches
    that `s` asks for.

    near: the attacker's texts nearest to each vector, nearest first.
    """
    run = Search(inverter, vectors, queries, s, torch.Generator().manual_seed(seed))
    # 1. First guesses of each kind: for each vector a list of drafts
    known = [[inverter.draft(text) for text in texts[: s.nearest]] for texts in near]
    greedy = inverter.propose(vectors)
    guesses = [[[draft] for draft in greedy], known]
    if s.splices:
        guesses.append(run.spliced(near))
    if s.samples > 1:
        guesses.append(run.samples())
    if s.beams:
        guesses.append(run.guided_beams())
    # 2. The nearest of them
    pools = [list(chain(*drafts)) for drafts in zip(*guesses, strict=True)]
    best = [ranked[0] for ranked in run.ranked(pools)]
    # 3. Improve it
    best = run.swap(best)
    if corrector and s.corrections:
        best = run.correct(best, corrector)
    return greedy, best


@dataclass(frozen=True)
class Search:
    """One search. Its steps share the inverter, the attacked vectors, the queries and the random draws."""

    inverter: Writer
    vectors: Tensor  # (n, e) unit
    queries: Queries
    settings: Settings
    generator: torch.Generator

    def spliced(self, near: Sequence[Sequence[str]]) -> list[list[Draft]]:
        """Return a text spliced from pieces of the nearest texts for each vector."""
        s = self.settings

        def fits(text: str) -> bool:
            return len(self.inverter.draft(text).ids) < self.inverter.tokens

        pools = [texts[: s.pool] for texts in near]
        found = splice(self.vectors, pools, self.queries, fits, s.splices, s.pieces)
        return [[self.inverter.draft(text)] for text in found]

    def samples(self) -> list[list[Draft]]:
        """Return `samples - 1` sampled texts for each vector."""
        count = self.settings.samples - 1
        drafts = self.inverter.propose(self.vectors.repeat_interleave(count, 0), self.generator)
        return in_lists(drafts, [count] * len(self.vectors))

    def guided_beams(self) -> list[list[Draft]]:
        """Return `beams` drafts for each vector, nearest first."""
        s, beams = self.settings, [[EMPTY] for _ in self.vectors]
        steps = math.ceil(self.inverter.tokens / s.stride)
        for _ in progress(range(steps), what="guided beams", unit="steps"):
            # Each unfinished draft grows in `branches` ways. All have the same length.
            growing = [(i, d) for i, drafts in enumerate(beams) for d in drafts if not d.done]
            if not growing:
                break
            rows, drafts = zip(*(pair for pair in growing for _ in range(s.branches)), strict=True)
            given = self.vectors[list(rows)]
            grown = self.inverter.propose(given, self.generator, drafts=drafts, length=s.stride)
            # Finished drafts compete with the grown ones
            pools = [[d for d in drafts if d.done] for drafts in beams]
            for i, draft in zip(rows, grown, strict=True):
                pools[i].append(draft)
            beams = [[guess.draft for guess in ranked[: s.beams]] for ranked in self.ranked(pools)]
        return beams

    def swap(self, best: list[Guess]) -> list[Guess]:
        """Swap one sub-word a round for another that is likely, `rounds` times."""
        for _ in progress(range(self.settings.rounds), what="swap words", unit="rounds"):
            drafts = [guess.draft for guess in best]
            pools = self.inverter.alternatives(self.vectors, drafts, self.settings.swaps, self.generator)
            best = self.nearer(best, pools)
        return best

    def correct(self, best: list[Guess], corrector: Decoder) -> list[Guess]:
        """Let the corrector propose `width` texts a round, `corrections` times."""
        width = self.settings.width
        rows = torch.arange(len(self.vectors)).repeat_interleave(width)
        for _ in progress(range(self.settings.corrections), what="correct", unit="rounds"):
            shown, memory = inputs(self.inverter, self.vectors, [g.draft for g in best], self.queries)
            drafts = corrector.propose(shown[rows], self.generator, memory=memory[rows])
            best = self.nearer(best, in_lists(drafts, [width] * len(best)))
        return best

    def nearer(self, best: Sequence[Guess], pools: Sequence[Sequence[Draft]]) -> list[Guess]:
        """Return for each vector the nearest of its best guess so far and the drafts of its pool."""
        pairs = zip(best, self.ranked(pools), strict=True)
        return [max([old, *ranked], key=lambda guess: guess.cosine) for old, ranked in pairs]

    def ranked(self, pools: Sequence[Sequence[Draft]]) -> list[list[Guess]]:
        """Return the distinct drafts of each vector's pool as guesses, nearest first."""
        pools = [self.distinct(pool) for pool in pools]
        rows = [i for i, pool in enumerate(pools) for _ in pool]
        if not rows:
            return [[] for _ in pools]
        drafts = list(chain(*pools))
        embedded = self.queries([self.inverter.text(d) for d in drafts])  # (all drafts, e)
        cosines = (embedded * self.vectors[rows]).sum(1).tolist()
        guesses = in_lists(map(Guess, drafts, cosines), map(len, pools))
        return [sorted(each, key=lambda guess: -guess.cosine) for each in guesses]

    def distinct(self, pool: Sequence[Draft]) -> list[Draft]:
        """Return the first draft of each text."""
        by_text: dict[str, Draft] = {}
        for draft in pool:
            by_text.setdefault(self.inverter.text(draft), draft)
        return list(by_text.values())
