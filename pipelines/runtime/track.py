"""A stage run is an MLflow run, with params, inputs, live curves and pictures: what stages call for it. No MLflow here.

What a run logs goes to a file (`spool`) at once, and a `sender`, another process, takes it to MLflow: no stage imports MLflow or
waits for a server, but PATIENCE seconds at its end. What was not sent then, the next stage's sender sends, or
`python -m pipelines.runtime.track`. `MLFLOW_TRACKING_URI` wins when set; else the store is mlflow.db in the repository.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pipelines.runtime import intact, spool, store
from pipelines.runtime.device import resolve
from pipelines.runtime.spool import KEY, tracking_uri

PATIENCE = 25.0  # seconds that a finished stage waits for the server; MLflow waits 20 for a locked SQLite file, and then says so
LOOK_SECONDS = 2.0  # between two looks whether a sender is at work


class Run:
    """The MLflow run of a running stage. Numbers and files go to its file (`spool`), and a sender takes them from there."""

    def __init__(self, uri: str, start: list[Any]) -> None:
        self._uri, self._spool, self._lock = uri, spool.Spool(uri), threading.Lock()
        self._sender: subprocess.Popen[bytes] | None = None
        self._look = 0.0
        self._add(*start)

    def log(self, metrics: Mapping[str, Any], step: int = 0) -> None:
        """Log numbers at a step; nested mappings become `outer/inner`. Non-numbers are skipped."""
        self._add(
            "metrics",
            [
                (k, float(v), _now(), step)
                for k, v in flat(metrics, "/").items()
                if isinstance(v, (int, float))
            ],
        )

    def input(self, path: Path, context: str) -> None:
        """Record a file that this stage reads, with the digest DVC has for it."""
        self._add("input", path.stem, dvc_digest(path)[:36], str(path), context)

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Keep a file (a picture, a report) with the run."""
        self._add("artifact", str(path.resolve()), store.digest(path), folder)

    def table(self, rows: list[dict[str, Any]], file: str) -> None:
        """Keep a table with the run, shown by MLflow's evaluation view. `file` ends in .json."""
        self._add("table", {k: [r.get(k) for r in rows] for k in (rows[0] if rows else {})}, file)

    def remember(self, stage: str, began: float) -> None:
        """Note the last run of a stage that ended well, and its MLflow run once sent, for those who do not know MLflow."""
        path = intact.RUNS / f"{stage}.json"
        with suppress(OSError):  # a full disk
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"began": began, "ended": time.time()}) + "\n")
            self._add("remember", str(path.resolve()), began)

    def _add(self, *operation: Any) -> None:
        with self._lock, suppress(OSError):  # a full disk
            self._spool.add(list(operation))
            if time.monotonic() >= self._look:
                self._look = time.monotonic() + LOOK_SECONDS
                self._have_a_sender()

    def _have_a_sender(self) -> None:
        """Start one where none is at work. One that ended by itself has said why."""
        with suppress(OSError):
            if self._sender is None and not spool.served(self._uri):
                self._sender = start_sender()

    def close(self, status: str) -> None:
        """End the run, and wait until all of it is sent, PATIENCE at most."""
        self._add("end", status, _now())
        until = time.monotonic() + PATIENCE
        while self._spool.path.exists():
            self._have_a_sender()
            if self._sender and self._sender.poll() is not None:
                break
            if time.monotonic() > until:
                print(
                    f"{spool.UNREACHED} (TimeoutError: operations left after {PATIENCE:g} seconds)",
                    file=sys.stderr,
                )
                break
            time.sleep(0.005)
        self._spool.close()
        if self._sender:
            end_sender(self._sender, until - time.monotonic())


def start_sender() -> subprocess.Popen[bytes]:
    """In the repository: a new store puts its files beside itself."""
    command = [sys.executable, "-m", "pipelines.runtime.sender"]
    code = str(Path(__file__).parents[2])
    env = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, (code, os.environ.get("PYTHONPATH"))))}
    return subprocess.Popen(
        command, cwd=spool.repository(), env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL
    )


def end_sender(sender: subprocess.Popen[bytes], patience: float) -> None:
    """It ends with its standard input; but for a server that does not answer."""
    try:
        sender.communicate(timeout=max(patience, 0.0))
    except subprocess.TimeoutExpired:
        with spool.one_at_a_time():
            sender.kill()
        sender.wait()


class Silent(Run):
    """Logs nothing: the run of every rank but the first, as several ranks share one, and of a stage whose disk is full."""

    def __init__(self) -> None:
        pass

    def log(self, metrics: Mapping[str, Any], step: int = 0) -> None: ...
    def input(self, path: Path, context: str) -> None: ...
    def artifact(self, path: Path, folder: str | None = None) -> None: ...
    def table(self, rows: list[dict[str, Any]], file: str) -> None: ...
    def remember(self, stage: str, began: float) -> None: ...
    def close(self, status: str) -> None: ...


