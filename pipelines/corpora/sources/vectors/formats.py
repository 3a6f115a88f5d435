"""Readers of vectors in other people's files, block by block, so that a file larger than memory is never held
whole.

FAISS flat indexes and Chroma's folders (sqlite and hnswlib) are read without their libraries. These two
readers were checked against faiss-cpu and chromadb 1.5.9.
"""

from __future__ import annotations

import csv
import json
import sqlite3
import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.corpora.core.files import files_in
from pipelines.corpora.core.parquet import shards
from pipelines.runtime.errors import BadInput, cut, listed
from pipelines.runtime.files import reading

BLOCK = 8192  # rows of a block, fewer if they are long
BYTES = 2**26  # of a block
WIDEST = 2**16  # dimensions
LONGEST = 2**24  # characters of a line
WHOLE = 2**29  # bytes of a file of one JSON value
WRAPPED = ("result", "data", "points", "objects", "rows", "hits", "results")  # what stores put around rows
PACKED = 200  # times: vectors do not unpack to more than that
NAMES = (
    "vector",
    "vectors",
    "embedding",
    "embeddings",
    "dense",
    "values",
)  # what a column of vectors is called

Blocks = Iterator[np.ndarray]


def blocks(path: Path, column: str | None = None) -> Blocks:
    """Yield the vectors of a file or folder as arrays (b, d); missing numbers are NaN.

    `column`: its column or array of vectors, where that has none of the usual NAMES. Raises BadInput, in one
    line.
    """
    if path.is_dir() and (path / "chroma.sqlite3").is_file():
        return _checked(path, "Chroma folder", chroma(path, column))
    if path.is_dir():
        files = shards(path, files_in(path))
        if not files:
            raise BadInput(f"{path}: a folder with no *.parquet and no chroma.sqlite3")
        return _of_all(files, column)
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        known = f"{', '.join(READERS)}, a folder of parquet files or of Chroma"
        raise BadInput(
            f"{path}: vectors are read from {known}, not {path.suffix or 'a file without a suffix'}"
        )
    return _checked(path, f"{path.suffix[1:]} file", reader(path, column))


def words(path: Path, column: str | None, usual: tuple[str, ...]) -> list[str] | None:
    """Return a column of ids or splits: `column`, else the first of `usual`; None if there is none of these.

    Raises BadInput if `column` is not there, or a row is empty.
    """
    with reading(path, "not columns of words"):
        columns = _columns(path)
        found = next((name for name in ((column,) if column else usual) if name in columns), None)
        if found is None:
            if column:
                raise BadInput(f"{path}: there is no column {column!r}; there are: {listed(columns)}")
            return None
        values = list(columns[found]())
    if None in values:
        first = values.index(None) + 1
        raise BadInput(f"{path}: {values.count(None)} rows have no {found}, the first is row {first}")
    return [str(value) for value in values]


def _columns(path: Path) -> dict[str, Callable[[], Any]]:
    """Return name -> function that reads all of the column."""
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in (".parquet", ".pq"):
        files = shards(path, files_in(path)) if path.is_dir() else [path]
        names = pq.read_schema(files[0]).names if files else []
        return {
            n: lambda n=n: [v for f in files for v in pq.read_table(f, columns=[n])[n].to_pylist()]
            for n in names
        }
    if suffix in (".arrow", ".feather", ".ipc"):
        table = pa.Table.from_batches(_batches(path))
        return {n: table[n].to_pylist for n in table.column_names}
    if suffix == ".npz":
        archive = np.load(path, allow_pickle=False)
        return {n: lambda n=n: archive[n].tolist() for n in archive.files}
    return {}


def _of_all(files: list[Path], column: str | None) -> Blocks:
    """Yield the vectors of all files, in order. Raises BadInput for the first file of another dimension."""
    first = 0
    for file in files:
        for block in _checked(file, "parquet file", parquet(file, column)):
            first = first or block.shape[1]
            if block.shape[1] != first:
                here, before = (
                    f"vectors of {block.shape[1]} dimensions",
                    f"in {files[0].name} they have {first}",
                )
                raise BadInput(f"{file}: {here}; {before}")
            yield block


