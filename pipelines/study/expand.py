"""Expand the short form of a study into full rows.

Files in `studies/` use the short form. `make study` writes the full rows into params.yaml, where dvc.yaml
reads them. A full row may stand in a study, too: expanding it again changes nothing.

**Keys that can be derived may be left out.** Names of corpora, encoders and aligners that contradict the rows
they are derived from are errors. Other keys below are defaults.

- corpora: `kind` is the name of the row if that is a kind, else `passages`.
- encoders: `model` is the name of the row.
- corpora, encoders: `path` is what DVC watches, so that a change of it runs the stage again. For `library`
  and `wheel` it is the file of pinned versions, for `synthetic` the word lists, for `hub` the code that
  downloads.
- finetune, align_jointly: `start` is what DVC watches where nothing is continued: the code of new networks
  (if the row has a `network`), or the code of the aligner.
- embed: a row `<corpus>-<encoder>` has this `corpus` and this `encoder`. If another row names embeddings
  that have no row, the row is added.
- geometry: `corpus` is the name of the row.
- evaluate, attributes, invert: `translator` is the name of the row. `corpus` is the corpus of the
  translator's source. `source` and `target` are the embeddings of `corpus` by the translator's two
  encoders. `aligner` is the translator's. In attributes, `source_encoder` and `target_encoder` are those of
  the two embeddings.
- inverters: `space` is the name of the row. If the row has `corpus` and `encoder`, it is the embeddings of
  this corpus by this encoder. Otherwise `corpus` and `encoder` are those of the space.
- invert: `inverter` is the name of the row. `corpus` is the inverter's, `encoder` the target's.
- bulk: `aligner` is that of the translator in `model`. For an encoder it is `core`, the code all aligners
  share.
- evaluate_image_text: `encoders` is the name of the row. `corpus` is what these encoders were trained on.

**A row with `{slots}` in its name stands for several rows.** Values replace the slots everywhere in the row.

- `matrix` lists the values of each slot. Every combination of values is a row. A key such as `a b` sets two
  slots together, and its value is a list of lists:
  `"{a}-{b}-{n}": {matrix: {a b: [[gtr, gte], [e5, gte]], n: [5, 10]}, source: "nq-{a}", ...}` is four rows.
- A slot that is not in `matrix` is the name of a table in FILL, and takes the names of its rows.
  `"{align}": {pictures: false}` in evaluate is one row for each row of align.
- If several rows have one name, a written row wins over one from a matrix, and both win over one from a
  table.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import product
from math import prod
from typing import Any

from pipelines.study.corpora import KINDS
from pipelines.study.row import known

Rows = dict[str, Any]
Tables = dict[str, Any]

SLOT = re.compile(r"\{(\w+)\}")
MOST = 10_000  # rows of one table

SIDES = ("source", "target")
TRANSLATORS = "data/translators/"
SCRATCH = "pipelines/contrastive/scratch.py"
PATHS = {
    ("corpora", "library"): "constraints.txt",
    ("corpora", "synthetic"): "pipelines/corpora/sources/synthetic/words.yaml",
    ("corpora", "hub"): "pipelines/corpora/sources/hub/__init__.py",
    ("encoders", "wheel"): "constraints.txt",
    ("encoders", "hub"): "pipelines/encoders/sources.py",
}


def expand(tree: Mapping[str, Any]) -> Tables:
    """Return the study with full rows.

    Raise ValueError if a table or a row is not a mapping, if a row names a translator that is missing, or if
    a row contradicts itself.
    """
    study = {**tree}
    for table in dict.fromkeys([*FILL, *tree]):  # FILL first: a slot may name a table that comes earlier
        if table in FILL and not isinstance(study.get(table, {}), dict):
            raise ValueError(f"{table}: a mapping of rows is needed")
        if isinstance(rows := study.get(table), dict):
            study[table] = _without_slots(table, rows, study)
    for table, fill in FILL.items():
        for name, row in list(_rows(study, table).items()):  # a list: a row may add complete rows to embed
            if isinstance(name, str):
                fill(f"{table}.{name}", name, row, study)
    return study


# ---------------------------------------------------------------- rows with slots


def _without_slots(table: str, rows: Rows, study: Tables) -> Rows:
    """Return a copy of a table in which each row with slots is replaced by the rows that it stands for."""
    written: Rows = {}
    from_matrix: Rows = {}
    from_tables: Rows = {}
    for name, row in rows.items():
        where = f"{table}.{name}"
        if not isinstance(row, dict):
            raise ValueError(f"{where}: a mapping of keys is needed")
        choices = _matrix(where, row)
        in_matrix = {slot for values in choices for slot in values[0]}
        tables = [slot for slot in _slots(name) if slot not in in_matrix]
        rows_so_far = len(written) + len(from_matrix) + len(from_tables)
        made = from_tables if tables else from_matrix if choices else written
        choices += [_names(where, slot, study) for slot in tables]
        if prod(map(len, choices)) + rows_so_far > MOST:
            raise ValueError(f"{where}: more than {MOST:,} rows")
        for combination in product(*choices):
            slots = {slot: value for values in combination for slot, value in values.items()}
            full_name = _filled(name, slots)
            if full_name in made:
                raise ValueError(f"{where}: two rows are called {full_name}: put every slot into the name")
            made[full_name] = {key: _filled(value, slots) for key, value in row.items() if key != "matrix"}
    from_matrix = {name: row for name, row in from_matrix.items() if name not in written}
    generated = {name: row for name, row in from_tables.items() if name not in written | from_matrix}
    return written | from_matrix | generated


def _slots(name: Any) -> list[str]:
    return SLOT.findall(name) if isinstance(name, str) else []


def _names(where: str, slot: str, study: Tables) -> list[dict[str, Any]]:
    """Return the values of a slot that names a table: the names of its rows."""
    known(where, slot, FILL, "slot or table")
    return [{slot: name} for name in _rows(study, slot)]


def _matrix(where: str, row: Rows) -> list[list[dict[str, Any]]]:
    """Return, for each key of `matrix`, the list of its values: {slot: value} or, for `a b`, two slots."""
    matrix = row.get("matrix", {})
    if not isinstance(matrix, dict):
        raise ValueError(f"{where}.matrix: a mapping of slots to lists is needed")
    choices = []
    for key, values in matrix.items():
        slots = str(key).split()
        if not isinstance(values, list) or not values or not slots:
            raise ValueError(f"{where}.matrix.{key}: a list of values is needed")
        lines = [[value] for value in values] if len(slots) == 1 else values
        if any(not isinstance(line, list) or len(line) != len(slots) for line in lines):
            raise ValueError(f"{where}.matrix.{key}: each line needs {len(slots)} values")
        choices.append([dict(zip(slots, line, strict=True)) for line in lines])
    return choices


def _filled(value: Any, slots: Mapping[str, Any]) -> Any:
    """Replace slots at any depth. A text that is one slot becomes the slot's value, for example a number."""
    if isinstance(value, dict):
        return {key: _filled(inner, slots) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, slots) for inner in value]
    if not isinstance(value, str):
        return value
    whole = SLOT.fullmatch(value)
    if whole and whole[1] in slots:
        return slots[whole[1]]
    return SLOT.sub(lambda slot: str(slots.get(slot[1], slot[0])), value)


