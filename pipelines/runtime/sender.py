"""`python -m pipelines.runtime.sender`: sends what runs write (`spool`) to MLflow, as long as its standard input is open.

Whoever starts one ends it: `scripts/repro.py` keeps one for all of its stages, a stage without one starts its own. Curves are
sent every two seconds: one by one, numbers would cost 15 ms each. At the first error it says so in one line and ends. What is
not sent, the next sender sends: to send an operation again changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Any

from pipelines import imported
from pipelines.runtime import spool

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault(
    "MLFLOW_LOGGING_LEVEL", "CRITICAL"
)  # the one line is ours; and it tells of every table of a new store
os.environ.setdefault(
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true"
)  # an address may have a password in it
os.environ.setdefault(
    "MLFLOW_HTTP_REQUEST_TIMEOUT", "5"
)  # seconds; MLflow's own 120, and 7 retries, are five minutes
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
for library in (
    "mlflow",
    "urllib3.connectionpool",
):  # the variable says nothing to an MLflow that is imported already
    logging.getLogger(library).setLevel(logging.CRITICAL)
FLUSH_SECONDS = 2.0
TICK_SECONDS = 0.05  # between two looks whether a run has begun or ended
BATCH, PARAMS = 1000, 100  # MLflow's own limits for one log_batch
REFUSED = (
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "RESOURCE_DOES_NOT_EXIST",
)  # errors that sending again does not mend


class Remote:
    """One run in MLflow: a method for each operation."""

    def __init__(self, client: Any) -> None:
        self._client, self._id, self._experiment, self._said = client, "", "", set[str]()

    def send(self, method: str, *arguments: Any) -> bool:
        """Raises what MLflow raises. False: MLflow refuses the operation for good; where that is the first, all are dropped."""
        from mlflow.exceptions import MlflowException

        try:
            if self._id or method == "start":
                getattr(self, method)(*arguments)
        except MlflowException as error:
            if error.error_code not in REFUSED:
                raise
            if method not in self._said:
                print(f"MLflow refuses {method} ({spool.reason(error)})", file=sys.stderr, flush=True)
            self._said.add(method)
            return False
        return True

    def start(
        self, experiment: str, name: str, started: int, tags: dict[str, str], params: dict[str, str]
    ) -> None:
        from mlflow.entities import Param

        known = self._client.get_experiment_by_name(experiment)
        self._experiment = known.experiment_id if known else self._client.create_experiment(experiment)
        runs = self._client.search_runs(
            [self._experiment], f"tags.`{spool.KEY}` = '{tags[spool.KEY]}'", max_results=1
        )
        run = runs[0] if runs else self._client.create_run(self._experiment, started, tags, name)
        self._id = run.info.run_id
        values = [Param(k, v[:6000]) for k, v in params.items()]
        for i in range(0, len(values), PARAMS):
            self._client.log_batch(self._id, params=values[i : i + PARAMS])

    def metrics(self, rows: list[tuple[str, float, int, int]]) -> None:
        from mlflow.entities import Metric

        for i in range(0, len(rows), BATCH):
            self._client.log_batch(self._id, metrics=[Metric(*row) for row in rows[i : i + BATCH]])

    def input(self, name: str, digest: str, uri: str, context: str) -> None:
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(name, digest, "local", f'{{"uri": "{uri}"}}')
        self._client.log_inputs(self._id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def artifact(self, path: str, digest: str, folder: str | None) -> None:
        with suppress(FileNotFoundError):  # sent late, a file may be gone, or another run's
            if hashlib.sha256(Path(path).read_bytes()).hexdigest() == digest:
                self._client.log_artifact(self._id, path, folder)

    def table(self, columns: dict[str, list[Any]], file: str) -> None:
        if file not in [
            f.path for f in self._client.list_artifacts(self._id)
        ]:  # MLflow appends to one that is there
            self._client.log_table(self._id, columns, file)

    def remember(self, path: str, began: float) -> None:
        """Add this run to what the stage noted of it, unless that is of a later one."""
        with suppress(OSError, ValueError):
            note = json.loads(Path(path).read_text())
            if note["began"] == began:
                Path(path).write_text(
                    json.dumps(note | {"run": self._id, "experiment": self._experiment}) + "\n"
                )

    def end(self, status: str, ended: int) -> None:
        self._client.set_terminated(self._id, status, ended)


class Forward:
    """One run's operations, from its file to MLflow."""

    def __init__(self, client: Any, path: Path) -> None:
        self._reader, self._remote = spool.Reader(path), Remote(client)
        self._due, self._kept, self._begun = 0.0, list[list[Any]](), False

    def send(self, now: bool = False) -> bool:
        """What is new, every two seconds or `now`; at once when the run has ended, and then True. Raises what MLflow raises.

        A run whose process is gone without a word was killed.
        """
        operations, over = self._reader.read()
        self._kept += operations
        self._begun |= bool(operations)
        ended = bool(self._kept) and self._kept[-1][0] == "end"
        if over and self._begun and not ended:
            self._kept.append(["end", "KILLED", self._reader.written()])
        if over or ended or now or time.monotonic() >= self._due:
            self._send()
            self._due = time.monotonic() + FLUSH_SECONDS
        if over or ended:
            self._reader.remove()
        return over or ended

    def _send(self) -> None:
        for method, group in groupby(self._kept, lambda operation: operation[0]):
            alike = list(group)
            if method == "metrics" and self._remote.send(
                "metrics", [row for _, rows in alike for row in rows]
            ):
                continue
            for operation in alike:  # of metrics, if MLflow refuses one of them
                self._remote.send(*operation)
        self._kept.clear()


def serve(uri: str, stop: threading.Event) -> None:
    """Send what runs write, and what waits of earlier ones, until `stop` is set. Raises what MLflow raises."""
    mlflow, under_way, last = client(uri), dict[Path, Forward](), False
    imported()
    while not last:
        last = stop.is_set()
        for path in spool.paths(uri):
            if path not in under_way:
                under_way[path] = Forward(mlflow, path)
            if under_way[path].send(last):
                del under_way[path]
                break  # to look at the newest first
        else:
            stop.wait(TICK_SECONDS)


def send_waiting(uri: str) -> int:
    """Send what waits, without running a stage. Returns how many runs that was. Raises what MLflow raises."""
    mlflow = client(uri)
    return sum(Forward(mlflow, path).send(now=True) for path in spool.paths(uri))


def client(uri: str) -> Any:
    """MLflow's, of a store that has its schema then."""
    from mlflow.store.db import utils
    from mlflow.tracking import MlflowClient

    utils.MAX_RETRY_COUNT = 2  # its 10 are 100 seconds
    with spool.one_at_a_time():
        return MlflowClient(uri)


def said(work: Callable[[], None]) -> int:
    """Do it; where MLflow cannot be reached, one line and 1."""
    try:
        work()
    except Exception as error:  # whatever a server, a proxy or a database can come up with
        print(f"{spool.UNREACHED} ({spool.reason(error)})", file=sys.stderr, flush=True)
        return 1
    return 0


def alone(uri: str, stop: threading.Event) -> int:
    """Serve a store once nobody else does. Returns the exit code."""
    with spool.serving(uri, stop) as mine:
        return said(lambda: serve(uri, stop)) if mine else 0


def main() -> int:
    """Until standard input ends. Ctrl-C and SIGTERM are for those whose runs are sent."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.buffer.read(), stop.set()), daemon=True).start()
    return alone(spool.tracking_uri(), stop)


if __name__ == "__main__":
    os._exit(main())  # MLflow's objects need no farewell
