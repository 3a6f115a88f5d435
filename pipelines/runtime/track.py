"""The only module but `publish` that knows MLflow: a stage run is an MLflow run, with params, inputs, live curves and pictures.

What a run logs is a queue of operations, which a thread sends every two seconds: one by one they would cost 15 ms each, all at
the end they would not be live, and a stage does not wait for a server. At the first error, or where the server is not done
PATIENCE seconds after the stage, the run says so in one line, and from there on its operations go to a file (`spool`) that the
next stage sends, or `python -m pipelines.runtime.track`. `MLFLOW_TRACKING_URI` wins when set; else the store is mlflow.db in the
repository.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pipelines.runtime import intact, store
from pipelines.runtime.device import resolve
from pipelines.runtime.spool import Spool, waiting

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "CRITICAL")  # the one line is ours; and it tells of every table of a new store
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")  # an address may have a password in it
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "5")  # seconds; MLflow's own 120, and 7 retries, are five minutes
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
for library in ("mlflow", "urllib3.connectionpool"):  # the variable says nothing to an MLflow that is imported already
    logging.getLogger(library).setLevel(logging.CRITICAL)
FLUSH_SECONDS = 2.0
PATIENCE = 20.0  # seconds that a finished stage waits for the server
BATCH, PARAMS = 1000, 100  # MLflow's own limits for one log_batch
KEY = "run.key"  # the tag that a run is found again by
REFUSED = ("INVALID_PARAMETER_VALUE", "INVALID_STATE", "RESOURCE_DOES_NOT_EXIST")  # errors that sending again does not mend


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


class Sender:
    """Sends the operations of one run, `[method, *arguments]`. To send one again changes nothing."""

    def __init__(self, uri: str, cache: Path) -> None:
        self._uri, self._cache, self._id, self.made = uri, cache, "", {}  # the last: the run and its experiment, once known

    def send(self, operation: list[Any]) -> None:
        """Raises what MLflow raises; an operation that it refuses for good is dropped, and all of a run that it refuses."""
        from mlflow.exceptions import MlflowException

        method, *arguments = operation
        try:
            if self._id or method == "start":
                getattr(self, method)(*arguments)
        except MlflowException as error:
            if error.error_code not in REFUSED:
                raise
            _warn(f"MLflow refuses {method}", error)

    def start(self, experiment: str, name: str, started: int, tags: dict[str, str], params: dict[str, str]) -> None:
        from mlflow.entities import Param

        with _one_at_a_time(self._cache):
            self._client = _client(self._uri)
            known = self._client.get_experiment_by_name(experiment)
            number = known.experiment_id if known else self._client.create_experiment(experiment)
        runs = self._client.search_runs([number], f"tags.`{KEY}` = '{tags[KEY]}'", max_results=1)
        run = runs[0] if runs else self._client.create_run(number, started, tags, name)
        self._id, self.made = run.info.run_id, {"run": run.info.run_id, "experiment": number}
        values = [Param(k, v[:6000]) for k, v in params.items()]
        for i in range(0, len(values), PARAMS):
            self._client.log_batch(self._id, params=values[i : i + PARAMS])

    def metrics(self, rows: list[tuple[str, float, int, int]]) -> None:
        from mlflow.entities import Metric

        self._client.log_batch(self._id, metrics=[Metric(*row) for row in rows])

    def input(self, name: str, digest: str, uri: str, context: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(name, digest, "local", f'{{"uri": "{uri}"}}')
        self._client.log_inputs(self._id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def artifact(self, path: str, digest: str, folder: str | None) -> None:
        with suppress(FileNotFoundError):  # sent late, a file may be gone, or another run's
            if store.digest(Path(path)) == digest:
                self._client.log_artifact(self._id, path, folder)

    def table(self, columns: dict[str, list[Any]], file: str) -> None:
        if file not in [f.path for f in self._client.list_artifacts(self._id)]:  # MLflow appends to one that is there
            self._client.log_table(self._id, columns, file)

    def end(self, status: str, ended: int) -> None:
        self._client.set_terminated(self._id, status, ended)


class Run:
    """The MLflow run of a running stage."""

    def __init__(self, uri: str, start: list[Any]) -> None:
        cache = repository() / ".cache"
        self._queue, self._lock, self._closing = deque([start]), threading.Lock(), threading.Event()
        self._sending = threading.Lock()
        self._down, self._spool = False, Spool.new(_spools(cache) / f"{_place(uri)}-{time.time_ns()}-{os.getpid()}.jsonl")
        self._spool.add(start)  # a process that is killed leaves this, for its run to be ended
        self._sender = Sender(uri, cache)
        self._thread = threading.Thread(target=self._send, args=(uri, cache), daemon=True)
        if uri.startswith("sqlite"):  # a file is there at once, but for its schema, which must not be cut short
            self.flush()
        self._thread.start()

    @property
    def made(self) -> dict[str, str]:
        """The ids of the run and of its experiment; empty as long as the server has not named them."""
        return self._sender.made

    def log(self, metrics: Mapping[str, Any], step: int = 0) -> None:
        """Log numbers at a step; nested mappings become `outer/inner`. Non-numbers are skipped."""
        rows = [(k, float(v), _now(), step) for k, v in flat(metrics, "/").items() if isinstance(v, (int, float))]
        with self._lock:
            last = self._queue[-1] if len(self._queue) > 1 else []  # the first is being sent
            if last and last[0] == "metrics" and len(last[1]) + len(rows) <= BATCH:
                last[1].extend(rows)
            else:
                self._queue += [["metrics", rows[i : i + BATCH]] for i in range(0, len(rows), BATCH)]

    def input(self, path: Path, context: str) -> None:
        """Record a file that this stage reads, with the digest DVC has for it."""
        self._add("input", path.stem, dvc_digest(path)[:36], str(path), context)

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Keep a file (a picture, a report) with the run."""
        self._add("artifact", str(path.resolve()), store.digest(path), folder)

    def table(self, rows: list[dict[str, Any]], file: str) -> None:
        """Keep a table with the run, shown by MLflow's evaluation view. `file` ends in .json."""
        self._add("table", {k: [r.get(k) for r in rows] for k in (rows[0] if rows else {})}, file)

    def _add(self, *operation: Any) -> None:
        with self._lock:
            self._queue.append(list(operation))

    def flush(self) -> None:
        """Send the queue, or keep it: an operation leaves it when it is sent or kept."""
        with self._sending:  # of two threads that start one run, each would make one
            while operation := self._first():
                if not self._down:
                    try:
                        self._sender.send(operation)
                    except Exception as error:  # whatever a server, a proxy or a database can come up with
                        self._give_up(error)
                with self._lock:
                    if self._queue and self._queue[0] is operation:  # else `close` has stopped waiting
                        if self._down:
                            self._keep(operation)
                        self._queue.popleft()

    def _first(self) -> list[Any]:
        with self._lock:
            return self._queue[0] if self._queue else []

    def _send(self, uri: str, cache: Path) -> None:
        self.flush()
        if not self._down:
            with suppress(Exception):
                for _ in send_waiting(uri, cache):
                    self.flush()
                    if self._closing.is_set():
                        break
        while not self._closing.wait(FLUSH_SECONDS):
            self.flush()
        self.flush()

    def _give_up(self, error: Exception) -> None:
        if not self._down:
            _warn("MLflow cannot be reached; this run waits in .cache/mlflow for a stage that reaches it", error)
        self._down = True

    def _keep(self, operation: list[Any]) -> None:
        with suppress(OSError):  # a full disk
            if operation[0] != "start":
                self._spool.add(operation)

    def close(self, status: str) -> None:
        self._add("end", status, _now())
        self._closing.set()
        self._thread.join(PATIENCE)
        with self._lock:
            if self._queue:
                self._give_up(TimeoutError(f"{len(self._queue)} operations left after {PATIENCE:g} seconds"))
            while self._queue:
                self._keep(self._queue.popleft())
        (self._spool.close if self._down else self._spool.remove)()


