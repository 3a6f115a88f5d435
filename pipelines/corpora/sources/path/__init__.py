"""The user's own texts: parquet, csv, tsv, jsonl, txt, mbox, or a folder of parquet files, of txt files or of
mails.

txt: one text per paragraph if the file has a blank line between texts, otherwise one per line.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import polars as pl

from pipelines.corpora.core.files import files_in, located, printable, quiet
from pipelines.corpora.core.parquet import shards
from pipelines.corpora.core.parquet import table as parquet
from pipelines.corpora.sources.path import mail
from pipelines.runtime.errors import BadInput
from pipelines.study import PathCorpus

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
    files = files_in(path)
    if tables := shards(path, files):
        return pl.concat([parquet(file) for file in tables])
    texts = [file for file in files if file.suffix == ".txt"]
    if not texts:
        return mail.tree(path, files)
    ids = [printable(file.relative_to(path).with_suffix("")) for file in texts]
    return pl.DataFrame({"id": ids, "text": [_text(file).strip() for file in texts]})


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
        case ".txt":
            return pl.DataFrame({"text": _pieces(_text(path))}, schema={"text": pl.String})
        case ".mbox":
            return mail.mbox(path)
        case suffix:
            named = suffix or "a file without a suffix"
            raise BadInput(f"{path}: {named} is none of parquet, csv, tsv, jsonl, txt, mbox")


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


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: not UTF-8: byte {error.start} is {error.object[error.start]:#04x}") from None


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
