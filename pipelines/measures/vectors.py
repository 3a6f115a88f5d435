"""Operations on vectors that measures and aligners share: checks, centring, neighbours, clusters."""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from pipelines.runtime.errors import BadInput

BLOCK = 1024  # queries whose similarities to all keys are held at once


def finite(name: str, rows: Tensor) -> Tensor:
    """Return `rows` (n, ...) unchanged. Raises BadInput that names the first row with NaN or infinity.

    Comparisons with NaN are false, so rows with NaN would have perfect ranks.
    """
    good = rows.isfinite().flatten(1).all(1)
    if not good.all():
        bad = (~good).nonzero()
        raise BadInput(f"{name}: row {int(bad[0])} is not finite ({len(bad)} such rows of {len(rows)})")
    return rows


def shuffled(n: int, seed: int) -> Tensor:
    """Return a random permutation of 0 .. n - 1, by the seed. (n,)"""
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def centred_unit(vectors: Tensor) -> Tensor:
    """Subtract the mean row, then L2-normalise each row. (n, d) -> (n, d)

    A row that equals the mean up to rounding becomes 0.
    """
    centred = vectors - vectors.mean(0)
    rounding = 10 * torch.finfo(vectors.dtype).eps * vectors.norm(dim=1, keepdim=True)
    return normalize(centred.where(centred.norm(dim=1, keepdim=True) > rounding, 0), dim=1)


def products(queries: Tensor, keys: Tensor, block: int) -> Iterator[tuple[int, Tensor]]:
    """Yield for each block of queries its start and its products with all keys, which are the same for equal
    keys. (n, d), (m, d) -> (block, m)

    A matrix product rounds differently by column, so each distinct key is multiplied once.
    """
    distinct, which = keys.unique(dim=0, return_inverse=True)
    few = len(distinct) < len(keys)
    for start in range(0, len(queries), block):
        rows = queries[start : start + block]
        yield start, (rows @ distinct.T)[:, which] if few else rows @ keys.T


def neighbours(queries: Tensor, keys: Tensor, count: int, others: bool = False) -> Tensor:
    """Return the indices of each query's nearest keys by dot product, nearest first.

    (n, d), (m, d) -> (n, k), where k = min(count, m); with `others`, min(count, m - 1)

    others: query i is key i and is skipped. Raises BadInput for a row that is not finite.
    """
    queries, keys = finite("queries", queries), finite("keys", keys)
    nearest = []
    for start in range(0, len(queries), BLOCK):
        scores = queries[start : start + BLOCK] @ keys.T
        if others:
            scores.diagonal(start).fill_(-torch.inf)
        nearest.append(scores.topk(min(count, len(keys) - others), dim=1).indices)
    return torch.cat(nearest)


def overlap(first: Tensor, second: Tensor) -> Tensor:
    """Return the share of the ids in each row of `first` (n, k) that are in the same row of `second` (n, k).
    -> (n,) float64
    """
    return (first[:, :, None] == second[:, None, :]).any(2).double().mean(1)


def kmeans(X: Tensor, clusters: int, repeats: int, generator: torch.Generator, steps: int = 20) -> Tensor:
    """Return k-means centroids (repeats, clusters, d) of X (n, d), each repeat started from random rows."""
    chosen = torch.rand(repeats, len(X), generator=generator).topk(clusters, 1).indices
    return lloyd(X, X[chosen.to(X.device)], steps)


def lloyd(X: Tensor, centroids: Tensor, steps: int) -> Tensor:
    """Run Lloyd's algorithm on X (n, d) from centroids (repeats, clusters, d).

    An empty cluster keeps its centroid.
    """
    (n, d), (repeats, clusters) = X.shape, centroids.shape[:2]
    for _ in range(steps):
        flat = centroids.reshape(-1, d)
        near = nearness(X, flat).view(n, repeats, clusters).argmax(2)
        member = one_hot(near, clusters).to(X.dtype).view(n, -1)
        count = member.sum(0)[:, None]
        mean = member.T @ X / count.clamp_min(1)  # several times faster than index_add
        centroids = torch.where(count > 0, mean, flat).view(repeats, clusters, d)
    return centroids


def ridged(gram: Tensor, ridge: float) -> Tensor:
    """Add `ridge` times the mean of the diagonal to the diagonal of gram (d, d)."""
    return gram + ridge * gram.diagonal().mean() * torch.eye(len(gram)).to(gram)


def nearness(X: Tensor, centroids: Tensor) -> Tensor:
    """Return <x, c> - |c|^2 / 2 for each row x of X (n, d) and c of the centroids (k, d). -> (n, k)

    It is largest for the centroid nearest to x.
    """
    return torch.addmm(-0.5 * centroids.square().sum(1)[None], X, centroids.T)
