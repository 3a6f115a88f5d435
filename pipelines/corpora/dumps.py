"""Vectors out of other people's stores, block by block, so that a dump larger than memory is never held whole.

parquet (also a folder of such files), arrow, npy, npz and jsonl files (Qdrant and pgvector exports are such), a FAISS flat
index, and Chroma's folder (sqlite + hnsw). The last two are read from their files alone, without their libraries: FAISS
`IndexFlat` (optionally in an `IndexIDMap`) and Chroma's persisted hnswlib header were checked against faiss-cpu and chromadb
1.5.9.
"""

from __future__ import annotations

import json
import sqlite3
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.corpora.shards import shards
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading

BLOCK = 8192  # rows, where they are not so long that they are
BYTES = 2**26  # of a block
HELD = 2**29  # bytes of vectors that are kept
WIDEST = 2**16  # dimensions
LONGEST = 2**24  # characters of a line
PACKED = 200  # times: what unpacks to more than that, and than a block, is no vectors
FAR = 10  # times the median distance from the centre: the rows beyond are errors, and a few of them would move every mean
USUAL = (
    2.0**40
)  # lengths between one over it and it are left as they are: their squares are at home in float32
NAMES = ("vector", "vectors", "embedding", "embeddings", "dense", "values")


@dataclass(frozen=True)
class Sample:
    """What is kept of a dump, and what was in it."""

    vectors: (
        np.ndarray
    )  # (n, d) float32, distinct, finite, not zero, none far off; drawn uniformly from all of those
    rows: int  # in the dump
    left_out: int  # of them zero or not finite
    repeated: int  # of those drawn, equal to one before
    far_off: int  # of those drawn, beyond FAR


