"""The command line of studies.

python -m pipelines.study activate STUDY     # validate a file, or a name in studies/; make it active
python -m pipelines.study names [STUDY]      # validate the names of rows in params.yaml alone, in 0.1 s
"""

import os
import sys
from pathlib import Path
from shlex import quote

from pipelines import freeze_gc
from pipelines.runtime.errors import BadInput
from pipelines.study.reading import check_names, read


def main(argv: list[str]) -> int:
    """Run a command. Bad input is one line on stderr and exit code 2."""
    try:
        match argv:
            case ["-h" | "--help"]:
                print(__doc__)
            case ["names", *study] if len(study) < 2:
                names(Path("params.yaml"), *study)
            case ["activate", study]:
                make_active(study)
            case _:
                raise BadInput("usage: python -m pipelines.study activate STUDY | names [STUDY]")
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def names(path: Path, study: str = "") -> None:
    """Validate the names of rows, and nothing else. Refuse a `study` that is not the active one."""
    tree = read(path)
    try:
        check_names(tree)
    except ValueError as error:
        raise BadInput(f"{path}: {error}") from None
    active = tree.get("study")
    if study not in ("", active) and read(located(study)).get("study") != active:
        raise BadInput(f"make repro runs the active study: make study STUDY={quote(study)} first")


def make_active(study: str) -> None:
    """Make a study the active one."""
    from pipelines.study import activate

    path = located(study)
    kept = activate.activate(path)
    done = "is filled in" if path.samefile("params.yaml") else f"is now {path}"
    print(f"params.yaml {done}" + (f"; the edited one is kept in {kept}" if kept else ""))


def located(study: str) -> Path:
    """Return the file of a study: the name of one in studies/, or a path. Raises BadInput without one."""
    from pipelines.study.params import find, studies

    path = studies().get(study, Path(study))
    if not os.path.exists(path):  # Path.exists raises OSError for a long name
        find("studies", study, studies(), "study")
    return path


if __name__ == "__main__":
    freeze_gc()
    sys.exit(main(sys.argv[1:]))
