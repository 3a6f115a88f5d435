"""params.yaml, typed: what a study may say, and the one line it gets when it says something else.

A study is a set of tables. Every table but `study` maps a row's name to its settings; a stage is
`python -m pipelines.<verb> <name>` and reads just that row (and the rows that it names).

    python -m pipelines.params check [FILE]       # validate
    python -m pipelines.params activate FILE      # validate, then make FILE the params.yaml
"""

from __future__ import annotations

import difflib
import re
import sys
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import ValidationError, model_validator

from pipelines import imported
from pipelines.runtime import files
from pipelines.runtime.errors import BadInput
from pipelines.study import (
    Align,
    AnyCorpus,
    Attributes,
    Audit,
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
from pipelines.study.corpora import Kind

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")  # row names become file names and DVC stage names (DVC reads a '.' as a path)
VERBS = {"corpora": "collect", "encoders": "fetch", "inverters": "train_inverter"}  # of a table whose verb has another name
KINDS = get_args(Kind)


class Study(Row):
    """The whole of params.yaml."""

    study: str
    about: str = ""
    corpora: dict[str, AnyCorpus] = {}
    encoders: dict[str, Encoder] = {}
    finetune: dict[str, Finetune] = {}
    similarity: dict[str, Similarity] = {}
    embed: dict[str, Embed] = {}
    geometry: dict[str, Geometry] = {}
    align: dict[str, Align] = {}
    evaluate: dict[str, Evaluate] = {}
    attributes: dict[str, Attributes] = {}
    inverters: dict[str, Inverter] = {}
    invert: dict[str, Invert] = {}
    audit: dict[str, Audit] = {}
    train_image_text: dict[str, TrainImageText] = {}
    evaluate_image_text: dict[str, EvaluateImageText] = {}
    published: dict[str, Published] = {}

    @model_validator(mode="before")
    @classmethod
    def _names(cls, study: Any) -> Any:
        for table in cls.model_fields.keys() - {"study", "about"}:
            for name in (study.get(table) or {}) if isinstance(study, dict) else ():
                if not NAME.fullmatch(str(name)):
                    raise ValueError(f"{table}: {name!r} is no row name: letters, digits, '_' and '-' only")
        return _defaults(study)

    def spaces(self) -> dict[str, Embed]:
        """Every file of embeddings: those of `embed`, and an image and a text one for each row of `train_image_text`."""
        sides = [(name, row, side) for name, row in self.train_image_text.items() for side in ("image", "text")]
        trained = {f"{n}-{side}": Embed(corpus=row.corpus, encoder=f"{n}-{side}") for n, row, side in sides}
        return {**trained, **self.embed}

    def private(self, *corpora: str) -> bool:
        """Whether texts of these corpora, or made from them, must stay in git-ignored files: one of them is `private`."""
        return any(self.corpora[name].private for name in corpora)

    @model_validator(mode="after")
    def _references(self) -> Study:
        for name, row in self.embed.items():
            _known(f"embed.{name}.corpus", row.corpus, self.corpora)
            _known(f"embed.{name}.encoder", row.encoder, self.encoders)
            given, vectors = self.encoders[row.encoder].source == "given", self.corpora[row.corpus].source == "vectors"
            if given != vectors:
                raise ValueError(f"embed.{name}: a corpus of vectors takes an encoder with `source: given`, and only that")
        for name, row in self.encoders.items():
            self._made(f"encoders.{name}.path", row.path)
        for name, row in self.finetune.items():
            _known(f"finetune.{name}.corpus", row.corpus, self.corpora)
            self._sts(f"finetune.{name}.dev", row.dev)
            self._made(f"finetune.{name}.start", row.start)
        for name, row in self.similarity.items():
            _known(f"similarity.{name}.encoder", row.encoder, self.encoders)
            self._sts(f"similarity.{name}.corpus", row.corpus)
        for name, row in self.geometry.items():
            _known(f"geometry.{name}.corpus", row.corpus, self.corpora)
        for name, row in self.train_image_text.items():
            _known(f"train_image_text.{name}.corpus", row.corpus, self.corpora)
        for name, row in self.evaluate_image_text.items():
            _known(f"evaluate_image_text.{name}.encoders", row.encoders, self.train_image_text)
            _known(f"evaluate_image_text.{name}.corpus", row.corpus, self.corpora)
        for name, row in self.published.items():
            if row.of:
                verb, own, *_ = row.of.split(".")
                _known(f"published.{name}.of", verb, tables())
                _known(f"published.{name}.of", own, getattr(self, tables()[verb]))
        spaces = self.spaces()
        for name, row in self.align.items():
            _known(f"align.{name}.source", row.source, spaces)
            _known(f"align.{name}.target", row.target, spaces)
        for name, row in self.evaluate.items():
            _known(f"evaluate.{name}.translator", row.translator, self.align)
            for side in ("source", "target"):
                _known(f"evaluate.{name}.{side}", getattr(row, side), spaces)
                there, here = getattr(self.align[row.translator], side), getattr(row, side)
                if spaces[there].encoder != spaces[here].encoder:
                    raise ValueError(
                        f"evaluate.{name}.{side}: {here} is of encoder {spaces[here].encoder}, "
                        f"but {row.translator} was fitted on {spaces[there].encoder}"
                    )
            if spaces[row.source].corpus != spaces[row.target].corpus:
                raise ValueError(f"evaluate.{name}: source and target must be embeddings of one corpus")
        self._attacks(spaces)
        return self

    def _attacks(self, spaces: dict[str, Embed]) -> None:
        """Rows of attributes, invert and audit name rows that fit together."""
        for name, row in self.attributes.items():
            self._space(f"attributes.{name}.source", row.source, row.corpus, row.source_encoder, spaces)
            self._space(f"attributes.{name}.target", row.target, row.corpus, row.target_encoder, spaces)
            _known(f"attributes.{name}.translator", row.translator, self.align)
        for name, row in self.inverters.items():
            self._space(f"inverters.{name}.space", row.space, row.corpus, row.encoder, spaces)
        for name, row in self.invert.items():
            _known(f"invert.{name}.translator", row.translator, self.align)
            _known(f"invert.{name}.inverter", row.inverter, self.inverters)
            _known(f"invert.{name}.source", row.source, spaces)
            self._space(f"invert.{name}.source", row.source, row.corpus, spaces[row.source].encoder, spaces)
            self._space(f"invert.{name}.target", row.target, row.corpus, row.encoder, spaces)
            learnt = self.inverters[row.inverter]
            if learnt.encoder != row.encoder:
                raise ValueError(f"invert.{name}: inverter {row.inverter} was learnt from {learnt.encoder}, not {row.encoder}")
            if row.search.corrections and not learnt.corrector:
                raise ValueError(f"invert.{name}: corrections need an inverter with `corrector: true`")
            if row.corpus == learnt.corpus and (row.split is None or row.split == learnt.split):
                raise ValueError(f"invert.{name}: the attacker's texts are the attacked ones: take another split or corpus")
        for name, row in self.audit.items():
            _known(f"audit.{name}.corpus", row.corpus, self.corpora)
            for encoder in row.encoders:
                _known(f"audit.{name}.encoders", encoder, self.encoders)

    def _space(self, where: str, space: str, corpus: str, encoder: str, spaces: dict[str, Embed]) -> None:
        """`space` is the row of embed of this corpus by this encoder."""
        _known(where, space, spaces)
        if (spaces[space].corpus, spaces[space].encoder) != (corpus, encoder):
            raise ValueError(f"{where}: {space} is {spaces[space].corpus} by {spaces[space].encoder}, not {corpus} by {encoder}")

    def _made(self, where: str, path: str) -> None:
        """A folder that a stage of this study makes: its row is there."""
        for folder, table in (("data/trained/", self.finetune), ("data/encoders/", self.encoders)):
            if path.startswith(folder):
                _known(where, path.removeprefix(folder), table)

    def _sts(self, where: str, corpus: str) -> None:
        _known(where, corpus, self.corpora)
        if self.corpora[corpus].kind != "sts":
            raise ValueError(f"{where}: {corpus} is of kind {self.corpora[corpus].kind}, not sts: it has no pairs with scores")


def _defaults(study: Any) -> Any:
    """Fill what a row's own name says: a corpus's kind, an encoder's model."""
    if not isinstance(study, dict):
        return study
    study = dict(study)
    if isinstance(study.get("corpora"), dict):
        study["corpora"] = {n: {"kind": n, **c} if n in KINDS and isinstance(c, dict) else c for n, c in study["corpora"].items()}
    if isinstance(study.get("encoders"), dict):
        study["encoders"] = {n: {"model": n, **e} if isinstance(e, dict) else e for n, e in study["encoders"].items()}
    return study


def _known(where: str, name: str, table: dict[str, Any]) -> None:
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        raise ValueError(f"{where}: there is no row {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def find(table: str, name: str, rows: dict[str, Any]) -> Any:
    """A table's row by its name. Raises BadInput when there is none."""
    try:
        _known(f"params.yaml: {table}", name, rows)
    except ValueError as error:
        raise BadInput(str(error)) from None
    return rows[name]


def load(path: str | Path = "params.yaml") -> Study:
    """Read and validate a study. Raises BadInput, in one line."""
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise BadInput(f"{path}: not a study (a mapping of tables was expected)")
    try:
        return Study.model_validate(raw)
    except ValidationError as error:
        raise BadInput(f"{path}: {_one_line(error)}") from None


def _one_line(error: ValidationError) -> str:
    """The first thing that is wrong, in the words of the file: `align.wp.clustrs: unknown key`."""
    first = error.errors()[0]
    tags = {"library", "synthetic", "hub", "path", "vectors"}  # pydantic puts the union's tag into the location
    at = [str(p) for i, p in enumerate(first["loc"]) if not (i == 2 and p in tags)]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        message = "unknown key"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{'.'.join(at)}: {message}{more}" if at else message + more


def tables() -> dict[str, str]:
    """Which table each verb reads."""
    return {VERBS.get(table, table): table for table in Study.model_fields}


def activate(path: str | Path, to: str | Path = "params.yaml") -> None:
    """Validate the study at `path`, then make it the active one (an atomic replace).

    A table that it does not have is added, empty: to DVC a table that is not there is an error.
    """
    load(path)
    text = Path(path).read_text()
    there = yaml.safe_load(text)
    missing = [f"{table}: {'{}' if table != 'about' else path!s}\n" for table in Study.model_fields if table not in there]
    with files.atomic(Path(to)) as draft:
        draft.write_text(text + ("\n" + "".join(missing) if missing else ""))


def main(argv: list[str]) -> int:
    """The command line named on top."""
    imported()
    try:
        match argv:
            case ["check", *rest] if len(rest) < 2:
                study = load(*rest)
                tables = {k: len(v) for k, v in study if isinstance(v, dict)}
                print(f"{study.study}: valid: " + ", ".join(f"{n} {k}" for k, n in tables.items()))
            case ["activate", path]:
                activate(path)
                print(f"params.yaml is now {path}")
            case _:
                print("usage: python -m pipelines.params check [FILE] | activate FILE", file=sys.stderr)
                return 2
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
