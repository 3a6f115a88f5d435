"""Functions side by side in threads of one process."""

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing.pool import ThreadPool
from typing import TypeVar

Result = TypeVar("Result")


def side_by_side(works: Sequence[Callable[[], Result]]) -> list[Result]:
    """Run functions in a thread pool; return their results in order; re-raise the first exception.

    As many run at once as there are cores, and torch uses an equal share of the cores in each thread. An
    exception is raised when all have ended, because a process that ends while a thread is in torch aborts.
    Only Ctrl-C does not wait.
    """
    import torch

    # polars makes system calls restart after a signal; without this, Ctrl-C would not end the wait
    signal.siginterrupt(signal.SIGINT, True)
    cores = torch.get_num_threads()
    at_once = max(1, min(cores, len(works)))
    each = (cores // at_once,)  # OpenMP has a number of threads for each thread
    with ThreadPool(at_once, torch.set_num_threads, each) as pool:
        futures = list(pool.imap(_done, works))
    return [future.result() for future in futures]


def _done(work: Callable[[], Result]) -> Future[Result]:
    """Catch every exception: a pool would wait for ever for one that is no Exception."""
    future: Future[Result] = Future()
    try:
        future.set_result(work())
    except BaseException as error:
        future.set_exception(error)
    return future
