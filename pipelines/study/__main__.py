"""The command line of studies.

python -m pipelines.study activate STUDY     # validate a file, or a name in studies/; make it active
python -m pipelines.study names              # validate the names of rows in params.yaml alone, in 0.1 s
"""

import os
import sys
from pathlib import Path

from pipelines import freeze_gc
from pipelines.runtime.errors import BadInput
from pipelines.study.reading import check_names, read


def main(argv: list[str]) -> int:
    """Run a command. Bad input is one line on stderr and exit code 2."""
    try:
        match argv:
            case ["-h" | "--help"]:
                print(__doc__)
            case ["names"]:
                names(Path("params.yaml"))
            case ["activate", study]:
                make_active(study)
            case _:
                raise BadInput("usage: python -m pipelines.study activate STUDY | names")
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def names(path: Path) -> None:
    """Validate the names of rows, and nothing else."""
    try:
        check_names(read(path))
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from None


def make_active(study: str) -> None:
    """Make a study the active one: the name of a file of studies/, or a path."""
    from pipelines.study import activate
    from pipelines.study.params import find, studies

    path = studies().get(study, Path(study))
    if not os.path.exists(path):  # Path.exists raises OSError for a long name
        find("studies", study, studies(), "study")
    kept = activate.activate(path)
    done = "is filled in" if path.samefile("params.yaml") else f"is now {path}"
    print(f"params.yaml {done}" + (f"; the edited one is kept in {kept}" if kept else ""))


if __name__ == "__main__":
    freeze_gc()
    sys.exit(main(sys.argv[1:]))
