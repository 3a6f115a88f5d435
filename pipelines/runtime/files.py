"""Files of any kind: a write that is whole or not at all, and a state that is read back without running code.

A state is one safetensors file: tensors under dotted names, and everything else as JSON in the file's own header, so that both
appear in one rename. Pickle, which torch.save writes, is a program that runs when it is read.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.runtime.errors import BadInput

if TYPE_CHECKING:
    from torch import Tensor

STRUCTURE = "structure"  # the header's key


def draft_of(path: Path) -> Path:
    """A temporary neighbour that says whose it is: `sweep` removes those of the dead."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def sweep(folders: Iterable[Path]) -> None:
    """Remove the drafts in these folders that processes left which were killed."""
    for folder in folders:
        for draft in folder.glob(".*.part"):
            pid = draft.name.split(".")[-2]
            if pid.isdigit() and not _alive(int(pid)):
                shutil.rmtree(draft) if draft.is_dir() else draft.unlink(missing_ok=True)


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
    """Yield a temporary neighbour of `path`; on success it is flushed to disk and renamed over `path`, on failure removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(path)
    try:
        yield draft
        with open(draft, "rb") as file:
            os.fsync(file.fileno())
        draft.replace(path)
    except Exception as error:
        if full(error):
            raise BadInput(f"{path}: no space left on the disk") from error
        raise
    finally:
        draft.unlink(missing_ok=True)


def full(error: BaseException) -> bool:
    """Whether a disk, or a quota, is full: polars, torch and safetensors say it in words, in exceptions of their own."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return True
    return any(
        words in str(error)
        for words in ("No space left on device", "Disk quota exceeded", "database or disk is full")
    )


LIBRARIES = {
    "polars", "pyo3_runtime", "pyarrow", "safetensors", "safetensors_rust", "zipfile", "zlib", "_lzma", "tarfile", "struct",
    "sqlite3", "tokenize",
}  # fmt: skip
FAULTS = (
    OSError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RuntimeError, EOFError, MemoryError,
    SyntaxError,
)  # fmt: skip


def of_a_file(error: BaseException) -> bool:
    """Whether it is what a library raises when it parses a damaged or hostile file (a panic of polars is no Exception)."""
    return isinstance(error, FAULTS) or type(error).__module__.split(".")[0] in LIBRARIES


@contextmanager
def reading(path: Path, what: str = "cannot be read (damaged?)") -> Iterator[None]:
    """What a library says of a damaged file becomes BadInput, in one line that names it."""
    try:
        yield
    except BaseException as error:
        if not of_a_file(error):
            raise
        raise BadInput(
            f"{path}: {what}: {' '.join(str(error).split())[:200] or type(error).__name__}"
        ) from None


def save_state(path: Path, state: dict[str, Any]) -> None:
    """Write nested dicts, lists and tuples of tensors, numbers, strings and None, atomically and bit for bit.

    Keys are strings or integers. Raises TypeError for a value of another type.
    """
    from safetensors.torch import save_file

    tensors: dict[str, Tensor] = {}
    structure = json.dumps(_described(state, "", tensors))
    with atomic(path) as draft:
        save_file(tensors, draft, {STRUCTURE: structure})


def load_state(path: Path, device: Any = "cpu") -> dict[str, Any]:
    """Read what `save_state` wrote, its tensors onto `device`. Raises BadInput for a file that is no whole state."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt", device=str(device)) as file:
            structure = json.loads(file.metadata()[STRUCTURE])
            return _rebuilt(structure, {name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(f"{path}: not a whole state file: {reason}") from None


def _described(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """`value` as JSON, its tensors put into `tensors`."""
    from torch import Tensor

    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Tensor):
        while name in tensors:  # {"a.b": x, "a": {"b": y}}
            name += "_"
        tensors[name] = (
            value.detach().cpu().clone().contiguous()
        )  # safetensors refuses tensors that share memory
        return {"tensor": name}
    if isinstance(value, dict):
        if other := [key for key in value if type(key) not in (str, int)]:
            raise TypeError(f"state: key {other[0]!r} of {name or 'the state'} is no string or integer")
        return {
            "dict": [
                [key, _described(inner, f"{name}.{key}".lstrip("."), tensors)] for key, inner in value.items()
            ]
        }
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {
            kind: [_described(inner, f"{name}.{i}".lstrip("."), tensors) for i, inner in enumerate(value)]
        }
    raise TypeError(f"state: {name or 'the state'} is a {type(value).__name__}")


def _rebuilt(described: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(described, dict):
        return described
    ((kind, content),) = described.items()
    match kind:
        case "tensor":
            return tensors[content]
        case "dict":
            return {key: _rebuilt(inner, tensors) for key, inner in content}
        case "list" | "tuple":
            parts = [_rebuilt(inner, tensors) for inner in content]
            return tuple(parts) if kind == "tuple" else parts
    raise ValueError(f"{kind!r} is no part of a state")
