"""What a run could not send yet: an append-only file of JSON lines for each run.

The process that writes or sends a file holds its lock, which the system lets go of however the process ends: a file that
nobody holds is of a run that is over.
"""

from __future__ import annotations

import fcntl
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any


class Spool:
    """One run's file, locked."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self.path, self._file = path, file

    @classmethod
    def new(cls, path: Path) -> Spool:
        """An empty one, which has its name from the moment on that it is locked."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".part")
        file = open(draft, "a+")  # noqa: SIM115 - open as long as the run is
        fcntl.flock(file, fcntl.LOCK_EX)
        draft.rename(path)
        return cls(path, file)

    def add(self, operation: list[Any]) -> None:
        self._file.write(json.dumps(operation) + "\n")
        self._file.flush()

    def operations(self) -> list[list[Any]]:
        """All that was added, but a last line that a kill cut short."""
        self._file.seek(0)
        return [json.loads(line) for line in self._file if line.endswith("\n")]

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        self._file.close()


def waiting(folder: Path, names: str) -> Iterator[Spool]:
    """The files of runs that are over, the oldest first, each locked until the next is asked for. `names`: a glob."""
    for path in sorted(folder.glob(names)):
        with open(path, "a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield Spool(path, file)
