"""Describe the shape of one cloud of vectors, and compare the shapes of two clouds whose rows belong
together.

All functions raise BadInput for a row that is not finite.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures import Measure
from pipelines.measures.vectors import centred_unit, finite, neighbours, overlap

NEIGHBOURS = 10  # nearest texts that `overlap` compares
LEVEL = 0.05  # significance level of the permutation test
ROUNDING = 1e-6  # values closer than this count as ties
ANISOTROPY = [
    Measure("mean_cosine", "mean cosine", better="lower"),
    Measure("top", better="lower"),
    Measure("effective_rank", "effective rank", digits=1),
]
MEASURES = [
    Measure("cka", "linear CKA"),
    Measure("cka_chance", "chance"),
    Measure("cka_calibrated", "calibrated"),
    Measure("cka_p", better="lower"),
    Measure("overlap", "shared"),
    Measure("overlap_calibrated", "calibrated"),
    Measure("overlap_p", better="lower"),
]


def anisotropy(vectors: Tensor) -> dict[str, float]:
    """Return the measures of ANISOTROPY, of the unit vectors, not centred. (n, d)

    mean_cosine is that of two different vectors (0: isotropic), and left out for a single vector. top is the
    first share of the squared singular values. effective_rank is the exponential of the entropy of these
    shares, which is Roy and Vetterli's (2007) effective rank of X'X.
    """
    x = normalize(finite("vectors", vectors).double(), dim=1)
    n, squared = len(x), x.square().sum()  # n, less one for each row of zeros
    squares = torch.linalg.eigvalsh(x.T @ x).clamp(min=0).flip(0)[: min(x.shape)]
    share = squares / squares.sum()
    entropy = torch.special.entr(share).sum()
    found = {"top": share[0].item(), "effective_rank": entropy.exp().item()}
    if n == 1:
        return found
    return {"mean_cosine": ((x.sum(0).square().sum() - squared) / (n * (n - 1))).item()} | found


def compare(x: Tensor, y: Tensor, near: tuple[Tensor, Tensor], orders: Tensor) -> dict[str, float]:
    """Return every measure of MEASURES for two spaces of the same texts.

    x (n, d), y (n, e): vectors. near: `nearest_others` of both. orders (k, n): random pairings.
    """
    shared = overlap(*near).mean().item()
    cka, chance, null = linear_cka(x, y, orders)
    cka_calibrated, cka_p = calibrate(cka, null)
    overlap_calibrated, overlap_p = calibrate(shared, overlap_null(*near, orders))
    return {
        "cka": cka,
        "cka_chance": chance,
        "cka_calibrated": cka_calibrated,
        "cka_p": cka_p,
        "overlap": shared,
        "overlap_calibrated": overlap_calibrated,
        "overlap_p": overlap_p,
    }


def linear_cka(x: Tensor, y: Tensor, orders: Tensor) -> tuple[float, float, Tensor]:
    """Return linear CKA, its chance, and its value for each order of y's rows. (n, d), (n, e), (k, n)

    Linear CKA is the centred kernel alignment |Y'X|^2 / (|X'X| |Y'Y|) after centring: 1 means equal up to
    rotation and scale. Vectors are not normalised. Source: Kornblith et al., ICML 2019.

    Chance is not 0, but the exact mean over all n! pairings of the rows: |X|^2 |Y|^2 / ((n - 1) |X'X| |Y'Y|)
    (Kazi-Aoual et al. 1995, for the RV coefficient, which linear CKA equals). Clouds of many dimensions score
    high by chance.

    The values for orders, (k,) float64, use products in the vectors' own precision, but at least in float32,
    because float16 overflows. In float32 a value is right to about 1e-6.
    """
    a, b = finite("first", x).double(), finite("second", y).double()
    a, b = a - a.mean(0), b - b.mean(0)
    scale = (a.T @ a).norm() * (b.T @ b).norm()
    cka = (b.T @ a).square().sum() / scale
    chance = a.square().sum() * b.square().sum() / (len(a) - 1) / scale
    a, b = (side.to(torch.promote_types(given.dtype, torch.float32)) for side, given in ((a, x), (b, y)))
    null = torch.stack([(b[order].T @ a).double().square().sum() for order in orders]) / scale
    return cka.item(), chance.item(), null


def nearest_others(vectors: Tensor, k: int = NEIGHBOURS) -> Tensor:
    """Return the indices of each row's k nearest other rows by centred cosine. (n, d) -> (n, k)

    The `overlap` of two of these is the mutual nearest-neighbour score of Huh et al. (ICML 2024); chance is k
    / (n - 1).
    """
    side = centred_unit(finite("vectors", vectors))
    return neighbours(side, side, k, others=True)


def overlap_null(near_x: Tensor, near_y: Tensor, orders: Tensor) -> Tensor:
    """Return the mean overlap of neighbours for each order of the second space's rows.

    (n, k), (n, k), (m, n) -> (m,)
    """
    return torch.stack([overlap(near_x, order.argsort()[near_y[order]]).mean() for order in orders])


def random_orders(n: int, count: int, seed: int) -> Tensor:
    """Return random permutations of n rows, the same on every device. -> (count, n)"""
    generator = torch.Generator().manual_seed(seed)
    return torch.stack([torch.randperm(n, generator=generator) for _ in range(count)])


def calibrate(raw: float, null: Tensor) -> tuple[float, float]:
    """Return max(0, (raw - t) / (1 - t)) and the p-value of a null sample (k,).

    Source: Groeger, Wen and Brbic 2026, arXiv 2602.14486.

    t is the value of rank ceil((1 - LEVEL)(k + 1)) among raw and the null; p is the share of these k + 1 that
    reach raw. So the calibrated value is above 0 if and only if p is at most LEVEL. Both are NaN if raw is.
    """
    if math.isnan(raw):
        return math.nan, math.nan
    values = torch.cat([null.double().cpu(), torch.tensor([raw], dtype=torch.float64)])
    reached = int((values >= raw - ROUNDING).sum())
    threshold = values.sort().values[len(values) - math.floor(LEVEL * len(values)) - 1].item()
    above = raw > threshold + ROUNDING
    return (raw - threshold) / (1 - threshold) if above else 0.0, reached / len(values)
