"""Describe the keys of rows: type, default and meaning, from the classes that check a study.

A key's meaning is the comment at its field: beside it, or above it if it is a sentence.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import is_dataclass
from types import ModuleType
from typing import TYPE_CHECKING, get_args

from pipelines.runtime import settings
from pipelines.study import attacks, corpora, encoders, images, row, translation

if TYPE_CHECKING:
    from pipelines.study.params import Study

NAMES = {
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "true or false",
    "Any": "mapping",
    "Watched": "path",
    "Seeds": "list of seeds",
}
BOUNDS = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
SHARED = (settings, row, corpora, encoders, images, translation, attacks)


def usage(verb: str, table: str | None, study: Study) -> str:
    """Return how to start a stage: the rows of its table, if any, and a line for each key of such rows."""
    if table is None:
        return f"usage: python -m pipelines.{verb}"
    rows = getattr(study, table)
    lines = [f"usage: python -m pipelines.{verb} <row>", "", f"Rows of {table} in params.yaml:"]
    lines += [f"  {name}" for name in rows] or ["  none"]
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
            if is_dataclass(value) or isinstance(value, row.Row):
                found.setdefault(type(value), f"aligner {one.aligner}" if key == "settings" else key)
    return found


def keys(kind: type) -> dict[str, tuple[str, str, str]]:
    """Return (type, default, meaning) of every key; a class's own fields replace those of its bases."""
    found: dict[str, tuple[str, str, str]] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("pipelines."):
            module = inspect.getmodule(base)
            assert module
            found |= own_keys(module, base.__name__)
    return {name: cells for name, cells in found.items() if name != "settings"}


def own_keys(module: ModuleType, name: str) -> dict[str, tuple[str, str, str]]:
    source = inspect.getsource(module)
    lines, names = source.splitlines(), aliases(module)
    body = next(
        node.body for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == name
    )
    found = {}
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            cells = (said(node.annotation, names), default(node.value), comment(lines, node))
            found[node.target.id] = cells
    return found


def aliases(module: ModuleType) -> dict[str, ast.expr]:
    """Return the types that a module and those of rows name, by name."""
    found = {}
    for each in (*SHARED, module):
        for node in ast.parse(inspect.getsource(each)).body:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                found[node.targets[0].id] = node.value
    return found


def comment(lines: list[str], node: ast.AnnAssign) -> str:
    """Return the comments beside a field, or the sentence above it; a heading of one word is none."""
    beside = [line.partition("  # ")[2] for line in lines[node.lineno - 1 : node.end_lineno]]
    if any(beside):
        return " ".join(filter(None, beside))
    above = []
    for line in reversed(lines[: node.lineno - 1]):
        if not line.strip().startswith("# "):
            break
        above.append(line.strip()[2:])
    return " ".join(reversed(above)) if any(" " in line for line in above) else ""


def default(node: ast.expr | None) -> str:
    """Return the default of a field as code; nothing if the key is needed."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Field":
        node = node.args[0] if node.args else None
    return "" if node is None else f"`{ast.unparse(node)}`"


def said(node: ast.expr, names: dict[str, ast.expr]) -> str:
    """Return a type in words: `integer at least 1`, `row of embed`, `list of number`."""
    match node:
        case ast.Constant(value=None):
            return "none"
        case ast.Name(id=name):
            alias = NAMES.get(name)
            return alias or (said(names[name], names) if name in names else name)
        case ast.BinOp(left=left, right=right):
            return f"{said(left, names)} or {said(right, names)}"
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            return re.sub(r"[()']", "", ast.unparse(choices))
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *marks])):
            return " ".join([said(kind, names), *filter(None, map(marked, marks))])
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[kind, ast.Constant()])):
            return f"list of {said(kind, names)}"
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=kinds)):
            return f"[{', '.join(said(kind, names) for kind in kinds)}]"
        case _:
            return "mapping"


def marked(node: ast.expr) -> str:
    """Return what a mark adds to a type: its bounds, or the table that a name is of."""
    if not isinstance(node, ast.Call):
        return ""
    name = getattr(node.func, "id", "")
    if name == "Bounds":
        return " and ".join(f"{BOUNDS[str(end.arg)]} {ast.unparse(end.value)}" for end in node.keywords)
    return f"(a row of {ast.literal_eval(node.args[0])})" if name == "Ref" else ""