def sample(path: Path, limit: int, seed: int = 0) -> Sample:
    """At most `limit` vectors, by reservoir sampling in one pass.

    Raises BadInput, in one line, naming file and row: no such file, another format, dimensions that
    differ, fewer than two vectors, all the same.
    """
    generator, rows, left_out, dimension = np.random.default_rng(seed), 0, 0, 0
    held, keys = np.zeros((0, 0), np.float32), np.zeros(0)
    for block in blocks(path):
        if block.ndim != 2 or not block.shape[1]:
            raise BadInput(f"{path}: {block.shape[1:]} numbers in row {rows + 1}, not a vector")
        if dimension and block.shape[1] != dimension:
            raise BadInput(
                f"{path}: vectors of different dimensions: {dimension}, and {block.shape[1]} in row {rows + 1}"
            )
        dimension, rows = block.shape[1], rows + len(block)
        limit = min(limit, HELD // (4 * dimension))
        with np.errstate(over="ignore", invalid="ignore"):
            block = np.asarray(block, np.float32)
            squares = np.einsum("ij,ij->i", block, block, dtype=np.float64)
        good = np.isfinite(squares) & (squares > 0)
        left_out += int((~good).sum())
        block = block[good]
        key = generator.random(len(block))
        held, keys = (np.concatenate(x) for x in ((held.reshape(-1, dimension), block), (keys, key)))
        if len(keys) > 2 * limit:
            kept = np.sort(np.argpartition(keys, limit)[:limit])
            held, keys = held[kept], keys[kept]
    if rows < 2:
        raise BadInput(f"{path}: {rows} vector{'' if rows == 1 else 's'}: nothing to align")
    if len(held) < 2:
        raise BadInput(f"{path}: {left_out} of {rows} vectors are zero or not finite: nothing is left")
    held = held[np.sort(np.argsort(keys)[:limit])]
    _, first = np.unique(held, axis=0, return_index=True)
    if len(first) < 2:
        raise BadInput(f"{path}: all {rows} vectors are the same")
    vectors = near(held[np.sort(first)])
    return Sample(vectors, rows, left_out, len(held) - len(first), len(first) - len(vectors))


def near(vectors: np.ndarray) -> np.ndarray:
    """The rows of (n, d), all distinct, that lie within FAR times the median distance from their centre, in float32.

    The centre is the median of each coordinate: it and the median distance stay where they are whatever a minority of rows holds.
    A dump whose lengths float32 cannot square is brought to a usual length by a power of two, which changes no direction.
    """
    wide = vectors.astype(np.float64)
    distances = np.linalg.norm(wide - np.median(wide, axis=0), axis=1)
    kept = distances <= FAR * np.median(distances)
    length = np.median(np.linalg.norm(wide[kept], axis=1))
    if 1 / USUAL <= length <= USUAL:
        return vectors[kept]
    return (wide[kept] * 2.0 ** -np.round(np.log2(length))).astype(np.float32)


def blocks(path: Path) -> Iterator[np.ndarray]:
    """The vectors of a dump as arrays (b, d)."""
    if path.is_dir():
        if (path / "chroma.sqlite3").is_file():
            return _checked(path, "Chroma folder", chroma(path))
        if files := shards(path):
            return _in_shards(files)
        raise BadInput(
            f"{path}: a folder with no *.parquet and no chroma.sqlite3; vectors are read from either, or from a file"
        )
    if not path.is_file():
        raise BadInput(f"{path}: there is no such file")
    readers = {
        ".parquet": parquet, ".pq": parquet, ".arrow": arrow, ".feather": arrow, ".ipc": arrow,
        ".npy": npy, ".npz": npz, ".jsonl": jsonl, ".ndjson": jsonl,
        ".faiss": faiss, ".index": faiss, ".sqlite3": lambda p: chroma(p.parent),
    }  # fmt: skip
    if path.suffix.lower() not in readers:
        raise BadInput(
            f"{path}: vectors are read from parquet, arrow, npy, npz, jsonl, a FAISS flat index (.faiss, .index) "
            "or a folder, of parquet or of Chroma, "
            f"not {path.suffix or 'a file without an extension'}"
        )
    return _checked(path, f"{path.suffix[1:]} file", readers[path.suffix.lower()](path))


def _in_shards(files: list[Path]) -> Iterator[np.ndarray]:
    """The vectors of all files, in order. Raises BadInput naming the first of another dimension."""
    first = 0
    for file in files:
        for block in _checked(file, "parquet file", parquet(file)):
            first = first or block.shape[1]
            if block.shape[1] != first:
                raise BadInput(
                    f"{file}: vectors of {block.shape[1]} dimensions; in {files[0].name} they have {first}"
                )
            yield block


def _checked(path: Path, kind: str, read: Iterator[np.ndarray]) -> Iterator[np.ndarray]:
    with reading(path, f"not a whole {kind}"):
        yield from read


def _rows(path: Path, dimension: int) -> int:
    """How many rows of a block. Raises BadInput for what is too wide to be a vector."""
    if dimension > WIDEST:
        raise BadInput(f"{path}: vectors of {dimension:,} dimensions; at most {WIDEST:,} are read")
    return max(1, min(BLOCK, BYTES // (8 * max(dimension, 1))))


# ---------------------------------------------------------------- tables


def parquet(path: Path) -> Iterator[np.ndarray]:
    """A column of lists; pgvector exports may hold strings such as "[0.1,0.2]", Qdrant's a struct of named vectors."""
    file = pq.ParquetFile(path)
    column = _column(path, file.schema_arrow)
    for group in range(file.num_row_groups):
        about = file.metadata.row_group(group)
        leaves = [
            c
            for c in map(about.column, range(about.num_columns))
            if f"{c.path_in_schema}.".startswith(f"{column}.")
        ]
        rows = _rows(path, max((leaf.num_values for leaf in leaves), default=0) // max(about.num_rows, 1))
        for batch in file.iter_batches(rows, [group], [column]):
            batch.validate(full=True)
            yield _matrix(path, batch.column(0))


def arrow(path: Path) -> Iterator[np.ndarray]:
    """An Arrow IPC file, or stream."""
    source = pa.memory_map(str(path))
    try:
        reader = pa.ipc.open_file(source)
        batches = (reader.get_batch(i) for i in range(reader.num_record_batches))
    except pa.ArrowInvalid:
        reader = batches = pa.ipc.open_stream(pa.memory_map(str(path)))
    column = _column(path, reader.schema)
    for batch in batches:
        batch.validate(full=True)
        array = batch.column(batch.schema.get_field_index(column))
        rows = _rows(path, batch.nbytes // (8 * max(len(array), 1)))
        for start in range(0, len(array), rows):
            yield _matrix(path, array.slice(start, rows))


def _column(path: Path, schema: pa.Schema) -> str:
    lists = [f.name for f in schema if _is_vector(f.type)]
    named = [n for n in NAMES if n in schema.names]
    if not (columns := [n for n in named if n in lists] or named or (lists if len(lists) == 1 else [])):
        raise BadInput(
            f"{path}: which column holds the vectors? Call it `vector`; there are: {', '.join(schema.names)}"
        )
    return columns[0]


def _is_vector(kind: pa.DataType) -> bool:
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return listed and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))


def _matrix(path: Path, array: Any) -> np.ndarray:
    """(b, d) of a column; missing numbers and missing rows become NaN, which `sample` leaves out and counts."""
    if not _is_vector(array.type):
        return _stacked(path, array.to_pylist())
    if array.null_count or not pa.types.is_fixed_size_list(array.type):
        widths = np.unique(array.drop_null().value_lengths().to_numpy(zero_copy_only=False))
        if len(widths) > 1:
            raise BadInput(f"{path}: vectors of different dimensions: {widths[0]} and {widths[1]}")
        if not len(widths):
            raise BadInput(f"{path}: {len(array)} rows in a row have no vector")
        if array.null_count:
            return _stacked(
                path, [v if v is not None else [np.nan] * int(widths[0]) for v in array.to_pylist()]
            )
    width = (
        array.type.list_size
        if pa.types.is_fixed_size_list(array.type)
        else len(array[0])
        if len(array)
        else 0
    )
    return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), width)


def _stacked(path: Path, values: list[Any]) -> np.ndarray:
    rows = [_numbers(path, v) for v in values]
    if len(widths := {len(r) for r in rows}) > 1:
        raise BadInput(f"{path}: vectors of different dimensions: {', '.join(map(str, sorted(widths)))}")
    return np.array(rows, np.float32)


def _numbers(path: Path, value: Any) -> list[float]:
    """A vector, however an export writes it: a list, its JSON, or a mapping of names to one list."""
    if isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, dict):
        lists = [v for v in value.values() if isinstance(v, list)]
        if len(lists) != 1:
            raise BadInput(
                f"{path}: {len(lists)} named vectors in one row ({', '.join(map(str, value))}); export one of them"
            )
        value = lists[0]
    if not isinstance(value, list) or any(isinstance(v, (str, list, dict)) for v in value):
        raise BadInput(f"{path}: {str(value)[:40]!r} is no vector")
    return [np.nan if v is None else float(v) for v in value]


