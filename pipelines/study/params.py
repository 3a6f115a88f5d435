"""The whole study: its tables, how rows refer to each other, and one line for what is wrong.

A study is a set of tables. Each maps a row's name to its settings. The stage
`python -m pipelines.<verb> <name>` reads this row and the rows that it names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import product
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError, model_validator

from pipelines.runtime.errors import BadInput
from pipelines.study import (
    Align,
    AlignJointly,
    AnyCorpus,
    Attributes,
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
    Transfer,
)
from pipelines.study.expand import expand
from pipelines.study.reading import check_names, read
from pipelines.study.row import Ref, Text, known, maker, matching

# The verb of each table that has another name; "": no stage reads the table
VERBS = {"corpora": "collect", "encoders": "fetch", "inverters": "train_inverter", "published": ""}


class Study(Row):
    """The whole of params.yaml."""

    study: Annotated[Text, matching(r'[^"]*', "has a double quote")]  # MLflow cannot search for both kinds
    about: str = ""
    corpora: dict[str, AnyCorpus] = {}
    encoders: dict[str, Encoder] = {}
    finetune: dict[str, Finetune] = {}
    similarity: dict[str, Similarity] = {}
    transfer: dict[str, Transfer] = {}
    embed: dict[str, Embed] = {}
    geometry: dict[str, Geometry] = {}
    align: dict[str, Align] = {}
    align_jointly: dict[str, AlignJointly] = {}
    evaluate: dict[str, Evaluate] = {}
    attributes: dict[str, Attributes] = {}
    inverters: dict[str, Inverter] = {}
    invert: dict[str, Invert] = {}
    bulk: dict[str, Bulk] = {}
    train_image_text: dict[str, TrainImageText] = {}
    evaluate_image_text: dict[str, EvaluateImageText] = {}
    published: dict[str, Published] = {}

    @classmethod
    def table_by_verb(cls) -> dict[str, str]:
        """Return the table that each verb reads. A verb that is not here reads the whole study."""
        tables = [table for table, field in cls.model_fields.items() if field.annotation is not str]
        return {verb: table for table in tables if (verb := VERBS.get(table, table))}

    @model_validator(mode="before")
    @classmethod
    def _expanded(cls, study: Any) -> Any:
        if not isinstance(study, dict):
            return study
        full = expand(study)
        check_names(full)
        return full

    def check_alone(self) -> None:
        """Raise ValueError if the rows do not fit together."""
        if shared := self.align.keys() & self.align_jointly.keys():
            raise ValueError(f"align_jointly.{min(shared)}: a row of align has this name")
        for name, side in product(self.train_image_text, ("image", "text")):
            if (space := f"{name}-{side}") in self.embed:
                fault = f"its embeddings and a row of embed are both called {space}"
                raise ValueError(f"train_image_text.{name}: {fault}")
        # In the order of the tables: a check may rely on the rows of the tables before its own.
        for where, row in self.rows():
            try:
                row.check_references(self)
                row.check(self)
            except ValueError as error:  # begins with `.<key>: ` or `: `
                raise ValueError(f"{where}{error}") from None
        made_from = {
            where: [".".join(maker(path)) for path in row.watched().values()] for where, row in self.rows()
        }
        try:
            TopologicalSorter(made_from).prepare()
        except CycleError as error:
            raise ValueError(f"{error.args[1][0]}: is made from itself: {', '.join(error.args[1])}") from None

    def rows(self) -> Iterator[tuple[str, Row]]:
        """Yield every row with its place, for example ("align.wasserstein", the row)."""
        for table, rows in self:
            if isinstance(rows, dict):
                yield from ((f"{table}.{name}", row) for name, row in rows.items())

    def stages(self) -> list[str]:
        """Return the stages of all rows, as DVC names them: `<verb>@<row>`."""
        return [f"{verb}@{row}" for verb, rows in self.table_by_verb().items() for row in getattr(self, rows)]

    def table(self, name: str) -> Mapping[str, Any]:
        """Return the rows of a table. `embed` and `translators` have rows of other tables, too."""
        derived = {"embed": self.spaces, "translators": self.translators}
        return derived[name]() if name in derived else getattr(self, name)

    def spaces(self) -> dict[str, Embed]:
        """Return all embeddings: the rows of `embed`, and two for each row of `train_image_text`."""
        trained = {}
        for name, row in self.train_image_text.items():
            for side in (f"{name}-image", f"{name}-text"):
                trained[side] = Embed(corpus=row.corpus, encoder=side)
        return {**trained, **self.embed}

    def translators(self) -> dict[str, Align]:
        """Return all translators as rows of `align`, also those of each ordered pair in `align_jointly`."""
        joint = {}
        for name, row in self.align_jointly.items():
            joint |= {f"{name}/{a}/{b}": row.pair(a, b) for a, b in row.ordered_pairs()}
        return joint | self.align

    def corpora_of(self, fit: Align | AlignJointly) -> list[str]:
        """Return the corpora of a fit's spaces, each once, that of the source first."""
        spaces = self.spaces()
        return [*dict.fromkeys(spaces[name].corpus for name in fit.spaces)]

    def named(self, row: Row) -> dict[str, Row]:
        """Return the rows that decide what a row measures, by names such as `align` or `source.encoder`."""
        found: dict[str, Row] = {}
        for field, mark in row.references():
            if not isinstance(mark, Ref) or mark.table == "corpora":
                continue
            rows, value = self.table(mark.table), getattr(row, field)
            if not isinstance(value, str) or value not in rows:
                continue  # the encoder of an image-text space is in no table
            name = "align" if mark.table == "translators" else field
            found[name] = rows[value]
            if mark.table == "embed":
                found |= {f"{name}.{inner}": of for inner, of in self.named(rows[value]).items()}
        return found

    def private(self, *corpora: str) -> bool:
        """Return whether one of these corpora is `private`: its texts must stay in files that git ignores."""
        return any(self.corpora[name].private for name in corpora)


