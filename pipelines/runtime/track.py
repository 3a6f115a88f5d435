"""Record a stage run as an MLflow run with settings, inputs, live curves and pictures, without MLflow.

A run appends what it logs to a log file at once, and a `sender`, another process, sends the file to MLflow. A
stage waits for the server only at its end, and for PATIENCE seconds at most. Later senders send the rest.
`MLFLOW_TRACKING_URI` names the store; by default it is mlflow.db in the repository.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel

from pipelines.runtime import files, intact, sender, store
from pipelines.runtime.again import again, git
from pipelines.runtime.device import resolve

REFUSED = re.compile(r"[^\w/.: -]")  # by MLflow, in the name of a metric
PATIENCE = 25.0  # seconds; MLflow gives up a locked SQLite file after 20, and says so


class Run:
    """The MLflow run of a running stage. Before `open` it records nothing, as in ranks but the first."""

    _file: IO[str] | None = None

    def open(self, *start: Any) -> None:
        """Start a log file and a sender. Raises OSError if the disk is full."""
        self._lock = threading.Lock()
        path = sender.store_file(sender.tracking_uri(), f"-{time.time_ns()}-{os.getpid()}.jsonl")
        files.sweep([path.parent])
        draft = files.draft_of(path)
        file = open(draft, "a", encoding="utf-8")  # noqa: SIM115 - open until `close`
        fcntl.flock(file, fcntl.LOCK_EX)
        draft.rename(path)  # a sender sees only locked logs
        self._file, self._sender = file, start_sender(path)
        self._write("start", *start)

    def log(self, metrics: Mapping[str, Any], step: int = 0) -> None:
        """Log numbers at a step. Nested mappings become `outer/inner`; other values are skipped."""
        numbers = {k: float(v) for k, v in flat(metrics, "/").items() if isinstance(v, (int, float))}
        self._write("metrics", step, {REFUSED.sub("_", name): number for name, number in numbers.items()})

    def input(self, path: Path, context: str) -> None:
        """Record a file that the stage reads, with its digest in dvc.lock."""
        self._write("input", path.stem, intact.digest_of(path)[:36], str(path), context)

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Keep a file (a picture, a report) with the run."""
        self._write("artifact", str(path.resolve()), store.digest(path), folder)

    def table(self, rows: list[dict[str, Any]], file: str) -> None:
        """Keep a table with the run, for MLflow's evaluation view. `file` ends in .json."""
        self._write("table", {k: [r.get(k) for r in rows] for k in (rows[0] if rows else {})}, file)

    def note(self, path: Path, began: float) -> None:
        """Have the sender add the MLflow run to the note of the stage's last good run."""
        self._write("note", str(path.resolve()), began)

    def close(self, status: str) -> None:
        """End the run, and wait until a sender has sent all of it, PATIENCE at most."""
        if not self._file:
            return
        self._write("end", status)
        try:
            self._sender.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            print(f"MLflow is slow; the run is still being sent after {PATIENCE:g} seconds", file=sys.stderr)
        with suppress(OSError):  # a full disk, for an earlier line
            self._file.close()

    def _write(self, kind: str, *arguments: Any) -> None:
        """Write an operation with its time in milliseconds, as MLflow counts."""
        if self._file:
            with self._lock, suppress(OSError):  # a full disk
                print(json.dumps([kind, time.time_ns() // 10**6, *arguments]), file=self._file, flush=True)


def start_sender(log: Path) -> subprocess.Popen[bytes]:
    """Start a sender in the repository: a new store puts its files beside itself."""
    command = [sys.executable, "-m", "pipelines.runtime.sender", "--serve", str(log)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    return subprocess.Popen(command, cwd=sender.repository(), env=env, stdin=subprocess.PIPE)


@contextmanager
def run(
    verb: str, name: str, row: BaseModel | None, study: str, named: Mapping[str, BaseModel] | None = None
) -> Iterator[Run]:
    """Open an MLflow run for a stage run, in its verb's experiment; FAILED or KILLED if the block ends badly.

    `named`: rows that the row names. Their settings become params, too, such as `align.clusters`. A row that
    computes gets the tag `device`. Raises BadInput if that device is not on this machine.
    """
    stage_run = Run()
    if os.environ.get("RANK", "0") != "0":
        yield stage_run
        return
    tags = _tags(verb, name, row, study)
    try:
        stage_run.open(verb, name, tags, _settings({"": row, **(named or {})}))
    except OSError as error:  # a full disk, which may still have room for the stage's outputs
        print(f"no MLflow run: its file cannot be written ({sender.reason(error)})", file=sys.stderr)
    status, started, began = "KILLED", time.monotonic(), time.time()
    try:
        yield stage_run
        stage_run.note(intact.write_note(tags, began, time.monotonic() - started), began)
        status = "FINISHED"
    except Exception:
        status = "FAILED"
        raise
    finally:
        stage_run.log({"seconds": time.monotonic() - started})
        stage_run.close(status)


def _tags(verb: str, name: str, row: BaseModel | None, study: str) -> dict[str, str]:
    device = getattr(row, "device", None)
    stage = f"{verb}@{name}" if row else verb
    tags = {
        "dvc.stage": stage,
        "dvc.exp": os.environ.get("DVC_EXP_NAME", ""),
        "dagster.run_id": os.environ.get("DAGSTER_RUN_ID", ""),
        "study": study,
        "device": str(resolve(device)) if device else "",
        "mlflow.source.git.commit": git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"),
        "mlflow.note.content": f"`{again(study, stage)}`",
        sender.KEY: uuid.uuid4().hex,
    }
    return {key: value for key, value in tags.items() if value}


def _settings(rows: Mapping[str, BaseModel | None]) -> dict[str, str]:
    """Return the params of all rows, each under its row's name; the stage's own row has none."""
    values = {}
    for name, row in rows.items():
        for key, value in flat(row.model_dump(mode="json") if row else {}, ".").items():
            values[f"{name}.{key.removeprefix('settings.')}" if name else key] = value
    return {key: str(value) for key, value in values.items() if value is not None}


def flat(nested: Any, by: str, at: str = "") -> dict[str, Any]:
    """Flatten nested mappings: {"a": {"b": 1}} becomes {"a/b": 1}."""
    if not isinstance(nested, Mapping):
        return {at: nested}
    parts = (flat(value, by, f"{at}{by}{key}" if at else str(key)) for key, value in nested.items())
    return {key: value for part in parts for key, value in part.items()}
