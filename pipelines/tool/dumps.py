"""A sample of the vectors of a dump, for an audit."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.corpora.sources.vectors import Stored
from pipelines.fitting.arrays import distinct_rows, near_centre
from pipelines.runtime.errors import BadInput

HELD = 2**29  # bytes of vectors that are kept
USUAL = 2.0**20  # vectors of median lengths from 1 / USUAL to USUAL stay; aligners fail on tiny values


@dataclass(frozen=True)
class Sample:
    """Hold the vectors that are kept of a dump, and counts of the others."""

    vectors: np.ndarray  # (n, d) float32, drawn uniformly; distinct, finite, not zero, none far off
    rows: int  # of the dump
    left_out: int  # rows that are zero or not finite
    repeated: int  # drawn rows that equal one before
    far_off: int  # drawn rows that are not near the centre
    places: np.ndarray  # (n,) rows of the dump, from 0


def sample(
    path: Path, limit: int, seed: int = 0, column: str | None = None, collection: str | None = None
) -> Sample:
    """Draw at most `limit` vectors by reservoir sampling, in one pass.

    Raises BadInput, which names the file, for an unknown format, dimensions that differ, fewer than two
    vectors, or vectors that are all the same.
    """
    generator, rows, left_out = np.random.default_rng(seed), 0, 0
    held, keys, places = np.zeros((0, 0), np.float32), np.zeros(0), np.zeros(0, np.int64)
    for block in Stored(path, column, collection).blocks():
        rows, dimension = rows + len(block), block.shape[1]
        limit = min(limit, HELD // (4 * dimension))
        squares = np.einsum("ij,ij->i", block, block, dtype=np.float64)
        good = np.isfinite(squares) & (squares > 0)
        left_out += int((~good).sum())
        block = block[good]
        held = np.concatenate([held.reshape(-1, dimension), block])
        keys = np.concatenate([keys, generator.random(len(block))])
        places = np.concatenate([places, rows - len(good) + good.nonzero()[0]])
        if len(keys) > 2 * limit:
            kept = np.sort(np.argpartition(keys, limit)[:limit])
            held, keys, places = held[kept], keys[kept], places[kept]
    if rows < 2:
        raise BadInput(f"{path}: {rows} vector{'' if rows == 1 else 's'}: nothing to align")
    if len(held) < 2:
        raise BadInput(f"{path}: {left_out} of {rows} vectors are zero or not finite: too few are left")
    kept = np.sort(np.argsort(keys)[:limit])
    held, places = held[kept], places[kept]
    distinct = distinct_rows(held)
    if len(distinct) < 2:
        raise BadInput(f"{path}: all {len(held)} vectors are the same")
    vectors, kept = without_outliers(held[distinct])
    repeated, far_off = len(held) - len(distinct), len(distinct) - len(vectors)
    return Sample(vectors, rows, left_out, repeated, far_off, places[distinct][kept])


def without_outliers(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows of (n, d), all distinct, that are kept, as float32, and their mask (n,).

    They are `near_centre`. If their median length is not USUAL, all are scaled by a power of two, which
    changes no direction.
    """
    kept = near_centre(vectors)
    wide = vectors[kept].astype(np.float64)
    length = np.median(np.linalg.norm(wide, axis=1))
    if 1 / USUAL <= length <= USUAL:
        return vectors[kept], kept
    return (wide * 2.0 ** -np.round(np.log2(length))).astype(np.float32), kept
