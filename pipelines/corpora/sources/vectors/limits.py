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
    held: list[np.ndarray] = []
    # waiting: rows without a vector at the start: their width is not known yet
    waiting, missing, step = 0, np.empty(0), 0
    for place, row in rows:
        if not step:
            if row is None:
                waiting += 1
                continue
            step, missing = height(path, len(row)), np.full(len(row), np.nan)
            yield from slices(path, np.broadcast_to(missing, (waiting, len(row))))
        if row is not None and len(row) != len(missing):
            raise BadInput(
                f"{path}: vectors of different dimensions: {len(missing)}, and {len(row)} in {place}"
            )
        held.append(missing if row is None else row)
        if len(held) == step:
            yield np.array(held)
            held = []
    if waiting and not step:
        raise BadInput(f"{path}: none of {waiting} rows has a vector")
    if held:
        yield np.array(held)


def one_of(path: Path, what: str, names: list[str], wanted: str | None) -> int:
    """Return the place of the name that is wanted, or of the only one. Raises BadInput."""
    found = [i for i, name in enumerate(names) if wanted in (None, name)]
    if len(found) != 1:
        hint = "choose one (`--collection`, or `collection` in the row)"
        asked = f"none is called {wanted!r}" if wanted and not found else hint
        raise BadInput(f"{path}: {len(names)} {what} ({listed(names)}): {asked}")
    return found[0]