class Silent(Run):
    """Logs nothing: the run of every rank but the first, as several ranks share one MLflow run."""

    def __init__(self) -> None:
        pass

    def log(self, metrics: Mapping[str, Any], step: int = 0) -> None: ...
    def input(self, path: Path, context: str) -> None: ...
    def artifact(self, path: Path, folder: str | None = None) -> None: ...
    def table(self, rows: list[dict[str, Any]], file: str) -> None: ...


@contextmanager
def run(verb: str, name: str, row: BaseModel | None, study: str, named: Mapping[str, BaseModel] | None = None) -> Iterator[Run]:
    """An MLflow run for one stage run, in the experiment of its verb; FAILED or KILLED when the block ends badly.

    `named`: rows that the row names, whose settings are params of the run too, so that what it measures can be drawn against
    them: `align.clusters`. A row that computes gets the tag `device`: which one its `device` stands for here. Raises BadInput
    where that is not here.
    """
    if os.environ.get("RANK", "0") != "0":
        yield Silent()
        return
    uri, tags, settings = tracking_uri(), _tags(verb, name, row, study), _settings({"": row, **(named or {})})
    _import(uri)
    stage_run = Run(uri, ["start", verb, name, _now(), tags, settings])
    status, started, began, ended = "FAILED", time.monotonic(), time.time(), 0.0
    with _terminable():
        try:
            yield stage_run
            status, ended = "FINISHED", time.time()
        except (KeyboardInterrupt, SystemExit):
            status = "KILLED"
            raise
        finally:
            stage_run.log({"seconds": time.monotonic() - started})
            stage_run.close(status)
    if ended:
        _remember(tags["dvc.stage"], stage_run.made | {"began": began, "ended": ended})


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


