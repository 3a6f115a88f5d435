"""mini-vec2vec (Dar, arXiv 2510.02348): a linear map between two spaces, without pairs.

1a  anchors: k-means with k-means++, on a sample of each side, many times
1b  match the centroids of both sides: quadratic assignment on their centred Gram matrices, 2-opt from random
    starts
1c  pseudo-pairs: describe each vector by its cosines to all matched anchors; its partner is the mean of the
    nearest targets
2   orthogonal Procrustes on the pseudo-pairs
3a  on random batches, the partner is the mean of the nearest targets under the map; Procrustes; moving
    average
3b  k-means of the source; k-means of the target from the mapped centroids; Procrustes; moving average

These are the steps and settings of the author's notebook, seeded. Three details differ. In 1b each step
makes the best swap; scipy's 2-opt, which the notebook calls, makes the first swap that is a gain. Empty
clusters keep their centroids (kmeans.py). And the mean that is subtracted is that of the side's own rows; the
notebook also uses the other half.

The map is never projected back to an orthogonal one: the drift of the average is part of the method. The
paper writes cosine kernels in 1b. The published numbers were made with the notebook's Gram matrices, which
are used here.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import checked, spectral
from pipelines.aligners.core.matching import draw, nearest_mean, two_opt
from pipelines.aligners.core.translator import Linear
from pipelines.aligners.mini_vec2vec.kmeans import kmeans, kmeans_from
from pipelines.measures.vectors import centred_unit
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import Log, progress
from pipelines.runtime.settings import Bounds, Checked, Count, Natural

SUPERVISION = "unpaired"
THREAD_SAFE = True
USES_PAIRS = False

CLUSTERED = 10_000  # rows per side that each repeat of step 1a clusters
REFINE_BATCH = 1000  # the notebook's; the paper says 10,000
REFINE_CLUSTERS = 500
SMOOTHING = 0.5  # weight of the new map in the moving averages


@dataclass(frozen=True)
class Settings(Checked):
    """The notebook's values."""

    clusters: Annotated[int, Bounds(ge=2)] = 20  # of k-means, matched across the clouds
    repeats: Count = 30  # of k-means, each giving its own set of anchors
    assignment_restarts: Count = 30  # of 2-opt
    neighbours: Count = 50  # target rows averaged into a pseudo-partner
    refine_steps: Natural = 100  # on random batches


def fit(
    source: Tensor,
    target: Tensor,
    settings: Settings,
    seed: int,
    pairs: Tensor | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> Linear:
    """Fit a map from source (n, d) to target (m, e).

    Raises BadInput for bad vectors, known pairs, fewer rows than neighbours, and fewer distinct vectors than
    clusters.
    """
    if pairs is not None and len(pairs):
        raise BadInput("mini_vec2vec: it cannot use known pairs")
    least = settings.neighbours, settings.clusters
    source, target = checked("source", source, *least), checked("target", target, *least)
    generator = torch.Generator().manual_seed(seed)
    x, y = centred_unit(source), centred_unit(target)
    anchors_x, anchors_y = matched_anchors(x, y, settings, generator)
    described_x, described_y = normalize(x @ anchors_x.T, dim=1), normalize(y @ anchors_y.T, dim=1)
    partners = nearest_mean(described_x, described_y, y, settings.neighbours)
    W = spectral(x.T @ partners)
    W = refine_by_neighbours(W, x, y, settings, generator, log)
    W = refine_by_clusters(W, x, y, generator)
    return Linear.of(W, source, target)


def matched_anchors(x: Tensor, y: Tensor, s: Settings, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Steps 1a and 1b: return anchors (repeats * clusters, d) and, row by row, their partners (..., e)."""
    cx = repeated_kmeans("source", x, s, generator)  # (repeats, clusters, d)
    cy = repeated_kmeans("target", y, s, generator)  # (repeats, clusters, e)
    partner = two_opt(centred_gram(cx), centred_gram(cy), s.assignment_restarts, generator)
    cy = cy.gather(1, partner[..., None].expand_as(cy))
    return normalize(cx.flatten(0, 1), dim=1), normalize(cy.flatten(0, 1), dim=1)


def repeated_kmeans(side: str, cloud: Tensor, s: Settings, generator: torch.Generator) -> Tensor:
    """Return centroids (repeats, clusters, d) of a cloud (n, d), each repeat on its own sample."""
    repeats = progress(range(s.repeats), what=f"mini_vec2vec: cluster the {side}", unit="repeats")
    return torch.stack([kmeans(draw(cloud, CLUSTERED, generator), s.clusters, generator) for _ in repeats])


def centred_gram(centroids: Tensor) -> Tensor:
    """(..., C, d) -> (..., C, C)"""
    centred = centroids - centroids.mean(-2, keepdim=True)
    return centred @ centred.mT


def refine_by_neighbours(
    W: Tensor, x: Tensor, y: Tensor, s: Settings, generator: torch.Generator, log: Log | None
) -> Tensor:
    """Step 3a."""
    for step in progress(range(s.refine_steps), what="mini_vec2vec: refine", unit="steps"):
        batch = draw(x, REFINE_BATCH, generator)
        new = spectral(batch.T @ nearest_mean(normalize(batch @ W, dim=1), y, y, s.neighbours))
        if log and step % 10 == 0:
            log({"refine/change": (new - W).norm().item()}, step)
        W = (1 - SMOOTHING) * W + SMOOTHING * new
    return W


def refine_by_clusters(W: Tensor, x: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """Step 3b, once: a second pass makes the map slightly worse (the author's remark)."""
    clusters = min(REFINE_CLUSTERS, len(x), len(y))
    cx = kmeans(x, clusters, generator)
    cy = kmeans_from(cx @ W, y)
    return (1 - SMOOTHING) * W + SMOOTHING * spectral(cx.T @ cy)
