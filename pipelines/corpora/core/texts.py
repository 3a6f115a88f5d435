"""What all kinds of corpora share: rename columns, check ids and texts, drop empty and repeated texts."""

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import polars as pl

from pipelines.corpora.core.chunk import chunked
from pipelines.corpora.core.files import quiet
from pipelines.runtime.errors import BadInput, listed
from pipelines.study import Chunk, Corpus, HubCorpus, PathCorpus, TextCorpus

USUAL = {  # what columns are called; in this order
    "id": ("id",),
    "split": ("split",),
    "labels": ("labels",),
    "text": ("text", "body", "email_body", "content", "passage", "document"),
}


def name_of(row: Corpus) -> str:
    """Return what a message calls the source of a row."""
    return f"hub {row.id}" if isinstance(row, HubCorpus) else row.path


def rows(p: TextCorpus, table: pl.DataFrame) -> pl.DataFrame:
    """Return columns id and text, split and labels if the table has them, and all others of `p.columns`.

    With `p.chunk` texts are cut into chunks. Empty and repeated texts are dropped, except from the user's own
    files if they are not cut. There they raise BadInput, which names the first such row.
    """
    where = name_of(p)
    document = {"document": p.document} if p.document else {}
    frame = mapped(table, p.columns | document, where)
    if p.chunk is None and isinstance(p, PathCorpus):
        return check(frame, where)
    return cleaned(frame, where, p.chunk)


def mapped(frame: pl.DataFrame, columns: dict[str, str], where: str) -> pl.DataFrame:
    """Select columns and rename them by `columns`, ours -> theirs, and by USUAL.

    id, text and split become strings, and labels lists of strings; other columns keep their type. Without an
    id, rows are numbered. Raises BadInput for a column that is not there or cannot be text, and for a table
    without rows.
    """
    if frame.is_empty():
        raise BadInput(f"{where}: no rows")
    wanted = chosen(frame.columns, columns, where)
    text = wanted["text"]
    if text != "text" and "text" not in columns:
        print(f"{where}: the text is column {text!r}, as there is no column `text`")
    out = frame.select(pl.col(theirs).alias(ours) for ours, theirs in wanted.items())
    if "id" not in wanted:
        number = pl.int_range(pl.len()).cast(pl.String)
        out = out.with_columns(id=pl.lit(f"{Path(where).stem}-") + number)
    return as_text(out, where)


def as_text(frame: pl.DataFrame, where: str, lists: Iterable[str] = ("labels",)) -> pl.DataFrame:
    """Cast id, text, split, document and labels to strings, or to lists of strings if `lists` names them.

    Not all of them must be there. Raises BadInput for a column that cannot be text.
    """
    with quiet(where, "columns that cannot be text"):
        names = [name for name in ("id", "text", "split", "document", "labels") if name in frame.columns]
        for column in frame.select(names).iter_columns():
            is_list = column.name in lists
            kind = getattr(column.dtype, "inner", column.dtype) if is_list else column.dtype
            if kind.is_nested() and column.name != "labels":  # no table is refused for its labels
                raise BadInput(f"{where}: the column for {column.name} is {column.dtype}, not text")
            cast = _list(column) if is_list else column.cast(pl.String)
            frame = frame.with_columns(cast.alias(column.name))
    return frame


def chosen(
    available: list[str],
    columns: dict[str, str],
    where: str,
    usual: dict[str, tuple[str, ...]] = USUAL,
    needed: Iterable[str] = ("text",),
) -> dict[str, str]:
    """Return ours -> theirs: as `columns` says, else the first of the `usual` names that is there.

    Raises BadInput for a column of `columns` or `needed` that is not there.
    """
    wanted = {}
    for ours, names in usual.items():
        theirs = next((name for name in names if name in available), None)
        if theirs or ours in needed:
            wanted[ours] = theirs or ours
    wanted |= columns
    for ours, theirs in wanted.items():
        if theirs not in available:
            study = f"in a study: `columns: {{{ours}: <its name>}}`"
            hint = f"{listed(available)}; rename one to {theirs!r} ({study})"
            raise BadInput(f"{where}: there is no column {theirs!r}; there are: {hint}")
    return wanted


def _list(column: pl.Series) -> pl.Series:
    """Return list[str]. The column has lists, single values, or lists written as JSON."""
    if column.dtype.is_nested():
        return column.cast(pl.List(pl.String)).list.drop_nulls().fill_null([])
    return pl.Series(map(_listed, column.cast(pl.String)), dtype=pl.List(pl.String))


def _listed(value: str | None) -> list[str]:
    if value and value.startswith("["):
        with suppress(json.JSONDecodeError):
            return [str(one) for one in json.loads(value) if one is not None]
    return [value] if value else []


def check(frame: pl.DataFrame, where: str) -> pl.DataFrame:
    """Return the frame. Raises BadInput for the first empty or repeated text, or missing or repeated id."""
    refuse(frame, empty(frame["text"]), where, "texts are empty")
    refuse(frame, frame["id"].is_null(), where, "rows have no id")
    for column in ("text", "id"):
        refuse(frame, frame[column].is_duplicated(), where, f"rows share their {column}")
    return frame


def empty(column: pl.Series) -> pl.Series:
    """Return a mask: True where there is no text."""
    return column.cast(pl.String).fill_null("").str.strip_chars() == ""


def refuse(frame: pl.DataFrame, bad: pl.Series, where: str, what: str) -> None:
    """Raise BadInput if the mask `bad` marks any row. The message says what is wrong, and the first row."""
    if bad.any():
        row = int(bad.arg_max() or 0)
        raise BadInput(f"{where}: {bad.sum()} {what}, the first is row {row} (id {frame['id'][row]!r})")


def distinct(frame: pl.DataFrame, where: str, columns: Iterable[str] = ("text",)) -> pl.DataFrame:
    """Drop rows with an empty text, and rows whose `columns` equal those of an earlier row.

    Print how many were dropped, if any.
    """
    kept = frame.filter(~empty(frame["text"])).unique([*columns], keep="first", maintain_order=True)
    if dropped := len(frame) - len(kept):
        print(f"{where}: {dropped} empty or repeated texts of {len(frame)} dropped")
    return kept


def cleaned(frame: pl.DataFrame, where: str, chunk: Chunk | None = None) -> pl.DataFrame:
    """Return the distinct texts or, with `chunk`, their distinct chunks.

    Raises BadInput if none is left, or if ids are missing or repeat.
    """
    kept = distinct(frame, where)
    if kept.is_empty():
        raise BadInput(f"{where}: no text is left")
    check(kept, where)
    if chunk is None:
        return kept
    cut = f"{where}, in chunks of {chunk.least} to {chunk.size} {chunk.unit}"
    return cleaned(chunked(kept, chunk), cut)
