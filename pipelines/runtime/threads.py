"""Work side by side in threads of one process, each with its share of the cores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing.pool import ThreadPool
from typing import TypeVar

Result = TypeVar("Result")


def side_by_side(works: Sequence[Callable[[], Result]]) -> list[Result]:
    """What each gives, in order, as many at once as there are cores; what the first of them to fail raises is raised.

    In each thread torch computes on an equal share of the cores. The threads end with the process: Ctrl-C does not wait for them.
    """
    import torch

    cores = torch.get_num_threads()
    at_once = max(1, min(cores, len(works)))
    with ThreadPool(
        at_once, torch.set_num_threads, (cores // at_once,)
    ) as pool:  # OpenMP keeps the number for each thread
        return [future.result() for future in pool.imap(_done, works)]


def _done(work: Callable[[], Result]) -> Future[Result]:
    """With what it raised, of any kind: a pool waits for ever for what is no Exception."""
    future: Future[Result] = Future()
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
    return future