def jsonl(path: Path) -> Iterator[np.ndarray]:
    """One object per line with `vector` or `embedding` (Qdrant, pgvector), or one list per line."""
    held: list[np.ndarray] = []
    with open(path, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST), ""), 1):
            if len(line) == LONGEST:
                raise BadInput(f"{path}: line {number} is longer than {LONGEST:,} characters")
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                raise BadInput(f"{path}: line {number} is not JSON") from None
            if isinstance(value, dict):
                name = next((n for n in NAMES if n in value), None)
                if name is None:
                    raise BadInput(f"{path}: line {number} has no {NAMES[0]!r}; it has: {', '.join(value)}")
                value = value[name]
            try:
                held.append(np.array(_numbers(path, value), np.float64))
            except OverflowError:
                raise BadInput(f"{path}: line {number}: a number that no float holds") from None
            if len(held[-1]) != len(held[0]):
                raise BadInput(
                    f"{path}: vectors of different dimensions: {len(held[0])}, and {len(held[-1])} in line {number}"
                )
            if len(held) >= _rows(path, len(held[-1])):
                yield np.array(held)
                held = []
    if held:
        yield np.array(held)


# ---------------------------------------------------------------- arrays


def npy(path: Path) -> Iterator[np.ndarray]:
    """Memory-mapped; pickled objects are refused."""
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.ndim != 2 or array.dtype.kind not in "fiu":
        raise BadInput(f"{path}: {array.dtype} of shape {array.shape}, not one vector of numbers per row")
    rows = _rows(path, array.shape[1])
    for start in range(0, len(array), rows):
        yield np.asarray(array[start : start + rows])


def npz(path: Path) -> Iterator[np.ndarray]:
    """The one array of two dimensions (or that called `vectors`), read through the zip as it is unpacked."""
    with zipfile.ZipFile(path) as archive:
        check_packed(path, archive)
        shapes = {}
        for name in archive.namelist():
            with archive.open(name) as file:
                shapes[name.removesuffix(".npy")] = _npy_header(file)
        flat = [n for n, (shape, _, dtype) in shapes.items() if len(shape) == 2 and dtype.kind in "fiu"]
        arrays = [n for n in NAMES if n in flat] or flat
        if len(arrays) != 1 and not (arrays and arrays[0] in NAMES):
            raise BadInput(
                f"{path}: which array holds the vectors? Call it `vectors`; there are: {', '.join(shapes)}"
            )
        shape, fortran, dtype = shapes[arrays[0]]
        if fortran:
            raise BadInput(f"{path}: {arrays[0]} is stored by columns; save it with np.ascontiguousarray")
        with archive.open(arrays[0] + ".npy") as file:
            _npy_header(file)
            rows = _rows(path, shape[1])
            for start in range(0, shape[0], rows):
                count = min(rows, shape[0] - start) * shape[1]
                yield np.frombuffer(file.read(count * dtype.itemsize), dtype, count).reshape(-1, shape[1])


