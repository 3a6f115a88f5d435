"""The one way a stage starts: `python -m pipelines.<verb> <name>` reads its row of params.yaml, opens an MLflow run, and runs.

A row with `processes: n` has the command start itself n times: see launch.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable

from pipelines import imported
from pipelines.runtime import launch, track
from pipelines.runtime.errors import BadInput
from pipelines.study import params


def main(verb: Callable[..., None]) -> None:
    """Run `verb(name, row, study, run)` for the row named on the command line. Bad input: one line on stderr, exit code 2."""
    table = params.Study.tables().get(verb.__name__)  # None: it reads the whole study and takes no name
    try:
        name, study, row = verb.__name__, params.load(), None
        if table:
            if len(sys.argv) != 2:
                raise BadInput(f"usage: python -m pipelines.{verb.__name__} <row of {table} in params.yaml>")
            name = sys.argv[1]
            row = params.find(table, name, getattr(study, table))
        if launch.needed(processes := getattr(row, "processes", 1)):
            launch.launch(processes)
            return
        with track.run(verb.__name__, name, row, study.study, study.named(row) if row else {}) as run:
            imported()  # after MLflow, which is a third of all imported objects
            verb(name, row, study, run)
    except BadInput as error:
        if not launch.report(str(error)):
            print(f"{verb.__name__} {' '.join(sys.argv[1:])}: {error}", file=sys.stderr)
        sys.exit(launch.BAD_INPUT)
    except KeyboardInterrupt:
        sys.exit(130)
    except Exception:
        if launch.report(traceback.format_exc()):
            sys.exit(1)
        raise
