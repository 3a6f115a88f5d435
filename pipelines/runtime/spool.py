"""What runs have for MLflow: an append-only file of JSON lines for each, which the run writes and a sender reads.

Whoever writes a file holds its lock, which the system lets go of however the process ends: a file that nobody holds is of a run
that is over. The sender of a store holds a lock likewise.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pipelines.runtime import files

KEY = "run.key"  # the tag that a run is found again by
UNREACHED = "MLflow cannot be reached; runs wait in .cache/mlflow for a stage that reaches it"


def repository() -> Path:
    """Where runs belong. `dvc exp run --temp` works in a copy below .dvc/tmp; its runs belong to the repository itself."""
    root = Path.cwd().resolve()
    for parent in root.parents:
        if (parent / ".dvc").is_dir() and root.is_relative_to(parent / ".dvc" / "tmp"):
            root = parent
    return root


def tracking_uri() -> str:
    """Where runs are kept."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{repository()}/mlflow.db"


def reason(error: Exception) -> str:
    """What went wrong, in one line and without secrets."""
    line = " ".join((str(error).splitlines() or [""])[0].split())
    line = re.sub(r"//[^/@ ]*@", "//", line)[:200]  # an address may have a password in it
    return f"{type(error).__name__}: {line}"


def _file(uri: str, rest: str) -> Path:
    """A file of a store, by a digest of its address, which may have a password in it."""
    folder = repository() / ".cache/mlflow"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(uri.encode()).hexdigest()[:12]}{rest}"


def paths(uri: str) -> list[Path]:
    """The files of runs for a store, the newest first."""
    pattern = _file(uri, "-*.jsonl")
    return sorted(pattern.parent.glob(pattern.name), reverse=True)


class Spool:
    """The file of a run that is under way."""

    def __init__(self, uri: str) -> None:
        self.path = _file(uri, f"-{time.time_ns()}-{os.getpid()}.jsonl")
        files.sweep([self.path.parent])
        draft = files.draft_of(self.path)
        self._file = open(draft, "a")  # noqa: SIM115 - open as long as the run is
        fcntl.flock(self._file, fcntl.LOCK_EX)
        draft.rename(self.path)  # it has its name from the moment on that it is locked

    def add(self, operation: list[Any]) -> None:
        self._file.write(json.dumps(operation) + "\n")
        self._file.flush()

    def close(self) -> None:
        with suppress(OSError):  # a full disk, for what could not be written before
            self._file.close()


class Reader:
    """The other end of it."""

    def __init__(self, path: Path) -> None:
        self._path, self._file, self._part, self._over = path, open(path, "rb+"), b"", False  # noqa: SIM115

    def read(self) -> tuple[list[list[Any]], bool]:
        """What was added since the last call, and whether nothing more can come. A line that a kill cut short is none."""
        self._over = self._over or _lock(self._file, fcntl.LOCK_EX)  # first: what is read after it is all
        *lines, self._part = (self._part + self._file.read()).split(b"\n")
        return [operation for line in lines if (operation := _parsed(line))], self._over

    def written(self) -> int:
        """When the last line was, in milliseconds."""
        return self._path.stat().st_mtime_ns // 1_000_000

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()


def _parsed(line: bytes) -> list[Any]:
    try:
        return json.loads(line)
    except ValueError:  # the disk was full
        return []


def _lock(file: IO[Any], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def served(uri: str) -> bool:
    """Whether a sender is at work for a store."""
    with open(_file(uri, ".lock"), "a") as file:
        return not _lock(file, fcntl.LOCK_SH)


@contextmanager
def serving(uri: str, stop: threading.Event) -> Iterator[bool]:
    """Be the one sender of a store, once there is no other; False: `stop` was set before."""
    with open(_file(uri, ".lock"), "a") as file:
        while not (alone := _lock(file, fcntl.LOCK_EX)) and not stop.wait(0.1):
            pass
        yield alone


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """For a new store: two processes that build its schema at once both crash, and one that is killed at it leaves half of it."""
    path = repository() / ".cache/mlflow.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
