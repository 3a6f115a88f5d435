"""Measures of vectors and texts. To import them, torch and numpy are enough.

A module whose numbers the report shows lists them in MEASURES. geometry.py also has ANISOTROPY;
attributes.py makes its list from `k`. The report reads these lists. Of those of translation, retrieval,
similarity and image_text, the headlines are numbers of `dvc metrics show`; MLflow's view sorts by that of
translation.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Measure:
    """How a number is named and shown.

    name: its key in results/. title: its heading in the report; without a title it stays in results/.
    headline: whether DVC's table shows it; MLflow's view sorts by the first such measure of translation.
    """

    name: str
    title: str = ""
    digits: int = 3
    better: Literal["higher", "lower"] = "higher"
    headline: bool = False


def shown(measures: list[Measure]) -> list[Measure]:
    """Return the measures that the report's tables show."""
    return [m for m in measures if m.title]


def summary(scores: dict[str, Tensor], documents: Tensor | None = None) -> dict[str, float]:
    """Return every score's mean under its name, and its standard error under `<name>_error`."""
    found = {name: mean_and_error(values, documents) for name, values in scores.items()}
    errors = {f"{name}_error": error for name, (_, error) in found.items()}
    return {name: mean for name, (mean, _) in found.items()} | errors


def numbered(documents: Sequence[str] | np.ndarray) -> Tensor:
    """Number the documents of examples, for `summary`. -> (n,)"""
    return torch.from_numpy(np.unique(documents, return_inverse=True)[1])


def mean_and_error(scores: Tensor, documents: Tensor | None = None) -> tuple[float, float]:
    """Return the mean of per-example scores (n,) and its standard error; NaN for one example.

    `documents` (n,): the number of each example's document. Then documents are independent, and examples of
    one are not (cluster-robust error, Liang and Zeger 1986), as in a bootstrap by document.
    """
    scores = scores.double()
    mean, n = scores.mean(), len(scores)
    documents = torch.arange(n) if documents is None else documents.unique(return_inverse=True)[1]
    count = int(documents.max()) + 1
    sums = scores.new_zeros(count).index_add_(0, documents.to(scores.device), scores - mean)
    spread = sums.square().sum().item() * count / (count - 1) if count > 1 else float("nan")
    return mean.item(), math.sqrt(spread) / n