def _remember(stage: str, about: dict[str, Any]) -> None:
    """The last run of a stage that ended well, and its MLflow run if that was sent, for those who do not know MLflow."""
    path = intact.RUNS / f"{stage}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(about) + "\n")


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


def send_waiting(uri: str, cache: Path) -> Iterator[None]:
    """Run by run, send what could not be sent to this store, and end what was killed. Raises what MLflow raises."""
    for spool in waiting(_spools(cache), f"{_place(uri)}-*.jsonl"):
        operations = spool.operations()
        if operations and operations[-1][0] != "end":
            operations.append(["end", "KILLED", int(spool.path.stat().st_mtime * 1000)])
        sender = Sender(uri, cache)
        for operation in operations:
            sender.send(operation)
        spool.remove()
        yield


def _spools(cache: Path) -> Path:
    return cache / "mlflow"


def _place(uri: str) -> str:
    """A store's name in files: its address may have a password in it."""
    return hashlib.sha256(uri.encode()).hexdigest()[:12]


def _import(uri: str) -> None:
    """What the thread needs: two threads that import may wait for each other."""
    import mlflow.tracking

    if "://" in uri and not uri.startswith("http"):
        import mlflow.store.tracking.sqlalchemy_store  # noqa: F401


def _client(uri: str) -> Any:
    from mlflow.store.db import utils
    from mlflow.tracking import MlflowClient

    utils.MAX_RETRY_COUNT = 2  # its 10 are 100 seconds
    return MlflowClient(uri)


def _warn(what: str, error: Exception) -> None:
    print(f"{what} ({reason(error)})", file=sys.stderr)


def reason(error: Exception) -> str:
    """What went wrong, in one line and without secrets."""
    line = " ".join((str(error).splitlines() or [""])[0].split())
    line = re.sub(r"//[^/@ ]*@", "//", line)[:200]  # an address may have a password in it
    return f"{type(error).__name__}: {line}"


@contextmanager
def _one_at_a_time(cache: Path) -> Iterator[None]:
    """Two processes that build the schema of a new store at once both crash."""
    with open(cache / "mlflow.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Took:
    """What a finished run took."""

    seconds: float
    device: str  # empty: it computes nothing


def took(study: str) -> dict[str, Took]:
    """Of every stage of a study: how long its latest finished run took, and on which device."""
    out: dict[str, Took] = {}
    with suppress(Exception):  # the run of the stage that asks says that there is no server
        client = _client(tracking_uri())
        for experiment in client.search_experiments():
            for finished in client.search_runs([experiment.experiment_id], "attributes.status = 'FINISHED'", max_results=1000):
                stage = finished.data.tags.get("dvc.stage")  # latest first
                if stage and finished.data.tags.get("study") == study and "seconds" in finished.data.metrics:
                    out.setdefault(stage, Took(finished.data.metrics["seconds"], finished.data.tags.get("device", "")))
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
    uri = tracking_uri()
    _import(uri)
    try:
        print(f"sent {sum(1 for _ in send_waiting(uri, repository() / '.cache'))} runs that waited")
    except Exception as error:
        _warn("MLflow cannot be reached", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
