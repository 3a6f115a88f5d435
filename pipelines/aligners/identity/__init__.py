"""The naive baseline F(x) = x, as in the vec2vec paper: what two encoders share before anything is learnt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from pipelines.aligners.core.cloud import checked
from pipelines.aligners.core.translator import Identity
from pipelines.runtime.log import Log

SUPERVISION = "naive"


@dataclass(frozen=True)
class Settings:
    """Nothing to set."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}


def fit(
    source: Tensor,
    target: Tensor,
    settings: Settings,
    seed: int,
    pairs: Tensor | None = None,
    log: Log | None = None,
) -> Identity:
    """Looks at nothing but the dimensions."""
    source, target = checked("source", source), checked("target", target)
    return Identity(source.shape[1], target.shape[1])
