"""How much of a file is read at once, and what every reader of vectors yields."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pipelines.runtime.errors import BadInput, listed

BLOCK = 8192  # rows of a block, fewer if they are long
BYTES = 2**26  # of a block
WIDEST = 2**16  # dimensions
CHOOSE_COLUMN = "choose one (`--column`, or `columns: {vector: ...}` in the row)"

Blocks = Iterator[np.ndarray]


def height(path: Path, dimension: int) -> int:
    """Return the number of rows of a block. Raises BadInput for dimensions that no vector has."""
    if not 0 < dimension <= WIDEST:
        raise BadInput(f"{path}: vectors of {dimension:,} dimensions; from 1 to {WIDEST:,} are read")
    return max(1, min(BLOCK, BYTES // (8 * dimension)))


def parts(path: Path, rows: int, dimension: int) -> Iterator[slice]:
    """Return the rows of each block of a matrix. Raises BadInput as `height` does."""
    step = height(path, dimension)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def slices(path: Path, array: np.ndarray) -> Blocks:
    """Yield the rows of an array, which may be memory-mapped."""
    return (np.asarray(array[part]) for part in parts(path, len(array), array.shape[1]))


def stacked(path: Path, rows: Iterable[tuple[str, np.ndarray | None]]) -> Blocks:
    """Yield blocks of vectors (d,), each given with its place in the file. A vector that is None is NaN.

    Raises BadInput if dimensions differ, or if no row has a vector.
    """
    held: list[np.ndarray | None] = []
    width = None
    for place, row in rows:
        if row is not None:
            width = len(row) if width is None else width
            if len(row) != width:
                raise BadInput(f"{path}: vectors of different dimensions: {width}, and {len(row)} in {place}")
        held.append(row)
        if width is not None and len(held) >= height(path, width):
            yield _filled(held, width)
            held = []
    if not held:
        return
    if width is None:
        raise BadInput(f"{path}: none of {len(held)} rows has a vector")
    yield _filled(held, width)


def _filled(rows: list[np.ndarray | None], width: int) -> np.ndarray:
    missing = np.full(width, np.nan)
    return np.array([missing if row is None else row for row in rows])


def one_of(path: Path, what: str, names: list[str], wanted: str | None) -> int:
    """Return the place of the name that is wanted, or of the only one. Raises BadInput."""
    found = [i for i, name in enumerate(names) if wanted in (None, name)]
    if len(found) != 1:
        hint = "choose one (`--collection`, or `collection` in the row)"
        asked = f"none is called {wanted!r}" if wanted and not found else hint
        raise BadInput(f"{path}: {len(names)} {what} ({listed(names)}): {asked}")
    return found[0]
