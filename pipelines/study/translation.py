"""Rows of align and evaluate: from one space to another."""

from __future__ import annotations

import importlib
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from pipelines.study.row import HubCorrection, Row

Supervision = Literal["unpaired", "few pairs", "naive", "oracle"]


class Align(Row):
    """Fit translators source -> target: `source` and `target` name rows of `embed`; every other key is the aligner's own."""

    source: str
    target: str
    aligner: str
    seeds: tuple[int, ...] = (0,)  # one translator per seed; each draws its own two halves
    splits: tuple[str, str] | None = None  # the source's rows are of the first split and the target's of the second: a dump, and
    # the attacker's own texts. None: two disjoint halves of "train"
    limit: int | None = Field(None, ge=2)  # at most so many vectors per side
    pairs: int = Field(0, ge=0)  # known pairs given to the aligner; 0: unpaired
    settings: Any = None  # the aligner's own frozen dataclass `Settings`, filled from the row's other keys

    @model_validator(mode="before")
    @classmethod
    def _split_settings(cls, row: Any) -> Any:
        if not isinstance(row, dict) or "settings" in row:
            return row
        own = {k: v for k, v in row.items() if k in cls.model_fields}
        own["settings"] = settings_of(str(row.get("aligner")), {k: v for k, v in row.items() if k not in own})
        return own

    @model_validator(mode="after")
    def _apart(self) -> Align:
        if self.splits and self.splits[0] == self.splits[1]:
            raise ValueError(f"splits: both are {self.splits[0]!r}: the target's texts would be the source's")
        if self.splits and self.pairs:
            raise ValueError("splits: two splits share no text, so `pairs` must be 0")
        return self

    @property
    def supervision(self) -> Supervision:
        """What the aligner is told of which text is which: as it declares, or known pairs that the row grants."""
        return "few pairs" if self.pairs else aligner_module(self.aligner).SUPERVISION


class Evaluate(Row):
    """Measure one translator on true pairs: `source` and `target` are embeddings of one corpus."""

    translator: str
    source: str
    target: str
    split: str | None = "test"  # None: every row of the corpus
    hub_correction: HubCorrection = None
    batch: int = Field(8192, ge=2)  # ranks are within batches of so many pairs, as in the vec2vec paper
    pictures: bool = True


def aligner_module(aligner: str) -> Any:
    """The module `pipelines.aligners.<aligner>`: every module of that package is an aligner but `core`."""
    known = sorted(m.name for m in iter_modules([str(Path(__file__).parents[1] / "aligners")]) if m.name != "core")
    if aligner not in known:
        raise ValueError(f"there is no aligner {aligner!r}; there are: {', '.join(known)}")
    return importlib.import_module(f"pipelines.aligners.{aligner}")


def settings_of(aligner: str, keys: dict[str, Any]) -> Any:
    """The frozen dataclass `Settings` of an aligner from a row's keys, above those of its `recipe` where it has recipes."""
    module = aligner_module(aligner)
    recipe = getattr(module, "RECIPES", {}).get(str(keys.get("recipe")), {})
    return TypeAdapter(module.Settings).validate_python(recipe | keys)
