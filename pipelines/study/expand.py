"""Expand the short form of a study into full rows.

Files in `studies/` use the short form. `make study` writes the full rows into params.yaml, where dvc.yaml
reads them. A full row may stand in a study, too: expanding it again changes nothing.

**Keys that follow from others may be left out.** A key that contradicts what it follows from is an error.

- corpora: `kind` is the name of the row if that is a kind, else passages. `path` follows from `source`.
- encoders: `model` is the name of the row. `path` follows from `source`.
- finetune: `start` is the code of new networks if the row has a `network`.
- embed: `corpus` and `encoder` follow from a name `<corpus>-<encoder>`. Where another row names such
  embeddings, their row is added.
- geometry: `corpus` is the name of the row.
- align_jointly: `start` is the code of the aligner.
- evaluate, attributes, invert: `translator` is the name of the row. `corpus` is that of its source.
  `source` and `target` are the embeddings of that corpus by the translator's two encoders. `aligner` is the
  translator's. In attributes, `source_encoder` and `target_encoder` are those of the two embeddings.
- inverters: `space` is named as the row or, with `corpus` and `encoder`, is the embeddings of that corpus by
  that encoder. `corpus` and `encoder` are those of the space.
- invert: `inverter` is the name of the row. `corpus` is the inverter's, `encoder` the target's.
- bulk: `aligner` is that of the translator in `model`; core if `model` is an encoder.
- evaluate_image_text: `encoders` is the name of the row. `corpus` is what these encoders were trained on.

**A row with `{slots}` in its name stands for several rows.** Values replace the slots everywhere.

- `matrix` lists the values of each slot. Every combination is a row. A key of several slots has a table:
  `"{a}-{b}-{n}": {matrix: {a b: [[gtr, gte], [e5, gte]], n: [5, 10]}, source: "nq-{a}", ...}` is four rows.
- A slot that is not in `matrix` names a table. `"{align}": {pictures: false}` in evaluate is one row for each
  row of align.
- A row that is written out stands instead of one from a matrix, and both instead of one from a table.
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
    for table in dict.fromkeys([*FILL, *tree]):
        if table in FILL and not isinstance(study.get(table, {}), dict):
            raise ValueError(f"{table}: a mapping of rows is needed")
        if isinstance(rows := study.get(table), dict):
            study[table] = _repeated(table, rows, study)
    for table, fill in FILL.items():
        for name, row in list(_rows(study, table).items()):
            if isinstance(name, str):
                fill(f"{table}.{name}", name, row, study)
    return study


# ---------------------------------------------------------------- rows with slots


def _repeated(table: str, rows: Rows, study: Tables) -> Rows:
    """Return a copy of a table in which each row with slots is replaced by the rows that it stands for.

    A row that is written out stands instead of one from a matrix, and both instead of one from a table.
    """
    ranks: list[Rows] = [{}, {}, {}]
    for name, row in rows.items():
        where = f"{table}.{name}"
        if not isinstance(row, dict):
            raise ValueError(f"{where}: a mapping of keys is needed")
        columns = _matrix(where, row)
        tables = [slot for slot in _slots(name) if slot not in {s for column in columns for s in column[0]}]
        columns += [_names(where, slot, study) for slot in tables]
        if prod(map(len, columns)) + sum(map(len, ranks)) > MOST:
            raise ValueError(f"{where}: more than {MOST:,} rows")
        made = ranks[2 if tables else 1 if columns else 0]
        for parts in product(*columns):
            slots = {slot: value for part in parts for slot, value in part.items()}
            one = _filled(name, slots)
            if one in made:
                raise ValueError(f"{where}: two rows are called {one}: put every slot into the name")
            made[one] = {key: _filled(value, slots) for key, value in row.items() if key != "matrix"}
    full: Rows = {}
    for made in ranks:
        full |= {name: row for name, row in made.items() if name not in full}
    return full


def _slots(name: Any) -> list[str]:
    return SLOT.findall(name) if isinstance(name, str) else []


def _names(where: str, slot: str, study: Tables) -> list[dict[str, Any]]:
    """Return the values of a slot that names a table: the names of its rows."""
    known(where, slot, FILL, "slot or table")
    return [{slot: name} for name in _rows(study, slot)]


def _matrix(where: str, row: Rows) -> list[list[dict[str, Any]]]:
    """Return the columns of a matrix: for each, a value of its slots on each line."""
    matrix = row.get("matrix", {})
    if not isinstance(matrix, dict):
        raise ValueError(f"{where}.matrix: a mapping of slots to lists is needed")
    columns = []
    for key, values in matrix.items():
        slots = str(key).split()
        if not isinstance(values, list) or not values or not slots:
            raise ValueError(f"{where}.matrix.{key}: a list of values is needed")
        lines = [[value] for value in values] if len(slots) == 1 else values
        if any(not isinstance(line, list) or len(line) != len(slots) for line in lines):
            raise ValueError(f"{where}.matrix.{key}: each line needs {len(slots)} values")
        columns.append([dict(zip(slots, line, strict=True)) for line in lines])
    return columns


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


# ---------------------------------------------------------------- keys that follow from others


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
    row.pop("corpus", None)


def _attributes(where: str, name: str, row: Rows, study: Tables) -> None:
    _translated(where, name, row, study)
    for side in SIDES:
        _follows(where, row, f"{side}_encoder", side, study, "encoder")


def _inverters(where: str, name: str, row: Rows, study: Tables) -> None:
    said = "corpus" in row and "encoder" in row
    row.setdefault("space", _embeddings(row["corpus"], row["encoder"], study) if said else name)
    for key in ("corpus", "encoder"):
        _follows(where, row, key, "space", study, key)


def _invert(where: str, name: str, row: Rows, study: Tables) -> None:
    inverter = _row(study, "inverters", row.setdefault("inverter", name))
    if "source" not in row and "corpus" in inverter:
        row.setdefault("corpus", inverter["corpus"])
    _translated(where, name, row, study)
    _follows(where, row, "encoder", "target", study, "encoder")


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
    "train_image_text": lambda *_: None,
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
        own = fitted.get(side)
        if side not in row and own is not None:
            space = _space(own, study)
            corpus = row.get("corpus", space.get("corpus"))
            same = corpus == space.get("corpus")
            row[side] = own if same else _embeddings(corpus, space.get("encoder"), study)
        _follows(where, row, "corpus", side, study, "corpus")
    aligner = fitted.get("aligner")
    if aligner and row.setdefault("aligner", aligner) != aligner:
        raise ValueError(f"{where}.aligner: {row['aligner']}, but {row['translator']} is fitted by {aligner}")


def _follows(where: str, row: Rows, key: str, of: str, study: Tables, part: str) -> None:
    """Fill a key with the corpus or the encoder of the embeddings that key `of` names."""
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
    """Return the name of the embeddings of a corpus by an encoder."""
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
    trained, _, side = name.rpartition("-")
    if name not in rows and side in ("image", "text") and trained in _rows(study, "train_image_text"):
        return {"corpus": _row(study, "train_image_text", trained).get("corpus"), "encoder": name}
    if name not in rows and (parts := _parts(f"embed.{name}", name, study)):
        study["embed"] = {**rows, name: parts}
    return _row(study, "embed", name)


def _parts(where: str, name: str, study: Tables) -> Rows:
    """Return the corpus and the encoder of a name `<corpus>-<encoder>`; nothing if it is none."""
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
