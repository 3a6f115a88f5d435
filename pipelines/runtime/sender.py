"""Send the log files of runs to MLflow.

    python -m pipelines.runtime.sender           # send what waits, once
    python -m pipelines.runtime.sender --serve   # send what runs write, until standard input ends

A stage appends JSON lines to a log file of its own (`track`). Two locks say who is alive, because the system
releases the locks of a process that ends: a run locks its log file, and the sender at work locks its store.
Other senders wait for it. At its first error a sender prints one line and ends; the next one sends the rest.
To send something twice changes nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import signal
import sys
import threading
import time
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import IO, Any

from pipelines import freeze_gc

for variable, value in {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",  # errors are reported here, in one line
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # an address may contain a password
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",  # seconds; MLflow's defaults, 120 and 7 retries, are five minutes
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
}.items():
    os.environ.setdefault(variable, value)
for library in ("mlflow", "urllib3.connectionpool"):  # where MLflow is imported already
    logging.getLogger(library).setLevel(logging.CRITICAL)

KEY = "run.key"  # MLflow tag that identifies a run when it is sent again
UNREACHED = "MLflow cannot be reached; runs wait in .cache/mlflow for a stage that reaches it"
FLUSH_SECONDS = 2.0  # between two uploads of a curve: number by number, each would cost 15 ms
POLL_SECONDS = 0.05
BATCH, PARAMS = 1000, 100  # MLflow's limits for one log_batch
MOST, SHOWN = 3, 30  # settings in a run's name, and characters of each value
REFUSED = (
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "RESOURCE_DOES_NOT_EXIST",
)  # errors that a retry repeats


def repository() -> Path:
    """Return the folder that runs belong to. `dvc exp run --temp` works in a copy below .dvc/tmp of it."""
    return Path(str(Path.cwd()).partition("/.dvc/tmp/")[0])


def tracking_uri() -> str:
    """Return the address of the MLflow store. The default is relative: MLflow fails on some folder names."""
    return os.environ.get("MLFLOW_TRACKING_URI") or "sqlite:///mlflow.db"


def store_file(uri: str, suffix: str) -> Path:
    """Return a local file about a store, named by a digest: the store's address may contain a password."""
    folder = repository() / ".cache/mlflow"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / (hashlib.sha256(uri.encode()).hexdigest()[:12] + suffix)


def try_lock(file: IO[Any]) -> bool:
    """Lock a file unless another process holds its lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def client(uri: str) -> Any:
    """Return an MlflowClient of a store, after building the store's schema if that is new."""
    from mlflow.store.db import utils
    from mlflow.tracking import MlflowClient

    utils.MAX_RETRY_COUNT = 2  # MLflow's 10 are 100 seconds
    return MlflowClient(uri)


def reason(error: Exception) -> str:
    """Describe an error in one line without passwords."""
    line = " ".join((str(error).splitlines() or [""])[0].split())
    line = re.sub(r"//[^/@ ]*@", "//", line)[:200]
    return f"{type(error).__name__}: {line}"


