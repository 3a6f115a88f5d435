"""Expand the short form of a study into full rows.

Files in `studies/` use the short form. `make study` writes the full rows into params.yaml, where dvc.yaml
reads them. A full row may stand in a study, too: expanding it again changes nothing.

**Keys that can be derived may be left out.** In evaluate, attributes, inverters, invert and bulk, a corpus,
encoder or aligner that contradicts another key of the row is an error. All other keys below are defaults, and
a row may have other values.

- corpora: `kind` is the name of the row if that is a kind, else `passages`.
- encoders: `model` is the name of the row.
- corpora, encoders: `path` is a file that DVC watches, so that a change of it runs the stage again. With
  `source: library` and `wheel` it is the file of pinned versions, with `synthetic` the word lists, with `hub`
  the code that downloads.
- finetune, align_jointly: `start` is a path that DVC watches: an earlier model, or the code of a new one. In
  finetune that is contrastive/scratch.py if the row has a `network`. In align_jointly it is the aligner.
- embed: a row `<corpus>-<encoder>` has this `corpus` and this `encoder`. Missing rows of spaces that other
  rows name are added.
- geometry: `corpus` is the name of the row.
- evaluate, attributes, invert: `translator` is the name of the row. `source` and `target` are the embeddings
  of `corpus` by the translator's two encoders. `corpus` may be any that both encoders have embedded; by
  default it is that of the translator's source (in invert: of the inverter). A full row of evaluate has no
  `corpus`. `aligner` is the translator's; only dvc.yaml uses it, to list code. In attributes,
  `source_encoder` and `target_encoder` are those of the two embeddings.
- inverters: if the row has `corpus` and `encoder`, `space` is `<corpus>-<encoder>`. Otherwise it is the name
  of the row, and `corpus` and `encoder` are those of the space.
- invert: `inverter` is the name of the row. `encoder` is the target's.
- bulk: `aligner` is that of the translator in `model`. For an encoder it is `core`, the code all aligners
  share.
- evaluate_image_text: `encoders` is the name of the row. `corpus` is what these encoders were trained on.

**A row with `{slots}` in its name stands for several rows.** Values replace the slots in the row's
name and in all its values, not in keys.

- `matrix` lists the values of each slot. Every combination of values is a row. A key such as `a b` sets two
  slots together, and its value is a list of lists:
  `"{a}-{b}-{n}": {matrix: {a b: [[gtr, gte], [e5, gte]], n: [5, 10]}, source: "nq-{a}", ...}` is four rows.
- A slot that is not in `matrix` is the name of a table that stands earlier in TABLES. It takes the names of
  the rows that the study lists there, without the rows that are added to `embed`:
  `"{align}": {pictures: false}` in evaluate is one row for each row of align.
- If several rows have one name, a written row wins over one from a matrix, and both win over one from a
  table.
"""

import re
from collections.abc import Mapping
from copy import deepcopy
from itertools import product
from typing import Any

from pipelines.study.corpora import KINDS
from pipelines.study.reading import check_names
from pipelines.study.row import known, maker, nearest

Rows = dict[str, Any]
Tables = dict[str, Any]

SLOT = re.compile(r"\{(\w+)\}")
# A row may need rows of the tables before its own, and a slot may name such a table.
TABLES = (
    "corpora", "encoders", "finetune", "embed", "geometry", "train_image_text", "align", "align_jointly",
    "evaluate", "attributes", "inverters", "invert", "bulk", "evaluate_image_text",
    "similarity", "transfer", "published",
)  # fmt: skip
SIDES = ("source", "target")
# How rows of a table are written. If two have the same name, the one of the lower number wins
IN_FULL, WITH_MATRIX, FOR_EACH_ROW = range(3)
PATHS = {
    ("corpora", "library"): "constraints.txt",
    ("corpora", "synthetic"): "pipelines/corpora/sources/synthetic/words.yaml",
    ("corpora", "hub"): "pipelines/corpora/sources/hub/__init__.py",
    ("encoders", "wheel"): "constraints.txt",
    ("encoders", "hub"): "pipelines/encoders/sources.py",
}


