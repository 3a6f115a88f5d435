"""Did an alignment work? A score in [0, 1] and a label, without a single pair.

Every unpaired method returns some map, and its own objective is no judge: a wrong map couples points almost as well as the right
one. What wrong maps do not do is agree: fitted with another seed on other texts, a right one comes out the same, and a wrong one
different. One number, `agreement`, tells; docs/experiments.md has those that do not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import FEW, dimensions
from pipelines.aligners.core.matching import draw
from pipelines.aligners.core.translator import Translator
from pipelines.measures.vectors import centred_unit

# score = 1 / (1 + exp(-SLOPE (agreement - MIDDLE))): the chance of a held-out FOSCTTM of at most 0.1, by `benchmarks.verdict fit`
SLOPE, MIDDLE = 39.4, 0.134
REPLICATE = 1_000_000  # added to the seed of a lone translator: the seed of the second, independent fit that its verdict needs
ALIGNED, DOUBTFUL = 0.95, 0.05  # lowest scores of these labels
SAMPLE = 40_000  # vectors that a verdict looks at, at random: a mean of so many cosines has a standard error below .005


@dataclass(frozen=True)
class Verdict:
    score: float
    label: str  # aligned | doubtful | failed
    agreement: float
    dimensions: float  # effective number of the translated cloud's dimensions


@torch.no_grad()
def agreement(source: Tensor, translated: Tensor, replicates: Sequence[Translator]) -> float:
    """Mean cosine, about the centre and beside the FEW leading directions of it, between what a translator made of source vectors
    (n, d) -> (n, e) and what a replicate does.

    Along the leading directions wrong maps resemble each other, which take one heap of texts to one heap; beside them only right
    ones do. Of several replicates the best counts: two wrong fits do not agree, but a right one may be alone among wrong ones.
    """
    moved = centred_unit(translated)
    leading = min(FEW, moved.shape[1] // 2)
    fine = torch.linalg.eigh((moved.T @ moved).double())[1][:, : moved.shape[1] - leading].to(moved.dtype)

    def beside(cloud: Tensor) -> Tensor:
        return normalize(cloud @ fine, dim=1)

    moved = beside(moved)
    return max(
        float((moved * beside(centred_unit(replicate(source)))).sum(1).mean()) for replicate in replicates
    )


def replicate(fit: Callable[[Tensor, Tensor, int], Any], source: Tensor, target: Tensor, seed: int) -> Any:
    """What a lone translator, fitted with `seed`, is judged by: `fit` with another seed on half of the vectors of both sides."""
    return fit(source[::2], target[::2], seed + REPLICATE)


@torch.no_grad()
def judge(source: Tensor, translator: Translator, replicates: Sequence[Translator]) -> Verdict:
    """A verdict from the source vectors (n, d) of a fit, and translators fitted independently: other seed, other texts.

    A deterministic aligner agrees with itself whatever it does: its second fit is no replicate. Of more than SAMPLE vectors a
    sample is looked at, so that memory and time stop growing there.
    """
    if len(source) > SAMPLE:
        source = draw(source, SAMPLE, torch.Generator().manual_seed(0))
    translated = translator(source)
    return of(agreement(source, translated, replicates), dimensions(translated))


def of(agreement: float, dimensions: float) -> Verdict:
    """The verdict that an agreement calls for, in a cloud of this many dimensions: in few, two wrong fits can agree."""
    score = 1 / (1 + math.exp(-SLOPE * (agreement - MIDDLE)))
    score = min(score, 0.5) if dimensions < FEW else score
    label = "aligned" if score >= ALIGNED else "doubtful" if score >= DOUBTFUL else "failed"
    return Verdict(score, label, agreement, dimensions)
