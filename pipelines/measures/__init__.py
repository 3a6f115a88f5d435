"""Measures: tensors in, scores per example out. They need torch and numpy only.

Each module lists its measures in MEASURES, beside the functions that compute them. The report, DVC's headline
numbers and MLflow's view read these lists, so a new measure is declared once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor


@dataclass(frozen=True)
class Measure:
    """How a number is named, shown and computed.

    name: its key in results/. title: its heading in the report; without a title it stays in results/.
    headline: whether DVC's table shows it and MLflow's view sorts by it. compute: its function.
    """

    name: str
    title: str = ""
    digits: int = 3
    better: Literal["higher", "lower"] = "higher"
    headline: bool = False
    compute: Callable[..., Any] | None = None


def measure(measures: list[Measure], title: str = "", **about: Any) -> Callable[[Callable], Callable]:
    """Append the decorated function to `measures`, under its own name.

    `about` holds the other fields of Measure.
    """

    def declare(function: Callable) -> Callable:
        measures.append(Measure(function.__name__, title, compute=function, **about))
        return function

    return declare


def shown(measures: list[Measure]) -> list[Measure]:
    """Return the measures that the report's tables show."""
    return [m for m in measures if m.title]


def summary(scores: dict[str, Tensor]) -> dict[str, float]:
    """Return every score's mean under its name, and its standard error under `<name>_error`."""
    found = {name: mean_and_error(values) for name, values in scores.items()}
    errors = {f"{name}_error": error for name, (_, error) in found.items()}
    return {name: mean for name, (mean, _) in found.items()} | errors


def mean_and_error(scores: Tensor) -> tuple[float, float]:
    """Return the mean of per-example scores (n,) and its standard error, s / sqrt(n); NaN for one example."""
    scores = scores.double()
    n = len(scores)
    return scores.mean().item(), (scores.std().item() / math.sqrt(n) if n > 1 else float("nan"))