def expand(tree: Mapping[str, Any]) -> Tables:
    """Return the study with full rows.

    Raises ValueError for an unknown table or a bad row name, if a table or a row is not a mapping, if a row
    names a translator that is missing, or if a row contradicts itself.
    """
    for name in map(str, tree):
        if name not in (*TABLES, "study", "about"):
            raise ValueError(f"{name}: unknown key{nearest(name, TABLES)}")
    study: Tables = {**{table: {} for table in TABLES}, **tree}
    for table in TABLES:
        if not isinstance(study[table], dict):
            raise ValueError(f"{table}: a mapping of rows is needed")
        study[table] = _without_slots(table, study[table], study)
        check_names({table: study[table]})  # before later tables use these names
    expansion = Expansion(study)
    for table in TABLES:
        fill = getattr(expansion, f"fill_{table}", None)
        for name, row in study[table].items():  # later tables may add full rows to embed
            if fill:
                try:
                    fill(name, row)
                except ValueError as error:
                    raise ValueError(f"{table}.{name}.{error}") from None
    return study


# ---------------------------------------------------------------- rows with slots


def _without_slots(table: str, rows: Rows, study: Tables) -> Rows:
    """Return a copy of a table in which each row with slots is replaced by the rows that it stands for."""
    found = []
    for name, row in rows.items():
        if not isinstance(row, dict):
            raise ValueError(f"{table}.{name}: a mapping of keys is needed")
        try:
            matrix = _matrix(row.get("matrix", {}))
            in_matrix = {slot for values in matrix for slot in values[0]}
            others = [slot for slot in dict.fromkeys(SLOT.findall(str(name))) if slot not in in_matrix]
            for slot in others:  # the name of a table: its values are the names of the table's rows
                _check_slot(slot, table, row)
                matrix.append([{slot: other} for other in study[slot]])
            rank = FOR_EACH_ROW if others else WITH_MATRIX if matrix else IN_FULL
            found.append((rank, name, row, matrix))
        except ValueError as error:
            raise ValueError(f"{table}.{name}{error}") from None
    made: Rows = {}
    ranks: dict[str, int] = {}
    for rank, name, row, choices in sorted(found, key=lambda each: each[0]):
        for combination in product(*choices):
            slots = {slot: value for values in combination for slot, value in values.items()}
            full_name = _replaced(name, slots) if isinstance(name, str) else name
            if ranks.setdefault(full_name, rank) < rank:
                continue
            if full_name in made:
                fault = f"two rows are called {full_name}: change the name, or put every slot into it"
                raise ValueError(f"{table}.{name}: {fault}")
            made[full_name] = {key: _filled(value, slots) for key, value in row.items() if key != "matrix"}
    return made


def _check_slot(slot: str, table: str, row: Rows) -> None:
    """Raise ValueError unless a slot that is not in `matrix` is a table that stands before `table`."""
    earlier = TABLES[: TABLES.index(table)]
    if slot in TABLES and slot not in earlier:
        raise ValueError(f": table {slot} does not stand before {table}")
    if slot not in earlier and "matrix" not in row:
        raise ValueError(f": there is no table {slot!r}, and the row has no `matrix`")
    known("", slot, earlier, "slot or table")


