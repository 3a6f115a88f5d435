"""The user's own texts: a table (parquet, csv, tsv, jsonl), a document, an mbox, or a folder of tables, of
documents or of mails.

A document of a folder is one text. A document alone is one text for each paragraph if it has a blank line
between texts, otherwise for each line.
"""

import codecs
import csv
import json
import re
import sys
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from pipelines.corpora.core.files import files_in, located, printable, quiet
from pipelines.corpora.core.parquet import table as parquet
from pipelines.corpora.sources.path import formats, mail
from pipelines.runtime.errors import BadInput, cut
from pipelines.study import PathCorpus

TABLES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}
FAMILIES = TABLES | dict.fromkeys(formats.SUFFIXES, "documents")
KNOWN = ", ".join(suffix[1:] for suffix in FAMILIES)
DEEPEST = 64  # levels of nested JSON


def table(p: PathCorpus) -> pl.DataFrame:
    """Return the file's own columns. Raises BadInput, which names the file."""
    return read(located(p.path))


def read(path: Path) -> pl.DataFrame:
    """Return the file's own columns: nested types as they are; every column of csv and tsv as str."""
    with quiet(path, f"cannot be read as {'a folder' if path.is_dir() else path.suffix[1:]}"):
        return _folder(path) if path.is_dir() else _file(path)


def _folder(path: Path) -> pl.DataFrame:
    """Read the files of the commonest family: documents, or tables of one kind; without any, read mails.

    Print how many files of which suffix are read, and how many are not.
    """
    files = files_in(path)
    if not files:
        raise BadInput(f"{path}: an empty folder")
    if boxes := [file for file in files if file.suffix.lower() == ".mbox"]:
        raise BadInput(f"{boxes[0]}: mbox files in a folder are not read: name the file")
    families = {file: family for file in files if (family := _family(file.relative_to(path)))}
    if not families:
        try:
            return mail.tree(path, files)
        except BadInput:
            hint = f"{_counts(files)}; what can: {KNOWN}, mails"
            raise BadInput(f"{path}: nothing in it can be read: {hint}") from None
    [(family, _)] = Counter(families.values()).most_common(1)
    chosen = [file for file in files if families.get(file) == family]
    others = [file for file in files if families.get(file) != family]
    skipped = f"; skipped {_counts(others)}: only one kind of files is read" if others else ""
    print(f"{path}: {_counts(chosen)} read{skipped}")
    if family == "documents":
        ids = [printable(file.relative_to(path)) for file in chosen]
        return pl.DataFrame({"id": ids, "text": [formats.text(file).strip() for file in chosen]})
    return _tables(chosen)


def _family(file: Path) -> str | None:
    """Return the family of a file; of a hidden one, or one that Spark writes beside its data, None."""
    family = FAMILIES.get(file.suffix.lower())
    hidden = (".", "_") if family == "parquet" else (".",)
    return None if any(part.startswith(hidden) for part in file.parts) else family


def _tables(files: list[Path]) -> pl.DataFrame:
    frames = [_file(file) for file in files]
    for file, frame in zip(files, frames, strict=True):
        if differs := sorted({*frame.columns} ^ {*frames[0].columns}):
            raise BadInput(
                f"{file}: column {cut(differs[0])!r} is either only here or only in {files[0].name}"
            )
    return pl.concat(frames, how="diagonal_relaxed")


def _counts(files: list[Path]) -> str:
    """Return how many files have which suffix: `3 md, 2 txt`."""
    kinds = Counter(cut(file.suffix.lower()[1:]) or "without a suffix" for file in files)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(8))


def _file(path: Path) -> pl.DataFrame:
    suffix = path.suffix.lower()
    match FAMILIES.get(suffix):
        case "parquet":
            return parquet(path)
        case "csv" | "tsv" as kind:
            return _separated(path, "\t" if kind == "tsv" else ",")
        case "jsonl":
            _check_json(path)
            return pl.read_ndjson(path.read_bytes().removeprefix(codecs.BOM_UTF8), infer_schema_length=None)
        case "documents":
            return pl.DataFrame({"text": _pieces(formats.text(path))}, schema={"text": pl.String})
    if suffix == ".mbox":
        return mail.mbox(path)
    raise BadInput(f"{path}: {suffix or 'a file without a suffix'} is none of {KNOWN}, mbox")


def _separated(path: Path, separator: str) -> pl.DataFrame:
    deque(_lines(path), 0)  # check all of them
    try:
        return pl.read_csv(path, separator=separator, infer_schema=False, glob=False)
    except pl.exceptions.PolarsError:  # its message quotes the text
        raise BadInput(f"{path}: {_fault(path, separator) or 'no table in it'}") from None


def _fault(path: Path, separator: str) -> str:
    """Return which line of a csv file polars could not read, and why."""
    csv.field_size_limit(sys.maxsize)  # else a long text would be the fault
    with open(path, encoding="utf-8-sig", newline="") as file:
        rows = csv.reader(file, delimiter=separator, strict=True)
        width, first = 0, 1  # columns of the header; the line that the next row begins in
        try:
            for row in rows:
                width = width or len(row)
                if len(row) > width:
                    return f"line {first} has {len(row)} fields, the header {width}"
                first = rows.line_num + 1
        except csv.Error as error:
            return f"line {first}: {error} (is a quote not closed?)"
    return ""


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line). Raises BadInput at the first line that is not UTF-8: polars would not name it."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            try:
                yield number, line.decode("utf-8-sig")
            except UnicodeDecodeError:
                raise BadInput(f"{path}: line {number} is not UTF-8") from None


def _check_json(path: Path) -> None:
    """Raise BadInput for the first line that is no JSON object, or that would take polars hours.

    Raise it also for a file without lines.
    """
    rows = 0
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            row = json.loads(line, parse_constant=_refuse)
            levels = _levels(row) if isinstance(row, dict) else 0
        except ValueError:
            raise BadInput(f"{path}: line {number} is not JSON") from None
        except RecursionError:
            levels = DEEPEST + 1
        if levels not in range(1, DEEPEST + 1):
            fault = f"is nested deeper than {DEEPEST} levels" if levels else "is no mapping of columns"
            raise BadInput(f"{path}: line {number} {fault}")
        rows += 1
    if not rows:
        raise BadInput(f"{path}: no rows")


def _refuse(constant: str) -> None:
    """Raise ValueError for NaN and Infinity, which Python reads and JSON lacks."""
    raise ValueError(constant)


def _levels(value: Any) -> int:
    """Return how deep lists and mappings are nested."""
    if not isinstance(value, (dict, list)):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_levels, inner), default=0)


def _pieces(text: str) -> list[str]:
    """Return paragraphs if there is a blank line between texts, otherwise lines."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return re.split(r"\n\n+", "\n".join(lines)) if "" in lines else lines
