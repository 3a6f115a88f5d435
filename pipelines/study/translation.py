"""Rows of align, align_jointly and evaluate: from one space to another."""

from __future__ import annotations

import importlib
import os
import traceback
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from pipelines.aligners.core.aligner import Aligner, JointAligner, missing
from pipelines.runtime.settings import Count, Natural, NonNegative
from pipelines.study.row import (
    Computed,
    Ref,
    Seeds,
    Several,
    Shared,
    SpaceName,
    Study,
    Text,
    Watched,
    known,
    maker,
    nearest,
    settings_from,
)

# Of a row: as in `aligners.core.aligner`, but an unpaired aligner that gets known pairs has "few pairs".
# The report's table of translators (pages/tables/translation.py) has this order
Supervision = Literal["unpaired", "few pairs", "naive", "oracle"]


def _per_side(limit: Any) -> Any:
    sides = limit if isinstance(limit, (list, tuple)) and len(limit) == 2 else [limit]
    if limit is not None and not all(type(side) is int and side >= 2 for side in sides):
        raise ValueError(f"{limit!r}: a number of at least 2, or [source, target], is needed")
    return limit


Limit = Annotated[int | tuple[int, int] | None, BeforeValidator(_per_side)]


class Fitted(Shared):
    """What rows of fits share. A key that is no field is a setting of the aligner."""

    aligner: str  # a package of pipelines/aligners
    seeds: Seeds = (0,)  # one fit for each; each draws its own parts of the texts
    # What is drawn: documents, so that no two parts have texts of one document, or single rows, as papers do
    halves: Literal["documents", "rows"] = "documents"
    # At most this many vectors of each space, or [source, target]. In align_jointly the second number is for
    # the spaces in `paired`
    limit: Limit = None
    restarts: Natural = 0  # fit again up to this often, to the same vectors, while a fit is not `aligned`
    settings: Any = None  # the aligner's own dataclass `Settings`, filled from the row's other keys

    @model_validator(mode="before")
    @classmethod
    def _split_settings(cls, row: Any) -> Any:
        if not isinstance(row, dict) or "aligner" not in row or is_dataclass(row.get("settings")):
            return row
        fields = {k: v for k, v in row.items() if k in cls.model_fields and k != "settings"}
        others = {k: v for k, v in row.items() if k not in fields}
        return fields | {"settings": settings_of(row["aligner"], others, cls.model_fields)}

    @property
    def limits(self) -> tuple[int | None, int | None]:
        """Return the largest numbers of vectors of the source and of the target."""
        return self.limit if isinstance(self.limit, tuple) else (self.limit, self.limit)


class Align(Fitted):
    """Fit translators from the embeddings `source` to the embeddings `target`."""

    source: SpaceName  # the vectors that are translated
    target: SpaceName  # the space that they are translated into
    # [split of the source (a dump), split of the target (the attacker's)]. None: two halves of train
    splits: tuple[str, str] | None = None
    pairs: Natural = 0  # known pairs given to the aligner; 0: unpaired

    def check_alone(self) -> None:
        super().check_alone()
        if self.splits and self.splits[0] == self.splits[1]:
            raise ValueError(f"splits: both are {self.splits[0]!r}: the target's texts would be the source's")
        if self.splits and self.pairs:
            raise ValueError("splits: two splits share no text, so `pairs` must be 0")
        aligner = aligner_module(self.aligner)
        if self.pairs and not (isinstance(aligner, Aligner) and aligner.USES_PAIRS):
            raise ValueError(f"pairs: {self.aligner} cannot use known pairs; for an oracle, set `limit`")
        if self.restarts and not self.judged:
            raise ValueError(f"restarts: {self.aligner} gets no verdict, so no fit is repeated")

    @property
    def spaces(self) -> tuple[str, str]:
        """Return both spaces."""
        return self.source, self.target

    @property
    def supervision(self) -> Supervision:
        """Return what the aligner knows of which texts match: as it declares, or the row's known pairs."""
        return "few pairs" if self.pairs else aligner_module(self.aligner).SUPERVISION

    @property
    def judged(self) -> bool:
        """Return whether its fits get a verdict: oracles and naive baselines need none."""
        return self.supervision in ("unpaired", "few pairs")


