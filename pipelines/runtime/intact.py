"""Compare a file that a stage reads with dvc.lock, by hashing it. See docs/decisions/0015."""

import fcntl
import hashlib
import json
import os
import time
from collections import defaultdict
from collections.abc import Collection
from contextlib import ExitStack, suppress
from functools import lru_cache, reduce
from pathlib import Path
from typing import Any, Literal, NamedTuple

import yaml

from pipelines.runtime.errors import BadInput, message
from pipelines.runtime.files import reading, try_lock
from pipelines.study.reading import Loader

LOCK, PARAMS, RUNS = Path("dvc.lock"), Path("params.yaml"), Path(".cache/runs")
DVC = Path(".dvc/tmp/lock")  # DVC locks this file while it works
PATIENCE = 10.0  # seconds to wait for this lock


def checked(path: Path) -> Path:
    """Return `path` if its bytes, or those of all files of a folder, are what dvc.lock names.

    A path that dvc.lock does not list passes. So does one that a stage run by hand wrote after dvc.lock.
    Raises BadInput for other bytes, and if they cannot be read.
    """
    spelt = Path(os.path.relpath(path))  # as in dvc.lock
    named = [(stage, Path(out), md5) for stage, out, md5 in locked("outs") if spelt.is_relative_to(out)]
    if not named or not path.exists():  # whoever reads it says what is missing
        return path
    stage, out, _ = named[0]
    with reading(out):
        found = md5_of(out)
    if any(md5 == found for _, _, md5 in named) or _by_hand(stage, out):
        return path
    raise BadInput(
        f"{out}: not the bytes that dvc.lock names (damaged, or changed by hand): "
        f"`dvc repro {stage}` makes it again"
    )


def locked(key: Literal["outs", "deps"]) -> list[tuple[str, str, str]]:
    """Return (stage, path, md5) of all that stages wrote or read. Without a dvc.lock the list is empty."""
    return _lock().files[key]


def changed_rows(stage: str) -> list[str]:
    """Return the rows, as `table.name`, that have changed in params.yaml since DVC last ran this stage.

    A stage may also depend on a whole table, or on a key of a row: `table`, `table.name.key`.
    """
    if not (rows := _lock().rows.get(stage)):
        return []
    tables = _tables(PARAMS.read_bytes())
    return [row for row, was in rows.items() if reduce(_below, row.split("."), tables) != was]


def _below(tree: Any, key: str) -> Any:
    return (tree or {}).get(key)


def outdated(stages: Collection[str]) -> list[str]:
    """Return the stages whose rows in params.yaml, or whose inputs from other stages, differ from those of
    DVC's last run, and the stages that read what these make.
    """
    # 1. Stages with another input than the one that was made, or with another row
    made = {path: md5 for _, path, md5 in locked("outs")}  # also by stages that have left the study
    made |= {path: md5 for stage, path, md5 in locked("outs") if stage in stages}
    found = {stage for stage, path, md5 in locked("deps") if made.get(path, md5) != md5}
    found |= {stage for stage in stages if changed_rows(stage)}
    # 2. The stages that each stage reads from. A path may be in a folder that was made, or have one inside
    makers = {path: stage for stage, path, _ in locked("outs") if stage in stages}
    inside = defaultdict[str, set[str]](set)
    for path, stage in makers.items():
        for folder in _and_above(path):
            inside[folder].add(stage)
    needs = defaultdict[str, set[str]](set)
    for stage, path, _ in locked("deps"):
        needs[stage] |= inside[path] | {makers[folder] for folder in _and_above(path) if folder in makers}
    # 3. All that read from these, directly or not
    while more := {stage for stage in needs if stage not in found and needs[stage] & found}:
        found |= more
    return [stage for stage in stages if stage in found]


def _and_above(path: str) -> list[str]:
    """Return a path and the folders that it is in."""
    return [path, *map(str, Path(path).parents)]


