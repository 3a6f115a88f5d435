"""How well cosines agree with human judgements of similarity, and where vectors lie on the unit sphere.

STS: SimCSE's protocol (appendix B): cosine, no regressor, Spearman over all pairs of a task together ("all"). Alignment and
uniformity: Wang and Isola (ICML 2020), as SimCSE's section 5.1 measures them. Vectors that are not finite raise BadInput.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures.vectors import finite

POSITIVE = 4.0  # pairs with a score above it are positives


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """Cosine of every pair. (n, d), (n, d) -> (n,) float64"""
    first, second = finite("first", first).double(), finite("second", second).double()
    return (normalize(first, dim=1) * normalize(second, dim=1)).sum(1)


def average_ranks(values: Tensor) -> Tensor:
    """Ranks from 1, ties sharing their mean rank. (n,) -> (n,) float64"""
    _, inverse, counts = torch.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts.double() - 1) / 2)[inverse]


def pearson(a: Tensor, b: Tensor) -> float:
    """(n,), (n,) -> correlation; nan if one of them is constant."""
    a, b = a.double() - a.double().mean(), b.double() - b.double().mean()
    return ((a @ b) / (a.norm() * b.norm())).item()


def spearman(a: Tensor, b: Tensor) -> float:
    """Pearson of the ranks: with ties, the definition that scipy and SentEval use."""
    return pearson(average_ranks(a), average_ranks(b))


def alignment(first: Tensor, second: Tensor, scores: Tensor) -> float:
    """Mean squared distance of the two unit vectors of positive pairs (score > 4). Lower is better; nan without such pairs."""
    positive = scores > POSITIVE
    return (2 - 2 * cosines(first[positive], second[positive])).mean().item()


def uniformity(vectors: Tensor, block: int = 2048) -> float:
    """log mean exp(-2 |x - y|^2) over all pairs of different rows, as unit vectors. (n, d) -> scalar; lower is more uniform."""
    x = normalize(finite("vectors", vectors), dim=1)
    n, total = len(x), 0.0
    for i in range(0, n, block):
        kernel = torch.exp(4 * (x[i : i + block] @ x.T) - 4)  # |x - y|^2 = 2 - 2 x.y
        total += kernel.sum(dtype=torch.float64).item() - kernel.diagonal(i).sum(dtype=torch.float64).item()
    return torch.tensor(total / (n * (n - 1)), dtype=torch.float64).log().item()


def sts(first: Tensor, second: Tensor, scores: Tensor) -> dict[str, float]:
    """Everything that pairs with scores say about an encoder. (n, d), (n, d), (n,); spearman and pearson are times 100."""
    predicted = cosines(first, second)
    return {
        "spearman": 100 * spearman(predicted, scores),
        "pearson": 100 * pearson(predicted, scores),
        "alignment": alignment(first, second, scores),
        "uniformity": uniformity(torch.cat([first, second])),
    }