@contextmanager
def run(
    verb: str, name: str, row: BaseModel | None, study: str, named: Mapping[str, BaseModel] | None = None
) -> Iterator[Run]:
    """An MLflow run for one stage run, in the experiment of its verb; FAILED or KILLED when the block ends badly.

    `named`: rows that the row names, whose settings are params of the run too, so that what it measures can be drawn against
    them: `align.clusters`. A row that computes gets the tag `device`: which one its `device` stands for here. Raises BadInput
    where that is not here.
    """
    if os.environ.get("RANK", "0") != "0":
        yield Silent()
        return
    tags, settings = _tags(verb, name, row, study), _settings({"": row, **(named or {})})
    try:
        stage_run = Run(tracking_uri(), ["start", verb, name, _now(), tags, settings])
    except OSError as error:  # a full disk, which may still have room for what the stage makes elsewhere
        print(f"no MLflow run: its file cannot be written ({spool.reason(error)})", file=sys.stderr)
        stage_run = Silent()
    status, started, began = "FAILED", time.monotonic(), time.time()
    with _terminable():
        try:
            yield stage_run
            stage_run.remember(tags["dvc.stage"], began)
            status = "FINISHED"
        except (KeyboardInterrupt, SystemExit):
            status = "KILLED"
            raise
        finally:
            stage_run.log({"seconds": time.monotonic() - started})
            stage_run.close(status)


def _tags(verb: str, name: str, row: BaseModel | None, study: str) -> dict[str, str]:
    """What a run is found by: those of them that say something here."""
    asked = getattr(row, "device", None)
    tags = {
        "dvc.stage": f"{verb}@{name}" if row else verb,
        "dvc.exp": os.environ.get("DVC_EXP_NAME", ""),
        "dagster.run_id": os.environ.get("DAGSTER_RUN_ID", ""),
        "study": study,
        "device": str(resolve(asked)) if asked else "",
        "mlflow.source.git.commit": _commit(),
        "mlflow.note.content": f"`python -m pipelines.{verb} {name if row else ''}`",
        KEY: uuid.uuid4().hex,
    }
    return {key: value for key, value in tags.items() if value}


def _settings(rows: Mapping[str, BaseModel | None]) -> dict[str, str]:
    """Params of the run's row, which has no name, as they are, and of the others with theirs: `align.clusters`."""
    values = {}
    for name, row in rows.items():
        for key, value in flat(row.model_dump(mode="json") if row else {}, ".").items():
            values[f"{name}.{key.removeprefix('settings.')}" if name else key] = value
    return {key: str(value) for key, value in values.items() if value is not None}


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the block with SystemExit, so that the run ends too."""

    def stop(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@dataclass(frozen=True)
class Took:
    """What a finished run took."""

    seconds: float
    device: str  # empty: it computes nothing


def took(study: str) -> dict[str, Took]:
    """Of every stage of a study: how long its latest finished run took, and on which device."""
    from pipelines.runtime import sender

    out: dict[str, Took] = {}
    with suppress(Exception):  # the run of the stage that asks says that there is no server
        client = sender.client(tracking_uri())
        for experiment in client.search_experiments():
            for finished in client.search_runs(
                [experiment.experiment_id], "attributes.status = 'FINISHED'", max_results=1000
            ):
                stage = finished.data.tags.get("dvc.stage")  # latest first
                if stage and finished.data.tags.get("study") == study and "seconds" in finished.data.metrics:
                    out.setdefault(
                        stage, Took(finished.data.metrics["seconds"], finished.data.tags.get("device", ""))
                    )
    return out


def flat(nested: Mapping[str, Any], by: str) -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a/b": 1}"""
    out: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            out |= {f"{key}{by}{inner}": v for inner, v in flat(value, by).items()}
        else:
            out[str(key)] = value
    return out


def _commit() -> str:
    """The checkout's commit, marked where files differ from it; empty where there is none."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    with suppress(OSError):
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return ""


def _now() -> int:
    """Milliseconds, as MLflow counts."""
    return time.time_ns() // 1_000_000


def dvc_digest(path: Path) -> str:
    """The md5 that dvc.lock has for an output, or "unknown" outside `dvc repro`."""
    return next((md5 for _, out, md5 in intact.outs() if out == str(path)), "unknown")


def main() -> int:
    """`python -m pipelines.runtime.track`: send what waits, without running a stage."""
    from pipelines.runtime import sender

    uri, at_once = tracking_uri(), threading.Event()
    at_once.set()
    with spool.serving(uri, at_once) as alone:
        if alone:
            return sender.said(lambda: print(f"sent {sender.send_waiting(uri)} runs that waited"))
    print("a stage is running, and its sender sends what waits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
