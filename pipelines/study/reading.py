"""Read a study's YAML file. Repeated keys and unsafe names of rows are refused."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from pipelines.runtime.errors import BadInput, message

# Names of rows become file names and arguments of commands. DVC splits them at '.', and reads 1e5, 0x10 and
# 2020-01-01 as other things than text.
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,99}")


FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(FAST):
    """Reads YAML 1.2: `no` is text and `3e-05` a number, as for DVC. 0x10 and dates are text, too."""

    yaml_implicit_resolvers = {}


for kind, pattern, first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(0|[1-9][0-9]*)", "-+0123456789"),
    (
        "float",
        r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    Loader.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", re.compile(f"(?:{pattern})\\Z"), list(first))

MOST = 100_000  # values of a study; ours have at most 2,000
DIGITS = 18  # longest integer: sizes in torch and polars have 64 bits


def read(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises BadInput if it cannot be read or repeats a key."""
    text = ""
    try:
        text = path.read_bytes().decode()
        loader = Loader(text)
        node = loader.get_single_node()
        if node and size(node, {}) > MOST:  # before `faults`, which visits an alias once for each use
            raise BadInput(f"{path}: its aliases stand for more than {MOST:,} values")
        if fault := next(faults(node), ""):
            raise BadInput(f"{path}: {fault}")
        tree = loader.construct_document(node) if node else None
    except OSError as error:
        raise BadInput(f"{path}: cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as error:
        fault = message(error).replace('"<unicode string>", ', "")
        if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark:
            line = "".join(text.splitlines()[error.problem_mark.line :][:1])
            if re.search(r"{\w+}", re.sub(r"""".*?"|'.*?'""", "", line)):
                fault += "; put text with {slot} in quotes"
        raise BadInput(f"{path}: not YAML: {fault}") from None
    if not isinstance(tree, dict):
        raise BadInput(f"{path}: a mapping of keys is needed")
    return tree


def size(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node has with its aliases written out. Ten lines can have a billion."""
    if id(node) not in known:
        known[id(node)] = 1  # ends at an alias of the node itself, which `faults` refuses
        parts = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(size(part, known) for part in parts)
    return known[id(node)]


def faults(node: yaml.Node | None, at: str = "", above: tuple[yaml.Node, ...] = ()) -> Iterator[str]:
    """Yield what YAML or DVC would misread, with its place."""
    if any(node is outer for outer in above):
        yield f"{at}: an alias of a node that contains it"
    elif isinstance(node, yaml.ScalarNode) and (fault := _misread(node)):
        yield f"{at}: {fault}"
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from faults(value, f"{at}.{number}".lstrip("."), (*above, node))
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            name, line = str(key.value), key.start_mark.line + 1
            place = f"{at}.{name}".lstrip(".")
            if name in lines and name != "<<":
                yield f"{place} stands twice: lines {lines[name]} and {line}"
            lines[name] = line
            yield from faults(value, place, (*above, node))


def _misread(scalar: yaml.ScalarNode) -> str:
    if scalar.tag == "tag:yaml.org,2002:int" and len(scalar.value.lstrip("+-")) > DIGITS:
        return f"a number of more than {DIGITS} digits"
    return "DVC replaces ${...} by a value of params.yaml: write it without" if "${" in scalar.value else ""


def check_names(tree: dict[str, Any]) -> None:
    """Raise ValueError for a row name that is not safe, or that differs from another only in case."""
    for table, rows in tree.items():
        folded: dict[str, str] = {}
        for name in rows if isinstance(rows, dict) else ():
            if not isinstance(name, str) or not NAME.fullmatch(name):
                shown = name if not isinstance(name, str) or len(name) <= 100 else f"{name[:20]}..."
                rule = "a letter, then letters, digits, '_', '-'; at most 100 characters"
                raise ValueError(f"{table}: {shown!r} is no row name: {rule}")
            if (other := folded.setdefault(name.lower(), name)) != name:
                raise ValueError(
                    f"{table}: {other!r} and {name!r} differ only in case: some systems see one file"
                )
