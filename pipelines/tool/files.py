"""The files of vectors that a command reads and writes."""

from argparse import Namespace
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from pipelines import batchwise
from pipelines.aligners.core.cloud import checked
from pipelines.aligners.core.parts import Parts
from pipelines.aligners.core.translator import Translator
from pipelines.corpora.core.files import located
from pipelines.corpora.sources.vectors import Stored, formats
from pipelines.runtime.errors import BadInput, listed
from pipelines.runtime.files import atomic, check_writable, reading, sweep
from pipelines.tool import names_in

WRITTEN = (".parquet", ".arrow", ".npy")


def check_choices(args: Namespace) -> None:
    """Raise BadInput for --column or --collection if no file of the command has any to choose from."""
    names = ("dump", "old", "new", "source", "target", "queries", "old_queries")
    paths = [located(given) for name in names if (given := getattr(args, name, None))]
    for option, has in (("column", formats.has_columns), ("collection", formats.has_collections)):
        if getattr(args, option) and not any(map(has, paths)):
            raise BadInput(f"--{option}: no {option} can be chosen in {' or '.join(map(str, paths))}")


def two_files(args: Namespace, first: str, second: str) -> list[Stored]:
    """Return the vectors of two files. `--column` and `--collection` may be FIRST,SECOND; one may be empty.

    A name with a comma stands in double quotes. Raises BadInput for more than two names.
    """
    of_each = []
    for option, given in (("column", args.column), ("collection", args.collection)):
        parts = [given]
        if given and "," in given:
            parts = names_in(given)
        if len(parts) > 2:
            hint = "more than FIRST,SECOND; a name with a comma stands in double quotes"
            raise BadInput(f"--{option} {given}: {hint}")
        of_each.append((parts[0] or None, parts[-1] or None))
    return [*map(Stored, map(located, (first, second)), *of_each)]


def cloud(stored: Stored) -> Tensor:
    """Return the vectors (n, d) of a file, as a fit needs them. Raises BadInput, which names the file."""
    return checked(str(stored.path), torch.from_numpy(stored.matrix()))


def lost_columns(path: Path, source: Stored) -> list[str]:
    """Return a warning if `write` would drop columns other than the vectors."""
    if source.path.suffix.lower() == ".npy" or (path.suffix.lower() != ".npy" and _table(source)):
        return []
    return [f"{path}: only vectors; other columns, such as ids, are kept from parquet to parquet or arrow"]


def check_output(path: Path, source: Stored, inputs: Sequence[str]) -> None:
    """Raise BadInput, before any work, if `write` cannot write the file or would change one of the `inputs`.

    Raise it also for a source that cannot be read.
    """
    if path.suffix.lower() not in WRITTEN or path.is_dir():
        raise BadInput(f"{path}: vectors are written to files: {', '.join(WRITTEN)}")
    for name in inputs:
        if located(name).resolve() in (path.resolve(), *path.resolve().parents):
            raise BadInput(f"{path}: is an input of this command, or in one: choose another file")
    if next(source.blocks(), None) is None:
        raise BadInput(f"{source.path}: no vectors")
    column, batches = _batches(source)  # raises BadInput
    if column != "vector" and path.suffix.lower() != ".npy" and "vector" in next(batches).schema.names:
        raise BadInput(f"{source.path}: its column `vector` would be lost: rename it, or name it in --column")
    check_writable(path)
    sweep([path.parent])  # what a killed command left


def write(path: Path, source: Stored, translator: Translator, parts: Parts | None = None) -> int:
    """Translate the vectors of `source` and write them to `path`. Return their number.

    Parquet and arrow are written batch by batch. With parts they get the column `aligned`.
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        columns = (table["vector"].combine_chunks() for table in _translated(source, translator, None))
        blocks = [column.flatten().to_numpy().reshape(len(column), -1) for column in columns]
        with atomic(path) as draft, open(draft, "wb") as file:
            np.save(file, np.concatenate(blocks))
        return sum(map(len, blocks))
    tables = _translated(source, translator, parts)
    first = next(tables)
    opener, rows = pq.ParquetWriter if suffix == ".parquet" else pa.ipc.new_file, 0
    with atomic(path) as draft, opener(draft, first.schema) as writer:
        for table in chain([first], tables):
            # Files of a folder may have the columns in another order
            writer.write_table(table.select(first.schema.names))
            rows += len(table)
    return rows


def _translated(source: Stored, translator: Translator, parts: Parts | None) -> Iterator[pa.Table]:
    """Yield the batches of a source with the translated vectors, in the column `vector`."""
    rows, (column, batches) = 0, _batches(source)
    function = batchwise.translate(translator, column)
    for batch in batches:
        try:
            table = function(batch)
        except BadInput as error:  # which numbers the rows of this batch
            raise BadInput(f"{source.path}: {error} (counted from row {rows})") from None
        table = table.select([name for name in table.column_names if name != "aligned"])  # of an earlier map
        if parts:
            flat = batch.column(column).flatten().cast(pa.float32(), safe=False)
            right = parts.rows(torch.tensor(flat.to_numpy(zero_copy_only=False)).view(len(table), -1))
            table = table.append_column("aligned", pa.array(right.numpy()))
        yield table
        rows += len(table)


def _batches(source: Stored) -> tuple[str, Iterator[pa.RecordBatch]]:
    """Return the column of vectors and all batches. Raises BadInput for columns that share a name.

    A `_table` has all its columns, any other source has `vector` alone.
    """
    if table := _table(source):
        return table
    return "vector", (
        pa.record_batch({"vector": pa.FixedSizeListArray.from_arrays(block.ravel(), block.shape[1])})
        for block in source.blocks()
    )


def _table(source: Stored) -> tuple[str, Iterator[pa.RecordBatch]] | None:
    """Return the column of vectors and all batches of parquet with a column of lists; None for others."""
    if files := formats.parquet_files(source.path):
        schema = pq.ParquetFile(files[0]).schema_arrow
        [name, *others] = formats.columns_of(source.path, schema, source.column)
        if not others and formats.is_vectors(schema.field(name).type):
            if len({*schema.names}) < len(schema):
                raise BadInput(f"{source.path}: columns share a name: {listed(schema.names)}")
            return name, _of_parquet(files, name)
    return None


def _of_parquet(files: list[Path], column: str) -> Iterator[pa.RecordBatch]:
    for path in files:
        with reading(path, "not a whole parquet file"):
            file = pq.ParquetFile(path)
            names = [column, *(name for name in file.schema_arrow.names if name != column)]
            schema = pa.schema([file.schema_arrow.field(name) for name in names])
            for batch in formats.record_batches(path, file, names):  # polars may read it, and has other types
                yield batch.cast(schema)
