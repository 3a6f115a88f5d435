"""Find and open files of the user, which may be damaged or hostile."""

import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import of_a_file


def located(path: str) -> Path:
    """Return `path`, or `path` below $CORPORA_ROOT. Raises BadInput if neither is a file or a folder."""
    if not path:
        raise BadInput("a path is empty")  # such as that of a shell's unset variable
    places = [Path(path)]
    if (root := os.environ.get("CORPORA_ROOT")) and not places[0].is_absolute():
        places.append(Path(root) / path)
    for place in places:
        try:
            there = place.exists()
        except OSError as error:  # such as a name that is too long
            raise BadInput(f"{place}: {(error.strerror or '').lower()}") from None
        if there:
            linked = any(part.is_symlink() for part in (place, *place.parents))
            found = place.resolve() if linked else place  # messages name the user's own path
            if found.as_posix() != printable(found):
                raise BadInput(f"{printable(found)}: the name is not UTF-8; rename it")
            if not found.is_file() and not found.is_dir():
                raise BadInput(f"{found}: neither a regular file nor a folder")
            return found
    raise BadInput(f"{' and '.join(map(str, places))}: there is no such file or folder")


def printable(path: Path) -> str:
    r"""Return a path as text that can be stored and printed: bytes that are not UTF-8 become \xff."""
    return os.fsencode(path.as_posix()).decode(errors="backslashreplace")


def files_in(folder: Path) -> list[Path]:
    """Return the regular files below a folder, sorted, without links that lead out of it."""
    root = folder.resolve()
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    inside = [path for path in files if path.resolve().is_relative_to(root)]
    if left_out := len(files) - len(inside):
        print(f"{folder}: {left_out} links lead out of the folder and are not read")
    return inside


def number(text: str | None) -> float:
    """Return the number that a field of a table has; NaN if it has none."""
    try:
        return float(text or "")
    except ValueError:
        return math.nan


@contextmanager
def quiet(where: str | Path, what: str) -> Iterator[None]:
    """Raise BadInput for a library's error about a file of texts.

    It gives the kind of error and its line, but not the library's message, which may quote a private text.
    """
    try:
        yield
    except BaseException as error:
        if not of_a_file(error):
            raise
        line = re.search(r"\bline:? (\d+)", str(error))
        at = f", {line[0]}" if line else ""
        raise BadInput(f"{where}: {what}: {type(error).__name__}{at}") from None
