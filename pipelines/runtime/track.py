"""Record a stage run as an MLflow run, without MLflow: a `sender`, another process, sends the run's log file.

A stage waits for the server only at its end, and for PATIENCE seconds at most. Later senders send the rest.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from io import FileIO
from numbers import Real
from pathlib import Path
from subprocess import PIPE, Popen, TimeoutExpired
from typing import Any

import torch
from pydantic import BaseModel

from pipelines.runtime import files, intact, sender, store
from pipelines.runtime.again import again, git
from pipelines.runtime.device import resolve

FORBIDDEN = re.compile(r"[^\w/.: -]")  # by MLflow, in the name of a metric or param
Rows = Mapping[str, BaseModel | None]


class Run:
    """The MLflow run of a running stage. It records nothing before `open`, which only rank 0 calls."""

    _file: FileIO | None = None

    def open(self, verb: str, name: str, tags: dict[str, str], params: dict[str, str]) -> None:
        """Start a log file and a sender. Raises OSError if the disk is full."""
        path = sender.store_file(f"-{time.time_ns()}-{os.getpid()}.jsonl")
        files.sweep([path.parent])
        draft = files.draft_of(path)
        file = FileIO(draft, "a")  # without a buffer: threads write whole lines
        files.try_lock(file)
        draft.rename(path)  # a sender sees only locked logs
        self._file, self._sender = file, start_sender(path)
        self.record("start", verb, name, tags, params)

    def record(self, kind: str, *arguments: Any) -> None:
        """Write an operation for the sender, with its time in milliseconds, as MLflow counts."""
        if self._file:
            with suppress(OSError):  # a full disk; it may also cut a line short, so each begins on a new one
                self._file.write(f"\n{json.dumps([kind, time.time_ns() // 10**6, *arguments])}\n".encode())

    def log(self, metrics: Mapping[str, Any], step: int = 0) -> None:
        """Log numbers at a step. Nested mappings become `outer/inner`; other values are skipped."""
        flat = {FORBIDDEN.sub("_", name): value for name, value in store.flat(metrics, "/").items()}
        self.record("metrics", step, {name: float(v) for name, v in flat.items() if _is_number(v)})

    def input(self, path: Path, context: str) -> None:
        """Record a file that the stage reads, with its digest in dvc.lock. context: what it is read for."""
        md5 = intact.locked_md5(path)[:36]  # MLflow takes no more
        self.record("input", path.stem, md5, str(path), context)

    def partners(self, *names: str, device: torch.device) -> list[store.Embeddings]:
        """Read embeddings of the same texts in the same order, and record their files as inputs."""
        sides = [store.read_embeddings(name, device) for name in names]
        for side in sides:
            store.check_same_texts(sides[0], side)
            self.input(store.embeddings_path(side.name), "pairs")
        return sides

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Keep a file (a picture, a report) with the run."""
        self.record("artifact", str(path.resolve()), files.digest(path), folder)

    def close(self, status: str) -> None:
        """End the run, and wait until a sender has sent all of it, PATIENCE at most."""
        if self._file:
            self.record("end", status)
            try:
                self._sender.communicate(timeout=sender.PATIENCE)
            except TimeoutExpired:
                slow = f"MLflow is slow; the run is still being sent after {sender.PATIENCE:g} s"
                print(slow, file=sys.stderr)
            self._file.close()


def _is_number(value: Any) -> bool:
    """Return whether a value is a number of Python, NumPy or torch."""
    return isinstance(value, Real) or (isinstance(value, torch.Tensor) and value.ndim == 0)


def start_sender(log: Path) -> Popen[bytes]:
    """Start a sender in the repository's folder, where a new store and its files belong.

    It runs in a session of its own, so that the stage's Ctrl-C does not stop it.
    """
    command = [sys.executable, "-m", "pipelines.runtime.sender", "--serve", str(log)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])}
    return Popen(command, cwd=sender.repository(), env=env, stdin=PIPE, start_new_session=True)


@contextmanager
def run(verb: str, name: str, row: BaseModel | None, study: str, named: Rows | None = None) -> Iterator[Run]:
    """Open an MLflow run for a stage run, in its verb's experiment.

    Its status is FAILED or KILLED if the block raises or is interrupted. Settings of the rows `named` become
    params, too: `align.clusters`. Raises BadInput for a missing device.
    """
    stage_run = Run()
    if os.environ.get("RANK", "0") != "0":
        yield stage_run
        return
    tags = _tags(verb, name, row, study)
    try:
        stage_run.open(verb, name, tags, _params({"": row, **(named or {})}))
    except OSError as error:  # a full disk, which may still have room for the stage's outputs
        print(f"no MLflow run: its file cannot be written ({sender.reason(error)})", file=sys.stderr)
    status, started, began = "KILLED", time.monotonic(), time.time()
    try:
        yield stage_run
        stage_run.record("note", intact.write_note(tags["dvc.stage"], began), began)
        status = "FINISHED"
    except Exception:
        status = "FAILED"
        raise
    finally:
        stage_run.log({"seconds": time.monotonic() - started})
        stage_run.close(status)


def _tags(verb: str, name: str, row: BaseModel | None, study: str) -> dict[str, str]:
    stage = f"{verb}@{name}" if row else verb
    tags = {
        "dvc.stage": stage,
        "dvc.exp": os.environ.get("DVC_EXP_NAME", ""),
        "dagster.run_id": os.environ.get("DAGSTER_RUN_ID", ""),
        "study": study,
        "device": str(resolve(device)) if (device := getattr(row, "device", None)) else "",
        "mlflow.source.git.commit": git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"),
        "mlflow.note.content": f"`{again(study, stage)}`",
    }
    return {key: value for key, value in tags.items() if value}


def _params(rows: Rows) -> dict[str, str]:
    """Return the params of the stage's row, whose name is "", and of rows that it names: `align.clusters`."""
    values = {}
    for name, row in rows.items():
        for key, value in store.flat(row.model_dump(mode="json") if row else {}, ".").items():
            key = key.removeprefix("settings.")
            values[FORBIDDEN.sub("_", f"{name}.{key}" if name else key)] = value
    return {key: "null" if value is None else str(value) for key, value in values.items()}
