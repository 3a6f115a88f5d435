"""Checks of vectors and pairs, and the linear algebra that aligners share."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures.vectors import centred_unit, finite
from pipelines.runtime.errors import BadInput

FAR = 10  # times the median distance from the centre: rows beyond are errors, and a few would move every mean
FEW = 20  # below this many effective dimensions: no hub correction, no label *aligned* (docs/experiments.md)
DIRECTIONS = 256  # most principal directions that `leading` keeps: later ones are mostly noise
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
LEAST_WIDTH, MOST_WIDTH = 1e-10, 1e15  # of max - min of a column: float32 holds squared lengths


def checked(name: str, vectors: Tensor, least: int = 2, distinct: int = 2) -> Tensor:
    """Return (n, d) as float32 on the same device.

    Raises BadInput if they are not a matrix, not finite, fewer than `least`, fewer than `distinct` different
    rows, one-dimensional, all the same, or out of the range of values that can be normalised.
    """
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
    low, high = vectors.aminmax(dim=0)
    widest = float((high - low).max())
    if widest == 0:
        raise BadInput(f"{name}: all {n} vectors are the same")
    if not LEAST_WIDTH < widest < MOST_WIDTH:
        raise BadInput(
            f"{name}: values range over {widest:.0e}, which float32 cannot normalise: rescale them"
        )
    found = len(vectors[: 10 * distinct].unique(dim=0))
    if found < distinct:  # rare, so only now are all vectors looked at
        found = len(vectors.unique(dim=0))
    if found < distinct:
        raise BadInput(f"{name}: {found} distinct vectors, but at least {distinct} are needed")
    return vectors


def floats(name: str, vectors: Any) -> Tensor:
    """Return a tensor; an array of numbers and a tensor of integers become float32. Raises BadInput for
    anything else.
    """
    if isinstance(vectors, np.ndarray) and vectors.dtype.kind in "fiu":
        # torch takes neither negative strides nor a foreign byte order
        vectors = np.ascontiguousarray(vectors, np.float32)
    try:
        tensor = torch.as_tensor(vectors).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"{name}: no array of numbers: {error}") from None
    return tensor.float() if tensor.dtype in INTEGERS else tensor


def checked_pairs(pairs: Tensor | None, n: int, m: int) -> Tensor:
    """Return pairs as int64 (k, 2); None means no pairs.

    Raises BadInput for another shape, and unless 0 <= source < n and 0 <= target < m.
    """
    if pairs is None:
        return torch.empty(0, 2, dtype=torch.int64)
    try:
        pairs = torch.as_tensor(pairs)
    except (TypeError, ValueError, RuntimeError) as error:
        raise BadInput(f"pairs: {error}") from None
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype not in INTEGERS:
        raise BadInput(f"pairs: must be integers of shape (k, 2), got {tuple(pairs.shape)} {pairs.dtype}")
    if len(pairs) and (pairs.min() < 0 or pairs[:, 0].max() >= n or pairs[:, 1].max() >= m):
        raise BadInput(f"pairs: an index is outside of the {n} source and {m} target vectors")
    return pairs.long()


@torch.no_grad()
def dimensions(vectors: Tensor) -> float:
    """Return the effective number of dimensions of a cloud (n, d). Text encoders have 35 to 140.

    It is the participation ratio (sum of l)^2 / sum of l^2 of the variances l along the principal axes, and 0
    if all vectors are the same.
    """
    x = centred_unit(vectors)
    covariance = (x.T @ x).double()
    total = float(covariance.trace())
    return total**2 / float(covariance.square().sum()) if total else 0.0


def spectral(cross: Tensor, power: float = 0.0) -> Tensor:
    """Return U (S / S_max)^power V' of cross = U S V' (d, e).

    Power 0 gives the (semi-)orthogonal Procrustes map and 1 the scaled cross-covariance. Powers in between
    give directions more weight where matches agree. Directions with singular value 0 stay 0.
    """
    if cross.shape[0] > cross.shape[1]:
        return spectral(cross.T, power).T
    # Eigenvectors of the smaller Gram matrix take half the time of an SVD. With power 0 all directions weigh
    # the same, which needs float64. With other powers, float32 mixes only directions of low weight.
    # Eigenvectors are computed in float64, so that all devices agree. On a GPU this is also faster: 2 instead
    # of 5 ms for 256 directions on an H200. Singular values below `least` times the largest are rounding
    # errors.
    wide, least = (cross, 1e-5) if power else (cross.double(), 1e-6)
    U = torch.linalg.eigh((wide @ wide.T).double())[1].to(wide.dtype)
    turned = U.T @ wide  # its rows are S V', without the rounding error of squares
    S = turned.norm(dim=1)
    scale = torch.where(least * S.max() < S, (S / S.max()) ** power / S, 0)
    return ((U * scale) @ turned).to(cross.dtype)


def leading(X: Tensor) -> tuple[Tensor, Tensor]:
    """Project X (n, d) on its k <= DIRECTIONS leading principal directions.

    Return the projections (n, k), normalised to length 1, and the directions (d, k). If d <= DIRECTIONS these
    are X and the identity.
    """
    if X.shape[1] <= DIRECTIONS:
        return X, torch.eye(X.shape[1], device=X.device)
    directions = principal_axes(X)[:, -DIRECTIONS:]
    return normalize(X @ directions, dim=1), directions


def principal_axes(X: Tensor) -> Tensor:
    """Return all principal axes of X (n, d) as columns (d, d), the leading one last.

    The largest entry of each axis is positive. Otherwise its sign would depend on the device.
    """
    axes = torch.linalg.eigh((X.T @ X).double())[1]
    largest = axes.gather(0, axes.abs().argmax(0, keepdim=True))
    return (axes * largest.sign()).to(X.dtype)
