"""Describe a stage that has run as Dagster metadata: digests, sizes, metrics as numbers, plots to look at."""

from __future__ import annotations

import base64
import csv
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

import dagster as dg
from dvc.utils.serialize import EncodingError, ParseError, load_path
from dvc_objects.fs.local import localfs

from dagster_dvc.graph import Entry, Stage

INLINE = 400_000  # bytes. Dagster's database keeps a copy for every run, so larger files are only named
ROWS = 50
DELIMITERS = {".csv": ",", ".tsv": "\t"}
More = Callable[[Stage], dict[str, Any]]  # metadata that a project adds to a stage that has run


def facts(root: Path, stage: Stage, entry: Entry) -> dict[str, Any]:
    """Return the metadata of a materialization. Numbers are floats, so that Dagster plots them over time."""
    pages = [out for out in stage.outs if out.endswith(".md")]
    shown = {path: show(root / path) for path in [*within(root, stage.plots), *pages]}
    try:
        numbers = {f"metrics/{name}": _number(value) for name, value in metrics(root, stage).items()}
    except ParseError as error:  # the stage has run nevertheless, and a check reports this too
        numbers = {"metrics": str(error)}
    columns = ("path", "size", "nfiles", "md5")
    outs = [dg.TableRecord({k: out.get(k, "") for k in columns}) for out in entry.outs]
    locked = {
        "path": dg.MetadataValue.path(str(root / stage.outs[0])) if stage.outs else "",
        "outputs": dg.MetadataValue.table(outs) if outs else "",
        "size": sum(out.get("size", 0) for out in entry.outs),
        "lock": entry.digest,
    }
    return numbers | shown | locked


def metrics(root: Path, stage: Stage) -> dict[str, float]:
    """Return every number in the metrics files that exist, {"top1/mean": 0.8}. Raises ParseError for a
    damaged file.

    If a metrics output is a folder, the path of the file is put in front: {"evaluate/wasserstein/top1": 0.8}.
    """
    numbers = dict[str, float]()
    for path in (root / name for name in stage.metrics):
        if path.is_file():
            numbers |= flat(load_path(str(path), localfs))
        for file in sorted(file for file in path.rglob("*.*") if file.is_file()):
            inner = file.relative_to(path).with_suffix("")
            with suppress(EncodingError):  # a picture
                numbers |= flat(load_path(str(file), localfs), inner.as_posix())
    return numbers


def within(root: Path, paths: Iterable[str]) -> Iterator[str]:
    """Yield the paths, and for a folder the files in it."""
    for path in paths:
        inside = sorted((root / path).glob("*"))
        yield from [f"{path}/{file.name}" for file in inside] or [path]


def show(path: Path) -> Any:
    """Return a PNG as a picture, a CSV or TSV as a table, Markdown as text. Return the path of any
    other file, and of a large one.
    """
    if path.is_file() and path.stat().st_size <= INLINE:
        if path.suffix == ".png":
            picture = base64.b64encode(path.read_bytes()).decode()
            return dg.MetadataValue.md(f"![{path.stem}](data:image/png;base64,{picture})")
        with suppress(ValueError, csv.Error):  # not UTF-8, or not a table: no reason for a stage to fail
            if path.suffix == ".md":
                return dg.MetadataValue.md(path.read_text(encoding="utf-8"))
            if path.suffix in DELIMITERS and (rows := _rows(path)):
                return dg.MetadataValue.table(rows)
    return dg.MetadataValue.path(str(path))


def _rows(path: Path) -> list[dg.TableRecord]:
    with open(path, encoding="utf-8-sig", newline="") as file:
        # A row may be shorter than the header; a field beyond the header has the key None
        rows = islice(csv.DictReader(file, restval="", delimiter=DELIMITERS[path.suffix]), ROWS)
        return [dg.TableRecord({k: str(v) for k, v in row.items() if k is not None}) for row in rows]


def finite(value: float) -> bool:
    """Return whether a number is none of nan and inf, and no integer that is too large for a float."""
    return abs(value) <= sys.float_info.max


def _number(value: float) -> float | str:
    return float(value) if finite(value) else str(value)  # Dagster's web page cannot carry nan or inf


def flat(content: Any, name: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number of nested mappings and lists with its name: ("top1/mean", 0.8)."""
    if isinstance(content, (Mapping, list)):
        pairs = content.items() if isinstance(content, Mapping) else enumerate(content)
        for key, value in pairs:
            yield from flat(value, f"{name}/{key}" if name else str(key))
    elif isinstance(content, (int, float)) and not isinstance(content, bool):
        yield name, content
