"""What aligners ask of a cloud of vectors and of pairs, and the linear algebra that they share."""

from __future__ import annotations

import torch
from torch import Tensor

from pipelines.measures.vectors import centred_unit, finite
from pipelines.runtime.errors import BadInput

FEW = 20  # effective dimensions: with fewer, a cloud has no hubs, and wrong maps of it resemble each other (docs/experiments.md)


def checked(name: str, vectors: Tensor, least: int = 2) -> Tensor:
    """(n, d) float32 on the same device, or BadInput: not two-dimensional, not finite, too few, or without directions."""
    if vectors.ndim != 2 or not vectors.is_floating_point():
        raise BadInput(
            f"{name}: vectors must be a floating point matrix, got {tuple(vectors.shape)} {vectors.dtype}"
        )
    n, d = vectors.shape
    if n < least:
        raise BadInput(f"{name}: {n} vectors, but at least {least} are needed")
    if d < 2:
        raise BadInput(f"{name}: vectors of dimension {d} have no geometry to match, at least 2 are needed")
    vectors = finite(name, vectors).float()
    if bool((vectors == vectors[0]).all()):
        raise BadInput(f"{name}: all {n} vectors are the same")
    return vectors


def checked_pairs(pairs: Tensor | None, n: int, m: int) -> Tensor:
    """(k, 2) int64 with 0 <= source < n and 0 <= target < m; None is no pair."""
    if pairs is None:
        return torch.empty(0, 2, dtype=torch.int64)
    pairs = torch.as_tensor(pairs)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.is_floating_point():
        raise BadInput(f"pairs: must be integers of shape (k, 2), got {tuple(pairs.shape)} {pairs.dtype}")
    if len(pairs) and (pairs.min() < 0 or pairs[:, 0].max() >= n or pairs[:, 1].max() >= m):
        raise BadInput(f"pairs: an index is outside of the {n} source and {m} target vectors")
    return pairs.long()


@torch.no_grad()
def dimensions(vectors: Tensor) -> float:
    """Effective number of dimensions of a cloud (n, d): the participation ratio (sum of l)^2 / sum of l^2 of the variances l
    along its principal axes, about the centre. Texts by a text encoder have 35 to 140."""
    x = centred_unit(vectors)
    spread = (x.T @ x).double()
    return float(spread.trace() ** 2 / spread.square().sum())


def spectral(cross: Tensor, power: float = 0.0) -> Tensor:
    """U (S / S_max)^power V' of cross = U S V' (d, e): 0 is the (semi-)orthogonal Procrustes map, 1 keeps the cross-covariance.

    In between, directions are trusted as far as the matches agree on them. By the eigenvectors of the smaller Gram matrix, which
    is twice as fast as the decomposition of cross; a null direction of cross stays one. In float64 where all directions weigh
    the same; else float32 is enough, and twice as fast: it mixes up only those that weigh least.
    """
    if cross.shape[0] > cross.shape[1]:
        return spectral(cross.T, power).T
    wide, least = (cross, 1e-5) if power else (cross.double(), 1e-6)  # below `least` is rounding of float32
    _, U = torch.linalg.eigh(wide @ wide.T)
    turned = U.T @ wide  # its rows are S V', with none of the rounding that squares bring
    S = turned.norm(dim=1)
    scale = torch.where(least * S.max() < S, (S / S.max()) ** power / S, 0)
    return ((U * scale) @ turned).to(cross.dtype)