def _checked(path: Path, kind: str, read: Blocks) -> Blocks:
    with reading(path, f"not a whole {kind}"):
        yield from read


def _height(path: Path, dimension: int) -> int:
    """Return the number of rows of a block. Raises BadInput for more dimensions than a vector has."""
    if dimension > WIDEST:
        raise BadInput(f"{path}: vectors of {dimension:,} dimensions; at most {WIDEST:,} are read")
    return max(1, min(BLOCK, BYTES // (8 * max(dimension, 1))))


def _differ(path: Path, first: int, other: int, where: str = "") -> BadInput:
    return BadInput(f"{path}: vectors of different dimensions: {first}, and {other}{where}")


# ---------------------------------------------------------------- tables


def parquet(path: Path, column: str | None) -> Blocks:
    """Yield a column of lists, of strings such as "[0.1,0.2]" (pgvector), or of structs of lists (Qdrant)."""
    file = pq.ParquetFile(path)
    name = column_of(path, file.schema_arrow, column)
    for group in range(file.num_row_groups):
        about = file.metadata.row_group(group)
        chunks = [about.column(i) for i in range(about.num_columns)]
        counts = [c.num_values for c in chunks if f"{c.path_in_schema}.".startswith(f"{name}.")]
        height = _height(path, max(counts, default=0) // max(about.num_rows, 1))
        for batch in file.iter_batches(height, [group], [name]):
            batch.validate(full=True)
            yield _matrix(path, batch.column(0))


def arrow(path: Path, column: str | None) -> Blocks:
    """Yield a column of an Arrow IPC file or stream."""
    for batch in _batches(path):
        array = batch.column(batch.schema.get_field_index(column_of(path, batch.schema, column)))
        height = _height(path, array.nbytes // (8 * max(len(array), 1)))
        for start in range(0, len(array), height):
            yield _matrix(path, array.slice(start, height))


def _batches(path: Path) -> Iterator[pa.RecordBatch]:
    try:
        file = pa.ipc.open_file(pa.memory_map(str(path)))
        batches = (file.get_batch(i) for i in range(file.num_record_batches))
    except pa.ArrowInvalid:
        batches = pa.ipc.open_stream(pa.memory_map(str(path)))
    for batch in batches:
        batch.validate(full=True)
        yield batch


def column_of(path: Path, schema: pa.Schema, column: str | None) -> str:
    """Return the column of vectors: `column`, else one of a usual name, else the only list of numbers."""
    if column:
        if column not in schema.names:
            raise BadInput(f"{path}: there is no column {column!r}; there are: {listed(schema.names)}")
        return column
    lists = [field.name for field in schema if _is_vector(field.type)]
    usual = [name for name in NAMES if name in schema.names]
    found = [name for name in usual if name in lists] or usual or (lists if len(lists) == 1 else [])
    if not found:
        hint = f"Call it `vector`; there are: {listed(schema.names)}"
        raise BadInput(f"{path}: which column holds the vectors? {hint}")
    return found[0]


def _is_vector(kind: pa.DataType) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return listed and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def _matrix(path: Path, array: Any) -> np.ndarray:
    """Return (b, d) of a column; missing numbers and missing rows are NaN."""
    if not _is_vector(array.type):
        return _stacked(path, array.to_pylist())
    if not array.null_count and pa.types.is_fixed_size_list(array.type):
        return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), array.type.list_size)
    widths = np.unique(array.drop_null().value_lengths().to_numpy(zero_copy_only=False))
    if len(widths) > 1:
        raise _differ(path, widths[0], widths[1])
    if not len(widths):
        raise BadInput(f"{path}: {len(array)} rows in a row have no vector")
    width = int(widths[0])
    if array.null_count:
        return _stacked(path, [[np.nan] * width if v is None else v for v in array.to_pylist()])
    return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), width)


def _stacked(path: Path, values: list[Any]) -> np.ndarray:
    rows = [_numbers(path, value) for value in values]
    widths = sorted({len(row) for row in rows})
    if len(widths) > 1:
        raise _differ(path, widths[0], widths[1])
    return np.array(rows, np.float32)


