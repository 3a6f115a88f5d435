"""Work side by side in threads of one process, each with its share of the cores."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

Result = TypeVar("Result")
Aside = Callable[[Callable[[], Result]], Callable[[], Result]]


@contextmanager
def side_by_side(works: int) -> Iterator[Aside]:
    """Within the block torch computes on the `works`-th part of the cores in this thread, and in each that `aside` starts.

    `aside(work)` returns a function that waits for the work, and gives what it returned or raises what it raised. Such a thread
    ends with the process: Ctrl-C does not wait for it.
    """
    import torch

    cores = torch.get_num_threads()
    share = max(1, cores // works)

    def aside(work: Callable[[], Result]) -> Callable[[], Result]:
        future: Future[Result] = Future()

        def run() -> None:
            torch.set_num_threads(share)  # OpenMP keeps the number for each thread
            try:
                future.set_result(work())
            except BaseException as error:  # whoever waits for it has it
                future.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        return future.result

    torch.set_num_threads(share)
    try:
        yield aside
    finally:
        torch.set_num_threads(cores)
