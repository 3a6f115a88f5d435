"""Readers of vector stores: FAISS, hnswlib, Chroma and sqlite-vec, all without their libraries. Nothing of a
file is run: no pickle, and of a database only plain tables are read.

Checked against faiss-cpu 1.15, hnswlib 0.8, chromadb 1.5.9 and sqlite-vec 0.1.9.
"""

import itertools
import re
import sqlite3
import struct
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from pipelines.corpora.sources.vectors.limits import (
    BYTES,
    CHOOSE_COLUMN,
    Blocks,
    block_slices,
    blocks_of_array,
    blocks_of_rows,
    one_of,
    rows_per_block,
)
from pipelines.runtime.errors import BadInput, listed

# ---------------------------------------------------------------- indexes


def index(path: Path, column: str | None) -> Blocks:
    """Yield the vectors of an index of FAISS or hnswlib.

    The latter, as `save_index` writes it, begins with an offset of 0: a head of 96 bytes, then level 0.
    """
    with open(path, "rb") as file:
        head = file.read(48)
    if head[:4] == bytes(4):
        return _elements(path, head, np.memmap(path, np.uint8, "r", 96))
    return faiss(path)


FLAT = (b"IxFI", b"IxF2", b"IxFl")


def faiss(path: Path) -> Blocks:
    """Yield the vectors of a flat, an IVF-flat or an HNSW-flat index, also in an IndexIDMap, as
    `faiss.write_index` writes it.

    The file has a code of 4 bytes, a head, the number of floats as uint64, and the floats. HNSW has its graph
    before its flat index. IVF has its centroids, as a flat or an HNSW-flat index, and then a list for each.
    """
    with open(path, "rb") as file:
        code = _code(path, file)
        if not code:
            raise BadInput(f"{path}: an empty file")
        if code in (b"IxMp", b"IxM2"):
            _faiss_head(file)
            code = _code(path, file)
        if code == b"IwFl":
            yield from _faiss_lists(path, file)
            return
        if code not in FLAT:
            hint = "a compressed index does not hold its vectors; export them"
            raise BadInput(f"{path}: {code!r} is no FAISS index of whole vectors: {hint}")
        dimension, rows = _faiss_head(file)
        if _count(path, file, 4) != rows * dimension:
            raise BadInput(f"{path}: its numbers are not {rows} vectors of {dimension} numbers")
        yield from blocks_of_array(path, np.memmap(path, "<f4", "r", file.tell(), (rows, dimension)))


def _code(path: Path, file: BinaryIO) -> bytes:
    """Return the code of the next index: of an HNSW-flat index, that of the flat one after its graph."""
    code = file.read(4)
    if code == b"IHNf":
        _faiss_head(file)
        for size in (8, 4, 4, 8, 4):  # probabilities, neighbours per level, levels, offsets, neighbours
            _skip(path, file, size)
        file.seek(4 * 5, 1)  # entry point, highest level, efConstruction, efSearch, beam
        code = file.read(4)
    return code


def _faiss_lists(path: Path, file: BinaryIO) -> Blocks:
    """Yield the vectors of an IVF-flat index, after its code, in the order of their ids."""
    dimension, _ = _faiss_head(file)
    file.seek(16, 1)  # number of lists, probes
    direct_map = lists = b""
    if _code(path, file) in FLAT:  # the centroids
        _faiss_head(file)
        _skip(path, file, 4)
        direct_map = file.read(1)
        _skip(path, file, 8)
        lists = file.read(4)
    if direct_map == b"\2" or lists != b"ilar":
        raise BadInput(f"{path}: centroids, direct map or lists are not plain arrays; export the vectors")
    file.seek(16, 1)  # number of lists, bytes of a vector
    kind = file.read(4)
    sizes = np.frombuffer(file.read(8 * _count(path, file, 8)), "<u8").tolist()
    if kind == b"sprs":  # pairs of a list and its size, in the order of the lists
        sizes = sizes[1::2]
    width, places, ids = 4 * dimension, [], []  # bytes of a vector, where it begins, its id
    for size in sizes:
        _check_rest(path, file, size * (width + 8))
        places.append(file.tell() + width * np.arange(size))
        file.seek(size * width, 1)
        ids.append(np.frombuffer(file.read(8 * size), "<i8"))
    content = np.memmap(path, np.uint8, "r")
    ordered = np.concatenate(places)[np.concatenate(ids).argsort()]
    for part in block_slices(path, len(ordered), dimension):
        rows = np.lib.stride_tricks.sliding_window_view(content, width)  # one that begins at each byte
        yield rows[ordered[part]].view("<f4")


