"""The optimal-transport baselines of vec2vec (Jha et al. 2025, section 4.2, appendix B).

As in the paper, both sides hold the same texts, in unknown order. No attacker has such data. The paper
measures a plan on the points that it transports. Here the plan is turned into an orthogonal map (Procrustes
on its barycentric projection), so that it is measured on the same held-out texts as every other row.

Costs between two spaces need equal dimensions, so the smaller space is padded with zeros. Gromov-Wasserstein
compares distances within each space and needs no padding. By default far fewer texts are transported than in
the paper (`points`).

Vectors are centred, costs are squared distances, Gromov-Wasserstein is entropic, and REGULARISATION is 0.02.
The authors' ot_baseline.py takes distances that are not squared, Gromov-Wasserstein without entropy, and 0.1
for Sinkhorn.
"""

import logging
import warnings
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from pipelines.aligners.core.cloud import spectral
from pipelines.aligners.core.oracle import checked_pairs_of_rows
from pipelines.aligners.core.translator import Linear
from pipelines.measures.vectors import centred_unit
from pipelines.runtime.errors import BadInput
from pipelines.runtime.settings import Bounds, Checked

SUPERVISION = "oracle"
THREAD_SAFE = True

ITERATIONS = 1000
REGULARISATION = 0.02  # entropic, in units of the cost; emd and hungarian have none
UNEVEN = 0.01  # relative error of the sum of a plan's row or column from which on a warning is logged

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings(Checked):
    """Memory grows with the square of `points`, and time with up to its cube."""

    # How the points are coupled
    method: Literal["emd", "sinkhorn", "hungarian", "gromov_wasserstein"] = "gromov_wasserstein"
    points: Annotated[int, Bounds(ge=2)] = 1000  # texts per side that are transported


def fit_oracle(paired_source: Tensor, paired_target: Tensor, settings: Settings, seed: int) -> Linear:
    """Fit an orthogonal map to (n, d) and (n, e) of the same texts, each shuffled.

    Raises BadInput for bad vectors.
    """
    source, target = checked_pairs_of_rows(paired_source, paired_target)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(source), generator=generator)[: settings.points]
    shuffled = chosen[torch.randperm(len(chosen), generator=generator)].to(source.device)
    x, y = centred_unit(source)[chosen.to(source.device)], centred_unit(target)[shuffled]
    plan = transport_plan(x, y, settings)  # (n, n), rows sum to 1/n
    images = plan @ y / plan.sum(1, keepdim=True).clamp_min(1e-12)  # barycentric projection
    return Linear.of(spectral(x.T @ images), source, target)


def transport_plan(x: Tensor, y: Tensor, settings: Settings) -> Tensor:
    """Return a coupling (n, m) of mass 1 of unit vectors (n, d), (m, e), for squared Euclidean costs.

    POT and scipy compute it on the CPU. Raises BadInput if there is none at this regularisation, and logs a
    warning if the sums of its rows or columns are not equal.
    """
    # POT's warnings name settings that rows do not have
    warnings.filterwarnings("ignore", module=r"ot\.")
    if settings.method == "gromov_wasserstein":
        plan = gromov_wasserstein(x, y)
    else:
        plan = plan_across(x, y, settings.method)
    error = max(float(abs(plan.sum(axis) * plan.shape[1 - axis] - 1).max()) for axis in (0, 1))
    if error > UNEVEN:
        said = "transport: %s did not converge: a row or column sum of the plan is %.0f %% off"
        logger.warning(said, settings.method, 100 * error)
    return torch.from_numpy(plan).float().to(x.device)


def gromov_wasserstein(x: Tensor, y: Tensor) -> np.ndarray:
    """Return the entropic Gromov-Wasserstein plan, from the distances within each space."""
    import ot

    within = _squared_distances(x, x), _squared_distances(y, y)
    settings = {"epsilon": REGULARISATION, "max_iter": ITERATIONS}
    plan = np.asarray(ot.gromov.entropic_gromov_wasserstein(*within, **settings))
    if not np.isclose(plan.sum(), 1, atol=1e-3):
        raise BadInput(f"transport: no plan at regularisation {REGULARISATION}")
    return plan


def plan_across(x: Tensor, y: Tensor, method: str) -> np.ndarray:
    """Return a plan from the distances between both spaces, the smaller one padded with zeros."""
    import ot
    from scipy.optimize import linear_sum_assignment

    width = max(x.shape[1], y.shape[1])
    cost = _squared_distances(*(pad(z, (0, width - z.shape[1])) for z in (x, y)))
    weights = ot.unif(len(x)), ot.unif(len(y))
    if method == "sinkhorn":
        return np.asarray(ot.sinkhorn(*weights, cost, REGULARISATION, "sinkhorn_log", ITERATIONS))
    if method == "emd":
        most = ITERATIONS * 1000
        plan, end = ot.emd(*weights, cost, numItermax=most, log=True)
        if end["warning"]:
            logger.warning("transport: emd: after %d iterations the plan may not be the cheapest", most)
        return np.asarray(plan)
    plan = np.zeros_like(cost)
    plan[linear_sum_assignment(cost)] = 1 / len(cost)
    return plan


def _squared_distances(x: Tensor, y: Tensor) -> np.ndarray:
    return (torch.cdist(x, y) ** 2).double().cpu().numpy()