class AlignJointly(Fitted):
    """Fit translators between every two of several spaces together.

    Each space has its own texts. Spaces in `paired` share theirs: those of an attacker who runs several
    encoders. The translator of an ordered pair is named `<row>/<source>/<target>`.
    """

    # The embeddings that are fitted together
    spaces: Annotated[tuple[str, ...], Field(min_length=2), Ref("embed")]
    # pipelines/aligners/<aligner>: from nothing. data/translators/<row of align_jointly>: its spaces stay
    # as they are, and the others are fitted to them
    start: Watched
    paired: Annotated[tuple[str, ...], Ref("embed")] = ()  # spaces of the same texts
    splits: tuple[str, str] | None = None  # of a dump's texts, and of those of the spaces in `paired`
    # Into how many parts the texts are divided. Each space gets one; spaces in `paired` share one. None: as
    # many as are needed. If another row extends this one, set `parts` high enough for the spaces that it adds
    parts: Count | None = None

    def check_alone(self) -> None:
        super().check_alone()
        if len(set(self.spaces)) < len(self.spaces):
            raise ValueError("spaces: one is named twice")
        if self.parts is not None and self.parts < self.sides:
            raise ValueError(f"parts: at least {self.sides} are needed")
        aligner = aligner_module(self.aligner)
        if not isinstance(aligner, JointAligner):
            raise ValueError(f"aligner: {self.aligner} fits two spaces, no more")
        if aligner.NEEDS_PAIRED_SPACES and len({*self.spaces} - {*self.paired}) != 1:
            raise ValueError(f"paired: {self.aligner} needs all of the spaces but one there")
        if self.paired and not aligner.NEEDS_PAIRED_SPACES:
            raise ValueError(f"paired: {self.aligner} gives each space its own texts")
        if isinstance(self.limit, tuple) and not self.paired:
            raise ValueError("limit: the second number is for the spaces in `paired`, and there are none")
        if self.extends and not aligner.CAN_EXTEND:
            raise ValueError(f"start: {self.aligner} cannot extend translators")
        if self.splits and (not self.paired or self.splits[0] == self.splits[1]):
            raise ValueError("splits: two different ones are needed, the second for the spaces in `paired`")

    @property
    def sides(self) -> int:
        """Return how many parts of the texts the spaces need."""
        return len(self.spaces) - max(0, len(self.paired) - 1)

    @property
    def extends(self) -> str:
        """Return the row of align_jointly that this one starts from; an empty text without one."""
        table, name = maker(self.start)
        return name if table == "translators" else ""

    def check(self, study: Study) -> None:
        """Raise ValueError if `paired` or `start` does not fit."""
        corpora = {study.spaces()[space].corpus for space in self.paired}
        if len(corpora) > 1 or not {*self.paired} <= {*self.spaces}:
            raise ValueError(".paired: some of `spaces`, all of one corpus, are needed")
        if not self.extends:
            code = f"pipelines/aligners/{self.aligner}"
            if self.start.rstrip("/") != code:
                raise ValueError(f".start: {code} or data/translators/<row of align_jointly>")
            return
        known(".start", self.extends, study.align_jointly)
        other = study.align_jointly[self.extends]
        first = self.spaces[: len(other.spaces)]
        if first != other.spaces or first == self.spaces:
            raise ValueError(f".spaces: list those of {self.extends} first, then at least one more")
        needed = self.parts or self.sides
        if (other.parts or other.sides, other.halves) != (needed, self.halves):
            raise ValueError(
                f": {self.extends} needs `parts: {needed}` and `halves: {self.halves}`, so that new"
                " spaces get other texts than it saw"
            )
        if not set(self.seeds) <= set(other.seeds) or len(self.seeds) < 2:
            raise ValueError(
                f".seeds: at least two of {self.extends} are needed: their fits judge each other"
            )

    def ordered_pairs(self) -> list[tuple[str, str]]:
        """Return every ordered pair of spaces that have different texts."""
        return [pair for pair in permutations(self.spaces, 2) if not {*pair} <= {*self.paired}]

    def pair(self, source: str, target: str) -> Align:
        """Return one of the translators as a row of align."""
        shared = ("aligner", "seeds", "halves", "limit", "restarts", "settings", "device")
        common = {name: getattr(self, name) for name in shared}
        if isinstance(self.limit, tuple) and target not in self.paired:
            common["limit"] = self.limit[::-1]
        if self.splits:
            common["splits"] = self.splits if target in self.paired else self.splits[::-1]
        return Align(source=source, target=target, **common)


