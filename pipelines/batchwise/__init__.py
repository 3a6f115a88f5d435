"""Functions from an Arrow table (or record batch) to an Arrow table, for more rows than one file holds.

Each factory loads what its function needs once. The function then depends on its batch only. A loop over
files, Ray Data's `map_batches` (`batch_format="pyarrow"`) and Spark's `mapInArrow` can call it. The column
that a function reads is replaced by its results; all other columns are kept. Bad input raises BadInput, which
names the row of the batch.
"""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch

from pipelines.aligners.core.translator import Translator
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput, listed
from pipelines.study import Encoder

pc: Any = pyarrow.compute  # its functions are made at import
Batch = Any  # a pa.Table or a pa.RecordBatch
Function = Callable[[Batch], pa.Table]


def embed(folder: Path, row: Encoder, column: str = "text", device: str = "auto") -> Function:
    """Replace `column` (texts) by `vector`, the encoder's raw output: a fixed-size list of `row.store`.

    The bytes are those that `pipelines.embed` writes for a corpus of the batch's texts. The function raises
    BadInput for an empty text, and for a vector that is zero or not finite.
    """
    # Their imports take seconds; `translate` needs none of them.
    from pipelines.encoders.encode import encode
    from pipelines.encoders.loading import load

    loaded = load(folder, row, resolve(device))

    def function(batch: Batch) -> pa.Table:
        texts = _column(batch, column)
        check_texts(texts.type, f"column {column!r}")
        _refuse(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True), "texts are empty")
        with TemporaryDirectory() as parts:
            vectors = encode(loaded, texts.to_pylist(), row, Path(parts)).vectors
        squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        _refuse(pa.array(~(np.isfinite(squares) & (squares > 0))), "vectors are zero or not finite")
        return _replaced(batch, column, vectors)

    return function


def translate(translator: Translator, column: str = "vector", device: str = "auto") -> Function:
    """Replace `column` (source vectors) by `vector`, translated: a fixed-size list of float32."""
    there, width = resolve(device), translator.source_dim
    translator = translator.to(there).eval()

    @torch.inference_mode()
    def function(batch: Batch) -> pa.Table:
        array = _column(batch, column)
        check_vectors(array.type, f"column {column!r}")
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        wrong = pc.fill_null(pc.not_equal(pc.list_value_length(array), width), True)
        _refuse(wrong, f"vectors are not of dimension {width}")
        flat = pc.list_flatten(array).cast(pa.float32(), safe=False).to_numpy(zero_copy_only=False)
        vectors = flat.reshape(-1, width)
        squares = np.einsum("ij,ij->i", vectors, vectors)  # in float32, as the translator computes
        _refuse(pa.array(~np.isfinite(squares)), "vectors are too large or not finite")
        translated = translator(torch.from_numpy(vectors.copy()).to(there))
        return _replaced(batch, column, translated.cpu().numpy())

    return function


def check_texts(kind: pa.DataType, what: str) -> None:
    """Raise BadInput unless a column of this type has texts."""
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise BadInput(f"{what} is {kind}, not text")


def check_vectors(kind: pa.DataType, what: str) -> None:
    """Raise BadInput unless a column of this type has vectors: lists of numbers."""
    lists = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not lists or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise BadInput(f"{what} is {kind}, not vectors (lists of numbers)")


def _column(batch: Batch, name: str) -> Any:
    if name not in batch.schema.names:
        raise BadInput(f"there is no column {name!r}; there are: {listed(batch.schema.names)}")
    return batch.column(name)


def _refuse(bad: Any, what: str) -> None:
    """Raise BadInput if any row is bad, and name the first."""
    if count := pc.sum(bad).as_py():
        raise BadInput(f"{count} {what}, the first in row {pc.index(bad, True).as_py()}")


def _replaced(batch: Batch, column: str, vectors: np.ndarray) -> pa.Table:
    """Return the batch without `column` and without any old `vector`, and with the new `vector`."""
    kept = {n: batch.column(n) for n in batch.schema.names if n not in (column, "vector")}
    made = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    return pa.table({**kept, "vector": made})
