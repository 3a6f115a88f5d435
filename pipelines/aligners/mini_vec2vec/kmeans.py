"""k-means with scikit-learn's defaults, which the notebook calls, in torch and seeded.

Empty clusters differ: scikit-learn moves them to the points farthest from their centroids. Here an empty
cluster keeps its centroid.
"""

import math

import torch
from torch import Tensor

from pipelines.measures.vectors import lloyd

STEPS, TOLERANCE = 300, 1e-4


def kmeans(X: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """(n, d) -> (clusters, d)"""
    return kmeans_from(kmeans_plus_plus(X, clusters, generator), X)


def kmeans_plus_plus(X: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """Return rows (clusters, d) of X (n, d) by greedy k-means++ (Arthur and Vassilvitskii 2007).

    The first row is drawn uniformly. For each next row, draw 2 + log(clusters) candidates in proportion to
    the squared distance to the nearest row so far. Keep the candidate that leaves the smallest sum of these
    distances.
    """
    candidates, square = 2 + int(math.log(clusters)), X.square().sum(1)
    chosen = [X[int(torch.randint(len(X), (1,), generator=generator))]]
    nearest = torch.full_like(square, torch.inf)
    for shares in torch.rand(clusters - 1, candidates, generator=generator, dtype=torch.float64):
        nearest = torch.minimum(nearest, _squared_distances(chosen[-1][None], X, square)[0])
        reach = nearest.double().cumsum(0)
        picked = torch.searchsorted(reach, shares.to(X.device) * reach[-1]).clamp_max(len(X) - 1)
        left = torch.minimum(nearest, _squared_distances(X[picked], X, square)).sum(1)
        chosen.append(X[picked[left.argmin()]])
    return torch.stack(chosen)


def _squared_distances(rows: Tensor, X: Tensor, square: Tensor) -> Tensor:
    """Return (k, n) for rows (k, d) and X (n, d), whose squared lengths are `square`."""
    return (square + rows.square().sum(1, keepdim=True) - 2 * rows @ X.T).clamp_min(0)


def kmeans_from(centroids: Tensor, X: Tensor, tolerance: float = TOLERANCE) -> Tensor:
    """Run Lloyd's iterations on X (n, d) from centroids (clusters, d) until they converge.

    They have converged if the squared moves of all centroids sum to at most `tolerance` times the mean
    variance of a column of X.
    """
    least = tolerance * X.var(0, correction=0).mean()
    for _ in range(STEPS):
        [new] = lloyd(X, centroids[None], 1)
        converged = (new - centroids).square().sum() <= least
        centroids = new
        if converged:
            break
    return centroids