def _matrix(matrix: Any) -> list[list[Rows]]:
    """Return, for each key of `matrix`, the list of its values: {slot: value} or, for `a b`, two slots."""
    if not isinstance(matrix, dict):
        raise ValueError(".matrix: a mapping of slots to lists is needed")
    choices, seen = [], set()
    for key, values in matrix.items():
        slots = str(key).split()
        if not re.fullmatch(r"[\w ]+", str(key)):
            raise ValueError(f".matrix.{key}: a slot has letters, digits and '_'; a blank separates two")
        if len({*slots} - seen) < len(slots):
            raise ValueError(f".matrix.{key}: a slot is listed twice")
        seen.update(slots)
        if not isinstance(values, list) or not values or not slots:
            raise ValueError(f".matrix.{key}: a list of values is needed")
        lines = [[value] for value in values] if len(slots) == 1 else values
        if any(not isinstance(line, list) or len(line) != len(slots) for line in lines):
            raise ValueError(f".matrix.{key}: each line needs {len(slots)} values")
        choices.append([dict(zip(slots, line, strict=True)) for line in lines])
    return choices


def _filled(value: Any, slots: Rows) -> Any:
    """Replace slots at any depth. A text that is one slot becomes the slot's value, for example a number."""
    if isinstance(value, dict):
        return {key: _filled(inner, slots) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, slots) for inner in value]
    if not isinstance(value, str):
        return value
    whole = SLOT.fullmatch(value)
    if whole and whole[1] in slots:
        return deepcopy(slots[whole[1]])  # else YAML writes a list that two rows share as an alias
    return _replaced(value, slots)


def _replaced(text: str, slots: Rows) -> str:
    """Replace the slots of a text; others stay."""
    return SLOT.sub(lambda slot: str(slots.get(slot[1], slot[0])), text)


# ---------------------------------------------------------------- keys that can be derived


