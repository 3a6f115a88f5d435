"""The user's own texts: parquet, csv, tsv, jsonl, txt, mbox, a mail tree, or a folder of parquet or of txt files.

txt: one text per paragraph if the file has a blank line between texts, otherwise one per line.
"""

from __future__ import annotations

import json
import os
import re
from itertools import accumulate
from pathlib import Path

import polars as pl

from pipelines.corpora import chunk, mail
from pipelines.corpora.shards import shards, table
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading
from pipelines.study import PathCorpus

OURS = ("id", "text", "split", "labels")
DEEPEST = 64
STRING = re.compile(rb'"(?:[^"\\]|\\.)*"')


def located(path: str) -> Path:
    """`path` as it stands, or else below $CORPORA_ROOT. Raises BadInput if it is at neither place."""
    places = [Path(path)]
    if root := os.environ.get("CORPORA_ROOT"):
        places.append(Path(root) / path)
    for place in places:
        if place.exists():
            return _encodable(place)
    raise BadInput(f"{' and '.join(map(str, places))}: there is no such file or folder")


def _encodable(path: Path) -> Path:
    if path.as_posix() != named(path):
        raise BadInput(f"{named(path)}: the name is not UTF-8; rename it")
    return path


def named(path: Path) -> str:
    r"""A path as text: bytes that are not UTF-8 as \xff, which a corpus can hold and a terminal can print."""
    return os.fsencode(path.as_posix()).decode(errors="backslashreplace")


def rows(p: PathCorpus, text: tuple[str, ...] = ("text",)) -> pl.DataFrame:
    """id, text, and split and labels where the file has them, then whatever else `p.columns` maps; chunked if
    `p.chunk`.

    Raises BadInput, naming the file and the row or the columns that are there.
    """
    path = located(p.path)
    frame = mapped(read(path), p.columns, str(path), text)
    if p.chunk is None:
        return check(frame, str(path))
    return cleaned(chunk.chunked(cleaned(frame, str(path)), p.chunk), f"{path}, chunked")


def read(path: Path) -> pl.DataFrame:
    """The file's own columns; nested types as they are, everything in csv and tsv as str."""
    with reading(path, f"cannot be read as {path.suffix[1:] or 'a folder'}"):
        try:
            return _read(path)
        except UnicodeDecodeError as error:
            raise BadInput(
                f"{path}: not UTF-8: byte {error.start} is {error.object[error.start]:#04x}"
            ) from None


def _read(path: Path) -> pl.DataFrame:
    if path.is_dir():
        if tables := shards(path):
            return pl.concat([table(file) for file in tables])
        files = sorted(path.rglob("*.txt"))
        return _texts(files, path) if files else mail.read(path)
    match path.suffix.lower():
        case ".parquet" | ".pq":
            return table(path)
        case ".csv" | ".tsv":
            _check_encoding(path)
            separator = "\t" if path.suffix.lower() == ".tsv" else ","
            return pl.read_csv(path, separator=separator, infer_schema=False)
        case ".jsonl" | ".ndjson":
            _check_encoding(path)
            _check_depth(path)
            return pl.read_ndjson(path, infer_schema_length=None)
        case ".txt":
            return pl.DataFrame({"text": _pieces(path.read_text("utf-8-sig"))}, schema={"text": pl.String})
        case ".mbox":
            return mail.read(path)
        case suffix:
            raise BadInput(
                f"{path}: {suffix or 'a file without a suffix'} is none of parquet, csv, tsv, jsonl, txt, mbox"
            )


def _check_encoding(path: Path) -> None:
    """Raise BadInput at the first bad byte, read line by line: polars would only say that there is one."""
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
    """Raise BadInput for JSON nested deeper than DEEPEST, for which polars takes memory without end."""
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.count(b"[") + line.count(b"{") <= DEEPEST:
                continue
            depth = list(
                accumulate({91: 1, 123: 1, 93: -1, 125: -1}.get(byte, 0) for byte in STRING.sub(b"", line))
            )
            if max(depth) > DEEPEST:
                raise BadInput(f"{path}: line {number} is nested deeper than {DEEPEST} levels")


def _pieces(text: str) -> list[str]:
    """Paragraphs if there is a blank line between texts, otherwise lines."""
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


def _texts(files: list[Path], root: Path) -> pl.DataFrame:
    """A folder of txt files: one text per file; its id is its path in the folder."""
    frame = [(named(f.relative_to(root).with_suffix("")), f.read_text("utf-8-sig").strip()) for f in files]
    return pl.DataFrame(frame, schema={"id": pl.String, "text": pl.String}, orient="row")


