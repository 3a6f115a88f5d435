"""ORACLE: the best linear map given the true pairs. A ceiling to compare with, never an attack."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from pipelines.aligners.core.oracle import checked_pairs_of_rows, paired_orthogonal
from pipelines.aligners.core.translator import Linear
from pipelines.measures.vectors import centred_unit
from pipelines.runtime.settings import Checked, NonNegative

SUPERVISION = "oracle"
THREAD_SAFE = True


@dataclass(frozen=True)
class Settings(Checked):
    """orthogonal: Schoenemann 1966, semi-orthogonal if dimensions differ. least_squares: with a ridge."""

    map: Literal["orthogonal", "least_squares"] = "orthogonal"  # a rotation, or any linear map
    ridge: NonNegative = 1e-6  # least squares only: times the number of pairs, added to the diagonal of X'X


def fit_oracle(paired_source: Tensor, paired_target: Tensor, settings: Settings, seed: int) -> Linear:
    """Fit a linear map. Row i of (n, d) and of (n, e) belong to one text. Raises BadInput for bad vectors."""
    if settings.map == "orthogonal":
        return paired_orthogonal(paired_source, paired_target)
    source, target = checked_pairs_of_rows(paired_source, paired_target)
    X, Y = centred_unit(source).double(), centred_unit(target).double()  # X'X squares the condition number
    gram = X.T @ X + settings.ridge * len(X) * torch.eye(X.shape[1], dtype=X.dtype, device=X.device)
    # On the CPU: CUDA's only driver needs full rank, which `ridge: 0` does not give
    W = torch.linalg.lstsq(gram.cpu(), (X.T @ Y).cpu(), driver="gelsd").solution
    return Linear.of(W.float().to(X.device), source, target)
