"""The optimal-transport baselines of vec2vec (section 4.2 and appendix B): earth mover, Sinkhorn, Hungarian, Gromov-Wasserstein.

ORACLE-AIDED, as in the paper: both sides hold the same texts (in unknown order), which no attacker has. The paper measures a
plan on the very points that it transports; here the plan is read out as an orthogonal map (Procrustes on its barycentric
projection), so that it meets the same held-out texts as every other row.

Costs between the two spaces need equal dimensions, which different encoders do not have: the smaller one is padded with zeros,
the reading of a naive comparison. Gromov-Wasserstein compares distances within each space and needs no such thing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pipelines.aligners.core.cloud import checked, spectral
from pipelines.aligners.core.translator import Linear
from pipelines.measures.vectors import centred_unit
from pipelines.runtime.errors import BadInput
from pipelines.runtime.settings import check_settings

SUPERVISION = "oracle"
THREAD_SAFE = True


@dataclass(frozen=True)
class Settings:
    """`points` texts per side are transported: time and memory grow with their square, for Gromov-Wasserstein with their cube."""

    method: Literal["emd", "sinkhorn", "hungarian", "gromov_wasserstein"] = "gromov_wasserstein"
    points: int = 1000
    regularisation: float = (
        0.02  # entropic, of Sinkhorn and Gromov-Wasserstein; in units of the cost, which is at most 4
    )
    iterations: int = 1000

    def __post_init__(self) -> None:
        check_settings(self, {"points": 2, "iterations": 1}, {"regularisation": "(0, inf)"})


def fit_oracle(paired_source: Tensor, paired_target: Tensor, settings: Settings, seed: int) -> Linear:
    """Same texts on both sides, shuffled apart. (n, d), (n, e) -> a linear translator."""
    source, target = checked("source", paired_source), checked("target", paired_target)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(source), generator=generator)[: settings.points]
    shuffled = chosen[torch.randperm(len(chosen), generator=generator)].to(source.device)
    x, y = centred_unit(source)[chosen.to(source.device)], centred_unit(target)[shuffled]
    plan = transport_plan(x, y, settings)  # (n, n), rows sum to 1/n
    images = plan @ y / plan.sum(1, keepdim=True).clamp_min(1e-12)  # barycentric projection
    return Linear.of(spectral(x.T @ images), source, target)


def transport_plan(x: Tensor, y: Tensor, settings: Settings) -> Tensor:
    """Coupling of two uniform clouds of unit vectors (n, d), (m, e) -> (n, m), of total mass 1. Squared Euclidean costs.

    POT and scipy compute it on the CPU, wherever the clouds are, and it comes back to them.
    """
    import ot

    if settings.method == "gromov_wasserstein":
        within_x, within_y = (_squared_distances(z, z) for z in (x, y))
        plan: Any = ot.gromov.entropic_gromov_wasserstein(
            within_x, within_y, epsilon=settings.regularisation, max_iter=settings.iterations
        )
        if not np.isclose(plan.sum(), 1, atol=1e-3):  # POT only warns
            raise BadInput(f"transport: no plan at regularisation {settings.regularisation}: raise it")
        return torch.from_numpy(np.asarray(plan)).float().to(x.device)
    width = max(x.shape[1], y.shape[1])
    cost = _squared_distances(*(pad(z, (0, width - z.shape[1])) for z in (x, y)))
    n, m = cost.shape
    if settings.method == "hungarian":
        from scipy.optimize import linear_sum_assignment

        rows, columns = linear_sum_assignment(cost)
        plan = np.zeros_like(cost)
        plan[rows, columns] = 1 / len(rows)
    elif settings.method == "sinkhorn":
        plan = ot.sinkhorn(
            ot.unif(n), ot.unif(m), cost, settings.regularisation, "sinkhorn_log", settings.iterations
        )
    else:
        plan = ot.emd(ot.unif(n), ot.unif(m), cost, numItermax=settings.iterations * 1000)
    return torch.from_numpy(np.asarray(plan)).float().to(x.device)


def _squared_distances(x: Tensor, y: Tensor) -> np.ndarray:
    return (torch.cdist(x, y) ** 2).double().cpu().numpy()
