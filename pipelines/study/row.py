"""The base class of rows, references between rows, and types of values."""

from __future__ import annotations

import difflib
import os
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PydanticSchemaGenerationError,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from pipelines.runtime.settings import Bounds, Count

if TYPE_CHECKING:
    from pipelines.study.params import Study
else:  # params.py imports the modules of rows, so they take the type from here
    Study = Any


def distinct(values: tuple[int, ...]) -> tuple[int, ...]:
    """Return the values. Raises ValueError if one stands twice."""
    repeated = [value for value, count in Counter(values).items() if count > 1]
    if repeated:
        raise ValueError(f"{repeated[0]} stands twice")
    return values


def matching(pattern: str, fault: str) -> AfterValidator:
    """Refuse a text that the pattern does not match as a whole: `'x' <fault>`."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(f"{text!r} {fault}")
        return text

    return AfterValidator(check)


Seed = Annotated[int, Bounds(ge=0, lt=2**32)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1), AfterValidator(distinct)]
Text = Annotated[str, Field(min_length=1)]
Several = Annotated[int, Bounds(ge=2)]


@dataclass(frozen=True)
class Ref:
    """Mark a field that holds the name of a row of `table`, a tuple of such names, or None.

    table: a name that `Study.table` takes; kind: the kind of corpus that is needed.
    """

    table: str
    kind: str | None = None

    def check(self, where: str, value: str | tuple[str, ...] | None, study: Study) -> None:
        """Raise ValueError if the row is missing or of another kind."""
        rows = study.table(self.table)
        for name in (value,) if isinstance(value, str) else value or ():
            known(where, name, rows)
            if self.kind and rows[name].kind != self.kind:
                raise ValueError(f"{where}: {name} is of kind {rows[name].kind}, not {self.kind}")


CorpusName = Annotated[str, Ref("corpora")]
EncoderName = Annotated[str, Ref("encoders")]
SpaceName = Annotated[str, Ref("embed")]

MAKERS = {  # folder -> table of the rows that make what is in it
    "data/trained/": "finetune",
    "data/encoders/": "encoders",
    "data/translators/": "translators",
    "data/bulk/": "bulk",
}


class Maker(NamedTuple):
    """The row whose stage makes a path; two empty texts if no stage does."""

    table: str
    row: str


def maker(path: str) -> Maker:
    """Return the row whose stage makes a path."""
    path = os.path.relpath(path or ".")  # ./data, data/../data and absolute paths are one to DVC
    for folder, table in MAKERS.items():
        if path.startswith(folder):
            return Maker(table, path.removeprefix(folder))
    return Maker("", "")


@dataclass(frozen=True)
class WatchedPath:
    """Mark a path that DVC watches. In a folder of MAKERS, such as data/trained/<row>, it needs that row."""

    def check(self, where: str, value: Any, study: Study) -> None:
        """Raise ValueError if the row that makes it is missing, or if no file system accepts the path."""
        if any(c < " " for c in value) or any(len(os.fsencode(part)) > 255 for part in value.split("/")):
            fault = "a name in it is too long, or has control characters"
            raise ValueError(f"{where}: {value[:20]!r}... is no path: {fault}")
        table, name = maker(value)
        if table:
            joint = study.align_jointly if table == "translators" else {}
            known(where, name, {**joint, **study.table(table)})


Mark = Ref | WatchedPath
Watched = Annotated[str, Field(min_length=1), WatchedPath()]  # a path that DVC watches for changes


class Row(BaseModel):
    """One row of one table. It is immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, row: Any) -> Any:
        refuse_unknown_keys(row, cls.model_fields)
        return row

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        self.check_alone()
        return self

    def check_alone(self) -> None:
        """Raise ValueError if the row's values contradict each other."""

    @classmethod
    def references(cls) -> list[tuple[str, Mark]]:
        """Return each field that names a row or a path that DVC watches, with its mark."""
        fields = cls.model_fields.items()
        return [(key, mark) for key, field in fields for mark in field.metadata if isinstance(mark, Mark)]

    def watched(self) -> dict[str, str]:
        """Return the paths that DVC watches for changes, by field."""
        return {key: getattr(self, key) for key, mark in self.references() if isinstance(mark, WatchedPath)}

    def check_references(self, study: Study) -> None:
        """Raise ValueError, as `check`, if a marked field names a row that is not in the study."""
        for name, mark in self.references():
            mark.check(f".{name}", getattr(self, name), study)

    def check(self, study: Study) -> None:
        """Raise ValueError if the row contradicts a row that it names. `check_references` ran first.

        The message begins with `.<key>: ` or `: `: `Study` puts the row's place before it.
        """


# auto: the environment variable UNIVERSAL_GEOMETRY_DEVICE, else CUDA if there is any, else the CPU
Device = Annotated[
    str, matching(r"auto|cpu|mps|cuda(:\d+)?", "is none of auto, cpu, mps, cuda, cuda:<number>")
]


class Computed(Row):
    """A row whose stage computes on one device. `runtime.device.resolve` chooses the device."""

    device: Device = "auto"  # auto, cpu, mps, cuda or cuda:<number>


class Shared(Computed):
    """A row whose stage can run as several processes of one machine, each with its own GPU if any."""

    processes: Count = 1  # that the stage's command starts; under torchrun, torchrun's own number counts

    def check_alone(self) -> None:
        batch = getattr(self, "batch", 0)
        if self.processes > 1 and ":" in self.device:
            several = f"but `processes` is {self.processes}: write `cuda`, and each process gets its own"
            raise ValueError(f"device: {self.device} is a single device, {several}")
        if batch % self.processes:
            raise ValueError(f"processes: {self.processes} cannot share batches of {batch} evenly")


def settings_from(kind: type, given: Any, also: Iterable[str] = ()) -> Any:
    """Return the dataclass of settings `kind`, made from a mapping.

    Raise ValidationError for an unknown key, with the nearest name of a setting or of `also`.
    """
    refuse_unknown_keys(given, [field.name for field in fields(kind)], also)
    try:
        adapter = TypeAdapter(kind)
    except PydanticSchemaGenerationError as error:
        wrong = str(error).partition(" for ")[2].partition(". ")[0]
        raise ValueError(f"{kind.__module__}.Settings: a key of a row cannot have type {wrong}") from None
    return adapter.validate_python(given)


def refuse_unknown_keys(given: Any, names: Iterable[str], also: Iterable[str] = ()) -> None:
    """Raise ValidationError for all keys that are not in `names`, each with the nearest of both lists."""
    names = list(names)
    errors: list[InitErrorDetails] = []
    for key in given if isinstance(given, dict) else ():
        if key not in names:
            # `settings` is a field, but no key of a file: an aligner's settings are keys of the row
            message = "unknown key" + nearest(str(key), {*names, *also} - {"settings"})
            fault = PydanticCustomError("unknown_key", "{m}", {"m": message})
            errors.append({"type": fault, "loc": (key,), "input": given})
    if errors:
        raise ValidationError.from_exception_data("row", errors)


def known(where: str, name: str, rows: Iterable[str], what: str = "row") -> None:
    """Raise ValueError, with the nearest name, if there is no row of this name."""
    if name not in rows:
        raise ValueError(f"{where}: there is no {what} {name!r}{nearest(name, rows)}")


def nearest(name: str, names: Iterable[str]) -> str:
    """Return `; did you mean 'align'?` for the name that is most alike, if any is."""
    near = difflib.get_close_matches(name, map(str, names), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