def check_packed(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise BadInput for a member that unpacks to far more than vectors do."""
    for member in archive.infolist():
        if member.file_size > max(BYTES, PACKED * member.compress_size):
            raise BadInput(
                f"{path}: {member.filename} unpacks to {member.file_size:,} bytes from {member.compress_size:,}"
            )


def _npy_header(file: Any) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    return reader(file)


# ---------------------------------------------------------------- vector stores

FLAT = (b"IxFI", b"IxF2", b"IxFl")


def faiss(path: Path) -> Iterator[np.ndarray]:
    """A flat index as `faiss.write_index` writes it: fourcc, int32 d, int64 n, 2 x int64, bool, int32, uint64, floats."""
    with open(path, "rb") as file:
        code = file.read(4)
        if code in (b"IxMp", b"IxM2"):
            _faiss_head(file)
            code = file.read(4)
        if code not in FLAT:
            raise BadInput(
                f"{path}: {code!r} is no FAISS flat index: vectors in a compressed index are not the vectors; export them"
            )
        d, n = _faiss_head(file)
        (count,) = struct.unpack("<Q", file.read(8))
        start = file.tell()
    if count != n * d or path.stat().st_size < start + 4 * count:
        raise BadInput(
            f"{path}: {n} vectors of {d} numbers were to come, but the file holds {count} (truncated?)"
        )
    array = np.memmap(path, "<f4", "r", start, (n, d))
    rows = _rows(path, d)
    for i in range(0, n, rows):
        yield np.asarray(array[i : i + rows])


def _faiss_head(file: Any) -> tuple[int, int]:
    d, n, _, _, _, metric = struct.unpack("<iqqq?i", file.read(33))
    if metric > 1:
        file.read(4)
    return d, n


HNSW = struct.Struct(
    "<i6Q"
)  # version, offset of level 0, most elements, elements, bytes per element, label offset, vector offset


def chroma(folder: Path) -> Iterator[np.ndarray]:
    """Every collection of a Chroma folder must have one dimension: the hnsw segments, then what is still queued in sqlite."""
    try:
        base = sqlite3.connect(
            (folder / "chroma.sqlite3").resolve().as_uri() + "?mode=ro&immutable=1", uri=True
        )
        names = [n for (n,) in base.execute("select name from collections")]
        seen = dict(base.execute("select segment_id, seq_id from max_seq_id"))
        segments = [s for (s,) in base.execute("select id from segments where scope = 'VECTOR'")]
    except sqlite3.Error as error:
        raise BadInput(f"{folder}: chroma.sqlite3 cannot be read: {error}") from None
    if len(names) > 1:
        raise BadInput(
            f"{folder}: {len(names)} collections ({', '.join(names)}); export one of them: encoders may differ"
        )
    for segment in segments:
        if (folder / segment / "header.bin").is_file():
            yield from _hnsw(folder / segment)
    after = max((_sequence(seen[s]) for s in segments if s in seen), default=-1)
    rows = base.execute(
        "select vector, encoding from embeddings_queue where vector is not null and seq_id > ? order by seq_id",
        (after,),
    )
    while queued := rows.fetchmany(BLOCK):
        vectors = [np.frombuffer(v, "<f4" if encoding == "FLOAT32" else "<i4") for v, encoding in queued]
        if len({len(v) for v in vectors}) > 1:
            raise BadInput(f"{folder}: vectors of different dimensions are queued in chroma.sqlite3")
        yield np.stack(vectors).astype(np.float32)


def _sequence(value: Any) -> int:
    return int.from_bytes(value, "big") if isinstance(value, bytes) else int(value)


def _hnsw(segment: Path) -> Iterator[np.ndarray]:
    """A persisted hnswlib index: what is marked deleted (a bit of the third byte of each element) is left out."""
    try:
        _, level0, _, n, size, label, offset = HNSW.unpack((segment / "header.bin").read_bytes()[: HNSW.size])
        elements = np.memmap(segment / "data_level0.bin", np.uint8, "r")
    except (OSError, ValueError, struct.error) as error:
        raise BadInput(f"{segment}: not a whole hnsw index: {error}") from None
    if not 0 < offset < label <= size or len(elements) < n * size:
        raise BadInput(f"{segment}: header.bin does not fit data_level0.bin: another version of Chroma?")
    rows = _rows(segment, size // 4)
    for start in range(0, n, rows):
        block = np.asarray(elements[start * size : min(start + rows, n) * size]).reshape(-1, size)
        block = block[(block[:, level0 + 2] & 1) == 0]
        yield np.ascontiguousarray(block[:, offset:label]).view("<f4")
