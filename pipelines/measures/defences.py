"""What the owner of a vector database can do to its vectors before anyone steals them, and what that costs in
retrieval.

noise: Gaussian, per coordinate, `scale` times the mean norm / sqrt(d): at 1.0 the noise is as long as the vector.
int8: each coordinate to 255 steps of the database's largest (scalar quantisation); round: to `scale` decimals.
drop: keep a share `scale` of the dimensions, the same for every vector. rotate: a secret orthogonal matrix, the same
for every vector: distances stay as they are, so retrieval loses nothing, and an attacker who has to find a map anyway
loses nothing either.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures.vectors import finite, neighbours, overlap
from pipelines.runtime.errors import BadInput

KINDS = ("none", "noise", "int8", "round", "drop", "rotate")


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
        if self.scale < 0:
            raise BadInput(f"defence: {self.kind}: scale {self.scale} must be at least 0")

    def __str__(self) -> str:
        return self.kind if self.kind in ("none", "int8", "rotate") else f"{self.kind} {self.scale:g}"


def defend(vectors: Tensor, defence: Defence, seed: int = 0) -> Tensor:
    """Vectors as the database would then hold them. (n, d) -> (n, d), but (n, round(scale d)) for `drop`."""
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
            q, r = torch.linalg.qr(torch.randn(d, d, generator=generator, dtype=torch.float64))
            return (vectors.double() @ (q * r.diagonal().sign()).to(vectors.device)).to(vectors.dtype)
    return vectors


def recall_kept(before: Tensor, after: Tensor, queries: int = 500, k: int = 10) -> Tensor:
    """Utility: of each query's k nearest rows by cosine, the share still among its k nearest. (n, d), (n, e) -> (queries,)

    The queries are the first rows; a row is no neighbour of its own. Raises BadInput for a row that is not finite.
    """
    q, k = min(queries, len(before)), min(k, len(before) - 1)
    sides = (normalize(vectors.float(), dim=1) for vectors in (finite("before", before), finite("after", after)))
    return overlap(*(neighbours(side[:q], side, k, others=True) for side in sides))
