"""The shape of one cloud of vectors, and how alike the shapes of two are: row i of both belongs to one text.

All raise BadInput for a row that is not finite."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures.vectors import centred_unit, finite, neighbours, overlap


def spectrum(vectors: Tensor) -> Tensor:
    """Singular values of the unit vectors, not centred, divided by the largest: SimCSE's section 5 calls a fast decay anisotropy.

    (n, d) -> (min(n, d),) float64, falling
    """
    x = normalize(finite("vectors", vectors).double(), dim=1)
    values = torch.linalg.eigvalsh(x.T @ x).clamp(min=0).flip(0).sqrt()[: min(x.shape)]
    return values / values[0]


def anisotropy(vectors: Tensor) -> dict[str, float]:
    """mean_cosine of two different vectors (0: isotropic), top: share of the squared singular values in the first, and
    effective_rank: exp of the entropy of these shares (Roy and Vetterli 2007)."""
    x = normalize(finite("vectors", vectors).double(), dim=1)
    n = len(x)
    share = spectrum(vectors).square()
    share = share / share.sum()
    entropy = -(share * share.clamp(min=1e-300).log()).sum()
    mean_cosine = (x.sum(0).square().sum() - n) / (n * (n - 1))
    return {"mean_cosine": mean_cosine.item(), "top": share[0].item(), "effective_rank": entropy.exp().item()}


def linear_cka(x: Tensor, y: Tensor) -> float:
    """Linear centred kernel alignment (Kornblith et al., ICML 2019): |Y'X|^2 / (|X'X| |Y'Y|) after centring. (n, d), (n, e)

    1: equal up to rotation and one scale; no change under either. Vectors are used as they are, not normalised.
    """
    x, y = finite("first", x).double(), finite("second", y).double()
    x, y = x - x.mean(0), y - y.mean(0)
    return ((y.T @ x).square().sum() / ((x.T @ x).norm() * (y.T @ y).norm())).item()


def neighbour_overlap(x: Tensor, y: Tensor, k: int = 10, block: int = 1024) -> Tensor:
    """Share of each row's k nearest rows (centred cosine) that both spaces have in common. (n, d), (n, e) -> (n,)

    The mutual nearest-neighbour score of Huh et al. (ICML 2024). k / (n - 1) is what chance gives.
    """
    x, y = finite("first", x), finite("second", y)
    near_x, near_y = (neighbours(side, side, k, block, others=True) for side in map(centred_unit, (x, y)))
    return overlap(near_x, near_y).float()
