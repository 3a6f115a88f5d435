"""Several processes for one stage: its command starts itself again under torch's elastic agent.

If one process fails, all are stopped, and the command prints its error once.
"""

import json
import logging
import os
import signal
import sys
import time
import uuid
from pathlib import Path

from pipelines.runtime.errors import BadInput

LAUNCHED = "UNIVERSAL_GEOMETRY_LAUNCHED"  # set for the processes that `launch` starts
BAD_INPUT = 2  # exit code


def launch(processes: int) -> None:
    """Run this command in `processes` processes on this machine, until all have ended.

    Raises BadInput if one of them raised it or was killed. If one failed otherwise, prints its traceback and
    exits with 1.
    """
    import torch
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ[LAUNCHED] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, torch.get_num_threads() // processes)))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
    )
    try:
        elastic_launch(config, sys.executable)(*sys.orig_argv[1:])
    except SignalException as signalled:
        sys.exit(128 + signalled.sigval)
    except ChildFailedError as error:
        failures = error.failures.items()
        rank, failure = min(failures, key=lambda item: _blame(item[1].exitcode, item[1].timestamp))
        if failure.exitcode < 0:
            killed = f"process {rank} of {processes} was killed (signal {-failure.exitcode})"
            raise BadInput(f"{killed}; started again, the stage continues from where it was") from None
        if failure.exitcode == BAD_INPUT:
            raise BadInput(failure.message) from None
        print(failure.message, file=sys.stderr)
        sys.exit(1)


def _blame(exitcode: int, at: float) -> tuple[bool, bool, bool, float]:
    """Return a key that sorts the cause first: a process that refused its input, was killed, or failed first.

    Others fail because a partner is gone, or get SIGTERM because one has failed.
    """
    return exitcode != BAD_INPUT, exitcode == -signal.SIGTERM, exitcode > 0, at


def report(message: str) -> bool:
    """Pass an error to the command that started this process; return False if `launch` did not start it."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if LAUNCHED not in os.environ or not file:
        return False
    Path(file).write_text(json.dumps({"message": message, "timestamp": int(time.time())}), encoding="utf-8")
    return True