class Translated(Computed):
    """What rows share that use a translator. Most keys follow from others: see `expand`."""

    # A row of align, or <row of align_jointly>/<source>/<target>
    translator: Annotated[str, Ref("translators")]
    aligner: str = ""  # the one that fitted the translator; dvc.yaml lists its code
    source: SpaceName  # embeddings that are translated
    target: SpaceName  # their true partners, to measure with
    split: str | None = "test"  # None: every row of the corpus

    def check(self, study: Study) -> None:
        """Raise ValueError if a side is not of the translator's encoder, or if the corpora differ."""
        spaces, fitted = study.spaces(), study.translators()[self.translator]
        for side in ("source", "target"):
            name = getattr(self, side)
            encoder, needed = spaces[name].encoder, spaces[getattr(fitted, side)].encoder
            if encoder != needed:
                fault = f"of encoder {encoder}, but {self.translator} was fitted on {needed}"
                raise ValueError(f".{side}: {name} is {fault}")
        if spaces[self.source].corpus != spaces[self.target].corpus:
            raise ValueError(": source and target must be embeddings of one corpus")


class Evaluate(Translated):
    """Measure one translator on true pairs."""

    hub_correction: NonNegative | None = None  # strength of the correction; None: the translator's own
    batch: Several = 8192  # ranks are within batches of this many pairs, as in vec2vec
    pictures: bool = True  # draw both clouds before and after
    # Also measure retrieval: the split of the queries of a corpus of kind `judged`, without `queries `
    queries: Text | None = None


def aligner_names() -> list[str]:
    """Return the names of the aligners: of each package in pipelines/aligners but `core`."""
    folder = Path(__file__).parents[1] / "aligners"
    return sorted({file.parent.name for file in folder.glob("*/__init__.py")} - {"core"})


def aligner_module(aligner: Any) -> Any:
    """Return the module `pipelines.aligners.<aligner>`.

    Raises ValueError if there is none of this name, if it cannot be imported, or if it lacks something.
    """
    folder = Path(__file__).parents[1] / "aligners" / str(aligner)
    if aligner not in (names := aligner_names()):
        if os.path.isfile(f"{folder}.py"):
            raise ValueError(f"aligner {aligner}: move {aligner}.py to {aligner}/__init__.py")
        hint = nearest(str(aligner), names) or f"; there are: {', '.join(names)}"
        raise ValueError(f"there is no aligner {aligner!r}{hint}")
    try:
        module = importlib.import_module(f"pipelines.aligners.{aligner}")
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
        if not isinstance(error, SyntaxError):  # which names its line
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if Path(frame.filename).is_relative_to(folder)]
            last = (own or frames)[-1]
            fault += f" (line {last.lineno} of {Path(last.filename).name})"
        raise ValueError(f"aligner {aligner} cannot be imported: {fault}") from error
    if fault := missing(module):
        raise ValueError(fault)
    if taken := {field.name for field in fields(module.Settings)} & {*Align.model_fields}:
        fault = "a row of align has such a key already"
        raise ValueError(f"{module.__name__}.Settings: {', '.join(sorted(taken))}: {fault}")
    return module


def settings_of(aligner: Any, keys: dict[str, Any], others: Iterable[str] = ()) -> Any:
    """Return the `Settings` of an aligner from a row's keys, which win over those of its `recipe`.

    `others`: further names of keys, to suggest where a key is unknown.
    """
    module = aligner_module(aligner)
    recipes = getattr(module, "RECIPES", {})  # named sets of settings
    keys = {**recipes.get(str(keys.get("recipe")), {}), **keys}
    return settings_from(module.Settings, keys, others)
