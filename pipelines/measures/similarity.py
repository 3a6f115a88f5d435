"""Measure how well cosines agree with human similarity scores, and how vectors spread on the unit sphere.

STS follows SimCSE (appendix B): cosine, no regressor, Spearman over all pairs of a task together ("all").
Alignment and uniformity: Wang and Isola (ICML 2020), as in SimCSE, section 5.1. Vectors that are not finite
raise BadInput.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures import Measure
from pipelines.measures.vectors import finite

POSITIVE = 4.0  # pairs with a higher score are positives
MEASURES = [
    Measure("spearman", "Spearman", digits=2, headline=True),
    Measure("pearson", "Pearson", digits=2),
    Measure("alignment", "alignment", better="lower"),
    Measure("uniformity", "uniformity", better="lower"),
]


def sts(first: Tensor, second: Tensor, scores: Tensor) -> dict[str, float]:
    """Return every measure of MEASURES; correlations are times 100. (n, d), (n, d), (n,)"""
    predicted = cosines(first, second)
    return {
        "spearman": 100 * spearman(predicted, scores),
        "pearson": 100 * pearson(predicted, scores),
        "alignment": alignment(first, second, scores),
        "uniformity": uniformity(torch.cat([first, second])),
    }


def cosines(first: Tensor, second: Tensor) -> Tensor:
    """Return the cosine of every pair. (n, d), (n, d) -> (n,) float64"""
    first, second = finite("first", first).double(), finite("second", second).double()
    return (normalize(first, dim=1) * normalize(second, dim=1)).sum(1)


def pearson(a: Tensor, b: Tensor) -> float:
    """Return Pearson's correlation of (n,) and (n,); NaN if one of them is constant."""
    a, b = (x.double() - x[0].double() for x in (a, b))  # a constant becomes exactly 0
    a, b = a - a.mean(), b - b.mean()
    return ((a @ b) / (a.norm() * b.norm())).item()


def spearman(a: Tensor, b: Tensor) -> float:
    """Return Pearson's correlation of the average ranks: scipy's and SentEval's definition with ties."""
    from scipy.stats import rankdata  # takes a second

    return pearson(*(torch.from_numpy(rankdata(values.cpu())) for values in (a, b)))


def alignment(first: Tensor, second: Tensor, scores: Tensor) -> float:
    """Return the mean squared distance of unit vectors of positive pairs; NaN if there are none."""
    positive = scores > POSITIVE
    return (2 - 2 * cosines(first[positive], second[positive])).mean().item()


def uniformity(vectors: Tensor, block: int = 2048) -> float:
    """Return log mean exp(-2 |x - y|^2) over all pairs of different rows (n, d), as unit vectors.

    It is NaN for a single row.
    """
    x = normalize(finite("vectors", vectors), dim=1)
    n, total = len(x), 0.0
    for i in range(0, n, block):
        kernel = torch.exp(4 * (x[i : i + block] @ x.T) - 4)  # |x - y|^2 = 2 - 2 x.y
        total += kernel.sum(dtype=torch.float64).item() - kernel.diagonal(i).sum(dtype=torch.float64).item()
    return (torch.tensor(total, dtype=torch.float64) / (n * (n - 1))).log().item()
