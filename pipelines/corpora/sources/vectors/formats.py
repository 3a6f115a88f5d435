"""Readers of vectors in other people's files, block by block, so that a file larger than memory is never held
whole. Vector stores are in `stores`.
"""

import csv
import json
import re
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.corpora.core.files import number
from pipelines.corpora.core.parquet import shards
from pipelines.corpora.sources.vectors import stores
from pipelines.corpora.sources.vectors.limits import (
    BYTES,
    Blocks,
    block_slices,
    blocks_of_array,
    blocks_of_rows,
    one_of,
    rows_per_block,
)
from pipelines.runtime.errors import BadInput, cut, listed
from pipelines.runtime.files import reading

LONGEST = 2**24  # characters of a line
WHOLE = 2**29  # bytes of a file of one JSON value
WRAPPED = ("result", "data", "points", "objects", "rows", "hits", "results")  # what stores put around rows
PACKED = 200  # largest ratio of unpacked to packed bytes: vectors do not unpack to more
NAMES = ("vector", "vectors", "embedding", "embeddings", "dense", "values")  # of columns of vectors
ONLY_TABLES = "only parquet, Arrow and npz files give ids, splits and documents"
PICKLE = "a pickle runs the program in it: save the vectors with numpy.save"
EXPORTS = {  # how to export what cannot be read
    ".snapshot": "a snapshot of Qdrant: save the answer of its points/scroll, with_vector true, as .json",
    ".rdb": "a dump of Redis: save numpy.frombuffer(value, 'float32') of each key with numpy.save",
    ".sql": "SQL is not run: `\\copy TABLE to 'dump.copy'` writes the rows alone",
    **dict.fromkeys((".pkl", ".pickle", ".joblib", ".pt", ".pth"), PICKLE),
}


def blocks(path: Path, column: str | None = None, collection: str | None = None) -> Blocks:
    """Yield the vectors of a file or folder as arrays (b, d); missing numbers are NaN.

    `column`: the column or array of vectors, needed if several could be it. If each dimension has a
    column (`dim_0`, `dim_1`, ...), it is their prefix. `collection`: that of Chroma, or a table of LanceDB or
    sqlite-vec. Raises BadInput, in one line.
    """
    if path.is_dir():
        return _of_folder(path, column, collection)
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file")
    suffix = path.suffix.lower()
    if suffix in EXPORTS:
        raise BadInput(f"{path}: {EXPORTS[suffix]}")
    if suffix in SQLITE:
        return _checked(f"{suffix[1:]} file", stores.sqlite, [path], column, collection)
    if suffix in READERS:
        return _checked(f"{suffix[1:]} file", READERS[suffix], [path], column)
    known = f"{', '.join((*READERS, *SQLITE))}, a folder of parquet files, of Chroma or of LanceDB"
    raise BadInput(f"{path}: vectors are read from {known}, not {suffix or 'a file without a suffix'}")


def has_columns(path: Path) -> bool:
    """Return whether the vectors of a file or folder have columns, arrays or keys to choose from."""
    chroma = path.name == stores.CHROMA or (path / stores.CHROMA).is_file()
    return not chroma and READERS.get(path.suffix.lower()) not in (npy, stores.index)


def has_collections(path: Path) -> bool:
    """Return whether a file or folder has collections or tables to choose from."""
    return path.suffix.lower() in SQLITE or (path / stores.CHROMA).is_file() or _is_lance(path)


def _is_lance(path: Path) -> bool:
    return path.suffix == ".lance" or any(path.glob("*.lance"))


def _of_folder(path: Path, column: str | None, collection: str | None) -> Blocks:
    if (path / stores.CHROMA).is_file():
        return _checked("Chroma folder", stores.chroma, [path], collection)
    if (path / "meta.json").is_file() and (path / "collection").is_dir():
        raise BadInput(f"{path}: a local folder of Qdrant holds pickles: {EXPORTS['.snapshot']}")
    if _is_lance(path):
        return _checked("LanceDB folder", lance, [path], column, collection)
    files = shards(path)
    if not files:
        raise BadInput(f"{path}: a folder with no *.parquet, no *.lance and no {stores.CHROMA}")
    return _checked("parquet file", parquet, files, column)


