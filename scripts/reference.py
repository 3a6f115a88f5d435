"""Write docs/reference.md: every table of a study and every key, from the classes that check them.

python -m scripts.reference > docs/reference.md
"""

import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from pipelines.study import Row, corpora, encoders, images, params
from pipelines.study.keys import keys

HEAD = """# Reference: every key of params.yaml

`python -m scripts.reference` makes this page from the classes that check a study. A row of `align` holds the
keys of its aligner beside its own. Terms are in the [glossary](glossary.md). Keys without a default are
needed; `make study` fills in those that follow from other rows ([configuration](configuration.md)).
"""
NESTED = (
    ("corpora: `chunk`", corpora.Chunk),
    ("finetune: `network`", encoders.Network),
    ("train_image_text: `head`", images.Head),
    ("train_image_text: `text`", images.TextTower),
    ("train_image_text: `image`", images.ImageTower),
)


def page() -> str:
    """Return the page as Markdown."""
    parts = [HEAD]
    for table, field in params.Study.model_fields.items():
        rows = get_args(field.annotation)[1:]
        if table == "corpora":
            parts += [
                section(f"corpora: `source: {source_of(kind)}`", kind)
                for kind in get_args(get_args(corpora.AnyCorpus)[0])
            ]
        elif rows:
            parts.append(section(table, rows[0]))
    parts += [section(title, kind) for title, kind in NESTED]
    for package, title in (("aligners", "align: `aligner: {}`"), ("inverters", "inverters and invert: {}")):
        parts += [section(title.format(name), found) for name, found in settings_in(package)]
    return "\n".join(parts)


def settings_in(package: str) -> Iterator[tuple[str, type]]:
    """Yield the module and its dataclass `Settings`, for each module of a package that has one."""
    folder = Path(__file__).parents[1] / "pipelines" / package
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
    if about.startswith(f"{kind.__name__}("):  # a dataclass without docstring has its signature there
        about = ""
    lines = ["", f"## {title}", "", about, "", "| key | type | default | |", "|---|---|---|---|"]
    for name, cells in keys(kind).items():
        escaped = (cell.replace("|", "\\|") for cell in cells)
        lines.append(f"| `{name}` | {' | '.join(escaped)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(page())