def _numbers(path: Path, value: Any) -> list[float]:
    """Return a vector from a list, from its JSON, or from a mapping of names to one list."""
    if isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, dict):
        lists = [v for v in value.values() if isinstance(v, list)]
        if len(lists) != 1:
            raise BadInput(
                f"{path}: {len(lists)} named vectors in one row ({listed(value)}); export one of them"
            )
        value = lists[0]
    if not isinstance(value, list) or any(isinstance(v, (str, list, dict)) for v in value):
        raise BadInput(f"{path}: a {type(value).__name__} in place of a vector of numbers")
    return [np.nan if v is None else float(v) for v in value]


def jsonl(path: Path, column: str | None) -> Blocks:
    """Yield vectors from one object per line (Qdrant, Weaviate, Milvus), or from one list per line."""
    return _records(path, _parsed(path), column)


def _parsed(path: Path) -> Iterator[tuple[int, Any]]:
    for number, line in _lines(path):
        try:
            yield number, json.loads(line)
        except (ValueError, RecursionError):
            raise BadInput(f"{path}: line {number} is not JSON") from None


def whole_json(path: Path, column: str | None) -> Blocks:
    """Yield vectors from JSON lines, or from a file that is one JSON value: a list, or an answer of a store
    with a list in it (Qdrant's scroll, Weaviate's objects, Milvus' rows).
    """
    with open(path, encoding="utf-8", errors="replace") as file:
        first = file.readline(LONGEST).strip()
    if first.startswith("{") and first.endswith("}") and path.stat().st_size > len(first) + 2:
        return jsonl(path, column)
    if path.stat().st_size > WHOLE:
        raise BadInput(f"{path}: more than {WHOLE:,} bytes of one JSON value; export one row per line")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        raise BadInput(f"{path}: not one JSON value, nor one per line") from None
    return _records(path, enumerate(_rows(path, value), 1), column)


def _rows(path: Path, value: Any) -> list[Any]:
    """Return the first list of a JSON value, going into the mappings that stores wrap around it."""
    while isinstance(value, dict):
        inner = [value[name] for name in WRAPPED if isinstance(value.get(name), (list, dict))]
        if not inner:
            raise BadInput(f"{path}: no list of rows in it; it has: {listed(value)}")
        value = inner[0]
    if not isinstance(value, list):
        raise BadInput(f"{path}: a {type(value).__name__} in place of rows")
    return value


def _records(path: Path, records: Iterable[tuple[int, Any]], column: str | None) -> Blocks:
    return _numbered(path, _members(path, records, column), "line")


def _members(path: Path, records: Iterable[tuple[int, Any]], column: str | None) -> Iterator[tuple[int, Any]]:
    """Yield the vector of each record, under its number."""
    for number, value in records:
        if isinstance(value, dict) and isinstance(value.get("_source"), dict):  # elasticdump
            value = value["_source"]
        if isinstance(value, dict):
            name = column or next((n for n in NAMES if n in value), NAMES[0])
            if name not in value:
                raise BadInput(f"{path}: line {number} has no {name!r}; it has: {listed(value)}")
            value = value[name]
        yield number, value


def _numbered(path: Path, vectors: Iterable[tuple[int, Any]], what: str) -> Blocks:
    """Yield blocks of numbered vectors. `what` their numbers count: "line" or "row"."""
    held: list[np.ndarray] = []
    for number, value in vectors:
        try:
            held.append(np.array(_numbers(path, value), np.float64))
        except OverflowError:
            raise BadInput(f"{path}: {what} {number}: a number that no float holds") from None
        if len(held[-1]) != len(held[0]):
            raise _differ(path, len(held[0]), len(held[-1]), f" in {what} {number}")
        if len(held) >= _height(path, len(held[-1])):
            yield np.array(held)
            held = []
    if held:
        yield np.array(held)


def separated(path: Path, column: str | None) -> Blocks:
    """Yield a column of strings such as "[0.1,0.2]" from CSV, or pgvector's COPY without a header."""
    csv.field_size_limit(LONGEST)
    with open(path, encoding="utf-8", errors="replace", newline="") as file:
        separator = "\t" if path.suffix.lower() != ".csv" else ","
        rows = csv.reader(file, delimiter=separator)
        first = next(rows, [])
        bare = [i for i, field in enumerate(first) if field.startswith("[")]
        usual = [first.index(name) for name in ((column,) if column else NAMES) if name in first]
        if not bare and not usual:
            raise BadInput(f"{path}: which column holds the vectors? There are: {listed(first)}")
        at = (bare or usual)[0]
        fields = _fields(path, chain([first] if bare else [], rows), at)
        yield from _numbered(path, fields, "row")


