"""The only module that knows MLflow: one stage run is one MLflow run, with params, inputs, live curves and pictures.

Metrics are buffered and written in batches every two seconds by a thread: one by one they cost 15 ms each, all at the end
they would not be live. `MLFLOW_TRACKING_URI` wins when set; otherwise the store is mlflow.db in the repository.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from pipelines.runtime import intact
from pipelines.runtime.device import resolve

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
logging.getLogger("mlflow").setLevel(logging.WARNING)  # its database chatter
FLUSH_SECONDS = 2.0
BATCH = 1000  # MLflow's own limit for one log_batch


def tracking_uri() -> str:
    """Where runs are kept. `dvc exp run --temp` works in a copy below .dvc/tmp; its runs belong to the repository's store."""
    root = Path.cwd().resolve()
    for parent in root.parents:
        if (parent / ".dvc").is_dir() and root.is_relative_to(parent / ".dvc" / "tmp"):
            root = parent
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{root}/mlflow.db"


class Run:
    """The MLflow run of a running stage."""

    def __init__(self, client: Any, run_id: str) -> None:
        self.id = run_id
        self._client, self._buffer, self._lock = client, [], threading.Lock()
        self._closing = threading.Event()
        self._flusher = threading.Thread(target=self._flush_often, daemon=True)
        self._flusher.start()

    def log(self, metrics: Mapping[str, Any], step: int = 0) -> None:
        """Log numbers at a step; nested mappings become `outer/inner`. Non-numbers are skipped."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        rows = [Metric(k, float(v), now, step) for k, v in flat(metrics, "/").items() if isinstance(v, (int, float))]
        with self._lock:
            self._buffer += rows

    def input(self, path: Path, context: str) -> None:
        """Record a file that this stage reads, with the digest DVC has for it."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        dataset = Dataset(path.stem, dvc_digest(path)[:36], "local", f'{{"uri": "{path}"}}')
        self._client.log_inputs(self.id, [DatasetInput(dataset, [InputTag("mlflow.data.context", context)])])

    def artifact(self, path: Path, folder: str | None = None) -> None:
        """Keep a file (a picture, a report) with the run."""
        self._client.log_artifact(self.id, str(path), folder)

    def table(self, rows: list[dict[str, Any]], file: str) -> None:
        """Keep a table with the run, shown by MLflow's evaluation view. `file` ends in .json."""
        columns = {k: [r.get(k) for r in rows] for k in (rows[0] if rows else {})}
        self._client.log_table(self.id, columns, file)

    def flush(self) -> None:
        with self._lock:
            rows, self._buffer = self._buffer, []
        for i in range(0, len(rows), BATCH):
            self._client.log_batch(self.id, metrics=rows[i : i + BATCH])

    def _flush_often(self) -> None:
        while not self._closing.wait(FLUSH_SECONDS):
            self.flush()

    def close(self, status: str) -> None:
        self._closing.set()
        self._flusher.join()
        self.flush()
        self._client.set_terminated(self.id, status)


class Silent(Run):
    """Logs nothing: the run of every rank but the first, as several ranks share one MLflow run."""

    def __init__(self) -> None:
        pass

    def log(self, metrics: Mapping[str, Any], step: int = 0) -> None: ...
    def input(self, path: Path, context: str) -> None: ...
    def artifact(self, path: Path, folder: str | None = None) -> None: ...
    def table(self, rows: list[dict[str, Any]], file: str) -> None: ...


@contextmanager
def run(verb: str, name: str, row: BaseModel | None, study: str) -> Iterator[Run]:
    """An MLflow run for one stage run, in the experiment of its verb; FAILED or KILLED when the block ends badly.

    A row that computes gets the tag `device`: which one its `device` stands for here. Raises BadInput where that is not here.
    """
    from mlflow.entities import Param, RunTag
    from mlflow.tracking import MlflowClient

    if os.environ.get("RANK", "0") != "0":
        yield Silent()
        return
    asked = getattr(row, "device", None)
    device = str(resolve(asked)) if asked else ""
    with _first_use():
        client = MlflowClient(tracking_uri())
        known = client.get_experiment_by_name(verb)
        experiment = known.experiment_id if known else client.create_experiment(verb)
    tags = {
        "dvc.stage": f"{verb}@{name}" if row else verb,
        "dvc.exp": os.environ.get("DVC_EXP_NAME", ""),
        "dagster.run_id": os.environ.get("DAGSTER_RUN_ID", ""),
        "study": study,
        "device": device,
    }
    created = client.create_run(experiment, run_name=name, tags={k: v for k, v in tags.items() if v})
    values = {k: v for k, v in flat(row.model_dump(mode="json") if row else {}, ".").items() if v is not None}
    client.log_batch(
        created.info.run_id,
        params=[Param(k, str(v)[:6000]) for k, v in values.items()],
        tags=[RunTag("mlflow.note.content", f"`python -m pipelines.{verb} {name if row else ''}`")],
    )
    stage_run, status = Run(client, created.info.run_id), "FAILED"
    started, began = time.monotonic(), time.time()
    try:
        yield stage_run
        status = "FINISHED"
        _remember(tags["dvc.stage"], {"run": stage_run.id, "experiment": experiment, "began": began, "ended": time.time()})
    except KeyboardInterrupt:
        status = "KILLED"
        raise
    finally:
        stage_run.log({"seconds": time.monotonic() - started})
        stage_run.close(status)


def _remember(stage: str, about: dict[str, Any]) -> None:
    """Which run of a stage was the last to end well, for those who show it and do not know MLflow (assets/facts.py)."""
    path = intact.RUNS / f"{stage}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(about) + "\n")


@contextmanager
def _first_use() -> Iterator[None]:
    """One process at a time: two that build the schema of a new store at once both crash."""
    lock = Path(".cache") / "mlflow.lock"
    lock.parent.mkdir(exist_ok=True)
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Took:
    """What a finished run took."""

    seconds: float
    device: str  # empty: it computes nothing


def took(study: str) -> dict[str, Took]:
    """Of every stage of a study: how long its latest finished run took, and on which device."""
    from mlflow.tracking import MlflowClient

    client, out = MlflowClient(tracking_uri()), {}
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


def dvc_digest(path: Path) -> str:
    """The md5 that dvc.lock has for an output, or "unknown" outside `dvc repro`."""
    return next((md5 for _, out, md5 in intact.outs() if out == str(path)), "unknown")
