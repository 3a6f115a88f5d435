"""The naive baseline F(x) = x, as in the vec2vec paper: what two encoders share before anything is learnt."""

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from pipelines.aligners.core.cloud import checked
from pipelines.aligners.core.translator import Identity
from pipelines.runtime.progress import Log

SUPERVISION = "naive"
THREAD_SAFE = True
USES_PAIRS = False


@dataclass(frozen=True)
class Settings:
    """Nothing to set."""


def fit(
    source: Tensor,
    target: Tensor,
    settings: Settings,
    seed: int,
    pairs: Tensor | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> Identity:
    """Return x -> x, padded or cut to the target's dimensions. Raises BadInput for bad vectors."""
    source, target = checked("source", source), checked("target", target)
    return Identity(source.shape[1], target.shape[1])
