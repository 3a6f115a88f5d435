"""How much of a file is read at once, and what every reader of vectors yields."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pipelines.runtime.errors import BadInput, listed

BLOCK = 8192  # rows of a block, fewer if they are long
BYTES = 2**26  # of a block
WIDEST = 2**16  # dimensions
CHOOSE_COLUMN = "choose one (`--column`, or `columns: {vector: ...}` in the row)"

Blocks = Iterator[np.ndarray]


def rows_per_block(path: Path, dimension: int) -> int:
    """Return the number of rows of a block. Raises BadInput for dimensions that no vector has."""
    if not 0 < dimension <= WIDEST:
        raise BadInput(f"{path}: vectors of {dimension:,} dimensions; from 1 to {WIDEST:,} are read")
    return max(1, min(BLOCK, BYTES // (8 * dimension)))


def block_slices(path: Path, rows: int, dimension: int) -> Iterator[slice]:
    """Return the rows of each block of a matrix. Raises BadInput as `rows_per_block` does."""
    step = rows_per_block(path, dimension)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def blocks_of_array(path: Path, array: np.ndarray) -> Blocks:
    """Yield the rows of an array, which may be memory-mapped."""
    return (np.asarray(array[part]) for part in block_slices(path, len(array), array.shape[1]))


def blocks_of_rows(path: Path, rows: Iterable[tuple[str, Any]]) -> Blocks:
    """Yield blocks of vectors (d,), each given with its place in the file (`numbers`). None becomes NaN.

    Raises BadInput if dimensions differ, or if no row has a vector.
    """
    held: list[np.ndarray] = []
    # waiting: rows without a vector at the start: their width is not known yet
    waiting, missing, step = 0, np.empty(0), 0
    for place, value in rows:
        row = numbers(path, place, value)
        if not step:
            if row is None:
                waiting += 1
                continue
            step, missing = rows_per_block(path, len(row)), np.full(len(row), np.nan)
            yield from blocks_of_array(path, np.broadcast_to(missing, (waiting, len(row))))
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


def numbers(path: Path, place: str, value: Any) -> np.ndarray | None:
    """Return a vector from an array, a list, its JSON, or a mapping of names to one list."""
    if value is None or isinstance(value, np.ndarray):
        return value
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            raise BadInput(f"{path}: {place} has text in place of a vector: choose another column") from None
    if isinstance(value, dict):
        lists = [v for v in value.values() if isinstance(v, list)]
        if len(lists) != 1:
            named = f"{len(lists)} named vectors in one row ({listed(value)})"
            raise BadInput(f"{path}: {named}: {CHOOSE_COLUMN}")
        value = lists[0]
    if not isinstance(value, list) or any(isinstance(v, (str, list, dict)) for v in value):
        raise BadInput(f"{path}: {place} has no flat list of numbers")
    try:
        return np.array([np.nan if v is None else float(v) for v in value])
    except OverflowError:
        raise BadInput(f"{path}: {place}: a number that no float holds") from None


def one_of(path: Path, what: str, names: list[str], wanted: str | None) -> int:
    """Return the place of the name that is wanted, or of the only one. Raises BadInput."""
    found = [i for i, name in enumerate(names) if wanted in (None, name)]
    if len(found) != 1:
        hint = "choose one (`--collection`, or `collection` in the row)"
        asked = f"none is called {wanted!r}" if wanted and not found else hint
        raise BadInput(f"{path}: {len(names)} {what} ({listed(names)}): {asked}")
    return found[0]