def _fields(path: Path, rows: Iterable[list[str]], at: int) -> Iterator[tuple[int, str]]:
    for number, row in enumerate(rows, 1):
        if len(row) <= at:
            raise BadInput(f"{path}: row {number} has {len(row)} fields")
        yield number, row[at]


def safetensors(path: Path, column: str | None) -> Blocks:
    """Yield the rows of the tensor `column`, of a usual name, or of the only one of two dimensions."""
    from safetensors import safe_open

    with safe_open(path, "numpy") as file:
        flat = [name for name in file.keys() if len(file.get_slice(name).get_shape()) == 2]  # noqa: SIM118
        wanted = [name for name in ((column,) if column else NAMES) if name in flat]
        if not wanted and (column or len(flat) != 1):
            raise BadInput(f"{path}: which tensor holds the vectors? There are: {listed(file.keys())}")
        tensor = file.get_slice((wanted or flat)[0])
        rows, width = tensor.get_shape()
        height = _height(path, width)
        for start in range(0, rows, height):
            yield tensor[start : min(start + height, rows)]


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (number, line) of lines that are not blank. Raises BadInput for a line longer than LONGEST."""
    with open(path, encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(iter(lambda: file.readline(LONGEST), ""), 1):
            if len(line) == LONGEST:
                raise BadInput(f"{path}: line {number} is longer than {LONGEST:,} characters")
            if line.strip():
                yield number, line


# ---------------------------------------------------------------- arrays


def npy(path: Path, column: str | None) -> Blocks:
    """Yield the rows of an array, memory-mapped. Pickled objects are refused."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise BadInput(f"{path}: {array.dtype} of shape {array.shape}, not one vector of numbers per row")
    yield from _slices(path, array)


def _slices(path: Path, array: np.ndarray) -> Blocks:
    height = _height(path, array.shape[1])
    for start in range(0, len(array), height):
        yield np.asarray(array[start : start + height])


def npz(path: Path, column: str | None) -> Blocks:
    """Yield the rows of the only array of two dimensions, or of the one with a usual name."""
    with zipfile.ZipFile(path) as archive:
        name = _array(path, archive, column)
        with archive.open(name) as file:
            shape, fortran, dtype = _npy_header(file)
            if fortran:
                raise BadInput(f"{path}: {name} is stored by columns; save it with np.ascontiguousarray")
            height = _height(path, shape[1])
            for start in range(0, shape[0], height):
                count = min(height, shape[0] - start) * shape[1]
                yield np.frombuffer(file.read(count * dtype.itemsize), dtype, count).reshape(-1, shape[1])


def _array(path: Path, archive: zipfile.ZipFile, column: str | None) -> str:
    """Return the member that holds the vectors. Raises BadInput for one that unpacks to far too much."""
    flat = []
    for member in archive.infolist():
        if member.file_size > max(BYTES, PACKED * member.compress_size):
            sizes = f"{member.file_size:,} bytes from {member.compress_size:,}"
            raise BadInput(f"{path}: {cut(member.filename)} unpacks to {sizes}")
        with archive.open(member) as file:
            shape, _, dtype = _npy_header(file)
        if len(shape) == 2 and dtype.kind in "fiu":
            flat.append(member.filename)
    wanted = [f"{name}.npy" for name in ((column,) if column else NAMES)]
    found = [name for name in wanted if name in flat] or ([] if column else flat)
    if not found or (len(found) > 1 and found[0] not in wanted):
        members = listed(name.removesuffix(".npy") for name in archive.namelist())
        raise BadInput(f"{path}: which array holds the vectors? Call it `vectors`; there are: {members}")
    return found[0]


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return reader(file)


# ---------------------------------------------------------------- vector stores


