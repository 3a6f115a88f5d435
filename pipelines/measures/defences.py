"""Defences: what the owner of a vector database can do to its vectors, and what each costs in retrieval.

noise: Gaussian noise per coordinate; at `scale` 1 it has the mean length of the vectors.
int8: scalar quantisation to 255 steps. binary: the sign of each coordinate. round: to `scale` decimals.
drop: keep a share `scale` of the dimensions.
rotate: one secret orthogonal matrix. All distances stay the same, so retrieval is unchanged. An attacker who
fits a map is not hindered either.
cells: one secret orthogonal matrix for each of `scale` k-means cells, so that no single map undoes it (see
`Keys`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.nn.init import orthogonal_

from pipelines.measures.vectors import finite, kmeans, nearness, neighbours, overlap, ridged
from pipelines.runtime.errors import BadInput

RIDGE = 0.01  # penalty in `known_pair_attacks`, relative to the mean diagonal of X'X
KINDS = ("none", "noise", "int8", "binary", "round", "drop", "rotate", "cells")


@dataclass(frozen=True)
class Defence:
    """A kind of defence and its strength."""

    kind: str
    scale: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise BadInput(f"defence: there is no {self.kind!r}; there are: {', '.join(KINDS)}")
        scale = self.scale
        needs = {
            "noise": (0 < scale < math.inf, "a number above 0"),
            "drop": (0 < scale <= 1, "a share of the dimensions in (0, 1]"),
            "cells": (scale >= 1 and scale % 1 == 0, "a whole number of cells, at least 1,"),
            "round": (0 <= scale <= 15 and scale % 1 == 0, "a whole number of decimals, at most 15,"),
        }
        right, what = needs.get(self.kind, (scale == 0, ""))
        if not right:
            needed = f"{what} is needed" if what else "it takes no number"
            raise BadInput(f"defence: {self.kind} {scale:g}: {needed}")

    @classmethod
    def of(cls, name: str) -> Defence:
        """Return a defence by its name: `noise 0.1` is Defence("noise", 0.1). Raises BadInput."""
        kind, _, scale = name.partition(" ")
        try:
            return cls(kind, float(scale or 0))
        except ValueError:
            raise BadInput(f"defence: {name!r}: a kind and a number are needed") from None

    @property
    def undefended_queries(self) -> bool:
        """Whether the owner searches by queries as they are."""
        return self.kind in ("noise", "int8", "round")

    def __str__(self) -> str:
        scaled = self.scale or self.kind == "round"  # which alone may have the number 0
        return f"{self.kind} {self.scale:g}" if scaled else self.kind


def defend(vectors: Tensor, defence: Defence, seed: int = 0) -> Tensor:
    """Return the vectors as the database would hold them. (n, d) -> (n, d); (n, round(scale d)) for `drop`

    Raises BadInput for more `cells` than vectors.
    """
    generator = torch.Generator().manual_seed(seed)
    n, d = vectors.shape
    match defence.kind:
        case "noise":
            step = defence.scale * vectors.norm(dim=1).mean() / math.sqrt(d)
            return vectors + step * torch.randn(n, d, generator=generator).to(vectors.device)
        case "int8":
            step = (vectors.abs().max() / 127).clamp_min(torch.finfo(vectors.dtype).tiny)
            return (vectors / step).round() * step
        case "binary":
            return (vectors > 0).to(vectors.dtype) * 2 - 1
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
    """Return a uniform random orthogonal matrix (d, d), float64."""
    return orthogonal_(torch.empty(d, d, dtype=torch.float64), generator=generator)


@dataclass(frozen=True)
class Keys:
    """A secret rotation for each k-means cell of a database. The owner keeps it with the centroids.

    This is the part of SHARD (Kurilenko 2026, arXiv 2606.27976) that stops a single map, without its public
    prefix and its encrypted queries. Norms and products within a cell stay. Whoever has the database sees
    which vectors share a cell.
    """

    centroids: Tensor  # (c, d), of unit vectors
    rotations: Tensor  # (c, d, d) float64

    @classmethod
    def drawn(cls, vectors: Tensor, cells: int, seed: int) -> Keys:
        """Draw keys for a database (n, d). Raises BadInput for more cells than vectors."""
        if cells > len(vectors):
            raise BadInput(f"defence: {cells} cells are more than the {len(vectors)} vectors")
        generator = torch.Generator().manual_seed(seed)
        rotations = torch.stack([rotation(vectors.shape[1], generator) for _ in range(cells)])
        [centroids] = kmeans(normalize(vectors, dim=1), cells, 1, generator)
        return cls(centroids, rotations.to(vectors.device))

    def nearest(self, vectors: Tensor, count: int) -> Tensor:
        """Return the cells with the nearest centroids to the unit vectors, nearest first.

        (n, d) -> (n, count)
        """
        return nearness(normalize(vectors, dim=1), self.centroids).topk(count, dim=1).indices

    def cells(self, vectors: Tensor) -> Tensor:
        """Return the cell that each vector is stored in. (n, d) -> (n,)"""
        return self.nearest(vectors, 1)[:, 0]

    def lock(self, vectors: Tensor, cells: Tensor) -> Tensor:
        """Rotate each vector by the key of its cell. (n, d), (n,) -> (n, d)"""
        rotated = torch.empty_like(vectors)
        for cell, key in enumerate(self.rotations):
            rotated[cells == cell] = (vectors[cells == cell].double() @ key).to(vectors.dtype)
        return rotated

    def search(
        self, queries: Tensor, stored: Tensor, cells: Tensor, k: int = 10, probes: int | None = None
    ) -> Tensor:
        """Return the rows of `stored` (n, d) with the largest dot products to each query, as the owner
        searches.

        Each query is rotated by the keys of its `probes` nearest cells, by default ceil(sqrt(c)), and
        compared with their vectors. Query i is row i and is skipped. (q, d) -> (q, k); -1 where fewer than k
        rows are in these cells.
        """
        probed = self.nearest(queries, probes or math.ceil(math.sqrt(len(self.centroids))))
        scores = torch.full((len(queries), len(stored)), -torch.inf, device=queries.device)
        for cell, key in enumerate(self.rotations):
            who, rows = (probed == cell).any(1).nonzero()[:, 0], (cells == cell).nonzero()[:, 0]
            rotated = (queries[who].double() @ key).to(stored.dtype)
            scores[who[:, None], rows] = (rotated @ stored[rows].T).float()
        scores.diagonal().fill_(-torch.inf)
        best = scores.topk(min(k, len(stored)), dim=1)
        return best.indices.where(best.values > -torch.inf, -1)


def recall_kept(
    before: Tensor,
    after: Tensor,
    queries: int = 500,
    keys: Keys | None = None,
    undefended_queries: bool = False,
) -> Tensor:
    """Return the share of each query's 10 nearest rows by cosine that a defence keeps. (n, d), (n, e) ->
    (at most `queries`,)

    The queries are the first rows of `after`, or of `before` with `undefended_queries` or `keys`. With `keys`
    the owner searches by them. A row is not its own neighbour. Raises BadInput for a row that is not finite.
    """
    q, k = min(queries, len(before)), min(10, len(before) - 1)
    own = normalize(finite("before", before).float(), dim=1)
    stored = normalize(finite("after", after).float(), dim=1)
    if keys:
        found = keys.search(own[:q], stored, keys.cells(before), k)
    else:
        found = neighbours((own if undefended_queries else stored)[:q], stored, k, others=True)
    return overlap(neighbours(own[:q], own, k, others=True), found)


def known_pair_attacks(stored: Tensor, known: Tensor, cells: Tensor) -> list[Tensor]:
    """Return what attackers restore of defended vectors (n, e) if they know the first k undefended (k, d).

    Each result is (n - k, d). The attacks are an orthogonal map (Procrustes) and ridge regression, fitted on
    the k pairs. With more than one cell in `cells` (n,), which the database shows, both are also fitted cell
    by cell.
    """
    k = len(known)
    pairs, rest = (stored[:k].double(), known.double()), stored[k:].double()
    out = []
    for attack in (_orthogonal, _ridge):
        restored = rest @ attack(*pairs)
        out.append(restored)
        if (cells != cells[0]).any():
            by_cell = restored.clone()  # rows of cells without a known vector stay
            for cell in cells[:k].unique():
                at, rows = cells[:k] == cell, cells[k:] == cell
                by_cell[rows] = rest[rows] @ attack(*(side[at] for side in pairs))
            out.append(by_cell)
    return [x.to(known.dtype) for x in out]


def _orthogonal(x: Tensor, y: Tensor) -> Tensor:
    u, _, v = torch.linalg.svd(x.T @ y, full_matrices=False)
    return u @ v


def _ridge(x: Tensor, y: Tensor) -> Tensor:
    return torch.linalg.solve(ridged(x.T @ x, RIDGE), x.T @ y)