class Upload:
    """Sends the operations in one run's log file to MLflow, with a method for each kind of operation."""

    def __init__(self, client: Any, path: Path) -> None:
        self._client, self._path, self._file = client, path, open(path, "rb+")  # noqa: SIM115
        self._partial_line, self._unsent, self._next_flush = b"", list[list[Any]](), 0.0
        self._run = self._experiment = ""

    def advance(self, flush: bool = False) -> bool:
        """Send what is new and return whether the run is over. Raises what MLflow raises.

        Operations are sent every FLUSH_SECONDS, or at once if `flush` or if the run is over. A run that ended
        without an `end` was killed.
        """
        dead = try_lock(self._file)  # before reading: nothing can follow what is read then
        *lines, self._partial_line = (self._partial_line + self._file.read()).split(b"\n")
        for line in lines:
            with suppress(ValueError):  # a full disk cut the line short
                self._unsent.append(json.loads(line))
        ended = bool(self._unsent) and self._unsent[-1][0] == "end"
        if dead and not ended:
            self._unsent.append(["end", self._path.stat().st_mtime_ns // 1_000_000, "KILLED"])
        if dead or ended or flush or time.monotonic() >= self._next_flush:
            self._send()
            self._next_flush = time.monotonic() + FLUSH_SECONDS
        if dead or ended:
            self._path.unlink(missing_ok=True)
            self._file.close()
        return dead or ended

    def _send(self) -> None:
        """Do all operations; drop those that MLflow refuses for good. Without a `start` all are dropped."""
        from mlflow.exceptions import MlflowException

        for kind, group in groupby(self._unsent, lambda operation: operation[0]):
            calls = [arguments for _, *arguments in group]
            if kind == "metrics":
                calls = [
                    [[(name, number, at, step) for at, step, of in calls for name, number in of.items()]]
                ]
            for arguments in calls:
                try:
                    if self._run or kind == "start":
                        getattr(self, f"_{kind}")(*arguments)
                except MlflowException as error:
                    if error.error_code not in REFUSED:
                        raise
                    print(f"MLflow refuses {kind} ({reason(error)})", file=sys.stderr, flush=True)
        self._unsent.clear()

    def _start(
        self, started: int, experiment: str, name: str, tags: dict[str, str], params: dict[str, str]
    ) -> None:
        from mlflow.entities import Param

        if known := self._client.get_experiment_by_name(experiment):
            self._experiment = known.experiment_id
        else:
            local = self._client.tracking_uri.startswith("sqlite")
            folder = (repository() / "mlruns" / experiment).as_uri() if local else None
            self._experiment = self._client.create_experiment(experiment, folder)
        same_key = f"tags.`{KEY}` = '{tags[KEY]}'"
        runs = self._client.search_runs([self._experiment], same_key, max_results=1)
        if not runs:
            title = f"{name} {self._differences(tags, params)}".strip()
            runs = [self._client.create_run(self._experiment, started, tags, title)]
        self._run = runs[0].info.run_id
        values = [Param(key, value[:6000]) for key, value in params.items()]
        for i in range(0, len(values), PARAMS):
            self._client.log_batch(self._run, params=values[i : i + PARAMS])

    def _differences(self, tags: dict[str, str], params: dict[str, str]) -> str:
        """Return the settings that the stage's first run in this study did not have: `clusters=40`."""
        same = " and ".join(
            f"""tags.`{k}` = '{tags.get(k, "").replace("'", "")}'""" for k in ("dvc.stage", "study")
        )
        first = self._client.search_runs(
            [self._experiment], same, max_results=1, order_by=["attributes.start_time ASC"]
        )
        before = first[0].data.params if first else {}
        changed = [key for key in before.keys() & params.keys() if before[key] != params[key][:6000]]
        words = [f"{key.rpartition('.')[2]}={params[key][:SHOWN]}" for key in sorted(changed)]
        return " ".join(words[:MOST]) + (f" and {len(words) - MOST} more" if len(words) > MOST else "")

    def _metrics(self, rows: list[tuple[str, float, int, int]]) -> None:
        from mlflow.entities import Metric

        for i in range(0, len(rows), BATCH):
            self._client.log_batch(self._run, metrics=[Metric(*row) for row in rows[i : i + BATCH]])

    def _input(self, at: int, name: str, digest: str, path: str, context: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(name, digest, "local", json.dumps({"uri": path}))
        used = DatasetInput(dataset, [InputTag("mlflow.data.context", context)])
        self._client.log_inputs(self._run, [used])

    def _artifact(self, at: int, path: str, digest: str, folder: str | None) -> None:
        with suppress(FileNotFoundError):  # by now the file may be gone, or belong to a later run
            if hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest:
                self._client.log_artifact(self._run, path, folder)

    def _table(self, at: int, columns: dict[str, list[Any]], file: str) -> None:
        if file not in [f.path for f in self._client.list_artifacts(self._run)]:  # MLflow would append to it
            self._client.log_table(self._run, columns, file)

    def _note(self, at: int, path: str, began: float) -> None:
        """Add the run to the stage's note of its last run, unless a later run wrote the note."""
        with suppress(OSError, ValueError):
            note = json.loads(Path(path).read_text(encoding="utf-8"))
            if note["began"] == began:
                ids = {"run": self._run, "experiment": self._experiment}
                Path(path).write_text(json.dumps(note | ids) + "\n", encoding="utf-8")

    def _end(self, at: int, status: str) -> None:
        self._client.set_terminated(self._run, status, at)


def serve(uri: str, stop: threading.Event, log: Path | None = None) -> int:
    """Send the runs of a store until `stop` is set; return the exit code. Other senders wait for their turn.

    A sender that has not had its turn ends when `stop` is set, but not before another one has sent `log`.
    """
    with open(store_file(uri, ".lock"), "a", encoding="utf-8") as lock:
        while not try_lock(lock):
            if stop.wait(POLL_SECONDS) and not (log and log.exists()):
                return 0
        try:
            send(uri, stop)
        except Exception as error:  # a server, a proxy or a database may raise anything
            print(f"{UNREACHED} ({reason(error)})", file=sys.stderr, flush=True)
            return 1
    return 0


def send(uri: str, stop: threading.Event) -> None:
    """Send what runs write until `stop` is set, the newest run first: a stage may wait for it."""
    mlflow, uploads, last = client(uri), dict[Path, Upload](), False
    freeze_gc()
    while not last:
        last = stop.is_set()
        pattern = store_file(uri, "-*.jsonl")
        for path in sorted(pattern.parent.glob(pattern.name), reverse=True):
            uploads[path] = uploads.get(path) or Upload(mlflow, path)
            if uploads[path].advance(flush=last):
                del uploads[path]
                if not last:
                    break  # look for a newer one
        else:
            stop.wait(POLL_SECONDS)


def main(arguments: list[str]) -> int:
    """Send once, or serve until standard input ends; Ctrl-C and SIGTERM are meant for stages then."""
    stop = threading.Event()
    if arguments[:1] != ["--serve"]:
        stop.set()
        return serve(tracking_uri(), stop)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), stop.set()), daemon=True).start()
    return serve(tracking_uri(), stop, *map(Path, arguments[1:]))


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))  # MLflow's objects need no farewell