# ---------------------------------------------------------------- keys that can be derived


def _corpus(where: str, name: str, row: Rows, study: Tables) -> None:
    row.setdefault("kind", name if name in KINDS else "passages")
    _path("corpora", row)


def _encoder(where: str, name: str, row: Rows, study: Tables) -> None:
    row.setdefault("model", name)
    _path("encoders", row)


def _finetune(where: str, name: str, row: Rows, study: Tables) -> None:
    if "network" in row:
        row.setdefault("start", SCRATCH)


def _embed(where: str, name: str, row: Rows, study: Tables) -> None:
    for key, value in _parts(where, name, study).items():
        row.setdefault(key, value)


def _geometry(where: str, name: str, row: Rows, study: Tables) -> None:
    row.setdefault("corpus", name)


def _align(where: str, name: str, row: Rows, study: Tables) -> None:
    for side in SIDES:
        _space(row.get(side), study)


def _align_jointly(where: str, name: str, row: Rows, study: Tables) -> None:
    row.setdefault("start", f"pipelines/aligners/{row.get('aligner')}")
    for space in row["spaces"] if isinstance(row.get("spaces"), list) else ():
        _space(space, study)


def _evaluate(where: str, name: str, row: Rows, study: Tables) -> None:
    _translated(where, name, row, study)
    row.pop("corpus", None)  # no key of full rows: source and target name it


def _attributes(where: str, name: str, row: Rows, study: Tables) -> None:
    _translated(where, name, row, study)
    for side in SIDES:
        _derive(where, row, f"{side}_encoder", side, study, "encoder")


def _inverters(where: str, name: str, row: Rows, study: Tables) -> None:
    both = "corpus" in row and "encoder" in row
    row.setdefault("space", _embeddings(row["corpus"], row["encoder"], study) if both else name)
    for key in ("corpus", "encoder"):
        _derive(where, row, key, "space", study, key)


def _invert(where: str, name: str, row: Rows, study: Tables) -> None:
    inverter = _row(study, "inverters", row.setdefault("inverter", name))
    if "source" not in row and "corpus" in inverter:
        row.setdefault("corpus", inverter["corpus"])
    _translated(where, name, row, study)
    _derive(where, row, "encoder", "target", study, "encoder")


def _bulk(where: str, name: str, row: Rows, study: Tables) -> None:
    model = str(row.get("model"))
    if not model.startswith(TRANSLATORS):
        row.setdefault("aligner", "core")
    else:
        fitted = _translator(f"{where}.model", model.removeprefix(TRANSLATORS).rstrip("/"), study)
        row.setdefault("aligner", fitted.get("aligner"))


