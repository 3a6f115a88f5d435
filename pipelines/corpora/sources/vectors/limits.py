"""How much of a file is read at once, and what every reader of vectors yields."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from pipelines.runtime.errors import BadInput, listed

BLOCK = 8192  # rows of a block, fewer if they are long
BYTES = 2**26  # of a block
WIDEST = 2**16  # dimensions

Blocks = Iterator[np.ndarray]


def height(path: Path, dimension: int) -> int:
    """Return the number of rows of a block. Raises BadInput for more dimensions than a vector has."""
    if dimension > WIDEST:
        raise BadInput(f"{path}: vectors of {dimension:,} dimensions; at most {WIDEST:,} are read")
    return max(1, min(BLOCK, BYTES // (8 * max(dimension, 1))))


def slices(path: Path, array: np.ndarray) -> Blocks:
    """Yield the rows of an array, which may be memory-mapped."""
    step = height(path, array.shape[1])
    for start in range(0, len(array), step):
        yield np.asarray(array[start : start + step])


def one_of(path: Path, what: str, names: list[str], wanted: str | None) -> int:
    """Return the place of the name that is wanted, or of the only one. Raises BadInput."""
    found = [i for i, name in enumerate(names) if wanted in (None, name)]
    if len(found) != 1:
        asked = f"none is called {wanted!r}" if wanted and not found else "choose one with --collection"
        raise BadInput(f"{path}: {len(names)} {what} ({listed(names)}): {asked}")
    return found[0]
