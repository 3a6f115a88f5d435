"""Send the log files of runs to MLflow.

    python -m pipelines.runtime.sender                 # send what waits, once, if no other sender works
    python -m pipelines.runtime.sender --serve [LOG]   # send what runs write, until standard input ends

A run locks its log file (`track`). One sender at a time works for a store; others wait for its lock. What
MLflow refuses for good is dropped, and reported in one line. At any other error a sender prints one line and
ends; the next one sends the rest. Sending something twice changes nothing.
"""

import hashlib
import json
import logging
import os
import re
import sys
import threading
import time
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from pipelines import freeze_gc
from pipelines.runtime import files
from pipelines.runtime.errors import BadInput

for name, default in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # an address may contain a password
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",  # seconds; MLflow's defaults (120, 7 retries) wait five minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}.items():
    os.environ.setdefault(name, default)

KEY = "run.key"  # MLflow tag with the name of a run's log, which identifies a run that is sent again
PATIENCE = 25.0  # seconds to wait for a sender. MLflow tries a locked SQLite file for 20, then says so
FLUSH_SECONDS = 0.2  # between two uploads, which send many numbers at once: a request takes 15 ms
POLL_SECONDS = 0.05  # between two tries to get the lock
# Errors that a retry would only repeat
REFUSED = ("INVALID_PARAMETER_VALUE", "INVALID_STATE", "RESOURCE_DOES_NOT_EXIST")


def repository() -> Path:
    """Return the folder that runs belong to. `dvc exp run --temp` works in a copy below .dvc/tmp of it."""
    return Path(str(Path.cwd()).partition("/.dvc/tmp/")[0])


def tracking_uri() -> str:
    """Return the address of the MLflow store: by default a relative path, for any name of the folder."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def store_file(suffix: str) -> Path:
    """Return the path of a local file for the store, named by a digest: the address may hold a password."""
    folder = repository() / ".cache/mlflow"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / (hashlib.sha256(tracking_uri().encode()).hexdigest()[:12] + suffix)


def client() -> Any:
    """Return an MlflowClient of the store, after building the store's schema if that is new."""
    from mlflow.store.db import utils
    from mlflow.tracking import MlflowClient

    utils.MAX_RETRY_COUNT = 2  # MLflow's 10 are 100 seconds
    return MlflowClient(tracking_uri())


def reason(error: Exception) -> str:
    """Describe an error in one line without passwords."""
    line = " ".join(str(error).partition("\n")[0].split())
    return f"{type(error).__name__}: {re.sub(r'//[^/@ ]*@', '//', line)[:200]}"


