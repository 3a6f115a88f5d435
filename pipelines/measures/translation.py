"""Compare translated vectors with their true partners (vec2vec, section 4; FOSCTTM: Liu et al. 2019).

The raw cosine contains the mean vector: a random matching can score 0.8. So the cosine is also taken after
centring each side, and ranks use centred cosines. `raw_top1` and `raw_mean_rank` are the measures that
vec2vec publishes: each real vector ranks all translated vectors by raw cosine.
"""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures import Measure, measure
from pipelines.measures.vectors import centred_unit, finite, products

ROWS, KEYS = 1024, 8192  # of a block of the similarity matrix; fewer rows if there are more keys
MEASURES: list[Measure] = []


@dataclass
class Pairs:
    """Translated vectors (n, d) and their partners (n, d), row by row, and their ranks for the measures."""

    translated: Tensor
    target: Tensor

    @cached_property
    def centred(self) -> tuple[Tensor, Tensor]:
        return centred_unit(self.translated), centred_unit(self.target)

    @cached_property
    def rank(self) -> Tensor:
        """Rank of the true partner of each translated vector, by centred cosine. (n,)"""
        return ranks(*self.centred)

    @cached_property
    def raw_rank(self) -> Tensor:
        """Rank of the true translation of each target vector, by raw cosine. (n,)"""
        return ranks(normalize(self.target, dim=1), normalize(self.translated, dim=1))


@measure(MEASURES, "centred cosine")
def centred_cosine(pairs: Pairs) -> Tensor:
    translated, target = pairs.centred
    return (translated * target).sum(1)


@measure(MEASURES)
def cosine(pairs: Pairs) -> Tensor:
    return (normalize(pairs.translated, dim=1) * normalize(pairs.target, dim=1)).sum(1)


@measure(MEASURES, "top-1", headline=True)
def top1(pairs: Pairs) -> Tensor:
    return (pairs.rank <= 1).float()


@measure(MEASURES)
def top10(pairs: Pairs) -> Tensor:
    return (pairs.rank <= 10).float()


@measure(MEASURES, "mean rank", digits=1, better="lower")
def mean_rank(pairs: Pairs) -> Tensor:
    return pairs.rank


@measure(MEASURES)
def raw_top1(pairs: Pairs) -> Tensor:
    return (pairs.raw_rank <= 1).float()


@measure(MEASURES, better="lower")
def raw_mean_rank(pairs: Pairs) -> Tensor:
    return pairs.raw_rank


@measure(MEASURES, "FOSCTTM", digits=4, better="lower")
def foscttm(pairs: Pairs) -> Tensor:
    """Fraction of samples closer than the true match: (rank - 1) / (n - 1). 0 is perfect, 0.5 is random.

    Translated vectors search target vectors, by centred cosine. The original averages both directions.
    """
    return (pairs.rank - 1) / max(len(pairs.rank) - 1, 1)


def paired_scores(translated: Tensor, target: Tensor, batch: int = 8192) -> dict[str, Tensor]:
    """Return every measure's score per example. (n, d), (n, d) -> {name: (n,)}

    Row i of `translated` belongs to row i of `target`. Vectors are centred by the means of their batch, and
    pairs are ranked within it (see `batches`). A mean is that of the raw vectors, so a single very long
    vector moves it, and with it all scores of its batch. Vectors of 16 bits are compared in float32. Raises
    BadInput for a row that is not finite.
    """
    wide = torch.promote_types(torch.promote_types(translated.dtype, target.dtype), torch.float32)
    translated, target = finite("translated", translated).to(wide), finite("target", target).to(wide)
    parts = [Pairs(translated[part], target[part]) for part in batches(len(target), batch)]
    # Every measure of this module has `compute`; the type checker does not know
    return {m.name: torch.cat([m.compute(part) for part in parts]) for m in MEASURES if m.compute}


def batches(n: int, batch: int) -> list[slice]:
    """Split n pairs into as few batches of at most `batch` as possible, of equal size up to one pair.

    In a smaller batch top-1 would be easier. A batch has at least two pairs: with `batch` 2 one may have
    three.
    """
    count = max(1, min(math.ceil(n / batch), n // 2))
    return [slice(n * i // count, n * (i + 1) // count) for i in range(count)]


def ranks(queries: Tensor, keys: Tensor) -> Tensor:
    """Return the rank (1 = best) of key i among all keys by cosine to query i; ties count half.

    So of two equal keys neither has rank 1. Takes unit rows (n, d), (m, d) with m >= n, returns (n,). Raises
    BadInput for a row that is not finite.
    """
    queries, keys = finite("queries", queries), finite("keys", keys)
    out, block = [], max(1, min(ROWS, ROWS * KEYS // len(keys)))
    for i, scores in products(queries, keys, block):
        rows = torch.arange(len(scores), device=scores.device)
        true = scores[rows, i + rows].unsqueeze(1)
        out.append(1 + (scores > true).sum(1) + ((scores == true).sum(1) - 1) / 2)
    return torch.cat(out)
