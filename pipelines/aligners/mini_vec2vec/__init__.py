"""mini-vec2vec (Dar, arXiv 2510.02348), as its notebook does it, but seeded: a linear map between two spaces, without a pair.

1a  anchors: k-means, from k-means++ until it rests, on a sample of each side, many times
1b  match the two sides' centroids: quadratic assignment on their centred Gram matrices, 2-opt from random starts
1c  pseudo-pairs: describe each vector by its cosines to all matched anchors; partner = mean of the nearest target rows
2   orthogonal Procrustes on the pseudo-pairs
3   refine 1: on random batches, partner = mean of the nearest target rows under the map; Procrustes; moving average
    refine 2: k-means of the source; k-means of the target started at the mapped centroids; Procrustes; moving average

The map is never projected back to an orthogonal one: how far the average drifts is part of the method. The paper writes cosine
kernels in 1b; the notebook's Gram matrices made the published numbers, and are what is here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import checked, spectral
from pipelines.aligners.core.matching import ascend, converged, draw, spread
from pipelines.aligners.core.translator import Linear
from pipelines.measures.vectors import centred_unit, neighbours
from pipelines.runtime.log import Log
from pipelines.runtime.progress import progress
from pipelines.runtime.settings import check_settings

SUPERVISION = "unpaired"
THREAD_SAFE = True


@dataclass(frozen=True)
class Settings:
    """The notebook's values."""

    clusters: int = 20
    repeats: int = 30  # of k-means, each giving its own set of anchors
    sample: int = 10_000  # rows per side that k-means sees
    restarts: int = 30  # of 2-opt
    neighbours: int = 50  # target rows averaged into a pseudo-partner
    refine_steps: int = 100
    refine_batch: int = 1000  # the paper says 10,000; the notebook's 1,000 is what was published with it
    refine_clusters: int = 500
    rate: float = 0.5  # weight of the new map in the moving averages

    def __post_init__(self) -> None:
        ones = ("repeats", "restarts", "neighbours", "refine_batch", "refine_clusters")
        least = dict.fromkeys(ones, 1) | {"clusters": 2, "sample": 2, "refine_steps": 0}
        check_settings(self, least, {"rate": "[0, 1]"})


def fit(
    source: Tensor,
    target: Tensor,
    settings: Settings,
    seed: int,
    pairs: Tensor | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> Linear:
    """(n, d), (m, e) -> translator. Known pairs are not part of this method. Raises BadInput for fewer rows than clusters."""
    least = max(settings.clusters, settings.neighbours)
    source, target = checked("source", source, least), checked("target", target, least)
    generator = torch.Generator().manual_seed(seed)
    x, y = centred_unit(source), centred_unit(target)
    anchors_x, anchors_y = matched_anchors(x, y, settings, generator)
    partners = nearest_mean(
        normalize(x @ anchors_x.T, dim=1), normalize(y @ anchors_y.T, dim=1), y, settings.neighbours
    )
    map = spectral(x.T @ partners)
    map = refine_by_neighbours(map, x, y, settings, generator, log)
    map = refine_by_clusters(map, x, y, settings, generator)
    return Linear.of(map, source, target)


def matched_anchors(x: Tensor, y: Tensor, s: Settings, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Steps 1a and 1b: (repeats * clusters, d) and (repeats * clusters, e), row i of one belonging to row i of the other."""
    cx, cy = (
        torch.stack([kmeans(draw(z, s.sample, generator), s.clusters, generator) for _ in range(s.repeats)])
        for z in (x, y)
    )  # (repeats, clusters, d), (repeats, clusters, e)
    partner = two_opt(centred_gram(cx), centred_gram(cy), s.restarts, generator)
    cy = cy.gather(1, partner[..., None].expand_as(cy))
    return normalize(cx.flatten(0, 1), dim=1), normalize(cy.flatten(0, 1), dim=1)


def kmeans(X: Tensor, clusters: int, generator: torch.Generator) -> Tensor:
    """(n, d) -> (clusters, d): scikit-learn's k-means at its defaults, which the notebook calls."""
    return converged(X, spread(X, clusters, generator))


def centred_gram(centroids: Tensor) -> Tensor:
    """(..., C, d) -> (..., C, C)"""
    centred = centroids - centroids.mean(-2, keepdim=True)
    return centred @ centred.mT


def two_opt(A: Tensor, B: Tensor, restarts: int, generator: torch.Generator) -> Tensor:
    """For each of n instances the best of `restarts` local maxima of sum_ij A_ij B_{p(i) p(j)} under swaps.

    (n, C, C) twice -> (n, C)
    """
    n, C = A.shape[:2]
    start = torch.rand(n * restarts, C, generator=generator).argsort(1).to(A.device)
    p, value = ascend(A.repeat_interleave(restarts, 0), B.repeat_interleave(restarts, 0), start, steps=10 * C)
    return p.view(n, restarts, C)[torch.arange(n, device=A.device), value.view(n, restarts).argmax(1)]


def nearest_mean(queries: Tensor, keys: Tensor, values: Tensor, k: int, block: int = 2048) -> Tensor:
    """Mean of the values of each query's k nearest keys by dot product. (n, r), (m, r), (m, e) -> (n, e)"""
    return torch.cat([values[neighbours(q, keys, k, block)].mean(1) for q in queries.split(block)])


def refine_by_neighbours(
    map: Tensor, x: Tensor, y: Tensor, s: Settings, generator: torch.Generator, log: Log | None
) -> Tensor:
    """Refine 1."""
    for step in progress(range(s.refine_steps), what="refine", unit="steps"):
        batch = draw(x, s.refine_batch, generator)
        moved = spectral(batch.T @ nearest_mean(normalize(batch @ map, dim=1), y, y, s.neighbours))
        if log and step % 10 == 0:
            log({"refine/change": (moved - map).norm().item()}, step)
        map = (1 - s.rate) * map + s.rate * moved
    return map


def refine_by_clusters(map: Tensor, x: Tensor, y: Tensor, s: Settings, generator: torch.Generator) -> Tensor:
    """Refine 2, once: a second pass makes it slightly worse (the author's remark)."""
    clusters = min(s.refine_clusters, len(x), len(y))
    cx = kmeans(x, clusters, generator)
    cy = converged(y, cx @ map)
    return (1 - s.rate) * map + s.rate * spectral(cx.T @ cy)
