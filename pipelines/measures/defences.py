"""What the owner of a vector database can do to its vectors before anyone steals them, and what that costs in
retrieval.

noise: Gaussian, per coordinate, `scale` times the mean norm / sqrt(d): at 1.0 the noise is as long as the vector.
int8: each coordinate to 255 steps of the database's largest (scalar quantisation); round: to `scale` decimals.
drop: keep a share `scale` of the dimensions, the same for every vector. rotate: a secret orthogonal matrix, the same
for every vector: distances stay as they are, so retrieval loses nothing, and an attacker who has to find a map anyway
loses nothing either. cells: a secret orthogonal matrix for each of `scale` k-means cells, so that no one map undoes it: see
`Keys`, which the owner searches with.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures.vectors import finite, kmeans, neighbours, overlap
from pipelines.runtime.errors import BadInput

RIDGE = 0.01  # of an attacker's least squares map, times the mean square of a coordinate of the pairs
KINDS = ("none", "noise", "int8", "round", "drop", "rotate", "cells")


@dataclass(frozen=True)
class Defence:
    """A way to blunt vectors, and how much of it."""

    kind: str
    scale: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"defence: there is no {self.kind!r}; there are: {', '.join(KINDS)}")
        if self.kind == "drop" and not 0 < self.scale <= 1:
            raise BadInput(f"defence: drop keeps a share in (0, 1] of the dimensions, not {self.scale}")
        if self.kind == "cells" and (self.scale < 1 or self.scale % 1):
            raise BadInput(f"defence: cells needs a whole number of cells, at least 1, not {self.scale:g}")
        if self.scale < 0:
            raise BadInput(f"defence: {self.kind}: scale {self.scale} must be at least 0")

    def __str__(self) -> str:
        return self.kind if self.kind in ("none", "int8", "rotate") else f"{self.kind} {self.scale:g}"


def defend(vectors: Tensor, defence: Defence, seed: int = 0) -> Tensor:
    """Vectors as the database would then hold them. (n, d) -> (n, d), but (n, round(scale d)) for `drop`.

    Raises BadInput for more `cells` than vectors.
    """
    generator = torch.Generator().manual_seed(seed)
    n, d = vectors.shape
    match defence.kind:
        case "noise":
            step = defence.scale * vectors.norm(dim=1).mean() / math.sqrt(d)
            return vectors + step * torch.randn(n, d, generator=generator).to(vectors.device)
        case "int8":
            step = vectors.abs().max() / 127
            return (vectors / step).round() * step
        case "round":
            return vectors.round(decimals=int(defence.scale))
        case "drop":
            kept = torch.randperm(d, generator=generator)[: max(1, round(defence.scale * d))]
            return vectors[:, kept.sort().values.to(vectors.device)]
        case "rotate":
            return (vectors.double() @ rotation(d, generator).to(vectors.device)).to(vectors.dtype)
        case "cells":
            keys = Keys.drawn(vectors, int(defence.scale), seed)
            return keys.lock(vectors, keys.cells(vectors))
    return vectors


def rotation(d: int, generator: torch.Generator) -> Tensor:
    """A random orthogonal matrix (d, d), float64, uniform (Mezzadri 2007)."""
    q, r = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
    return q * r.diagonal().sign()


@dataclass(frozen=True)
class Keys:
    """A secret rotation for each k-means cell of a database, kept by its owner beside the centroids. One cell: `rotate`.

    After SHARD (Kurilenko 2026, arXiv 2606.27976), of which this is the part that stops a single map: without its public prefix,
    and without its encryption of queries. Norms, and all products within a cell, stay as they are; and whoever has the database
    sees which vectors share a cell.
    """

    centroids: Tensor  # (c, d), of unit vectors
    rotations: Tensor  # (c, d, d) float64

    @classmethod
    def drawn(cls, vectors: Tensor, cells: int, seed: int) -> Keys:
        """Keys for a database (n, d), the same ones for the same seed. Raises BadInput for more cells than vectors."""
        if cells > len(vectors):
            raise BadInput(f"defence: {cells} cells are more than the {len(vectors)} vectors")
        generator = torch.Generator().manual_seed(seed)
        rotations = torch.stack([rotation(vectors.shape[1], generator) for _ in range(cells)])
        [centroids] = kmeans(normalize(vectors, dim=1), cells, 1, generator)
        return cls(centroids, rotations.to(vectors.device))

    def nearest(self, vectors: Tensor, count: int) -> Tensor:
        """The cells whose centroids are nearest to the unit vectors, nearest first. (n, d) -> (n, count)"""
        scores = normalize(vectors, dim=1) @ self.centroids.T - self.centroids.square().sum(1) / 2
        return scores.topk(count, dim=1).indices

    def cells(self, vectors: Tensor) -> Tensor:
        """The cell that each vector is stored in. (n, d) -> (n,)"""
        return self.nearest(vectors, 1)[:, 0]

    def lock(self, vectors: Tensor, cells: Tensor) -> Tensor:
        """Each vector rotated by the key of its cell. (n, d), (n,) -> (n, d)"""
        return self._turned(vectors, cells, self.rotations)

    def unlock(self, stored: Tensor, cells: Tensor) -> Tensor:
        """What `lock` was given, up to rounding."""
        return self._turned(stored, cells, self.rotations.mT)

    def search(
        self, queries: Tensor, stored: Tensor, cells: Tensor, k: int = 10, probes: int | None = None
    ) -> Tensor:
        """Rows of `stored` (n, d) by dot product with each query, as the owner searches. (q, d) -> (q, k), -1: no more in reach

        A query is asked of the `probes` cells nearest to it, rotated by the key of each; None: ceil(sqrt(c)) of them. With all
        cells the search is exact. Query i is row i, and no neighbour of its own.
        """
        asked = self.nearest(queries, probes or math.ceil(math.sqrt(len(self.centroids))))
        scores = torch.full((len(queries), len(stored)), -torch.inf, device=queries.device)
        for cell, key in enumerate(self.rotations):
            who, rows = (asked == cell).any(1).nonzero()[:, 0], (cells == cell).nonzero()[:, 0]
            scores[who[:, None], rows] = (
                (queries[who].double() @ key).to(stored.dtype) @ stored[rows].T
            ).float()
        scores.diagonal().fill_(-torch.inf)
        best = scores.topk(min(k, len(stored)), dim=1)
        return best.indices.where(best.values > -torch.inf, -1)

    def recall_kept(self, before: Tensor, stored: Tensor, queries: int = 500, k: int = 10) -> Tensor:
        """`recall_kept` of the function of this name, of vectors that were locked, by `search`. (n, d), (n, d) -> (queries,)"""
        q, k = min(queries, len(before)), min(k, len(before) - 1)
        bare, locked = (
            normalize(vectors.float(), dim=1)
            for vectors in (finite("before", before), finite("stored", stored))
        )
        answers = self.search(bare[:q], locked, self.cells(before), k)
        return overlap(neighbours(bare[:q], bare, k, others=True), answers)

    def _turned(self, vectors: Tensor, cells: Tensor, rotations: Tensor) -> Tensor:
        turned = torch.empty_like(vectors)
        for cell, key in enumerate(rotations):
            turned[cells == cell] = (vectors[cells == cell].double() @ key).to(vectors.dtype)
        return turned


def recall_kept(before: Tensor, after: Tensor, queries: int = 500, k: int = 10) -> Tensor:
    """Utility: of each query's k nearest rows by cosine, the share still among its k nearest. (n, d), (n, e) -> (queries,)

    The queries are the first rows; a row is no neighbour of its own. Raises BadInput for a row that is not finite.
    """
    q, k = min(queries, len(before)), min(k, len(before) - 1)
    sides = (
        normalize(vectors.float(), dim=1) for vectors in (finite("before", before), finite("after", after))
    )
    return overlap(*(neighbours(side[:q], side, k, others=True) for side in sides))


def undone(stored: Tensor, known: Tensor, cells: Tensor) -> list[Tensor]:
    """What attackers make of defended vectors (n, e) who know the bare ones of the first k, (k, d): the others, (n - k, d) each.

    An orthogonal map (Procrustes) and a ridge regression on the k pairs, about the origin as keys are; with more than one of
    `cells` (n,), which are to be seen in the database, both once more for each cell alone that has a pair in it.
    """
    k = len(known)
    pairs, rest = (stored[:k].double(), known.double()), stored[k:].double()
    out = []
    for attack in (_orthogonal, _ridge):
        out.append(rest @ attack(*pairs))
        if (cells != cells[0]).any():
            out.append(out[-1].clone())
            for cell in cells[:k].unique():
                at, rows = cells[:k] == cell, cells[k:] == cell
                out[-1][rows] = rest[rows] @ attack(*(side[at] for side in pairs))
    return [x.to(known.dtype) for x in out]


def _orthogonal(x: Tensor, y: Tensor) -> Tensor:
    u, _, v = torch.linalg.svd(x.T @ y, full_matrices=False)
    return u @ v


def _ridge(x: Tensor, y: Tensor) -> Tensor:
    gram = x.T @ x
    return torch.linalg.solve(gram + RIDGE * gram.diagonal().mean() * torch.eye(len(gram)).to(gram), x.T @ y)