def studies() -> dict[str, Path]:
    """Return the files in studies/ by name."""
    return {path.stem: path for path in sorted(Path("studies").glob("*.yaml"))}


def find(where: str, name: str, rows: dict[str, Any], what: str = "row") -> Any:
    """Return a row, or another thing, by its name. Raises BadInput if there is none."""
    try:
        known(where, name, rows, what)
    except ValueError as error:
        raise BadInput(str(error)) from None
    return rows[name]


def load(path: str | Path = "params.yaml") -> Study:
    """Read and validate a study. Raises BadInput, in one line. See `check_files` for files that rows name."""
    tree = read(Path(path))
    try:
        return Study.model_validate(tree)
    except ValidationError as error:
        raise BadInput(f"{path}: {one_line(error)}") from None


def check_files(study: Study, where: str | Path = "params.yaml") -> None:
    """Raise BadInput for the first path that DVC watches, that no stage makes, and that is missing."""
    for place, row in study.rows():
        for name, path in row.watched().items():
            if not maker(path)[0] and not os.path.exists(path):
                raw, link = Path("data/raw"), ""
                if path.startswith("data/raw") and not raw.exists():
                    state = f"links to {raw.readlink()}" if raw.is_symlink() else "is not linked"
                    link = f"; data/raw {state}: `CORPORA_ROOT=/your/texts make study STUDY=...` links it"
                raise BadInput(f"{where}: {place}.{name}: {path}: there is no such file or folder{link}")


def one_line(error: ValidationError) -> str:
    """Return the first fault, and how many more there are. Rows of one `matrix` have the same ones."""
    first, *others = faults(error)
    more = len({re.sub(r"^(\w+)\.[^.:]+", r"\1", fault) for fault in (first, *others)}) - 1
    return f"{first} (and {more} more)" if more else first


# Instead of pydantic's messages, by the type of the fault
MESSAGES = {
    "missing": "missing",
    "tuple_type": "must be a list",
    "union_tag_not_found": "missing",
    "union_tag_invalid": "{tag!r} is none of {expected_tags}",
}


def faults(error: ValidationError) -> list[str]:
    """Return the faults in the words of the file, for example `align.wp.clustrs: unknown key`."""
    found, errors = [], error.errors()
    with_items = {one["loc"][:-1] for one in errors}  # places of which an item is wrong
    for one in errors:
        if one["type"] == "too_short" and one["loc"] in with_items:
            continue  # pydantic does not count items that are wrong themselves
        # Pydantic puts the tag of the union of corpora into the location.
        at = [str(p) for i, p in enumerate(one["loc"]) if not (i == 2 and one["loc"][0] == "corpora")]
        if one["type"].startswith("union_tag"):
            at.append("source")  # the key that chooses the kind of corpus
        message = one["msg"].removeprefix("Value error, ")
        if words := MESSAGES.get(one["type"]):
            message = words.format(**one.get("ctx", {}))
        if one["type"] == "tuple_type" and isinstance(one["input"], (str, int, float)):
            message += f", such as [{one['input']}, ...]"
        message = " ".join(message.split())
        found.append(f"{'.'.join(at)}: {message}" if at else message)
    return found