def _checked(kind: str, reader: Callable[..., Blocks], files: list[Path], *which: str | None) -> Blocks:
    """Yield the vectors of all files, in order. Raises BadInput for the first file of another dimension."""
    dimension = 0
    for file in files:
        with reading(file, f"not a whole {kind}"):
            for block in reader(file, *which):
                dimension = dimension or block.shape[1]
                if block.shape[1] != dimension:
                    before = f"in {files[0].name} there are {dimension}"
                    raise BadInput(f"{file}: vectors of {block.shape[1]} dimensions; {before}")
                yield block


def column_as_text(path: Path, column: str | None, usual: tuple[str, ...]) -> list[str] | None:
    """Return a column of ids or splits: `column`, else the first of `usual`; None if there is none of these.

    Raises BadInput if `column` is not there or the file has no columns of words, or if a row is empty.
    """
    with reading(path, "not columns of words"):
        found, there = _columns(path, (column,) if column else usual)
    if not found:
        if column:
            hint = f"there are: {listed(there)}" if there else ONLY_TABLES
            raise BadInput(f"{path}: found no column {column!r}; {hint}")
        return None
    name, values = next(iter(found.items()))
    if None in values:
        first = f"the first is row {values.index(None)}"
        raise BadInput(f"{path}: {values.count(None)} rows have no {name}, {first}")
    return [str(value) for value in values]


def _columns(path: Path, names: tuple[str, ...]) -> tuple[dict[str, list[Any]], list[str]]:
    """Return the values of those `names` that are columns of a table, or arrays of an npz file, and the names
    of all; nothing for another file.
    """
    suffix = path.suffix.lower()
    if suffix == ".npz":
        with np.load(path, allow_pickle=False) as archive:
            found = {name: archive[name].ravel().tolist() for name in names if name in archive.files}
            return found, archive.files
    if READERS.get(suffix) is arrow:
        table = pa.Table.from_batches(_batches(path))
        there = table.column_names
    elif files := parquet_files(path):
        table = pa.concat_tables(pq.ParquetFile(file).read(columns=list(names)) for file in files)
        there = pq.read_schema(files[0]).names
    else:
        return {}, []
    return {name: table[name].to_pylist() for name in names if name in table.column_names}, there


def parquet_files(path: Path) -> list[Path]:
    """Return the files of a table of parquet: the path, or those in a folder that is no store's."""
    if not path.is_dir():
        return [path] if READERS.get(path.suffix.lower()) is parquet else []
    store = (path / stores.CHROMA).is_file() or _is_lance(path)
    return [] if store else shards(path)


# ---------------------------------------------------------------- tables


def parquet(path: Path, column: str | None) -> Blocks:
    """Yield a column of lists, of strings such as "[0.1,0.2]" (pgvector), or of structs of lists (Qdrant), or
    one column for each dimension.
    """
    file = pq.ParquetFile(path)
    names = columns_of(path, file.schema_arrow, column)
    return _rows_of(path, record_batches(path, file, names), names)