def faiss(path: Path, column: str | None) -> Blocks:
    """Yield the vectors of a flat, an IVF-flat or an HNSW-flat index, also in an IndexIDMap, as
    `faiss.write_index` writes it.

    The file has a code of 4 bytes, a head, the number of floats as uint64, and the floats. HNSW has its graph
    before its flat index. IVF has its centroids, as a flat index, and then a list for each of them.
    """
    with open(path, "rb") as file:
        code = file.read(4)
        if code in (b"IxMp", b"IxM2"):
            _faiss_head(file)
            code = file.read(4)
        if code == b"IwFl":
            yield from _faiss_lists(path, file)
            return
        if code == b"IHNf":
            _faiss_head(file)
            for size in (8, 4, 4, 8, 4):  # probabilities, neighbours per level, levels, offsets, neighbours
                _skip(path, file, size)
            file.seek(4 * 5, 1)  # entry point, highest level, efConstruction, efSearch, beam
            code = file.read(4)
        if code not in (b"IxFI", b"IxF2", b"IxFl"):
            hint = "a compressed index does not hold its vectors; export them"
            raise BadInput(f"{path}: {code!r} is no FAISS index of whole vectors: {hint}")
        dimension, rows = _faiss_head(file)
        (count,) = struct.unpack("<Q", file.read(8))
        start = file.tell()
    if count != rows * dimension or path.stat().st_size < start + 4 * count:
        expected = f"{rows} vectors of {dimension} numbers"
        raise BadInput(f"{path}: {expected} were expected, but the file holds {count} numbers (truncated?)")
    yield from _slices(path, np.memmap(path, "<f4", "r", start, (rows, dimension)))


def _faiss_lists(path: Path, file: Any) -> Blocks:
    """Yield the lists of an IVF-flat index, after its code."""
    dimension, _ = _faiss_head(file)
    lists, _ = struct.unpack("<QQ", file.read(16))
    if file.read(4) not in (b"IxFI", b"IxF2", b"IxFl"):
        raise BadInput(f"{path}: the centroids are in no flat index; export the vectors")
    _faiss_head(file)
    _skip(path, file, 4)  # centroids
    if file.read(1) == b"\x02":
        raise BadInput(f"{path}: a hashed direct map; call index.set_direct_map_type(0) and write it again")
    _skip(path, file, 8)
    width = 4 * dimension
    if file.read(4) != b"ilar":
        raise BadInput(f"{path}: its lists are in another file; export the vectors")
    file.seek(16, 1)  # number of lists, bytes of a vector
    kind, count = struct.unpack("<4sQ", file.read(12))
    if count > path.stat().st_size // 8:
        raise BadInput(f"{path}: {count} lists were expected, but the file is shorter (truncated?)")
    sizes = np.frombuffer(file.read(8 * count), "<u8").tolist()
    if kind == b"sprs":
        full = dict(zip(sizes[::2], sizes[1::2], strict=True))
        sizes = [full.get(i, 0) for i in range(lists)]
    for size in sizes:
        if file.tell() + size * (width + 8) > path.stat().st_size:
            raise BadInput(f"{path}: its lists are longer than the file (truncated?)")
        if size:
            yield from _slices(path, np.memmap(path, "<f4", "r", file.tell(), (size, dimension)))
        file.seek(size * (width + 8), 1)  # vectors, and ids of 8 bytes


def _skip(path: Path, file: Any, size: int) -> None:
    """Skip a vector of items of `size` bytes after their number. Raises BadInput beyond the file's end."""
    (count,) = struct.unpack("<Q", file.read(8))
    if file.tell() + count * size > path.stat().st_size:
        raise BadInput(f"{path}: {count} items were expected, but the file is shorter (truncated?)")
    file.seek(count * size, 1)


def _faiss_head(file: Any) -> tuple[int, int]:
    """Return (dimension, rows) from int32, int64, 2 unused int64, bool, int32 metric and its parameter."""
    dimension, rows, _, _, _, metric = struct.unpack("<iqqq?i", file.read(33))
    if metric > 1:
        file.read(4)
    return dimension, rows


CHROMA = ("collections", "max_seq_id", "segments", "embeddings_queue")  # its tables that are read
STEPS = 10_000  # of SQLite's machine between two calls of the progress handler