@lru_cache(maxsize=1)
def _tables(params: bytes) -> dict[str, Any]:
    return yaml.load(params, Loader)


class _Lock(NamedTuple):
    """What dvc.lock says."""

    files: dict[str, list[tuple[str, str, str]]]  # "outs" and "deps": stage, path, md5
    rows: dict[str, dict[str, Any]]  # of each stage, the rows of params.yaml that it depends on


def _lock() -> _Lock:
    try:
        return _parsed(LOCK.resolve(), LOCK.stat().st_mtime_ns, LOCK.stat().st_size)
    except FileNotFoundError:
        return _Lock({"outs": [], "deps": []}, {})
    except (OSError, ValueError, AttributeError, KeyError, TypeError, yaml.YAMLError) as error:
        raise BadInput(f"dvc.lock: cannot be read: {message(error, 200)}") from None


@lru_cache(maxsize=1)
def _parsed(lock: Path, changed: int, size: int) -> _Lock:
    """Read dvc.lock once DVC does not write it. It is not read again until its time or its size changes."""
    with ExitStack() as stack:
        if DVC.exists():  # DVC writes dvc.lock in place while other stages run
            file = stack.enter_context(open(DVC, encoding="utf-8"))
            until = time.monotonic() + PATIENCE
            while not try_lock(file, fcntl.LOCK_SH) and time.monotonic() < until:
                time.sleep(0.01)
        text = lock.read_bytes()
    stages = (yaml.load(text, Loader) or {}).get("stages") or {}
    files = {
        key: [
            (name, f["path"], f["md5"]) for name, of in stages.items() for f in of.get(key, ()) if "md5" in f
        ]
        for key in ("outs", "deps")
    }
    return _Lock(files, {name: of.get("params", {}).get("params.yaml", {}) for name, of in stages.items()})


def locked_md5(path: Path) -> str:
    """Return the md5 of an output in dvc.lock, or "unknown"."""
    return next((md5 for _, out, md5 in locked("outs") if out == str(path)), "unknown")


def read_note(stage: str) -> dict[str, Any]:
    """Return what the last good run of a stage noted (`write_note`); empty without one."""
    with suppress(OSError, ValueError):
        return json.loads((RUNS / f"{stage}.json").read_bytes())
    return {}


def write_note(stage: str, began: float) -> str:
    """Note when a stage's last good run began and ended; return the note's path.

    A sender adds the MLflow run to the note.
    """
    ended, path = time.time(), RUNS / f"{stage}.json"
    with suppress(OSError):  # a full disk
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"began": began, "ended": ended}) + "\n", encoding="utf-8")
    return str(path.resolve())


def md5_of(path: Path) -> str:
    """Return DVC's md5 of a file, or of a folder: that of the list of its files."""
    if not path.is_dir():
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "md5").hexdigest()
    files = sorted((p.relative_to(path).as_posix(), p) for p in path.rglob("*") if p.is_file())
    listed = [{"md5": md5_of(file), "relpath": name} for name, file in files]
    return (
        hashlib.md5(json.dumps(listed, sort_keys=True).encode(), usedforsecurity=False).hexdigest() + ".dir"
    )


def _by_hand(stage: str, out: Path) -> bool:
    """Return whether the stage's last good run wrote all of an output, and DVC wrote no dvc.lock since.

    DVC writes dvc.lock after every run of its own. So an older dvc.lock means a run by hand. A failing disk
    changes bytes but not times, so its files do not look written by hand.
    """
    try:
        run = read_note(stage)
        times = [p.stat().st_mtime for p in (out.rglob("*") if out.is_dir() else [out]) if p.is_file()]
        since = LOCK.stat().st_mtime < run["began"]
        return since and bool(times) and all(run["began"] - 1 <= at <= run["ended"] + 1 for at in times)
    except (OSError, ValueError, KeyError, TypeError):
        return False