class Upload:
    """Sends the operations in one run's log file to MLflow, with a method for each kind of operation."""

    def __init__(self, mlflow: Any, log: Path) -> None:
        from mlflow import entities, exceptions

        self._mlflow, self._entities, self._error = mlflow, entities, exceptions.MlflowException
        self._log, self._file = log, open(log, "rb+")  # noqa: SIM115
        self._partial_line, self._unsent = b"", list[list[Any]]()
        self._run = self._experiment = ""

    def advance(self) -> bool:
        """Send what is new; return whether the run is over, and delete the log of one that is.

        A run that ends without an `end` was killed.
        """
        dead = files.try_lock(self._file)  # before reading: a dead run writes nothing more
        *lines, self._partial_line = (self._partial_line + self._file.read()).split(b"\n")
        for line in lines:
            with suppress(ValueError):  # empty, or cut short by a full disk
                self._unsent.append(json.loads(line))
        over = bool(self._unsent) and self._unsent[-1][0] == "end"
        if dead and not over:
            self._unsent.append(["end", self._log.stat().st_mtime_ns // 1_000_000, "KILLED"])
        self._send()
        if dead or over:
            self._log.unlink(missing_ok=True)
            self._file.close()
        return dead or over

    def _send(self) -> None:
        """Do all operations; drop those that MLflow refuses for good. Without a `start` all are dropped."""
        for kind, group in groupby(self._unsent, lambda operation: operation[0]):
            calls = [arguments for _, *arguments in group]
            if kind == "metrics":
                calls = [[calls]]  # one request for all
            for arguments in calls:
                try:
                    if self._run or kind == "start":
                        getattr(self, f"_{kind}")(*arguments)
                except self._error as error:
                    if error.error_code not in REFUSED:
                        raise
                    print(f"MLflow refuses {kind} ({reason(error)})", file=sys.stderr)
        self._unsent.clear()

    def _start(self, at: int, verb: str, name: str, tags: dict[str, str], params: dict[str, str]) -> None:
        local = self._mlflow.tracking_uri.startswith("sqlite")
        folder = (repository() / "mlruns" / verb).as_uri() if local else None
        known = self._mlflow.get_experiment_by_name(verb)
        self._experiment = known.experiment_id if known else self._mlflow.create_experiment(verb, folder)
        params = {key: value[:6000] for key, value in params.items()}  # MLflow keeps no more
        run = self._first({KEY: self._log.name})
        if not run:
            before = self._first({key: tags.get(key, "") for key in ("dvc.stage", "study")})
            given = before.data.params if before else params
            changed = sorted(key for key in params if given.get(key, params[key]) != params[key])
            title = " ".join([name, *(f"{key.rpartition('.')[2]}={params[key]}" for key in changed)])
            tags = {**tags, KEY: self._log.name}
            run = self._mlflow.create_run(self._experiment, at, tags, title[:100])
        self._run = run.info.run_id
        settings = [self._entities.Param(*setting) for setting in params.items()]
        self._mlflow.log_batch(self._run, params=settings)

    def _first(self, tags: dict[str, str]) -> Any:
        """Return the first run with these tags, or None."""
        same = " and ".join(f'tags.`{key}` = "{value}"' for key, value in tags.items())
        runs = self._mlflow.search_runs([self._experiment], same, max_results=1, order_by=["start_time"])
        return runs[0] if runs else None

    def _metrics(self, points: list[tuple[int, int, dict[str, float]]]) -> None:
        metrics = []
        for at, step, numbers in points:
            metrics += [self._entities.Metric(name, number, at, step) for name, number in numbers.items()]
        self._mlflow.log_batch(self._run, metrics)

    def _input(self, at: int, name: str, digest: str, path: str, context: str) -> None:
        dataset = self._entities.Dataset(name, digest, "local", json.dumps({"uri": path}))
        tag = self._entities.InputTag("mlflow.data.context", context)
        self._mlflow.log_inputs(self._run, [self._entities.DatasetInput(dataset, [tag])])

    def _artifact(self, at: int, path: str, digest: str, folder: str | None) -> None:
        with suppress(FileNotFoundError):  # by now the file may be gone, or belong to a later run
            if files.digest(Path(path)) == digest:
                self._mlflow.log_artifact(self._run, path, folder)

    def _note(self, at: int, path: str, began: float) -> None:
        """Add the run to the stage's note of its last run, unless a later run wrote the note."""
        with suppress(OSError, ValueError, BadInput):
            note = json.loads(Path(path).read_bytes())
            if note["began"] == began:
                ids = {"run": self._run, "experiment": self._experiment}
                files.write_text(Path(path), json.dumps(note | ids) + "\n")

    def _end(self, at: int, status: str) -> None:
        self._mlflow.set_terminated(self._run, status, at)


def serve(stop: threading.Event, log: Path | None = None) -> int:
    """Send runs until `stop` is set. Return the exit code.

    Only one sender works at a time, so first wait for the lock. If another sender still has it when `stop` is
    set, send nothing: return once the other has sent and deleted `log`, or at once without a `log`.
    """
    with open(store_file(".lock"), "ab") as lock:
        while not files.try_lock(lock):
            if stop.is_set() and not (log and log.exists()):
                return 0
            time.sleep(POLL_SECONDS)
        try:
            send(stop)
        except Exception as error:  # a server, a proxy or a database may raise anything
            print(f"MLflow cannot be reached; runs wait in .cache/mlflow ({reason(error)})", file=sys.stderr)
            return 1
    return 0


def send(stop: threading.Event) -> None:
    """Send what runs write until `stop` is set, the newest run first: a stage may wait for it."""
    mlflow, uploads = client(), dict[Path, Upload]()
    pattern = store_file("-*.jsonl")
    freeze_gc()
    while True:
        last = stop.is_set()
        for log in sorted(pattern.parent.glob(pattern.name), reverse=True):
            uploads[log] = uploads.get(log) or Upload(mlflow, log)
            if uploads[log].advance():
                del uploads[log]
                if not last:
                    break  # look for a newer one
        else:
            if last:
                return
            stop.wait(FLUSH_SECONDS)


def follow_input(stop: threading.Event) -> None:
    """Set `stop` when standard input ends. PATIENCE seconds later, redirect the output to /dev/null.

    `make repro` reads what a stage and its sender print until both have closed it.
    """
    sys.stdin.buffer.read()
    stop.set()
    time.sleep(PATIENCE)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)


def main(arguments: list[str]) -> int:
    """Send once, or with --serve until standard input ends."""
    stop = threading.Event()
    match arguments:
        case []:
            stop.set()
        case ["--serve", *log] if len(log) < 2:
            threading.Thread(target=follow_input, args=(stop,), daemon=True).start()
        case _:
            print(__doc__, file=sys.stderr, flush=True)
            return 2
    try:
        return serve(stop, *map(Path, arguments[1:]))
    except OSError as error:  # no folder for the lock
        print(f"no run can be sent: {reason(error)}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    logging.disable()  # errors are reported here, in one line
    os._exit(main(sys.argv[1:]))  # skips the clean-up of MLflow's objects, which is slow
