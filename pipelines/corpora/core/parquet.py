"""Read parquet files that other programs wrote: one file, or a folder of them (Spark, Ray)."""

from pathlib import Path

import polars as pl
import pyarrow.parquet as pq

from pipelines.corpora.core.files import files_in
from pipelines.runtime.errors import BadInput, cut
from pipelines.runtime.files import reading

SUFFIXES = (".parquet", ".pq")


def shards(folder: Path) -> list[Path]:
    """Return the parquet files in a folder. Names that begin with `_` or `.` are no data.

    Raises BadInput for the first file that is damaged, or whose columns differ from those of the first.
    """
    files = [file for file in files_in(folder) if file.suffix.lower() in SUFFIXES]
    files = [f for f in files if not any(p.startswith(("_", ".")) for p in f.relative_to(folder).parts)]
    first: dict[str, str] = {}
    for file in files:
        with reading(file, "not a whole parquet file"):
            columns = {field.name: str(field.type) for field in pq.read_schema(file)}
        first = first or columns
        for name in sorted(columns | first):
            here, before = (types.get(name, "not there") for types in (columns, first))
            if here != before:
                there = f"in {files[0].name} it is {cut(before)}"
                raise BadInput(f"{file}: column {cut(name)!r} is {cut(here)}; {there}")
    return files


def table(file: Path) -> pl.DataFrame:
    """Return all of a parquet file. pyarrow reads it: on some damaged files polars hangs."""
    with reading(file, "not a whole parquet file"), pq.ParquetFile(file) as parquet:
        read = parquet.read()
        read.validate(full=True)
        return pl.DataFrame(read)