def _count(path: Path, file: BinaryIO, size: int) -> int:
    """Return the number of items of `size` bytes that follow it. Raises BadInput beyond the file's end."""
    (count,) = struct.unpack("<Q", file.read(8))
    _check_rest(path, file, count * size)
    return count


def _check_rest(path: Path, file: BinaryIO, expected: int) -> None:
    if file.tell() + expected > path.stat().st_size:
        raise BadInput(f"{path}: {expected} more bytes were expected, but the file is shorter (truncated?)")


def _skip(path: Path, file: BinaryIO, size: int) -> None:
    """Skip a vector of items of `size` bytes after their number."""
    file.seek(_count(path, file, size) * size, 1)


def _faiss_head(file: BinaryIO) -> tuple[int, int]:
    """Return (dimension, rows) from int32, int64, 2 unused int64, bool, int32 metric and its parameter."""
    dimension, rows, _, _, _, metric = struct.unpack("<iqqq?i", file.read(33))
    if metric > 1:
        file.read(4)
    return dimension, rows


# ---------------------------------------------------------------- databases

CHROMA = "chroma.sqlite3"
READ = ("collections", "max_seq_id", "segments", "embeddings_queue")  # tables of Chroma
DELETE = 3  # an operation of the queue
STEPS = 10_000  # of SQLite's machine between two calls of the progress handler
VEC0 = re.compile(r"\s*create\s+virtual\s+table\b.*?\busing\s+vec0\s*\(", re.IGNORECASE | re.DOTALL)
FIELD = re.compile(r"[,(]\s*(\w+)\s+(float|f32|int8|i8|bit)\s*\[\s*(\d{1,9})\s*\]", re.IGNORECASE)
KINDS = {"float": "<f4", "f32": "<f4", "int8": "<i1", "i8": "<i1"}


def sqlite(path: Path, column: str | None, collection: str | None) -> Blocks:
    """Yield the vectors of a database file: that of Chroma, or one with a table of sqlite-vec."""
    return chroma(path.parent, collection) if path.name == CHROMA else sqlite_vec(path, column, collection)


def sqlite_vec(path: Path, column: str | None, collection: str | None) -> Blocks:
    """Yield the rows of a virtual table vec0. Its own tables hold them: chunks of vectors, and for each chunk
    one bit per row that says whether the row is there.
    """
    with closing(_database(path)) as base:
        made = _tables(base)
        names = [name for name, sql in made.items() if VEC0.match(sql)]
        if not names:
            raise BadInput(f"{path}: no table of sqlite-vec in it; export its rows as JSON lines")
        name = names[one_of(path, "tables of sqlite-vec", names, collection)]
        place, kind, width = _field(path, made[name], column)
        shadows = f"{name}_chunks", f"{name}_vector_chunks{place:02}"
        _check_plain(path, made, shadows)
        chunks, vectors = ('"' + shadow.replace('"', '""') + '"' for shadow in shadows)
        joined = f"{chunks} c join {vectors} v on v.rowid = c.chunk_id order by c.chunk_id"
        rows_per_block(path, width)
        for there, packed in base.execute(f"select c.validity, v.vectors from {joined}"):
            rows = np.frombuffer(packed, kind).reshape(-1, width)
            bits = np.unpackbits(np.frombuffer(there, np.uint8), bitorder="little")
            yield rows[bits.astype(bool)]


def _field(path: Path, sql: str, column: str | None) -> tuple[int, str, int]:
    """Return number, type and width of a column of vectors of a table vec0."""
    fields = [(name, kind.lower(), int(width)) for name, kind, width in FIELD.findall(sql)]
    names = [name for name, kind, _ in fields if kind in KINDS]
    if fields and not names:
        raise BadInput(f"{path}: its columns of vectors are bits, which are not read")
    usable = [i for i, (name, kind, _) in enumerate(fields) if kind in KINDS and column in (None, name)]
    if len(usable) != 1:
        raise BadInput(f"{path}: {len(usable)} columns of numbers fit ({listed(names)}): {CHOOSE_COLUMN}")
    _, kind, width = fields[usable[0]]
    return usable[0], KINDS[kind], width


