"""Find the vectors of one encoder in a dump of several, before any map is fitted.

A dump may mix two encoders, for example an index that was half moved to a new model. From about a fifth of
another encoder on, a fit to all vectors fails. Vectors of one encoder vary along related directions, whatever
their texts are about; those of two encoders do not. So:

1  Divide the vectors into k-means clusters, which rarely hold vectors of both encoders. The similarity of two
   clusters is the cosine of their covariances.
2  Cut the graph of the clusters in two by normalised cuts (Shi and Malik 2000): by the sign of one of the
   first eigenvectors, or at its largest gap. Also cut off each single cluster.
3  The cut separates encoders if the shapes of both parts are unrelated. A shape is a covariance less its
   multiple of the identity. The cosine of two shapes is 0 on average if one of them is rotated at random.
"""

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import FEW, leading
from pipelines.measures.vectors import centred_unit, kmeans, nearness

MIXTURE_SAMPLE = 10_000  # vectors that are looked at
CLUSTERS, ROWS = 100, 40  # most clusters, and fewest rows per cluster on average
CUTS = 3  # eigenvectors that are tried
SMALLEST = 0.04  # share of a part
# Parts whose shapes have a smaller cosine are of two encoders. Two corpora by one encoder had .077 at least
# (docs/experiments/verdict.md).
UNRELATED = 0.04
EVEN = 0.67  # a part whose effective dimensions exceed this share of all has no shape


@torch.no_grad()
def one_encoder(vectors: Tensor) -> Tensor:
    """Return, in order, the rows of a dump (n, d) that are of the encoder with most distinct vectors."""
    distinct, place = vectors.unique(dim=0, return_inverse=True)
    largest = max(_encoders(distinct, torch.arange(len(distinct), device=vectors.device)), key=len)
    return torch.isin(place, largest).nonzero()[:, 0]


def _encoders(vectors: Tensor, rows: Tensor) -> list[Tensor]:
    """Divide some rows (k,) of the vectors (n, d) into those of each encoder."""
    first = _first_part(vectors[rows])
    return [rows] if first is None else _encoders(vectors, rows[first]) + _encoders(vectors, rows[~first])


def _first_part(vectors: Tensor) -> Tensor | None:
    """Mark one of two parts of the vectors (n, d). -> (n,) bool; None if they are of one encoder."""
    generator = torch.Generator().manual_seed(0)
    unit = normalize(vectors[:, vectors.any(0)], dim=1)  # columns of zeros would hide the shapes
    X, _ = leading(centred_unit(unit))
    sample = torch.randperm(len(X), generator=generator)[:MIXTURE_SAMPLE].to(X.device)
    x, unit = X[sample], unit[sample]
    centroids, cluster = clustered(x, generator)
    cuts = [(_relation(unit, cut[cluster]), cut) for cut in _cuts(x, cluster, len(centroids))]
    relation, cut = min(cuts, key=lambda of: of[0])
    if relation > UNRELATED:
        return None
    return cut[nearness(X, centroids).argmax(1)]


def clustered(X: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return k-means centroids (k, d) of X (n, d), and the cluster (n,) of each row. None is empty."""
    [centroids] = kmeans(X, min(CLUSTERS, max(1, len(X) // ROWS)), 1, generator)
    used, cluster = nearness(X, centroids).argmax(1).unique(return_inverse=True)
    return centroids[used], cluster


def _cuts(X: Tensor, cluster: Tensor, count: int) -> Iterator[Tensor]:
    """Cut the clusters (n,) of X (n, d) in two in several ways. -> (count,) bool"""
    shapes = torch.stack([_covariance(X[cluster == number]) for number in range(count)])
    unit = normalize(shapes.flatten(1), dim=1)
    graph = (unit @ unit.T).fill_diagonal_(0)
    root = graph.sum(1).clamp_min(1e-9).sqrt()
    # The last eigenvector is a multiple of `root`
    vectors = torch.linalg.eigh((graph / root / root[:, None]).double())[1]
    for eigenvector in vectors.T.flip(0)[1 : 1 + CUTS].to(root) / root:
        yield eigenvector > 0
        ordered = eigenvector.sort().values[1:-1]
        if len(ordered) > 1:
            gap = ordered.diff().argmax()
            yield eigenvector > ordered[gap : gap + 2].mean()
    yield from torch.eye(count, dtype=torch.bool, device=X.device)  # one cluster and all others


def _relation(unit: Tensor, first: Tensor) -> float:
    """Return the cosine of the shapes of two parts of unit vectors (n, d). `first` (n,) marks one part.

    The squared norm of a part's shape is estimated by the product of the shapes of its two halves. Noise
    makes a norm larger, but not this product, because the noise of the halves is independent. Return 1 if a
    part is small, or has too few or too many effective dimensions.
    """
    parts = unit[first], unit[~first]
    if min(map(len, parts)) < max(2 * ROWS, SMALLEST * len(unit)):
        return 1.0
    halves = torch.stack([_covariance(half) for part in parts for half in (part[::2], part[1::2])])
    even = halves.diagonal(dim1=1, dim2=2).mean(1)
    a, b, c, d = halves - even[:, None, None] * torch.eye(unit.shape[1]).to(halves)
    squares = torch.stack([(a * b).sum(), (c * d).sum()])
    width, evens = unit.shape[1], even[::2] * even[1::2]
    effective = width**2 * evens / (squares + width * evens)  # as `core.cloud.dimensions`
    if not ((effective >= FEW) & (effective <= EVEN * width)).all():
        return 1.0
    return float(((a + b) * (c + d)).sum() / 4 / squares.prod().sqrt())


def _covariance(X: Tensor) -> Tensor:
    return X.T.cov(correction=0)
