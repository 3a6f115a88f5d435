"""Atomic writes, standard output, digests, states of tensors, and what libraries raise for damaged files."""

import errno
import fcntl
import hashlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pipelines.runtime.errors import BadInput, message

MACHINE = re.sub(r"\W", "-", platform.node()) or "here"  # nodes of a cluster may share a folder


def try_lock(file: IO[Any], how: int = fcntl.LOCK_EX) -> bool:
    """Try to lock a file; return False if another process holds the lock. A lock ends with its process."""
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def draft_of(path: Path) -> Path:
    """Return a temporary neighbour of a path, with this machine and this process's number in its name."""
    return path.with_name(f".{path.name}.{MACHINE}.{os.getpid()}.part")


def sweep(folders: Iterable[Path]) -> None:
    """Remove drafts of ended processes of this machine."""
    for folder in folders:
        for draft in folder.glob(f".*.{MACHINE}.*.part"):
            pid = draft.name.split(".")[-2]
            if pid.isdecimal() and not _alive(int(pid)):
                with suppress(OSError):  # another user's
                    shutil.rmtree(draft, ignore_errors=True) if draft.is_dir() else draft.unlink()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a draft of `path`. On success flush it to disk and rename it to `path`; on failure remove it.

    Raises BadInput if the disk is full or read-only.
    """
    draft = draft_of(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield draft
            with open(draft, "rb") as file:
                os.fsync(file.fileno())
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text as `atomic` does."""
    with atomic(path) as draft:
        draft.write_text(text, encoding="utf-8")


def say(text: str, end: str = "\n") -> bool:
    """Print and flush a text. Return False if its reader, such as `head`, has ended; later texts are dropped.

    Raises OSError if standard output cannot be written, for example to a full disk.
    """
    try:
        print(text, end=end, flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would flush again at exit
        if not isinstance(error, BrokenPipeError):
            raise
        return False
    return True


def check_writable(path: Path) -> None:
    """Make the folder of a file. Raises BadInput, before any work, if the file cannot be written there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft_of(path).touch()
        draft_of(path).unlink()
    except OSError as error:
        raise BadInput(f"{path}: cannot be written: {(error.strerror or '').lower()}") from None


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise BadInput, naming `path`, if the disk is full or read-only, or the file too large."""
    try:
        yield
    except Exception as error:
        if reason := unwritable(error):
            raise BadInput(f"{path}: {reason}") from error
        raise


def unwritable(error: BaseException) -> str:
    """Return why nothing can be written if an error says so, else "".

    Some libraries tell it only in the message, not by errno.
    """
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.ENOSPC, errno.EDQUOT) or any(words in str(error) for words in FULL):
        return "no space left on the disk"
    if number in (errno.EACCES, errno.EPERM, errno.EROFS):
        return os.strerror(number).lower()
    return "larger than a file may be here (`ulimit -f`)" if "File too large" in str(error) else ""


FULL = (
    "No space left on device",
    "Disk quota exceeded",
    "database or disk is full",
    "No usable temporary directory",
)


def of_a_file(error: BaseException) -> bool:
    """Return whether a library may raise this for a damaged file. A panic of polars is a BaseException."""
    panic = type(error).__module__ == "pyo3_runtime"
    no_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"  # torch's
    return panic or (isinstance(error, Exception) and not no_memory and not isinstance(error, BadInput))


@contextmanager
def reading(path: Path | str, what: str = "cannot be read (damaged?)") -> Iterator[None]:
    """Turn what a library raises for a damaged or protected file into BadInput, which names the file."""
    try:
        yield
    except BaseException as error:
        if not of_a_file(error):
            raise
        if isinstance(error, PermissionError):  # EACCES, EPERM
            raise BadInput(f"{path}: permission denied") from None
        raise BadInput(f"{path}: {what}: {message(error, 200)}") from None


def stamp(path: Path) -> tuple[int, int, int]:
    """Return what tells a file from the one that replaces it, and from itself after a change."""
    now = path.stat()
    return now.st_ino, now.st_size, now.st_mtime_ns


def digest(path: Path) -> str:
    """Return the sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write nested dicts, lists and tuples of tensors, numbers, strings and None atomically, bit for bit."""
    import torch

    with atomic(path) as draft, open(draft, "wb") as file:
        torch.save(state, file)  # noqa: TID251  # given a path, torch would write its name into the file


def load_state(path: Path) -> dict[str, Any]:
    """Read what `save_state` wrote, onto the CPU; no code in the file is run.

    Modules and optimisers copy their state to their device, but Adam's number of steps has to stay on the
    CPU, where reading it waits for nothing. Raises BadInput for a file that is not a whole state.
    """
    import torch

    with reading(path, "not a whole state file"):
        state = torch.load(path, map_location="cpu", weights_only=True)  # noqa: TID251
        if not isinstance(state, dict):
            raise ValueError(f"a {type(state).__name__}")
        return state