def record_batches(path: Path, file: pq.ParquetFile, names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield record batches, of fewer rows if the vectors are long: a row group's metadata tells.

    Arrow reads no missing list of a fixed size, so polars reads row groups that have one.
    """
    done, size = 0, getattr(file.schema_arrow.field(names[0]).type, "list_size", 0)
    for group in range(file.num_row_groups):
        metadata = file.metadata.row_group(group)
        chunks = [metadata.column(i) for i in range(metadata.num_columns)]
        of_column = (c for c in chunks if f"{c.path_in_schema}.".startswith(f"{names[0]}."))
        numbers = max((c.num_values for c in of_column), default=0)
        rows = rows_per_block(path, max(numbers // max(metadata.num_rows, 1), len(names), size))
        if numbers < metadata.num_rows * size:
            table = pl.scan_parquet(path, glob=False).select(names).slice(done, metadata.num_rows)
            for start in range(0, metadata.num_rows, rows):
                yield from table.slice(start, rows).collect().to_arrow().to_batches()
        else:
            yield from file.iter_batches(rows, [group], names)
        done += metadata.num_rows


def arrow(path: Path, column: str | None) -> Blocks:
    """Yield the vectors of an Arrow IPC file or stream, in any form that `parquet` reads."""
    batches = _batches(path)
    if (first := next(batches, None)) is None:
        return
    names = columns_of(path, first.schema, column)
    yield from _rows_of(path, _split(path, chain([first], batches), names), names)


def _split(path: Path, batches: Iterable[pa.RecordBatch], names: list[str]) -> Iterator[pa.RecordBatch]:
    """Yield record batches, of fewer rows if the vectors are long."""
    for batch in batches:
        width = sum(batch.column(name).nbytes for name in names) // (8 * max(len(batch), 1))
        yield from (batch[part] for part in block_slices(path, len(batch), max(1, width)))


def lance(path: Path, column: str | None, collection: str | None) -> Blocks:
    """Yield a table of LanceDB: of its folder, or of one table's folder. Its own package reads it."""
    try:
        import lancedb  # pyright: ignore[reportMissingImports]
    except ImportError:
        hint = "pip install 'universal-geometry[stores]'"
        raise BadInput(f"{path}: LanceDB is read with its own package: {hint}") from None
    tables = [path] if path.suffix == ".lance" else sorted(path.glob("*.lance"))
    place = tables[one_of(path, "tables of LanceDB", [table.stem for table in tables], collection)]
    table = lancedb.connect(place.parent).open_table(place.stem)
    names = columns_of(path, table.schema, column)
    kind = table.schema.field(names[0]).type
    width = kind.list_size if pa.types.is_fixed_size_list(kind) else len(names)
    batches = table.search().select(names).to_batches(batch_size=rows_per_block(path, width))
    yield from _rows_of(path, batches, names)


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        return (file.get_batch(i) for i in range(file.num_record_batches))
    except pa.ArrowInvalid:
        return iter(pa.ipc.open_stream(pa.memory_map(str(path))))


def columns_of(path: Path, schema: pa.Schema, column: str | None) -> list[str]:
    """Return the column of vectors, or the columns of numbers that are one dimension each.

    The column is `column`, else one of a usual name, else the only list of numbers.
    """
    lists = [field.name for field in schema if is_vectors(field.type)]
    usual = [name for name in NAMES if name in schema.names]
    if column not in schema.names and (column or not (usual or lists)):
        numbers = [f.name for f in schema if pa.types.is_floating(f.type) or pa.types.is_integer(f.type)]
        if wide := _wide(numbers, column):
            return wide
    fitting = [name for name in usual if name in lists] or usual or lists
    return [_chosen(path, "column", schema.names if column else fitting, column, schema.names)]


def _wide(names: list[str], prefix: str | None) -> list[str]:
    """Return the columns of one dimension each: a prefix and a number, 0 to d - 1 or 1 to d."""
    found: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        if match := re.fullmatch(r"(.*?)(\d{1,6})", name, re.DOTALL):
            found[match[1]][int(match[2])] = name
    series = [
        [of[i] for i in sorted(of)]
        for before, of in found.items()
        if prefix in (None, before) and len(of) > 1 and min(of) < 2 and max(of) - min(of) == len(of) - 1
    ]
    longest = max(series, key=len, default=[])
    return longest if sum(len(one) == len(longest) for one in series) == 1 else []


def _chosen(path: Path, what: str, fitting: list[str], column: str | None, every: Iterable[str]) -> str:
    """Return `column`, else the first usual name, else the only name of those that fit. Raises BadInput."""
    wanted = [name for name in ((column,) if column else NAMES) if name in fitting]
    if wanted:
        return wanted[0]
    if len(fitting) == 1 and not column:
        return fitting[0]
    hint = f"{cut(column)!r} is not among them" if column else "Name it, or call it `vectors`"
    raise BadInput(f"{path}: which {what} holds the vectors? {hint}; there are: {listed(every)}")


def is_vectors(kind: pa.DataType) -> bool:
    """Return whether a column of this type has lists of numbers."""
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return is_list and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def _rows_of(path: Path, batches: Iterable[pa.RecordBatch], names: list[str]) -> Blocks:
    """Yield the rows of batches: of one column of vectors, or of one column for each dimension."""
    rows = chain.from_iterable(_rows_of_batch(batch, names) for batch in batches)
    return blocks_of_rows(path, _with_places("row", rows))


def _rows_of_batch(batch: pa.RecordBatch, names: list[str]) -> Iterable[Any]:
    """Return the rows of a batch: as arrays if every row has as many numbers, else as Python's values."""
    batch.validate(full=True)
    columns: list[Any] = [batch.column(name) for name in names]
    if len(columns) > 1:
        return np.stack([column.to_numpy(zero_copy_only=False) for column in columns], 1)
    [column] = columns
    lengths = column.value_lengths().unique() if is_vectors(column.type) and not column.null_count else []
    if len(lengths) == 1:
        return column.flatten().to_numpy(zero_copy_only=False).reshape(len(batch), -1)
    return column.to_pylist()


def _with_places(what: str, values: Iterable[Any], first: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield each value with its place for errors, such as "row 0"."""
    return ((f"{what} {number}", value) for number, value in enumerate(values, first))


# ---------------------------------------------------------------- JSON


def jsonl(path: Path, column: str | None) -> Blocks:
    """Yield vectors from one object per line (Qdrant, Weaviate, Milvus), or from one list per line."""
    return _records(path, _parsed(path), column)


def _parsed(path: Path) -> Iterator[tuple[str, Any]]:
    for place, line in _lines(path):
        try:
            yield place, json.loads(line)
        except (ValueError, RecursionError):
            raise BadInput(f"{path}: {place} is not JSON") from None


def whole_json(path: Path, column: str | None) -> Blocks:
    """Yield vectors from a file that is one JSON value, or from JSON lines. The value is a record, a list, or
    an answer of a store with a list in it (Qdrant's scroll, Weaviate's objects, Milvus' rows).

    Raises BadInput for a value of more than WHOLE bytes.
    """
    if path.stat().st_size <= WHOLE:
        with suppress(ValueError, RecursionError):
            value = json.loads(path.read_text(encoding="utf-8-sig"))
            return _records(path, _with_places("item", _unwrapped(path, value)), column)
    else:
        try:
            next(_parsed(path), None)
        except BadInput:
            line = f"a JSON value of more than {WHOLE >> 20} MiB is not read: save it as JSON lines"
            raise BadInput(f"{path}: {line}") from None
    return jsonl(path, column)


def _unwrapped(path: Path, value: Any) -> list[Any]:
    """Return the first list of a JSON value, going into the mappings that stores wrap around it.

    A mapping without one is a single record.
    """
    while isinstance(value, dict):
        inner = [value[name] for name in WRAPPED if isinstance(value.get(name), (list, dict))]
        if not inner:
            return [value]
        value = inner[0]
    if not isinstance(value, list):
        raise BadInput(f"{path}: a {type(value).__name__} in place of rows")
    return value


def _records(path: Path, records: Iterable[tuple[str, Any]], column: str | None) -> Blocks:
    return blocks_of_rows(path, ((place, _member(path, value, column, place)) for place, value in records))


def _member(path: Path, value: Any, column: str | None, place: str) -> Any:
    """Return the vector of a record: a member, or one of the named vectors in it (Qdrant, Weaviate)."""
    if isinstance(value, dict) and isinstance(value.get("_source"), dict):  # elasticdump
        value = value["_source"]
    if not isinstance(value, dict):
        return value
    there = [name for name in NAMES if name in value] or NAMES[:1]
    usual = next((name for name in there if value.get(name)), there[0])
    if column and column not in value and isinstance(value.get(usual), dict):
        value = value[usual]
    name = column or usual
    if name not in value:
        raise BadInput(f"{path}: {place} has no {name!r}; it has: {listed(value)}")
    return value[name]


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (place, line) of lines that are not blank. Raises BadInput for a line longer than LONGEST."""
    # utf-8-sig: Excel begins CSV with a byte order mark
    with open(path, encoding="utf-8-sig", errors="replace") as file:
        for place, line in _with_places("line", iter(lambda: file.readline(LONGEST), ""), 1):
            if len(line) == LONGEST:
                raise BadInput(f"{path}: {place} is longer than {LONGEST:,} characters")
            if line.strip():
                yield place, line


# ---------------------------------------------------------------- CSV

VECTOR = re.compile(r"\[[-+.,\d\seEnaifulNIF]*\]")  # as pgvector and JSON write it
AHEAD = 10  # rows in which a column without a usual name is looked for
MISSING = ("", "\\N")  # COPY writes \N


def separated(path: Path, column: str | None) -> Blocks:
    """Yield a column of strings such as "[0.1,0.2]", or one column of numbers for each dimension, from CSV or
    from pgvector's COPY, which has no header and no quotes.
    """
    csv.field_size_limit(LONGEST)
    suffix = path.suffix.lower()
    quoting = csv.QUOTE_NONE if suffix == ".copy" else csv.QUOTE_MINIMAL
    lines = (line for _, line in _lines(path))
    rows = csv.reader(lines, delimiter="," if suffix == ".csv" else "\t", quoting=quoting)
    ahead = list(islice(rows, AHEAD))
    at, header = _places(path, ahead, column)
    placed = _with_places("row", chain(ahead[header:], rows))
    wide = len(ahead[0]) if len(at) > 1 else 0
    yield from blocks_of_rows(path, ((place, _field(path, place, row, at, wide)) for place, row in placed))


def _places(path: Path, ahead: list[list[str]], column: str | None) -> tuple[list[int], bool]:
    """Return which fields of a row are its vector, and whether the first row is a header."""
    first = ahead[0] if ahead else []
    if usual := [first.index(name) for name in ((column,) if column else NAMES) if name in first]:
        return usual[:1], True
    found = [i for row in ahead for i, field in enumerate(row) if VECTOR.fullmatch(field)]
    if column is None and len({*found}) == 1:
        above = first[found[0]] if found[0] < len(first) else ""
        return found[:1], not VECTOR.fullmatch(above) and above not in MISSING
    if column is None and len(first) > 1 and not any(np.isnan(number(field)) for field in first):
        headers = [[str(i) for i in range(start, start + len(first))] for start in (0, 1)]
        return list(range(len(first))), first in headers
    if wide := _wide(first, column):
        rows_per_block(path, len(wide))
        return [first.index(name) for name in wide], True
    raise BadInput(f"{path}: which column holds the vectors? There are: {listed(first)}")


def _field(path: Path, place: str, row: list[str], at: list[int], wide: int) -> Any:
    """Return the vector of a row: as JSON, or as numbers of its `wide` fields; None if it is missing."""
    if len(row) <= max(at) or (wide and len(row) != wide):
        raise BadInput(f"{path}: {place} has {len(row)} fields")
    if wide:
        return [number(row[i]) for i in at]
    return None if row[at[0]] in MISSING else row[at[0]]


# ---------------------------------------------------------------- arrays


def safetensors(path: Path, column: str | None) -> Blocks:
    """Yield the rows of the tensor `column`, of a usual name, or of the only one of two dimensions."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:  # NumPy knows no bfloat16
        flat = [name for name in file.keys() if len(file.get_slice(name).get_shape()) == 2]  # noqa: SIM118
        tensor = file.get_slice(_chosen(path, "tensor", flat, column, file.keys()))
        for part in block_slices(path, *tensor.get_shape()):
            yield tensor[part].float().numpy()


def npy(path: Path, column: str | None) -> Blocks:
    """Yield the rows of an array, memory-mapped. Pickled objects are refused."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise BadInput(f"{path}: {array.dtype} of shape {array.shape}, not one vector of numbers per row")
    yield from blocks_of_array(path, array)


def npz(path: Path, column: str | None) -> Blocks:
    """Yield the rows of the array `column`, of a usual name, or of the only one of two dimensions.

    Raises BadInput if it unpacks to far too much.
    """
    with zipfile.ZipFile(path) as archive:
        flat = [member.filename for member in archive.infolist() if _is_matrix(archive, member)]
        names, every = ([name.removesuffix(".npy") for name in of] for of in (flat, archive.namelist()))
        name = _chosen(path, "array", names, column, every)
        member = archive.getinfo(f"{name}.npy")
        if member.file_size > max(BYTES, PACKED * member.compress_size):
            sizes = f"{member.file_size:,} bytes from {member.compress_size:,}"
            raise BadInput(f"{path}: {cut(member.filename)} unpacks to {sizes}")
        with archive.open(member) as file:
            shape, fortran, dtype = _npy_header(file)
            if fortran:
                raise BadInput(f"{path}: {name} is stored by columns; save it with np.ascontiguousarray")
            for part in block_slices(path, *shape):
                count = (part.stop - part.start) * shape[1]
                yield np.frombuffer(file.read(count * dtype.itemsize), dtype, count).reshape(-1, shape[1])


def _is_matrix(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bool:
    """Return whether a member is a matrix of numbers."""
    with archive.open(member) as file:
        shape, _, dtype = _npy_header(file)
    return len(shape) == 2 and dtype.kind in "fiu"


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return reader(file)


SQLITE = (".sqlite3", ".sqlite", ".db")
READERS: dict[str, Callable[[Path, str | None], Blocks]] = {
    ".parquet": parquet,
    ".pq": parquet,
    ".arrow": arrow,
    ".feather": arrow,
    ".ipc": arrow,
    ".npy": npy,
    ".npz": npz,
    ".json": whole_json,
    ".jsonl": jsonl,
    ".ndjson": jsonl,
    ".csv": separated,
    ".tsv": separated,
    ".copy": separated,
    ".safetensors": safetensors,
    ".faiss": stores.index,
    ".index": stores.index,
    ".hnsw": stores.index,
    ".bin": stores.index,
}
