"""Judge an alignment without pairs: a score in [0, 1] and a label.

Every unpaired method returns some map, and its own objective cannot judge it: a wrong map couples points
almost as well as the right one. But wrong maps do not agree. Fitted again with another seed on other texts, a
right map comes out the same and a wrong one different. `agreement` measures this; docs/experiments.md has
measures that do not work.
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

# score = 1 / (1 + exp(-SLOPE (agreement - MIDDLE))) is the probability that the held-out FOSCTTM is at most
# 0.1. Fitted by `benchmarks.verdict fit`.
SLOPE, MIDDLE = 39.4, 0.134
ALIGNED, DOUBTFUL = 0.95, 0.05  # lowest scores of these labels
REPLICATE = 1_000_000  # added to the seed of a translator: the seed of the second fit that judges it
SAMPLE = 40_000  # vectors that a verdict looks at: the standard error of the mean cosine is then below .005


@dataclass(frozen=True)
class Verdict:
    score: float
    label: str  # aligned | doubtful | failed
    agreement: float
    dimensions: float  # effective number of dimensions of the translated cloud


@torch.no_grad()
def judge(source: Tensor, translator: Translator, replicates: Sequence[Translator]) -> Verdict:
    """Judge a translator on the source vectors (n, d) of its fit, by fits with another seed on other texts.

    A second fit of a deterministic aligner to the same texts is no replicate: it always agrees. Of more than
    SAMPLE vectors a random sample is used.
    """
    if len(source) > SAMPLE:
        source = draw(source, SAMPLE, torch.Generator().manual_seed(0))
    translated = translator(source)
    return verdict_of(agreement(source, translated, replicates), dimensions(translated))


@torch.no_grad()
def agreement(source: Tensor, translated: Tensor, replicates: Sequence[Translator]) -> float:
    """Return the mean centred cosine of translations (n, e) of source (n, d) and those by a replicate.

    The FEW leading directions are left out. Wrong maps can agree there by matching whole clusters. The best
    of several replicates counts: two wrong fits do not agree, but a right fit may be the only one.
    """
    moved = centred_unit(translated)
    leading = min(FEW, moved.shape[1] // 2)
    fine = torch.linalg.eigh((moved.T @ moved).double())[1][:, : moved.shape[1] - leading].to(moved.dtype)
    moved = normalize(moved @ fine, dim=1)
    cosines = []
    for replicate in replicates:
        other = normalize(centred_unit(replicate(source)) @ fine, dim=1)
        cosines.append(float((moved * other).sum(1).mean()))
    return max(cosines)


def verdict_of(agreement: float, dimensions: float) -> Verdict:
    """Return the verdict for an agreement. Few dimensions are doubtful at best: wrong fits agree there."""
    score = 1 / (1 + math.exp(-SLOPE * (agreement - MIDDLE)))
    score = min(score, 0.5) if dimensions < FEW else score
    label = "aligned" if score >= ALIGNED else "doubtful" if score >= DOUBTFUL else "failed"
    return Verdict(score, label, agreement, dimensions)


def replicate(fit: Callable[[Tensor, Tensor, int], Any], source: Tensor, target: Tensor, seed: int) -> Any:
    """Fit the replicate that judges a single translator: another seed, half of the vectors of both sides."""
    return fit(source[::2], target[::2], seed + REPLICATE)
