"""Parquet files of others: one, or a table in a folder of them, as Spark, Ray and others write it."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading


def shards(folder: Path) -> list[Path]:
    """The parquet files in a folder and below, by name; none if there are none. What begins with `_` or `.` is no data.

    Raises BadInput, naming the first that is not a whole file, or whose columns are not those of the first.
    """
    inner = [path.relative_to(folder) for path in sorted(folder.rglob("*.parquet")) if path.is_file()]
    files = [folder / path for path in inner if not any(part.startswith(("_", ".")) for part in path.parts)]
    first: dict[str, str] = {}
    for file in files:
        columns = _columns(file)
        first = first or columns
        if differs := sorted(dict(columns.items() ^ first.items())):
            here, before = (of.get(differs[0], "not there") for of in (columns, first))
            raise BadInput(f"{file}: column {differs[0]!r} is {here}; in {files[0].name} it is {before}")
    return files


def table(file: Path) -> pl.DataFrame:
    """All of a parquet file. Arrow reads it: a damaged one can make a thread of polars panic, and once in a while the others then
    wait for it for ever."""
    with pq.ParquetFile(file) as parquet:
        read = parquet.read()
    read.validate(full=True)
    frame = pl.from_arrow(read)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _columns(file: Path) -> dict[str, str]:
    """Of each column its type."""
    with reading(file, "not a whole parquet file"):
        return {field.name: str(field.type) for field in pq.read_schema(file)}
