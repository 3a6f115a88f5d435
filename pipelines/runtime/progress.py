"""Progress of long loops: a bar on a terminal, elsewhere a line every few seconds. Also the type Log."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from tqdm import tqdm

Log = Callable[[dict[str, float], int], None]  # what a fit reports to: metrics by name, step
SECONDS = 5.0  # before the first line and between two: a short loop prints nothing
_about = ContextVar("about", default="")  # of each thread


class Lines(tqdm):
    """tqdm for a log or a pipe: plain lines that do not overwrite each other."""

    def display(self, msg: str | None = None, pos: int | None = None) -> bool:
        self.fp.write(f"{self if msg is None else msg}\n")
        self.fp.flush()
        return True

    def close(self) -> None:
        self.disable = True


@contextmanager
def about(what: str) -> Iterator[None]:
    """Begin the progress of all loops inside with `what`, such as the seed of one of several fits."""
    before = _about.set(f"{what}: ")
    try:
        yield
    finally:
        _about.reset(before)


def progress(steps: Iterable | None = None, *, what: str, unit: str = "", total: int | None = None) -> Any:
    """Iterate over `steps` and count them; without `steps`, return a context whose `update(n)` counts.

    what: the activity, such as "train"; unit: of the steps.
    """
    what, unit = _about.get() + what, f" {unit}" if unit else ""
    if sys.stderr.isatty():
        return tqdm(steps, what, total, unit=unit, leave=False, delay=1)
    known = total or hasattr(steps, "__len__")
    form = "{desc}: {n_fmt} of {total_fmt}{unit}, {remaining} left" if known else "{desc}: {n_fmt}{unit}"
    return Lines(
        steps, what, total, unit=unit, mininterval=SECONDS, delay=SECONDS, miniters=1, bar_format=form
    )
