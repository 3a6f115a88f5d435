"""Names that studies had before, each with its name of now: a study of old names gets one line that says the new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

TABLES = {"contrast": "train_image_text", "recognise": "evaluate_image_text"}
VERBS = TABLES | {"learn": "train_inverter"}
ALIGNER = {
    "sharpness": "inverse_temperature", "heats": "rounds", "heat_steps": "round_steps", "inverted_softmax": "hub_correction",
}  # fmt: skip
KEYS = {  # of a table's rows
    "align": ALIGNER,
    "audit": ALIGNER,
    "evaluate": {"sharpness": "hub_correction"},
    "attributes": {"sharpness": "hub_correction"},
    "invert": {"sharpness": "hub_correction"},
}
PATHS = {
    "pipelines/corpora/sample": "pipelines/corpora/synthetic",
    "pipelines/corpora/nq.py": "pipelines/corpora/passages.py",
    "pipelines/corpora/mimic.py": "pipelines/corpora/notes.py",
    "pipelines/corpora/enron.py": "pipelines/corpora/emails.py",
    "pipelines/encoders/scratch.py": "pipelines/contrastive/scratch.py",
}
VALUES = {  # of a table's key
    ("corpora", "kind"): {"nq": "passages", "mimic": "notes", "enron": "emails"},
    ("corpora", "source"): {"sample": "synthetic"},
    ("corpora", "path"): PATHS,
    ("finetune", "start"): PATHS,
}


def renamed(tree: Mapping[str, Any]) -> Iterator[str]:
    """One line for each old name in a study's tree."""
    corpora = tree.get("corpora")
    for name, row in corpora.items() if isinstance(corpora, dict) else ():
        kind = VALUES["corpora", "kind"].get(name)  # the name of a row was its kind, where it was one
        if kind and kind != "passages" and isinstance(row, dict) and "kind" not in row:
            yield f"corpora.{name}: a row's name no longer says this kind: add `kind: {kind}`"
    for table, rows in tree.items():
        if table in TABLES:
            yield f"{table}: is called {TABLES[table]} now"
        for name, row in rows.items() if isinstance(rows, dict) else ():
            for key, value in row.items() if isinstance(row, dict) else ():
                yield from (f"{table}.{name}.{line}" for line in _of_key(table, key, value))


def _of_key(table: str, key: str, value: Any) -> Iterator[str]:
    if key in KEYS.get(table, {}):
        yield f"{key}: is called {KEYS[table][key]} now"
    if isinstance(value, dict):  # settings within a row
        yield from (
            f"{key}.{line}" for inner, setting in value.items() for line in _of_key(table, inner, setting)
        )
    if not isinstance(value, str):
        return
    if new := VALUES.get((table, key), {}).get(value.rstrip("/")):
        yield f"{key}: {value!r} is called {new} now"
    verb = value.partition(".")[0]
    if (table, key) == ("published", "of") and verb in VERBS:
        yield f"of: {verb!r} is called {VERBS[verb]} now"
