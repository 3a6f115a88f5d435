"""Tensors in, per-example scores out; `mean_and_error` is the one place that averages. Torch and numpy only."""

from __future__ import annotations

import math

from torch import Tensor


def mean_and_error(scores: Tensor) -> tuple[float, float]:
    """Mean of per-example scores (n,) and its standard error, s / sqrt(n)."""
    scores = scores.double()
    n = len(scores)
    return scores.mean().item(), (scores.std().item() / math.sqrt(n) if n > 1 else float("nan"))