class Expansion:
    """Fills the rows of tables that have a method `fill_<table>`. Errors begin with the key or the space."""

    def __init__(self, study: Tables) -> None:
        self.study = study

    def fill_corpora(self, name: str, row: Rows) -> None:
        row.setdefault("kind", name if name in KINDS else "passages")
        self.set_path("corpora", row)

    def fill_encoders(self, name: str, row: Rows) -> None:
        row.setdefault("model", name)
        self.set_path("encoders", row)

    def set_path(self, table: str, row: Rows) -> None:
        if path := PATHS.get((table, str(row.get("source")))):
            row.setdefault("path", path)

    def fill_finetune(self, name: str, row: Rows) -> None:
        if "network" in row:
            row.setdefault("start", "pipelines/contrastive/scratch.py")

    def fill_embed(self, name: str, row: Rows) -> None:
        if not {"corpus", "encoder"} <= row.keys():
            row.update(self.corpus_and_encoder(name) | row)

    def fill_geometry(self, name: str, row: Rows) -> None:
        row.setdefault("corpus", name)
        self.add_spaces(row)

    def fill_align(self, name: str, row: Rows) -> None:
        for side in SIDES:
            self.add_space(row.get(side))

    def fill_align_jointly(self, name: str, row: Rows) -> None:
        row.setdefault("start", f"pipelines/aligners/{row.get('aligner')}")
        self.add_spaces(row)

    def fill_evaluate(self, name: str, row: Rows) -> None:
        self.translated(name, row)
        row.pop("corpus", None)  # full rows have no `corpus`: source and target name it

    def fill_attributes(self, name: str, row: Rows) -> None:
        self.translated(name, row)
        for side in SIDES:
            self.derive(row, f"{side}_encoder", side)

    def fill_inverters(self, name: str, row: Rows) -> None:
        both = "corpus" in row and "encoder" in row
        row.setdefault("space", f"{row['corpus']}-{row['encoder']}" if both else name)
        for key in ("corpus", "encoder"):
            self.derive(row, key, "space")

    def fill_invert(self, name: str, row: Rows) -> None:
        inverter = self.row_of("inverters", row.setdefault("inverter", name))
        if "source" not in row and "corpus" in inverter:
            row.setdefault("corpus", inverter["corpus"])
        self.translated(name, row)
        self.derive(row, "encoder", "target")

    def fill_bulk(self, name: str, row: Rows) -> None:
        model, aligner = str(row.get("model")), "core"
        table, translator = maker(model)
        if table == "translators":
            aligner = self.translator("model", translator).get("aligner")
        agree(row, "aligner", aligner, f"{model} needs {aligner}")

    def fill_evaluate_image_text(self, name: str, row: Rows) -> None:
        trained = self.row_of("train_image_text", row.setdefault("encoders", name))
        if "corpus" in trained:
            row.setdefault("corpus", trained["corpus"])

    def translated(self, name: str, row: Rows) -> None:
        """Fill translator, source, target, corpus and aligner of a row that uses a translator."""
        fitted = self.translator("translator", row.setdefault("translator", name))
        for side in SIDES:
            if side not in row and side in fitted:
                space = self.add_space(fitted[side])
                corpus = row.get("corpus", space.get("corpus"))
                # On another corpus than that of the fit, the side is the embeddings by the same encoder.
                same = corpus == space.get("corpus")
                row[side] = fitted[side] if same else f"{corpus}-{space.get('encoder')}"
            self.derive(row, "corpus", side)
        if aligner := fitted.get("aligner"):
            agree(row, "aligner", aligner, f"{row['translator']} is fitted by {aligner}")

    def derive(self, row: Rows, key: str, side: str) -> None:
        """Fill `key`, the corpus or encoder of the embeddings that the row's key `side` names.

        Raises ValueError if the row has another value.
        """
        part = key.rpartition("_")[2]
        value = self.add_space(row.get(side)).get(part)
        if value is not None:
            agree(row, key, value, f"{side} {row[side]} is of {part} {value}")

    def translator(self, key: str, name: Any) -> Rows:
        """Return source, target and aligner of a translator: a row of align, or `row/source/target`."""
        if not isinstance(name, str):
            return {}
        joint, *spaces = name.split("/")
        if len(spaces) != 2:
            known(key, name, self.study["align"])
            return self.study["align"][name]
        known(key, joint, self.study["align_jointly"])
        aligner = self.study["align_jointly"][joint].get("aligner")
        return {"source": spaces[0], "target": spaces[1], "aligner": aligner}

    def add_spaces(self, row: Rows) -> None:
        """Add the missing rows of embed that `spaces` names."""
        for space in row["spaces"] if isinstance(row.get("spaces"), list) else ():
            self.add_space(space)

    def add_space(self, name: Any) -> Rows:
        """Add a row of embed, `<corpus>-<encoder>`, if it is missing. Return its corpus and encoder."""
        if not isinstance(name, str):
            return {}
        if name in self.study["embed"]:
            return self.study["embed"][name]
        trained, _, side = name.rpartition("-")  # train_image_text writes spaces <row>-image and <row>-text
        if side in ("image", "text") and trained in self.study["train_image_text"]:
            return {"corpus": self.row_of("train_image_text", trained).get("corpus"), "encoder": name}
        if made_of := self.corpus_and_encoder(name):
            self.study["embed"][name] = made_of
        return made_of

    def corpus_and_encoder(self, name: str) -> Rows:
        """Return the corpus and the encoder of a name `<corpus>-<encoder>`. Return {} for other names."""
        pairs = product(self.study["corpora"], self.study["encoders"])
        fitting = [{"corpus": c, "encoder": e} for c, e in pairs if f"{c}-{e}" == name]
        if len(fitting) > 1:
            fault = "several corpora and encoders fit this name: write a row of embed with both"
            raise ValueError(f"{name}: {fault}")
        return fitting[0] if fitting else {}

    def row_of(self, table: str, name: Any) -> Rows:
        """Return a row; {} if there is none."""
        return self.study[table].get(name, {}) if isinstance(name, str) else {}


def agree(row: Rows, key: str, value: Any, why: str) -> None:
    """Fill `key`. Raises ValueError if the row has another value."""
    if row.setdefault(key, value) != value:
        raise ValueError(f"{key}: {row[key]}, but {why}")
