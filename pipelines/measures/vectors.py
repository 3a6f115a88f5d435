"""What measures and aligners do to clouds of vectors: refuse what is not finite, centre, find neighbours and
compare them, cluster."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from pipelines.runtime.errors import BadInput

BLOCK = 1024  # queries whose similarities to all keys are held at once


def finite(name: str, rows: Tensor) -> Tensor:
    """`rows` (n, ...) as they are. Raises BadInput, naming the first row that holds NaN or an infinity: NaN compares false, so
    that ranks of it would be perfect."""
    good = rows.isfinite().flatten(1).all(1)
    if not good.all():
        bad = (~good).nonzero()
        raise BadInput(f"{name}: row {int(bad[0])} is not finite ({len(bad)} such rows of {len(rows)})")
    return rows


def centred_unit(vectors: Tensor) -> Tensor:
    """Subtract the mean row, then L2-normalise each row. (n, d) -> (n, d)"""
    return normalize(vectors - vectors.mean(0), dim=1)


def neighbours(queries: Tensor, keys: Tensor, count: int, block: int = BLOCK, others: bool = False) -> Tensor:
    """Indices of each query's nearest keys by dot product, nearest first. (n, d), (m, d) -> (n, min(count, m))

    others: query i is key i, and not a neighbour of itself. Raises BadInput for a row that is not finite.
    """
    queries, keys = finite("queries", queries), finite("keys", keys)
    nearest = []
    for start in range(0, len(queries), block):
        scores = queries[start : start + block] @ keys.T
        if others:
            scores.diagonal(start).fill_(-torch.inf)
        nearest.append(scores.topk(min(count, len(keys)), dim=1).indices)
    return torch.cat(nearest)


def singled_out(queries: Tensor, keys: Tensor, margin: float, block: int = BLOCK) -> Tensor:
    """Which queries (n, d) have a nearest key (m, d), m >= 2, that has them as its own nearest, and is nearer than the next by
    `margin` of dot product: most of those whose own translation is among the keys, and few others. -> (n,) of bool"""
    best, clear = [], []
    back, near = (
        torch.zeros(len(keys), dtype=torch.long, device=keys.device),
        torch.full_like(keys[:, 0], -torch.inf),
    )
    for start in range(0, len(queries), block):
        scores = queries[start : start + block] @ keys.T
        two = scores.topk(2, dim=1)
        best.append(two.indices[:, 0])
        clear.append(two.values[:, 0] - two.values[:, 1] > margin)
        top = scores.max(0)
        back[top.values > near] = start + top.indices[top.values > near]
        near = torch.maximum(near, top.values)
    return torch.cat(clear) & (back[torch.cat(best)] == torch.arange(len(queries), device=keys.device))


def overlap(first: Tensor, second: Tensor) -> Tensor:
    """Share of the ids of each row of `first` (n, k) that are in the same row of `second` (n, k). -> (n,) float64"""
    return (first[:, :, None] == second[:, None, :]).any(2).double().mean(1)


def kmeans(X: Tensor, clusters: int, repeats: int, generator: torch.Generator, steps: int = 20) -> Tensor:
    """Centroids (repeats, clusters, d) of k-means on X (n, d), from random rows."""
    chosen = torch.rand(repeats, len(X), generator=generator).topk(clusters, 1).indices
    return lloyd(X, X[chosen.to(X.device)], steps)


def lloyd(X: Tensor, centroids: Tensor, steps: int = 20) -> Tensor:
    """Lloyd's iterations from given centroids (repeats, clusters, d), all repeats in one product; an empty cluster stays."""
    (n, d), (repeats, clusters) = X.shape, centroids.shape[:2]
    for _ in range(steps):
        flat = centroids.reshape(-1, d)
        near = torch.addmm(-0.5 * flat.square().sum(1)[None], X, flat.T).view(n, repeats, clusters).argmax(2)
        member = (
            one_hot(near, clusters).to(X.dtype).view(n, -1)
        )  # a product is several times faster than index_add
        count = member.sum(0)[:, None]
        mean = member.T @ X / count.clamp_min(1)
        centroids = torch.where(count > 0, mean, flat).view(repeats, clusters, d)
    return centroids
