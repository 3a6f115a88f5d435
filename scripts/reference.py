"""Write docs/reference.md: every table of a study and every key, from the classes that check them.

    python -m scripts.reference > docs/reference.md

A key's line is the comment at its field: beside it, or above it if it is a sentence.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import get_args

from pipelines import aligners
from pipelines.runtime import settings
from pipelines.study import Row, attacks, corpora, encoders, images, params, row, translation

HEAD = """# Reference: every key of params.yaml

`python -m scripts.reference` makes this page from the classes that check a study. A row of `align` holds the
keys of its aligner beside its own. Terms are in the [glossary](glossary.md). Keys without a default are
needed; `make study` fills in those that follow from other rows ([configuration](configuration.md)).
"""
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
NESTED = (
    ("corpora: `chunk`", corpora.Chunk),
    ("finetune: `network`", encoders.Network),
    ("train_image_text: `head`", images.Head),
    ("train_image_text: `text`", images.TextTower),
    ("train_image_text: `image`", images.ImageTower),
)
CORPORA = (
    corpora.LibraryCorpus,
    corpora.SyntheticCorpus,
    corpora.HubCorpus,
    corpora.PathCorpus,
    corpora.VectorsCorpus,
)
SHARED = (settings, row, corpora, encoders, images, translation, attacks)


def page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    for table, field in params.Study.model_fields.items():
        rows = getattr(field.annotation, "__args__", ())[1:]
        if table == "corpora":
            parts += [section(f"corpora: `source: {source_of(kind)}`", kind) for kind in CORPORA]
        elif rows:
            parts.append(section(table, rows[0]))
    parts += [section(title, kind) for title, kind in NESTED]
    for package, title in (("aligners", "align: `aligner: {}`"), ("inverters", "inverters and invert: {}")):
        parts += [section(title.format(name), found) for name, found in settings_in(package)]
    return "\n".join(parts)


def settings_in(package: str) -> Iterator[tuple[str, type]]:
    """Yield the module and its dataclass `Settings`, for each module of a package that has one."""
    folder = Path(aligners.__file__).parents[1] / package
    for file in sorted([*folder.glob("*.py"), *folder.glob("*/__init__.py")]):
        name = file.parent.name if file.name == "__init__.py" else file.stem
        if name != package:
            found = getattr(importlib.import_module(f"pipelines.{package}.{name}"), "Settings", None)
            if found:
                yield name, found


def source_of(kind: type[Row]) -> str:
    """Return the value of `source` that chooses a kind of corpus."""
    return get_args(kind.model_fields["source"].annotation)[0]


def section(title: str, kind: type) -> str:
    """Return a heading, the class's first sentences, and a table of its keys."""
    about = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
    lines = ["", f"## {title}", "", about, "", "| key | type | default | |", "|---|---|---|---|"]
    lines += [f"| `{name}` | {' | '.join(cells)} |" for name, cells in keys(kind).items()]
    return "\n".join(lines)


def keys(kind: type) -> dict[str, tuple[str, str, str]]:
    """Return (type, default, line) of every key; a class's own fields replace those of its bases."""
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
            found[node.target.id] = tuple(cell.replace("|", "\\|") for cell in cells)
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


if __name__ == "__main__":
    print(page())
