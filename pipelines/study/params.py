"""params.yaml, typed: what a study may say, and the one line it gets when it says something else.

A study is a set of tables. Every table but `study` maps a row's name to its settings; a stage is
`python -m pipelines.<verb> <name>` and reads just that row (and the rows that it names).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError, model_validator

from pipelines.runtime.errors import BadInput
from pipelines.study import (
    Align,
    AlignJointly,
    AnyCorpus,
    Attributes,
    Audit,
    Bulk,
    Embed,
    Encoder,
    Evaluate,
    EvaluateImageText,
    Finetune,
    Geometry,
    Invert,
    Inverter,
    Published,
    Row,
    Similarity,
    TrainImageText,
)
from pipelines.study.expand import expand
from pipelines.study.reading import check_names, read
from pipelines.study.row import Made, Ref, known


@dataclass(frozen=True)
class Verb:
    """Marks a table whose verb has another name than the table; None: no verb reads it."""

    name: str | None


class Study(Row):
    """The whole of params.yaml."""

    study: str
    about: str = ""
    corpora: Annotated[dict[str, AnyCorpus], Verb("collect")] = {}
    encoders: Annotated[dict[str, Encoder], Verb("fetch")] = {}
    finetune: dict[str, Finetune] = {}
    similarity: dict[str, Similarity] = {}
    embed: dict[str, Embed] = {}
    geometry: dict[str, Geometry] = {}
    align: dict[str, Align] = {}
    align_jointly: dict[str, AlignJointly] = {}
    evaluate: dict[str, Evaluate] = {}
    attributes: dict[str, Attributes] = {}
    inverters: Annotated[dict[str, Inverter], Verb("train_inverter")] = {}
    invert: dict[str, Invert] = {}
    audit: dict[str, Audit] = {}
    bulk: dict[str, Bulk] = {}
    train_image_text: dict[str, TrainImageText] = {}
    evaluate_image_text: dict[str, EvaluateImageText] = {}
    published: Annotated[dict[str, Published], Verb(None)] = {}

    @classmethod
    def tables(cls) -> dict[str, str]:
        """Which table each verb reads. A verb that is not here reads the whole study."""
        verbs = {}
        for table, field in cls.model_fields.items():
            marks = [mark.name for mark in field.metadata if isinstance(mark, Verb)] or [table]
            verbs |= {verb: table for verb in marks if verb and field.annotation is not str}
        return verbs

    @model_validator(mode="before")
    @classmethod
    def _expanded(cls, study: Any) -> Any:
        if not isinstance(study, dict):
            return study
        full = expand(study)
        check_names(full)
        return full

    @model_validator(mode="after")
    def _fits_together(self) -> Study:
        if twice := sorted(set(self.align) & set(self.align_jointly)):
            raise ValueError(
                f"align_jointly.{twice[0]}: a row of align has this name; their translators would be one folder"
            )
        for (
            where,
            row,
        ) in self.rows():  # in the order of the tables: a check may use rows of the tables before its own
            row.check_references(where, self)
            row.check(where, self)
        return self

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Every row with its place: ("align.wasserstein", the row)."""
        for table, rows in self:
            if isinstance(rows, dict):
                yield from ((f"{table}.{name}", row) for name, row in rows.items())

    def spaces(self) -> dict[str, Embed]:
        """Every file of embeddings: those of `embed`, and an image and a text one for each row of `train_image_text`."""
        sides = [
            (name, row, side) for name, row in self.train_image_text.items() for side in ("image", "text")
        ]
        trained = {f"{n}-{side}": Embed(corpus=row.corpus, encoder=f"{n}-{side}") for n, row, side in sides}
        return {**trained, **self.embed}

    def translators(self) -> dict[str, Align]:
        """Every translator as a row of `align`: those of `align`, and each ordered pair of each row of `align_jointly`."""
        joint = {
            f"{n}/{a}/{b}": row.pair(a, b) for n, row in self.align_jointly.items() for a, b in row.pairs()
        }
        return {**joint, **self.align}

    def named(self, row: Row) -> dict[str, Row]:
        """The rows whose settings decide what a row measures, by what to call them: `align`, `source.encoder`."""
        tables = {"embed": self.spaces(), "translators": self.translators(), "encoders": self.encoders}
        tables |= {"inverters": self.inverters, "train_image_text": self.train_image_text}
        out: dict[str, Row] = {}
        for field, info in type(row).model_fields.items():
            value = getattr(row, field)
            for table in (
                mark.table for mark in info.metadata if isinstance(mark, Ref) and isinstance(value, str)
            ):
                if value in tables.get(
                    table, {}
                ):  # an image-text row's sides are of no encoder of `encoders`
                    name = "align" if table == "translators" else field
                    out[name] = tables[table][value]
                    if table == "embed":
                        out |= {f"{name}.{inner}": of for inner, of in self.named(out[name]).items()}
        return out

    def private(self, *corpora: str) -> bool:
        """Whether texts of these corpora, or made from them, must stay in git-ignored files: one of them is `private`."""
        return any(self.corpora[name].private for name in corpora)


def find(table: str, name: str, rows: dict[str, Any]) -> Any:
    """A table's row by its name. Raises BadInput when there is none."""
    try:
        known(f"params.yaml: {table}", name, rows)
    except ValueError as error:
        raise BadInput(str(error)) from None
    return rows[name]


def load(path: str | Path = "params.yaml") -> Study:
    """Read and validate a study. Raises BadInput, in one line. Files that rows name need not be there: see `check_files`."""
    tree = read(Path(path))
    try:
        return Study.model_validate(tree)
    except ValidationError as error:
        raise BadInput(f"{path}: {_one_line(error)}") from None


def check_files(study: Study, where: str | Path = "params.yaml") -> None:
    """Raise BadInput for the first path that DVC watches, no stage makes, and is not there."""
    for place, row in study.rows():
        for name, field in type(row).model_fields.items():
            path = getattr(row, name)
            if not any(isinstance(mark, Made) for mark in field.metadata) or path.startswith(
                tuple(Made.FOLDERS)
            ):
                continue
            if not os.path.exists(path):
                raw = path.startswith("data/raw") and not os.path.exists("data/raw")
                link = "; data/raw is not linked: set CORPORA_ROOT=/where/your/texts/are" if raw else ""
                raise BadInput(f"{where}: {place}.{name}: {path}: there is no such file or folder{link}")


def _one_line(error: ValidationError) -> str:
    """The first thing that is wrong, in the words of the file: `align.wp.clustrs: unknown key`."""
    first = error.errors()[0]
    # Pydantic puts the tag of the union of corpora into the location.
    at = [str(p) for i, p in enumerate(first["loc"]) if not (i == 2 and first["loc"][0] == "corpora")]
    message = " ".join(first["msg"].removeprefix("Value error, ").split())
    if first["type"] == "extra_forbidden":
        message = "unknown key"
    if first["type"] in ("missing", "missing_argument"):
        message = "missing"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{'.'.join(at)}: {message}{more}" if at else message + more