def mapped(
    frame: pl.DataFrame, columns: dict[str, str], where: str, text: tuple[str, ...] = ("text",)
) -> pl.DataFrame:
    """Rename by `columns` (ours -> theirs; `a + b` joins two by a blank line), then give ours their types.

    A column of ours that is not mapped is taken by its own name if the file has it; `text` names the usual ones for
    the text.
    """
    if frame.is_empty():
        raise BadInput(f"{where}: no rows")
    with reading(Path(where), "columns that cannot be text"):
        return _mapped(frame, columns, where, text)


def _mapped(frame: pl.DataFrame, columns: dict[str, str], where: str, text: tuple[str, ...]) -> pl.DataFrame:
    wanted = {ours: ours for ours in OURS if ours in frame.columns}
    wanted["text"] = next((name for name in text if name in frame.columns), "text")
    wanted |= columns
    out = frame.select(_column(frame, theirs, where, ours).alias(ours) for ours, theirs in wanted.items())
    if "id" not in wanted:
        stem = Path(where).stem
        out = out.with_columns(id=pl.lit(f"{stem}-") + pl.int_range(pl.len()).cast(pl.String))
    if "labels" in out.columns:
        out = out.with_columns(labels=_labels(out["labels"]))
    simple = [c for c in ("id", "text", "split") if c in out.columns]
    if nested := [c for c in simple if out[c].dtype.is_nested()]:
        raise BadInput(
            f"{where}: column {wanted[nested[0]]!r}, for {nested[0]}, is {out[nested[0]].dtype}, not text"
        )
    return out.with_columns(pl.col(simple).cast(pl.String))


def _column(frame: pl.DataFrame, name: str, where: str, ours: str) -> pl.Expr:
    parts = [name] if name in frame.columns else [part.strip() for part in name.split("+")]
    for part in parts:
        if part not in frame.columns:
            hint = "" if name != ours else f"; say which with `columns: {{{ours}: ...}}`"
            raise BadInput(
                f"{where}: there is no column {part!r}; there are: {', '.join(frame.columns)}{hint}"
            )
    return pl.col(parts[0]) if len(parts) == 1 else pl.concat_str(parts, separator="\n\n", ignore_nulls=True)


def _labels(column: pl.Series) -> pl.Series:
    """list[str] from lists, from single values, or from lists written as JSON."""
    if column.dtype.is_nested():
        return column.cast(pl.List(pl.String)).fill_null([]).alias("labels")
    values = [_label(value) for value in column.cast(pl.String).to_list()]
    return pl.Series("labels", values, dtype=pl.List(pl.String))


def _label(value: str | None) -> list[str]:
    if value and value.startswith("["):
        try:
            return [str(x) for x in json.loads(value)]
        except json.JSONDecodeError:
            pass
    return [value] if value else []


def check(frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """The frame itself. Raises BadInput for the first text that is empty or occurs twice, and for ids that do."""
    empty = frame["text"].fill_null("").str.strip_chars() == ""
    if empty.any():
        row = int(empty.arg_max() or 0)
        raise BadInput(
            f"{where}: {empty.sum()} texts are empty, the first in row {row + 1} (id {frame['id'][row]!r})"
        )
    if missing := frame["id"].null_count():
        raise BadInput(
            f"{where}: {missing} rows have no id, the first is row {int(frame['id'].is_null().arg_max() or 0) + 1}"
        )
    for column in ("text", "id"):
        twice = frame[column].is_duplicated()
        if twice.any():
            row = int(twice.arg_max() or 0)
            other = int((frame[column].slice(row + 1) == frame[column][row]).arg_max() or 0) + row + 1
            raise BadInput(
                f"{where}: {twice.sum()} rows share their {column}, the first two are rows {row + 1} and {other + 1}"
            )
    return frame


def distinct(frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Without empty texts, and with the first of each set of equal texts; prints one line if that drops any."""
    kept = frame.filter(pl.col("text").fill_null("").str.strip_chars() != "").unique(
        "text", keep="first", maintain_order=True
    )
    if dropped := len(frame) - len(kept):
        print(f"{where}: {dropped} empty or repeated texts of {len(frame)} dropped")
    return kept


def cleaned(frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Without empty and repeated texts, which real files have; says in one line how many those were. Ids must be
    unique."""
    kept = distinct(frame, where)
    if kept.is_empty():
        raise BadInput(f"{where}: no text is left")
    return check(kept, where)
