"""Describe a stage that has run as Dagster metadata: digests, sizes, metrics as numbers, plots to look at."""

from __future__ import annotations

import base64
import csv
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import dagster as dg
import yaml

from dagster_dvc.graph import Entry, Loader, Stage

INLINE = 400_000  # bytes. Dagster's database keeps a copy for every run, so larger files are named, not shown
ROWS = 50
More = Callable[[Stage], dict[str, Any]]  # metadata that a project adds to a stage that has run


def facts(root: Path, stage: Stage, entry: Entry) -> dict[str, Any]:
    """Return the metadata of a materialization. Numbers are floats, so that Dagster plots them over time."""
    outs = [
        dg.TableRecord({k: out.get(k, "") for k in ("path", "size", "nfiles", "md5")}) for out in entry.outs
    ]
    pages = (o for o in stage.outs if o.endswith(".md"))
    shown = short({path: show(root / path) for path in (*within(root, stage.plots), *pages)})
    try:
        numbers = {f"metrics/{name}": _number(value) for name, value in metrics(root, stage).items()}
    except ValueError as error:  # the stage has run nevertheless, and a check reports this too
        numbers = {"metrics": str(error)}
    return (
        numbers
        | shown
        | {
            "stage": stage.name,
            "command": stage.cmd,
            "path": dg.MetadataValue.path(str(root / stage.outs[0])) if stage.outs else "",
            "outputs": dg.MetadataValue.table(outs) if outs else "",
            "size": sum(out.get("size", 0) for out in entry.outs),
            "lock": entry.digest,
        }
    )


def metrics(root: Path, stage: Stage) -> dict[str, float]:
    """Return every number in the metrics files that exist, {"top1/mean": 0.8}. Raises ValueError for a
    damaged file.

    A number of a folder has its file's path in front: {"evaluate/wasserstein/top1": 0.8}.
    """
    numbers = {}
    for path in stage.metrics:
        numbers |= dict(flat(_content(root, root / path)))
        for file in sorted((root / path).rglob("*.*")):
            inner = file.relative_to(root / path).with_suffix("")
            numbers |= dict(flat(_content(root, file), name=inner.as_posix()))
    return numbers


def _content(root: Path, file: Path) -> Any:
    """Return what a metrics file holds, nothing if there is none."""
    if not file.is_file():
        return {}
    try:
        text = file.read_text(encoding="utf-8")
        return json.loads(text) if file.suffix == ".json" else yaml.load(text, Loader)
    except (ValueError, yaml.YAMLError) as error:
        raise ValueError(f"{file.relative_to(root)}: {' '.join(str(error).split())}") from None


def short(shown: dict[str, Any]) -> dict[str, Any]:
    """Shorten each path to its file name if no other file has that name."""
    count = Counter(Path(path).name for path in shown)
    return {Path(path).name if count[Path(path).name] == 1 else path: value for path, value in shown.items()}


def within(root: Path, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths, and for a folder the files in it."""
    for path in paths:
        inside = sorted((root / path).iterdir()) if (root / path).is_dir() else ()
        yield from (f"{path}/{file.name}" for file in inside) if inside else (path,)


def show(path: Path) -> Any:
    """Return a PNG as a picture, a CSV or TSV as a table, Markdown as text; the path of any other or large
    file.
    """
    kind = path.suffix
    if not path.is_file() or path.stat().st_size > INLINE or kind not in (".png", ".csv", ".tsv", ".md"):
        return dg.MetadataValue.path(str(path))
    if kind == ".png":
        picture = base64.b64encode(path.read_bytes()).decode()
        return dg.MetadataValue.md(f"![{path.stem}](data:image/png;base64,{picture})")
    if kind == ".md":
        return dg.MetadataValue.md(path.read_text(encoding="utf-8"))
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(islice(csv.DictReader(file, delimiter="\t" if kind == ".tsv" else ","), ROWS))
    if not rows:
        return dg.MetadataValue.path(str(path))
    return dg.MetadataValue.table([dg.TableRecord({str(k): str(v) for k, v in row.items()}) for row in rows])


def _number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else str(value)  # Dagster's web page cannot carry nan or inf


def flat(content: Any, by: str = "/", name: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of nested mappings and lists with its name: ("top1/mean", 0.8)."""
    pairs = (
        content.items()
        if isinstance(content, Mapping)
        else enumerate(content)
        if isinstance(content, list)
        else ()
    )
    for key, value in pairs:
        inner = f"{name}{by}{key}" if name else str(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield inner, value
        else:
            yield from flat(value, by, inner)