def chroma(folder: Path, column: str | None) -> Blocks:
    """Yield the vectors of a Chroma folder with one collection: hnsw segments, then the queue in sqlite."""
    with closing(_database(folder / "chroma.sqlite3")) as base:
        names = [name for (name,) in base.execute("select name from collections")]
        if len(names) > 1:
            hint = "export one of them: their encoders may differ"
            raise BadInput(f"{folder}: {len(names)} collections ({listed(names)}); {hint}")
        seen = dict(base.execute("select segment_id, seq_id from max_seq_id"))
        segments = [name for (name,) in base.execute("select id from segments where scope = 'VECTOR'")]
        for segment in segments:
            if _is_inside(folder, segment):
                yield from _hnsw(folder / segment)
        yield from _queued(folder, base, max((_sequence(seen[s]) for s in segments if s in seen), default=-1))


def _database(path: Path) -> sqlite3.Connection:
    """Open the database to read. Raises BadInput for what is no plain table: a view may have rows without
    end.

    SQLite stops a query that takes more steps than reading each byte of the file.
    """
    base = sqlite3.connect(path.resolve().as_uri() + "?mode=ro&immutable=1", uri=True)
    base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, BYTES)
    left = path.stat().st_size // STEPS + 1000

    def stop() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    base.set_progress_handler(stop, STEPS)
    try:
        made = dict(base.execute("select name, sql from sqlite_master where type = 'table'"))
    except sqlite3.Error as error:
        raise BadInput(f"{path}: cannot be read: {error}") from None
    for name in CHROMA:
        if not str(made.get(name)).upper().startswith("CREATE TABLE"):
            raise BadInput(f"{path}: there is no table {name}")
    return base


def _is_inside(folder: Path, segment: Any) -> bool:
    place = (folder / str(segment)).resolve()
    return place.parent == folder.resolve() and (place / "header.bin").is_file()


def _queued(folder: Path, base: sqlite3.Connection, after: int) -> Blocks:
    queue = "from embeddings_queue where vector is not null and seq_id > ?"
    (longest,) = base.execute(f"select max(length(vector)) {queue}", (after,)).fetchone()
    if longest is None:
        return
    height = _height(folder, longest // 4)
    rows = base.execute(f"select vector, encoding {queue} order by seq_id", (after,))
    while queued := rows.fetchmany(height):
        vectors = [np.frombuffer(v, "<f4" if encoding == "FLOAT32" else "<i4") for v, encoding in queued]
        if len({len(v) for v in vectors}) > 1:
            raise BadInput(f"{folder}: vectors of different dimensions are queued in chroma.sqlite3")
        yield np.stack(vectors).astype(np.float32)


def _sequence(value: Any) -> int:
    return int.from_bytes(value, "big") if isinstance(value, bytes) else int(value)


_HNSW = struct.Struct(
    "<i6Q"
)  # version, offset of level 0, most rows, rows, bytes a row, label offset, vector offset


def _hnsw(segment: Path) -> Blocks:
    """Yield the vectors of a persisted hnswlib index. A bit of a row's third byte marks it as deleted."""
    try:
        header = (segment / "header.bin").read_bytes()[: _HNSW.size]
        _, level0, _, count, size, label, offset = _HNSW.unpack(header)
        rows = np.memmap(segment / "data_level0.bin", np.uint8, "r")
    except (OSError, ValueError, struct.error) as error:
        raise BadInput(f"{segment}: not a whole hnsw index: {error}") from None
    if not 0 < offset < label <= size or len(rows) < count * size:
        raise BadInput(f"{segment}: header.bin does not fit data_level0.bin: another version of Chroma?")
    for block in _slices(segment, rows[: count * size].reshape(count, size)):
        kept = block[(block[:, level0 + 2] & 1) == 0]
        yield np.ascontiguousarray(kept[:, offset:label]).view("<f4")


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
    ".csv": separated,
    ".tsv": separated,
    ".copy": separated,
    ".safetensors": safetensors,
    ".ndjson": jsonl,
    ".faiss": faiss,
    ".index": faiss,
    ".sqlite3": lambda path, column: chroma(path.parent, column),
}
