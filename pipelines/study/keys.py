"""Describe the keys of rows: type, default and meaning, from the classes that check a study.

A key's meaning is the comment at its field: beside it, or above it if it is a sentence.
"""

from __future__ import annotations

import ast
import inspect
import json
from dataclasses import MISSING, is_dataclass
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from pipelines.runtime.settings import Bounds
from pipelines.study.row import Ref, Row, Study, WatchedPath

NAMES: dict[Any, str] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true or false",
    type(None): "null",
}
YAML = {"None": "null", "True": "true", "False": "false", "()": "[]"}


def usage(verb: str, table: str | None, study: Study, fault: str = "") -> str:
    """Return how to start a stage: the rows of its table, if any, and a line for each key of such rows.

    fault: why a study has no rows.
    """
    if table is None:
        return f"usage: python -m pipelines.{verb}"
    rows = getattr(study, table)
    lines = [f"usage: python -m pipelines.{verb} <row>", "", f"Rows of {table} in params.yaml:"]
    lines += [f"  {name}" for name in rows] or [f"  {fault or 'none'}"]
    for kind, title in kinds(table, study).items():
        of_kind = keys(kind)
        lines += ["", f"Keys of {title}:"] if of_kind else []
        for name, (type_, default, meaning) in of_kind.items():
            given = f", default {default.strip('`')}" if default else ""
            lines.append(f"  {name} ({type_}{given}) {meaning}".rstrip())
    return "\n".join([*lines, "", "All keys are in docs/reference.md."])


def kinds(table: str, study: Study) -> dict[type, str]:
    """Return the classes of a table's rows and of the settings in them, each with its name."""
    of_row = get_args(type(study).model_fields[table].annotation)[1]
    found = {of_row: f"a row of {table}"} if isinstance(of_row, type) else {}
    for one in getattr(study, table).values():
        found.setdefault(type(one), f"a row of {table} with source {getattr(one, 'source', '')}")
        for key, value in one:
            if is_dataclass(value) or isinstance(value, Row):
                found.setdefault(type(value), f"aligner {one.aligner}" if key == "settings" else key)
    return found


def keys(kind: type) -> dict[str, tuple[str, str, str]]:
    """Return (type, default, meaning) of every key; a class's own fields replace those of its bases."""
    found: dict[str, tuple[str, str, str]] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("pipelines."):
            meanings = comments(base)
            for name, hint in inspect.get_annotations(base, eval_str=True).items():
                found[name] = (in_words(hint), default(kind, name), meanings[name])
    found.pop("settings", None)
    return found


def comments(kind: type) -> dict[str, str]:
    """Return the comment of each field: what stands beside it, else above it. One word above is a heading.

    Values in it are in YAML: `null`, not `None`.
    """
    source = inspect.getsource(kind)
    lines, found = source.splitlines(), {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            beside = [line.partition("  # ")[2] for line in lines[node.lineno - 1 : node.end_lineno]]
            first = node.lineno - 1
            while lines[first - 1].strip().startswith("# "):
                first -= 1
            above = " ".join(line.strip()[2:] for line in lines[first : node.lineno - 1])
            meaning = " ".join(filter(None, beside)) or (above if " " in above else "")
            for python, yaml in YAML.items():
                meaning = meaning.replace(python, yaml)
            found[node.target.id] = meaning
    return found


def default(kind: Any, name: str) -> str:
    """Return the default of a field, as in a study's file; nothing if the key is needed."""
    fields = kind.__dataclass_fields__ if is_dataclass(kind) else kind.model_fields
    value = fields[name].default
    if value in (MISSING, PydanticUndefined):
        return ""
    return "`{}`" if isinstance(value, Row) else f"`{json.dumps(value)}`"


def in_words(hint: Any) -> str:
    """Return a type in words, such as `integer at least 1`, `text (a row of embed)`, `list of number`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return " or ".join(map(in_words, parts))
    if origin is Literal:
        return ", ".join(map(str, parts))
    if origin is Annotated:
        marks = filter(None, map(suffix, parts[1:]))
        return "path" if WatchedPath() in parts else " ".join([in_words(parts[0]), *marks])
    if origin is tuple:
        return f"list of {in_words(parts[0])}" if ... in parts else f"[{', '.join(map(in_words, parts))}]"
    return "mapping" if origin is dict or hint is Any else NAMES.get(hint) or hint.__name__


def suffix(mark: Any) -> str:
    """Return what a mark adds to a type: its bounds, its divisor, or the table that a name is of."""
    if isinstance(mark, Ref):
        return f"(a row of {mark.table.replace('translators', 'align or align_jointly')})"
    if isinstance(mark, FieldInfo):
        every = (getattr(one, "multiple_of", None) for one in mark.metadata)
        return " ".join(f"in multiples of {number}" for number in every if number)
    return str(mark) if isinstance(mark, Bounds) else ""
