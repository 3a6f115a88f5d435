"""Verbs as functions from an Arrow table (or record batch) to an Arrow table: for more rows than one file holds.

A factory loads once what its function needs; the function then depends on its batch alone. A loop over files, Ray Data's
`map_batches` (`batch_format="pyarrow"`) and Spark's `mapInArrow` can call it. The column that a function reads is replaced
by what it makes; all others are carried along. Bad input raises BadInput and names the row of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.translator import Translator
from pipelines.encoders.encode import encode
from pipelines.encoders.loading import load as load_encoder
from pipelines.inverters import Space
from pipelines.measures import attributes
from pipelines.measures.vectors import neighbours
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Encoder

pc: Any = pyarrow.compute  # its functions are made when it is imported
Batch = Any  # a pa.Table or a pa.RecordBatch
Function = Callable[[Batch], pa.Table]


def embed(folder: Path, row: Encoder, column: str = "text", device: str = "auto") -> Function:
    """`column` (text) -> `vector`, the encoder's raw output, a fixed-size list of `row.store`.

    To the byte what `pipelines.embed` writes for a corpus of the batch's texts. The function raises BadInput for an empty
    text and for a vector that is zero or not finite.
    """
    loaded = load_encoder(folder, row, resolve(device))

    def function(batch: Batch) -> pa.Table:
        texts = batch.column(column)
        _refuse(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True), "texts are empty")
        with TemporaryDirectory() as parts:
            vectors = encode(loaded, texts.to_pylist(), row, Path(parts)).vectors
        squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
        _refuse(pa.array(~(np.isfinite(squares) & (squares > 0))), "vectors are zero or not finite")
        return _replaced(batch, column, vector=_fixed(vectors))

    return function


def translate(translator: Translator, column: str = "vector", device: str = "auto") -> Function:
    """`column` (vectors of the source) -> `vector`, translated, a fixed-size list of float32."""
    read = _reader(translator, column, device)
    return lambda batch: _replaced(batch, column, vector=_fixed(read(batch).cpu().numpy()))


def label(
    translator: Translator,
    labels: Sequence[str],
    label_vectors: Tensor,
    column: str = "vector",
    device: str = "auto",
) -> Function:
    """`column` -> `label`, whose vector (one row of (labels, e), target space) is nearest to the translated one, and `cosine`."""
    read, near = _reader(translator, column, device), _labeller(labels, label_vectors)
    return lambda batch: _replaced(batch, column, **near(read(batch)))


def audit(
    translator: Translator,
    labels: Sequence[str],
    label_vectors: Tensor,
    ids: Sequence[str],
    known: Tensor,
    nearest: int = 3,
    column: str = "vector",
    device: str = "auto",
) -> Function:
    """What an audit reads from every vector: `label` and `cosine`, and of the attacker's own texts (`ids`, vectors `known`
    (m, e)) the `nearest` ones: `texts` (their ids, nearest first) and `text_cosines`, centred on those texts."""
    read, near = _reader(translator, column, device), _labeller(labels, label_vectors)
    space = Space.of(known.to(resolve(device)))
    keys, names = space(known), pa.array(ids, pa.string())

    def function(batch: Batch) -> pa.Table:
        translated = read(batch)
        queries = space(translated)
        order = (
            neighbours(queries, keys, nearest) if len(queries) else torch.empty(0, nearest, dtype=torch.long)
        )
        cosines = torch.einsum("ne,nke->nk", queries, keys[order])
        offsets = pa.array(range(0, order.numel() + 1, order.shape[1]), pa.int32())
        texts, of_texts = (
            names.take(pa.array(order.flatten().cpu().numpy())),
            pa.array(cosines.flatten().cpu().numpy()),
        )
        lists = {
            k: pa.ListArray.from_arrays(offsets, v) for k, v in (("texts", texts), ("text_cosines", of_texts))
        }
        return _replaced(batch, column, **near(translated), **lists)

    return function


def dimension(kind: pa.DataType) -> int | None:
    """Of a column of vectors the dimension, where its type says it; None: rows are lists of any length. Raises BadInput."""
    if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type):
        return kind.list_size
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_floating(kind.value_type):
        return None
    raise BadInput(f"{kind} are no vectors (lists of floating-point numbers)")


def source_dimension(translator: Translator) -> int:
    """The dimension of the vectors that it translates."""
    config = translator.config
    return config["source_dim"] if "source_dim" in config else config["dims"][config["source"]]


# ---------------------------------------------------------------- from Arrow and back


def _reader(translator: Translator, column: str, device: str) -> Callable[[Batch], Tensor]:
    """A batch's vectors, translated: (n, e), on the device."""
    there = resolve(device)
    translator = translator.to(there).eval()
    width = source_dimension(translator)

    @torch.inference_mode()
    def read(batch: Batch) -> Tensor:
        array = batch.column(column)
        array = array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        _refuse(
            pc.fill_null(pc.not_equal(pc.list_value_length(array), width), True),
            f"vectors are not of dimension {width}",
        )
        flat = pc.list_flatten(array).cast(pa.float32()).to_numpy(zero_copy_only=False)
        return translator(torch.from_numpy(flat.copy()).view(-1, width).to(there))

    return read


def _labeller(labels: Sequence[str], label_vectors: Tensor) -> Callable[[Tensor], dict[str, Any]]:
    names = pa.array(labels, pa.string())

    def near(translated: Tensor) -> dict[str, Any]:
        targets = label_vectors.to(translated.device)
        first = attributes.order(translated, targets)[:, 0]
        cosines = (normalize(translated, dim=1) * normalize(targets.float(), dim=1)[first]).sum(1)
        return {"label": names.take(pa.array(first.cpu().numpy())), "cosine": pa.array(cosines.cpu().numpy())}

    return near


def _refuse(bad: Any, what: str) -> None:
    """Raise BadInput if any of the rows is bad, naming the first."""
    if count := pc.sum(bad).as_py():
        raise BadInput(f"{count} {what}, the first in row {pc.index(bad, True).as_py()}")


def _fixed(vectors: np.ndarray) -> pa.FixedSizeListArray:
    return pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])


def _replaced(batch: Batch, column: str, **made: Any) -> pa.Table:
    """The batch without `column` and with what was made, in the place of columns of those names."""
    kept = {n: batch.column(n) for n in batch.schema.names if n != column and n not in made}
    return pa.table(kept | made)
