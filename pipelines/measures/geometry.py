"""The shape of one cloud of vectors, and how alike the shapes of two are: row i of both belongs to one text.

All raise BadInput for a row that is not finite."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures.vectors import BLOCK, centred_unit, finite, neighbours, overlap

LEVEL = 0.05  # of the permutation test: what this share of random pairings reaches is no likeness
ROUNDING = 1e-6  # values nearer than this are ties


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

    1: equal up to rotation and one scale; no change under either. Vectors are used as they are, not normalised. Chance is not 0
    but `cka_chance`.
    """
    x, y = _centred("first", x), _centred("second", y)
    return ((y.T @ x).square().sum() / _scale(x, y)).item()


def cka_chance(x: Tensor, y: Tensor) -> float:
    """Mean of `linear_cka` over all n! pairings of the rows: |X|^2 |Y|^2 / ((n - 1) |X'X| |Y'Y|) after centring. (n, d), (n, e)

    The exact mean of the RV coefficient (Kazi-Aoual et al. 1995), which linear CKA is: the geometric mean of the two clouds'
    effective dimensions |X|^4 / |X'X|^2, over n - 1. Two wide clouds are alike by chance.
    """
    x, y = _centred("first", x), _centred("second", y)
    return (x.square().sum() * y.square().sum() / (len(x) - 1) / _scale(x, y)).item()


def cka_null(x: Tensor, y: Tensor, orders: Tensor) -> Tensor:
    """`linear_cka` with the rows of y in other orders (k, n), each a permutation. -> (k,) float64

    One product of (e, n) and (n, d) per order, in the vectors' own precision: in float32 a value is right to about 1e-6.
    """
    a, b = _centred("first", x), _centred("second", y)
    scale, a, b = _scale(a, b), a.to(x.dtype), b.to(y.dtype)
    return torch.stack([(b[order].T @ a).double().square().sum() for order in orders]) / scale


def _centred(name: str, vectors: Tensor) -> Tensor:
    vectors = finite(name, vectors).double()
    return vectors - vectors.mean(0)


def _scale(x: Tensor, y: Tensor) -> Tensor:
    return (x.T @ x).norm() * (y.T @ y).norm()


def nearest_others(vectors: Tensor, k: int = 10, block: int = BLOCK) -> Tensor:
    """Indices of each row's k nearest other rows by centred cosine. (n, d) -> (n, k)"""
    side = centred_unit(finite("vectors", vectors))
    return neighbours(side, side, k, block, others=True)


def neighbour_overlap(x: Tensor, y: Tensor, k: int = 10, block: int = BLOCK) -> Tensor:
    """Share of each row's k nearest rows (centred cosine) that both spaces have in common. (n, d), (n, e) -> (n,)

    The mutual nearest-neighbour score of Huh et al. (ICML 2024). k / (n - 1) is what chance gives.
    """
    x, y = finite("first", x), finite("second", y)
    return overlap(nearest_others(x, k, block), nearest_others(y, k, block)).float()


def overlap_null(near_x: Tensor, near_y: Tensor, orders: Tensor) -> Tensor:
    """Mean neighbour overlap with the rows of the second space in other orders (k, n), from `nearest_others` of both. -> (k,)"""
    return torch.stack([overlap(near_x, order.argsort()[near_y[order]]).mean() for order in orders])


def random_orders(n: int, count: int, seed: int) -> Tensor:
    """Random permutations of n rows, the same on every device. -> (count, n)"""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(n, generator=generator) for _ in range(count)])


@dataclass(frozen=True)
class Calibrated:
    """A measure of likeness (1 at most) beside what it is when the rows are paired at random."""

    raw: float
    calibrated: float  # 0: no more than chance; 1: as alike as can be
    p: float  # of the permutation test, one-sided


def calibrate(raw: float, null: Tensor) -> Calibrated:
    """Null calibration (Groeger, Wen and Brbic 2026, arXiv 2602.14486): max(0, (raw - t) / (1 - t)). null (k,): random pairings.

    t is the value of rank ceil((1 - LEVEL)(k + 1)) among raw and the null, p the share of these k + 1 that reach raw; so the
    calibrated value is above 0 where p is at most LEVEL, and there only.
    """
    values = torch.cat([null.double().cpu(), torch.tensor([raw], dtype=torch.float64)])
    reached = int((values >= raw - ROUNDING).sum())
    threshold = values.sort().values[len(values) - math.floor(LEVEL * len(values)) - 1].item()
    above = raw > threshold + ROUNDING
    return Calibrated(raw, (raw - threshold) / (1 - threshold) if above else 0.0, reached / len(values))
