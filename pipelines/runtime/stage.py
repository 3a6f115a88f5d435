"""The one way a stage starts: `python -m pipelines.<verb> <name>` reads its row of params.yaml, opens an MLflow run, and runs."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

from pipelines import imported
from pipelines.runtime import store, track
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import full
from pipelines.study import params

PR_SET_PDEATHSIG = 1  # <sys/prctl.h>

def main(verb: Callable[..., None]) -> None:
    """Run `verb(name, row, study, run)` for the row named on the command line. Bad input: one line on stderr, exit code 2."""
    _end_with_dvc()
    table = params.Study.tables().get(verb.__name__)  # None: it reads the whole study and takes no name
    try:
        name, study, row = verb.__name__, params.load(), None
        if table:
            if len(sys.argv) != 2:
                raise BadInput(f"usage: python -m pipelines.{verb.__name__} <row of {table} in params.yaml>")
            name = sys.argv[1]
            row = params.find(table, name, getattr(study, table))
        store.sweep_drafts(verb.__name__, name)
        with track.run(verb.__name__, name, row, study.study) as run:
            imported()  # after MLflow, which is a third of all imported objects
            verb(name, row, study, run)
    except BadInput as error:
        print(f"{verb.__name__} {' '.join(sys.argv[1:])}: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception as error:
        if not full(error):
            raise
        print(f"{verb.__name__} {' '.join(sys.argv[1:])}: no space left on the disk", file=sys.stderr)
        sys.exit(2)


def _end_with_dvc() -> None:
    """On Linux: when DVC is killed, however, its stage is interrupted. A run by hand may outlive its shell."""
    if sys.platform == "linux" and "DVC_STAGE" in os.environ:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # what runs in the background starts without
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
