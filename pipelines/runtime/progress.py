"""How far a long loop is, said in one way: a bar on a terminal, elsewhere a line every few seconds."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tqdm import tqdm

SECONDS = 5.0  # between two lines, and before the first: a short loop says nothing


class Lines(tqdm):
    """tqdm for a log or a pipe: plain lines, and none that wipes out the one before."""

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        self.fp.write(f"{self if msg is None else msg}\n")
        self.fp.flush()
        return True

    def close(self) -> None:
        self.disable = True


def progress(steps: Iterable | None = None, *, what: str, unit: str = "", total: int | None = None) -> Any:
    """`steps`, which are counted as they are taken; without them a context whose `update(n)` counts. `what`: is being done."""
    unit = f" {unit}" if unit else ""
    if sys.stderr.isatty():
        return tqdm(steps, what, total, unit=unit, leave=False, delay=1)
    known = total or hasattr(steps, "__len__")
    form = "{desc}: {n_fmt} of {total_fmt}{unit}, {remaining} left" if known else "{desc}: {n_fmt}{unit}"
    return Lines(
        steps, what, total, unit=unit, mininterval=SECONDS, delay=SECONDS, miniters=1, bar_format=form
    )