def chroma(folder: Path, collection: str | None) -> Blocks:
    """Yield the vectors of a collection of a Chroma folder: hnsw segments, then the queue in sqlite.

    What the queue deletes or replaces in a segment is still read: a pickle has the ids of segments.
    """
    with closing(_database(folder / CHROMA)) as base:
        _check_plain(folder / CHROMA, _tables(base), READ)
        made = base.execute("select name, id from collections").fetchall()
        _, wanted = made[one_of(folder, "collections", [name for name, _ in made], collection)]
        seen = dict(base.execute("select segment_id, seq_id from max_seq_id"))
        of_vectors = "select id from segments where scope = 'VECTOR' and collection = ?"
        segments = [name for (name,) in base.execute(of_vectors, (wanted,))]
        for segment in segments:
            place = (folder / str(segment)).resolve()
            if place.parent == folder.resolve() and (place / "header.bin").is_file():
                yield from _segment(place)
            elif segment in seen and _sequence(seen[segment]) > 0:
                raise BadInput(
                    f"{folder}: most vectors are in folder {segment}, which is missing: copy it, too"
                )
        after = max((_sequence(seen[s]) for s in segments if s in seen), default=-1)
        # Keep the last entry of each id: with max(), SQLite takes the other columns from that row.
        queued = base.execute(
            "select vector, encoding, operation, max(seq_id) as at from embeddings_queue"
            " where seq_id > ? and substr(topic, ?) = ?"  # a topic ends with its collection
            f" and (vector is not null or operation = {DELETE}) group by id order by at",
            (after, -len(wanted) - 1, f"/{wanted}"),
        )
        kept = (row[:2] for row in queued if row[2] != DELETE)
        rows = (np.frombuffer(v, "<f4" if encoding == "FLOAT32" else "<i4") for v, encoding in kept)
        yield from blocks_of_rows(folder, ((f"the queue of {CHROMA}", row) for row in rows))


def _database(path: Path) -> sqlite3.Connection:
    """Open a database to read.

    SQLite stops once all queries together took about one step per byte of the file, so a hostile file cannot
    run for ever.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.is_file() and log.stat().st_size:
        hint = f"sqlite3 {path.name} 'pragma wal_checkpoint(truncate)'"
        raise BadInput(f"{path}: rows are still in {log.name}: {hint}")
    base = sqlite3.connect(path.resolve().as_uri() + "?mode=ro&immutable=1", uri=True)
    base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, BYTES)
    calls, most = itertools.count(1), path.stat().st_size // STEPS + 1000
    base.set_progress_handler(lambda: next(calls) > most, STEPS)
    return base


def _tables(base: sqlite3.Connection) -> dict[str, str]:
    """Return the statement that made each table."""
    found = base.execute("select name, sql from sqlite_master where type = 'table'")
    return {str(name): str(sql) for name, sql in found}


def _check_plain(path: Path, made: dict[str, str], names: Iterable[str]) -> None:
    """Raise BadInput for what is no plain table: a view may have rows without end."""
    for name in names:
        if not made.get(name, "").upper().startswith("CREATE TABLE"):
            raise BadInput(f"{path}: there is no table {name}")


def _sequence(value: Any) -> int:
    return int.from_bytes(value, "big") if isinstance(value, bytes) else int(value)


def _segment(segment: Path) -> Blocks:
    """Yield the vectors of Chroma's own files of an hnswlib index."""
    head = (segment / "header.bin").read_bytes()[4:52]  # after the version
    return _elements(segment, head, np.memmap(segment / "data_level0.bin", np.uint8, "r"))


def _elements(path: Path, head: bytes, rows: np.ndarray) -> Blocks:
    """Yield the vectors of level 0 of hnswlib. A bit of a row's third byte marks it as deleted.

    `head`: offset of level 0, capacity, number of rows, bytes of a row, and where in it label and vector
    begin.
    """
    level0, _, count, size, label, offset = struct.unpack("<6Q", head)
    if not 0 < offset < label <= size or len(rows) < count * size:
        raise BadInput(f"{path}: not a whole hnsw index: its header does not fit its rows")
    elements = rows[: count * size].reshape(count, size)
    for part in block_slices(path, count, (label - offset) // 4):
        block = elements[part]
        kept = block[:, offset:label][(block[:, level0 + 2] & 1) == 0]
        yield np.ascontiguousarray(kept).view("<f4")
