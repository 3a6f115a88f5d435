"""Vectors without text, as in a leaked vector database, in any format that `formats` reads."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from pipelines.corpora.core.files import located
from pipelines.corpora.sources.vectors import formats
from pipelines.corpora.sources.vectors.limits import Blocks
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading
from pipelines.study import VectorsCorpus


def rows(p: VectorsCorpus) -> pl.DataFrame:
    """Return id, text (null), vector (n, d) as Array(Float32, d), and split and document if there are any.

    `columns` maps `vector`, `id` and `split` to the file's own names. Rows are numbered if there is no id.
    Raises BadInput, which names the file, for vectors of different dimensions, vectors that are zero or not
    finite, or fewer than two vectors.
    """
    path = located(p.path)
    vectors = Stored(path, p.columns.get("vector"), p.collection).matrix()
    _check(path, vectors)
    numbers = [f"{path.stem}-{i}" for i in range(len(vectors))]
    frame = pl.DataFrame({"id": numbers}).with_columns(text=pl.lit(None, pl.String))
    for name, column, usual in (
        ("id", p.columns.get("id"), ("id", "ids")),
        ("split", p.columns.get("split"), ("split",)),
        ("document", p.document, ()),
    ):
        if values := formats.column_as_text(path, column, usual):
            if len(values) != len(vectors):
                raise BadInput(f"{path}: {len(vectors)} vectors, but {len(values)} values of {name}")
            frame = frame.with_columns(pl.Series(name, values))
    return frame.with_columns(vector=pl.Series(vectors, dtype=pl.Array(pl.Float32, vectors.shape[1])))


@dataclass(frozen=True)
class Stored:
    """Vectors of a file or folder. `column` and `collection` choose among several (`formats.blocks`)."""

    path: Path
    column: str | None = None
    collection: str | None = None

    def blocks(self) -> Blocks:
        """Yield them as arrays (b, d) float32. Raises BadInput."""
        with np.errstate(over="ignore", invalid="ignore"):
            for block in formats.blocks(self.path, self.column, self.collection):
                yield np.asarray(block, np.float32)

    def matrix(self) -> np.ndarray:
        """Return all of them (n, d). Raises BadInput, also if there are none."""
        with reading(self.path, "not one vector of numbers per row"):
            blocks = [*self.blocks()]
        if not sum(map(len, blocks)):
            raise BadInput(f"{self.path}: no vectors")
        return np.concatenate(blocks)


def _check(path: Path, vectors: np.ndarray) -> None:
    if len(vectors) < 2:
        raise BadInput(f"{path}: {len(vectors)} vectors are too few to align")
    squares = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    for bad, what in ((~np.isfinite(squares), "not finite"), (squares == 0, "zero")):
        if bad.any():
            raise BadInput(f"{path}: {bad.sum()} vectors are {what}, the first in row {bad.argmax()}")
