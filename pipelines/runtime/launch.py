"""Several processes for one stage: its command starts itself again, once for each, under torch's elastic agent (torchrun's).

A process that fails ends them all, and what it said is said once, by the command.
"""

from __future__ import annotations

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


def needed(processes: int) -> bool:
    """Whether this process is to start others: not if it is itself one of several, of ours, of torchrun's or of srun's."""
    return processes > 1 and "WORLD_SIZE" not in os.environ


def launch(processes: int) -> None:
    """Run this very command in `processes` processes on this machine, until all have ended.

    Raises BadInput with what one of them refused, or if one was killed; exits with 1, after its traceback, if one failed.
    """
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ[LAUNCHED] = "1"
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes)))
    config = LaunchConfig(
        1,
        1,
        processes,
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
        rank, failure = min(
            error.failures.items(), key=lambda item: _blame(item[1].exitcode, item[1].timestamp)
        )
        if failure.exitcode < 0:
            again = "started again, the stage continues from where it was"
            raise BadInput(
                f"process {rank} of {processes} was killed (signal {-failure.exitcode}); {again}"
            ) from None
        if failure.exitcode == BAD_INPUT:
            raise BadInput(failure.message) from None
        print(failure.message, file=sys.stderr)
        sys.exit(1)


def _blame(exitcode: int, at: float) -> tuple[bool, bool, bool, float]:
    """Least of the process whose end was the cause: it refused its input, or was killed, or failed first. Others fail because a
    partner is gone, or are ended (SIGTERM) because one has failed."""
    return exitcode != BAD_INPUT, exitcode == -signal.SIGTERM, exitcode > 0, at


def report(message: str) -> bool:
    """Leave what went wrong to the command that started this process; False: it was not started by `launch`."""
    file = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if LAUNCHED not in os.environ or not file:
        return False
    Path(file).write_text(json.dumps({"message": message, "timestamp": int(time.time())}), encoding="utf-8")
    return True