def _evaluate_image_text(where: str, name: str, row: Rows, study: Tables) -> None:
    trained = _row(study, "train_image_text", row.setdefault("encoders", name))
    if "corpus" in trained:
        row.setdefault("corpus", trained["corpus"])


FILL: dict[str, Callable[[str, str, Rows, Tables], None]] = {
    "corpora": _corpus,
    "encoders": _encoder,
    "finetune": _finetune,
    "embed": _embed,
    "geometry": _geometry,
    "train_image_text": lambda *_: None,  # nothing to derive, but a slot may name this table
    "align": _align,
    "align_jointly": _align_jointly,
    "evaluate": _evaluate,
    "attributes": _attributes,
    "inverters": _inverters,
    "invert": _invert,
    "bulk": _bulk,
    "evaluate_image_text": _evaluate_image_text,
}


def _path(table: str, row: Rows) -> None:
    if path := PATHS.get((table, str(row.get("source")))):
        row.setdefault("path", path)


def _translated(where: str, name: str, row: Rows, study: Tables) -> None:
    """Fill translator, source, target, corpus and aligner of a row that uses a translator."""
    fitted = _translator(f"{where}.translator", row.setdefault("translator", name), study)
    for side in SIDES:
        fitted_on = fitted.get(side)
        if side not in row and fitted_on is not None:
            space = _space(fitted_on, study)
            corpus = row.get("corpus", space.get("corpus"))
            # On another corpus than that of the fit, the side is the embeddings by the same encoder.
            same = corpus == space.get("corpus")
            row[side] = fitted_on if same else _embeddings(corpus, space.get("encoder"), study)
        _derive(where, row, "corpus", side, study, "corpus")
    aligner = fitted.get("aligner")
    if aligner and row.setdefault("aligner", aligner) != aligner:
        raise ValueError(f"{where}.aligner: {row['aligner']}, but {row['translator']} is fitted by {aligner}")


def _derive(where: str, row: Rows, key: str, of: str, study: Tables, part: str) -> None:
    """Fill `key` with the `part` ("corpus" or "encoder") of the embeddings that the row's key `of` names.

    Raise ValueError if the row has another value.
    """
    value = _space(row.get(of), study).get(part)
    if value is not None and row.setdefault(key, value) != value:
        raise ValueError(f"{where}.{key}: {row[key]}, but {of} {row[of]} is of {part} {value}")


def _translator(where: str, name: Any, study: Tables) -> Rows:
    """Return source, target and aligner of a translator: a row of align, or `row/source/target`."""
    if not isinstance(name, str):
        return {}
    row, *spaces = name.split("/")
    if len(spaces) == 2:
        known(where, row, _rows(study, "align_jointly"))
        joint = _row(study, "align_jointly", row)
        return {"source": spaces[0], "target": spaces[1], "aligner": joint.get("aligner")}
    known(where, name, _rows(study, "align"))
    return _row(study, "align", name)


def _embeddings(corpus: Any, encoder: Any, study: Tables) -> str:
    """Return the name of the embeddings of a corpus by an encoder: `<corpus>-<encoder>`.

    If there is no row of this name, but one of another name has both, return the other name.
    """
    name = f"{corpus}-{encoder}"
    rows = _rows(study, "embed")
    of = {"corpus": corpus, "encoder": encoder}
    same = [n for n, row in rows.items() if of == {key: row.get(key) for key in of}]
    return name if name in rows or not same else same[0]


def _space(name: Any, study: Tables) -> Rows:
    """Return corpus and encoder of embeddings. Add the row of embed if its name says both."""
    if not isinstance(name, str):
        return {}
    rows = _rows(study, "embed")
    trained, _, side = name.rpartition("-")  # train_image_text writes spaces <row>-image and <row>-text
    if name not in rows and side in ("image", "text") and trained in _rows(study, "train_image_text"):
        return {"corpus": _row(study, "train_image_text", trained).get("corpus"), "encoder": name}
    if name not in rows and (parts := _parts(f"embed.{name}", name, study)):
        study["embed"] = {**rows, name: parts}
    return _row(study, "embed", name)


def _parts(where: str, name: str, study: Tables) -> Rows:
    """Return the corpus and the encoder of a name `<corpus>-<encoder>`. Return {} for other names."""
    cuts = [(name[:at], name[at + 1 :]) for at, letter in enumerate(name) if letter == "-"]
    pairs = [(c, e) for c, e in cuts if c in _rows(study, "corpora") and e in _rows(study, "encoders")]
    if len(pairs) > 1:
        raise ValueError(
            f"{where}: several corpora and encoders fit this name: write a row of embed with both"
        )
    return dict(zip(("corpus", "encoder"), pairs[0], strict=True)) if pairs else {}


def _rows(study: Tables, table: str) -> Rows:
    return study.get(table, {})


def _row(study: Tables, table: str, name: Any) -> Rows:
    return _rows(study, table).get(name, {}) if isinstance(name, str) else {}
