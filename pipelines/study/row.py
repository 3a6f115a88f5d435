"""The base class of rows, references between rows, and the types of their values."""

from __future__ import annotations

import difflib
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from pipelines.runtime.settings import NonNegative

if TYPE_CHECKING:
    from pipelines.study.params import Study


def _distinct(values: tuple[int, ...]) -> tuple[int, ...]:
    repeated = [value for value, count in Counter(values).items() if count > 1]
    if repeated:
        raise ValueError(f"{repeated[0]} stands twice")
    return values


Seed = Annotated[int, Field(ge=0, lt=2**32)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(_distinct)]
Text = Annotated[str, Field(min_length=1)]

# Of a translator's inverted softmax, in place of its own: higher ranks better, lower is nearer in cosine, 0 is the linear map.
HubCorrection = NonNegative | None


@dataclass(frozen=True)
class Ref:
    """Marks a field that names a row of `table`, or a tuple of such names, or None: `corpus: Annotated[str, Ref("corpora")]`.

    `embed` stands for every file of embeddings (`Study.spaces`), `translators` for all of `Study.translators`. `kind`: the kind
    of corpus that is needed.
    """

    table: str
    kind: str | None = None

    def check(self, where: str, value: str | tuple[str, ...] | None, study: Study) -> None:
        """Raise ValueError unless the row is there, and of the right kind."""
        derived = {"embed": study.spaces, "translators": study.translators}
        rows: Any = derived[self.table]() if self.table in derived else getattr(study, self.table)
        for name in (value,) if isinstance(value, str) else value or ():
            known(where, name, rows)
            if self.kind and rows[name].kind != self.kind:
                raise ValueError(f"{where}: {name} is of kind {rows[name].kind}, not {self.kind}")


class Made(Ref):
    """Marks a path: a folder that a stage of the study makes (`FOLDERS`: data/trained/<row> and so on) must have its row."""

    FOLDERS = {
        "data/trained/": "finetune", "data/encoders/": "encoders", "data/translators/": "translators", "data/bulk/": "bulk",
    }  # fmt: skip

    def __init__(self) -> None:
        super().__init__("")

    def check(self, where: str, value: Any, study: Study) -> None:
        """Raise ValueError if no stage makes the folder, or no system takes the path."""
        if any(c < " " for c in value) or any(len(os.fsencode(part)) > 255 for part in value.split("/")):
            raise ValueError(
                f"{where}: {value[:20]!r}... is no path: a name in it is too long, or has control characters"
            )
        for folder, table in self.FOLDERS.items():
            if value.startswith(folder):
                rows = (
                    {**study.align_jointly, **study.translators()}
                    if table == "translators"
                    else getattr(study, table)
                )
                known(where, value.removeprefix(folder).rstrip("/"), rows)


Watched = Annotated[str, Field(min_length=1), Made()]  # a path that DVC watches for changes


class Row(BaseModel):
    """One row of one table: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def check_references(self, where: str, study: Study) -> None:
        """Raise ValueError where a field marked with `Ref` names a row that is not in the study."""
        for name, field in type(self).model_fields.items():
            for mark in field.metadata:
                if isinstance(mark, Ref):
                    mark.check(f"{where}.{name}", getattr(self, name), study)

    def check(self, where: str, study: Study) -> None:
        """Raise ValueError where the row does not fit the rows that it names. Those are in the study."""


# Where a stage computes. auto: the environment variable UNIVERSAL_GEOMETRY_DEVICE, else CUDA where it is, else the CPU
Device = Annotated[str, Field(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")]


class Computed(Row):
    """A row whose stage computes, on one device: runtime.device.resolve says which."""

    device: Device = "auto"


class Shared(Computed):
    """A row whose stage several processes of one machine may share, each with its accelerator where there are any."""

    processes: int = Field(
        default=1, ge=1
    )  # started by the stage's command; under torchrun or srun as many as these say

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.processes > 1 and ":" in self.device:
            raise ValueError(
                f"device: {self.device} is one, and there are {self.processes} processes: `cuda` gives each its own"
            )
        if getattr(self, "batch", 0) % self.processes:
            raise ValueError(
                f"processes: {self.processes} cannot share batches of {getattr(self, 'batch', 0)} evenly"
            )
        return self


def settings_from(kind: type, given: Any, also: Iterable[str] = ()) -> Any:
    """Return the dataclass of settings `kind`, made from a mapping.

    Raises ValidationError for an unknown key, with the nearest name of a setting or of `also`.
    """
    names = [field.name for field in fields(kind)]
    errors: list[InitErrorDetails] = []
    for key in given if isinstance(given, dict) else ():
        if key not in names:
            near = difflib.get_close_matches(str(key), [*names, *also], n=1)
            message = "unknown key" + (f"; did you mean {near[0]}?" if near else "")
            errors.append(
                {
                    "type": PydanticCustomError("unknown_key", "{m}", {"m": message}),
                    "loc": (key,),
                    "input": given,
                }
            )
    if errors:
        raise ValidationError.from_exception_data(kind.__name__, errors)
    return TypeAdapter(kind).validate_python(given)


def known(where: str, name: str, rows: Mapping[str, Any], what: str = "row") -> None:
    """Raise ValueError, with the nearest name, when there is no row of this name."""
    if name not in rows:
        near = difflib.get_close_matches(name, rows, n=1)
        raise ValueError(
            f"{where}: there is no {what} {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")
        )
