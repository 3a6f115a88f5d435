"""Vectors without text, as in a leaked vector database: parquet, a folder of parquet, arrow, npy or npz."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from pipelines.corpora.dumps import check_packed
from pipelines.corpora.path import located
from pipelines.corpora.shards import shards, table
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading
from pipelines.study import VectorsCorpus

VECTOR = ("vector", "vectors", "embedding", "embeddings")
ID = ("id", "ids")


def rows(p: VectorsCorpus) -> pl.DataFrame:
    """id (made from the row number where there is none), text (null), vector (n, d) as Array(Float32, d), split if
    there is one.

    `columns` maps `vector`, `id` and `split` to the file's own names. Raises BadInput, naming file and row, for
    vectors of different dimensions, vectors that are zero or not finite, repeated ids, or fewer than two vectors.
    """
    path = located(p.path)
    match "folder" if path.is_dir() else path.suffix.lower():
        case "folder":
            columns = _shards(path, p)
        case ".npy" | ".npz":
            columns = _numpy(path)
        case ".parquet" | ".pq" | ".arrow" | ".feather" | ".ipc":
            columns = _table(path)
        case suffix:
            raise BadInput(
                f"{path}: vectors are read from parquet, arrow, npy or npz, not {suffix or 'a file without an extension'}"
            )
    with reading(path, "not one vector of numbers per row"):
        array = _array(path, columns[_chosen(path, p, "vector", VECTOR, columns)])
        named = _chosen(path, p, "id", ID, columns)
        ids = _words(path, named, columns) if named else [f"{path.stem}-{i}" for i in range(len(array))]
        _check(path, array, ids)
        frame = {"id": ids, "text": pl.repeat(None, len(ids), dtype=pl.String, eager=True)}
        if split := _chosen(path, p, "split", ("split",), columns):
            frame["split"] = pl.Series(_words(path, split, columns), dtype=pl.String)
    return pl.DataFrame({**frame, "vector": pl.Series(array, dtype=pl.Array(pl.Float32, array.shape[1]))})


def _words(path: Path, name: str, columns: dict) -> list[str]:
    values = list(columns[name])
    if None in values:
        raise BadInput(
            f"{path}: {values.count(None)} rows have no {name}, the first is row {values.index(None) + 1}"
        )
    return [str(value) for value in values]


def _numpy(path: Path) -> dict:
    """The arrays of a file by name; pickled objects are refused."""
    with reading(path, "not a numpy file of numbers"):
        if path.suffix.lower() == ".npz":
            with zipfile.ZipFile(path) as archive:
                check_packed(path, archive)
        loaded = np.load(path, allow_pickle=False, mmap_mode="r" if path.suffix.lower() == ".npy" else None)
        return (
            {"vector": loaded}
            if isinstance(loaded, np.ndarray)
            else {name: loaded[name] for name in loaded.files}
        )


def _shards(folder: Path, p: VectorsCorpus) -> dict:
    """The columns of all parquet files of a folder, in order. Raises BadInput naming the first of another dimension."""
    files = shards(folder)
    if not files:
        raise BadInput(f"{folder}: a folder with no *.parquet in it")
    tables = [_table(file) for file in files]
    name = _chosen(folder, p, "vector", VECTOR, tables[0])
    widths = {
        file: _matrix(file, t[name].head(1)).shape[1]
        for file, t in zip(files, tables, strict=True)
        if len(t[name])
    }
    for file, width in widths.items():
        if width != (first := next(iter(widths.values()))):
            raise BadInput(
                f"{file}: vectors of {width} dimensions; in {next(iter(widths)).name} they have {first}"
            )
    return {column: pl.concat([table[column] for table in tables]) for column in tables[0]}


def _table(path: Path) -> dict:
    with reading(path, f"not a whole {path.suffix[1:]} file"):
        frame = table(path) if path.suffix.lower() in (".parquet", ".pq") else _arrow(path)
    return {name: frame[name] for name in frame.columns}


def _arrow(path: Path) -> pl.DataFrame:
    """An Arrow IPC file, or stream."""
    try:
        table = pa.ipc.open_file(pa.memory_map(str(path))).read_all()
    except pa.ArrowInvalid:
        table = pa.ipc.open_stream(pa.memory_map(str(path))).read_all()
    table.validate(full=True)
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def _chosen(path: Path, p: VectorsCorpus, ours: str, usual: tuple[str, ...], columns: dict) -> str:
    """The name of the file's column for one of ours; "" where a column that may be absent is."""
    if ours in p.columns:
        if p.columns[ours] not in columns:
            raise BadInput(f"{path}: there is no column {p.columns[ours]!r}; there are: {', '.join(columns)}")
        return p.columns[ours]
    candidates = [name for name in usual if name in columns]
    if not candidates and ours == "vector":
        if len(columns) == 1:
            return next(iter(columns))
        raise BadInput(
            f"{path}: which column holds the vectors? `columns: {{vector: ...}}`; there are: {', '.join(columns)}"
        )
    return candidates[0] if candidates else ""


def _array(path: Path, column: np.ndarray | pl.Series) -> np.ndarray:
    """(n, d) float32."""
    if isinstance(column, pl.Series):
        column = _matrix(path, column)
    if column.ndim != 2 or column.dtype.kind not in "fiu":
        raise BadInput(f"{path}: {column.dtype} of shape {column.shape}, not one vector of numbers per row")
    with np.errstate(over="ignore"):  # `_check` names what is not finite
        return np.ascontiguousarray(column, dtype=np.float32)


def _matrix(path: Path, column: pl.Series) -> np.ndarray:
    """(n, d) from a column of lists; what is missing in one is NaN."""
    if not isinstance(column.dtype, (pl.List, pl.Array)):
        raise BadInput(f"{path}: column {column.name!r} is {column.dtype}, not a list of numbers")
    if n := column.null_count():
        raise BadInput(
            f"{path}: {n} rows have no vector, the first in row {int(column.is_null().arg_max() or 0) + 1}"
        )
    if isinstance(column.dtype, pl.List):
        lengths = column.list.len()
        if lengths.n_unique() > 1:
            at = int((lengths != lengths[0]).arg_max() or 0)
            first, other = lengths[0], lengths[at]
            raise BadInput(
                f"{path}: vectors of different dimensions: {first} in row 1, {other} in row {at + 1}"
            )
    return column.explode().fill_null(float("nan")).to_numpy().reshape(len(column), -1)


def _check(path: Path, array: np.ndarray, ids: list[str]) -> None:
    if len(ids) != len(array):
        raise BadInput(f"{path}: {len(array)} vectors, but {len(ids)} ids")
    if len(array) < 2:
        raise BadInput(f"{path}: {len(array)} vectors are nothing to align")
    squares = np.einsum("ij,ij->i", array, array, dtype=np.float64)
    for bad, word in ((~np.isfinite(squares), "not finite"), (squares == 0, "zero")):
        if bad.any():
            raise BadInput(
                f"{path}: {bad.sum()} vectors are {word}, the first in row {int(bad.argmax()) + 1}"
            )
    if len(set(ids)) < len(ids):
        raise BadInput(f"{path}: ids are not unique")
