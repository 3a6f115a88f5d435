"""The user's own texts: a table (parquet, csv, tsv, jsonl), a document, an mbox, or a folder of one of them.

A document of a folder is one text. A document alone is one text for each paragraph if it has a blank line
between texts, otherwise for each line.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import polars as pl

from pipelines.corpora.core.files import files_in, located, printable, quiet
from pipelines.corpora.core.parquet import shards
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
DEEPEST = 64  # levels of nested JSON
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*+"?')  # also one without an end: else each of its quotes is tried
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def table(p: PathCorpus) -> pl.DataFrame:
    """Return the file's own columns. Raises BadInput, which names the file."""
    return read(located(p.path))


def read(path: Path) -> pl.DataFrame:
    """Return the file's own columns: nested types as they are; every column of csv and tsv as str."""
    with quiet(path, f"cannot be read as {path.suffix[1:] or 'a folder'}"):
        return _folder(path) if path.is_dir() else _file(path)


def _folder(path: Path) -> pl.DataFrame:
    """Read the files of the commonest family: documents, or tables of one kind; without any, read mails.

    Print how many files of which suffix are read, and how many are not.
    """
    files = files_in(path)
    if not files:
        raise BadInput(f"{path}: an empty folder")
    families = {file: family for file in files if (family := _family(file.relative_to(path)))}
    if not families:
        return _mails(path, files)
    (family, _), *_ = Counter(families.values()).most_common()
    chosen = [file for file in files if families.get(file) == family]
    others = [file for file in files if families.get(file) != family]
    skipped = f"; skipped {_counts(others)}: a corpus has one kind of files" if others else ""
    print(f"{path}: {_counts(chosen)} read{skipped}")
    if family == "documents":
        ids = [printable(file.relative_to(path)) for file in chosen]
        return pl.DataFrame({"id": ids, "text": [formats.text(file).strip() for file in chosen]})
    return _tables(shards(path, chosen) if family == "parquet" else chosen)


def _family(file: Path) -> str | None:
    """Return the family of a file; of a hidden one, or one that Spark writes beside its data, None."""
    family = FAMILIES.get(file.suffix.lower())
    hidden = (".", "_") if family == "parquet" else (".",)
    return None if any(part.startswith(hidden) for part in file.parts) else family


def _tables(files: list[Path]) -> pl.DataFrame:
    frames = [_file(file) for file in files]
    for file, frame in zip(files, frames, strict=True):
        if differs := sorted({*frame.columns} ^ {*frames[0].columns}):
            raise BadInput(f"{file}: column {cut(differs[0])!r} is in only one of it and {files[0].name}")
    return pl.concat([frame.select(frames[0].columns) for frame in frames], how="vertical_relaxed")


def _mails(path: Path, files: list[Path]) -> pl.DataFrame:
    try:
        return mail.tree(path, files)
    except BadInput:
        raise BadInput(
            f"{path}: nothing in it can be read: {_counts(files)}; what can: "
            f"{', '.join(kind[1:] for kind in FAMILIES)}, mails"
        ) from None


def _counts(files: list[Path]) -> str:
    """Return how many files have which suffix: `3 md, 2 txt`."""
    kinds = Counter(cut(printable(Path(file.suffix.lower()[1:]))) or "without a suffix" for file in files)
    return ", ".join(f"{count} {kind}" for kind, count in kinds.most_common(8))


def _file(path: Path) -> pl.DataFrame:
    match path.suffix.lower():
        case ".parquet" | ".pq":
            return parquet(path)
        case ".csv" | ".tsv":
            _check_encoding(path)
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            with _explained(path, lambda: _csv_fault(path, separator)):
                return pl.read_csv(path, separator=separator, infer_schema=False)
        case ".jsonl" | ".ndjson":
            _check_encoding(path)
            _check_depth(path)
            with _explained(path, lambda: _json_fault(path)):
                return pl.read_ndjson(path, infer_schema_length=None)
        case suffix if suffix in formats.SUFFIXES:
            return pl.DataFrame({"text": _pieces(formats.text(path))}, schema={"text": pl.String})
        case ".mbox":
            return mail.mbox(path)
        case suffix:
            named = suffix or "a file without a suffix"
            raise BadInput(f"{path}: {named} is none of {', '.join(kind[1:] for kind in FAMILIES)}, mbox")


@contextmanager
def _explained(path: Path, fault: Callable[[], str]) -> Iterator[None]:
    """Say which line polars could not read, and why; its own message quotes the text."""
    try:
        yield
    except pl.exceptions.PolarsError as error:
        raise BadInput(f"{path}: {fault() or type(error).__name__}") from None


def _csv_fault(path: Path, separator: str) -> str:
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


def _json_fault(path: Path) -> str:
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            try:
                if line.strip():
                    json.loads(line)
            except ValueError:
                return f"line {number} is not JSON"
    return ""


def _check_encoding(path: Path) -> None:
    """Raise BadInput at the first byte that is not UTF-8: polars would not say where it is."""
    at = 0
    with open(path, "rb") as file:
        for line in file:
            try:
                line.decode()
            except UnicodeDecodeError as error:
                byte = line[error.start]
                raise BadInput(f"{path}: not UTF-8: byte {at + error.start} is {byte:#04x}") from None
            at += len(line)


def _check_depth(path: Path) -> None:
    """Raise BadInput for JSON nested deeper than DEEPEST: polars takes memory without end for it."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.count(b"[") + line.count(b"{") <= DEEPEST:
                continue
            steps = (_STEP[byte] for byte in _STRING.sub(b"", line) if byte in _STEP)
            if max(accumulate(steps), default=0) > DEEPEST:
                raise BadInput(f"{path}: line {number} is nested deeper than {DEEPEST} levels")


def _pieces(text: str) -> list[str]:
    """Return paragraphs if there is a blank line between texts, otherwise lines."""
    lines = [line.strip() for line in text.strip().splitlines()]
    if "" not in lines:
        return lines
    pieces: list[list[str]] = [[]]
    for line in lines:
        if line:
            pieces[-1].append(line)
        elif pieces[-1]:
            pieces.append([])
    return ["\n".join(piece) for piece in pieces if piece]
