"""The drill of an MLflow that is not there."""

import os
import shutil
import signal
import socket
import sqlite3
import threading
import time
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from tests.drills.places import LIMIT, free_port, running, running_runs, started
from tests.small import completed
from tests.test_track import Stub, waiting_runs

WAIT = 40.0  # seconds that MLflow may cost: 20 of patience, time-outs of 5, and other work on the machine


@contextmanager
def server(port):
    """A real MLflow server over mlflow.db of this folder."""
    command = ["mlflow", "server", "--port", str(port), "--workers", "1", "--default-artifact-root", "mlruns"]
    command += ["--backend-store-uri", f"sqlite:///{Path.cwd()}/mlflow.db"]
    # Job execution would start ten processes that nobody asks
    process = started(command, MLFLOW_SERVER_ENABLE_JOB_EXECUTION="false")
    try:
        for _ in range(600):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.2)
        yield process
    finally:
        kill(process)
        process.wait()


def kill(process):
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def stub(port, status):
    """A server that answers everything with one status; 0: one that never answers."""
    with Stub(port, status) as server:
        if not status:
            server.go_on.clear()
        yield
        server.left = 0  # whoever still waits is not answered
        server.go_on.set()
        server.shutdown()


@contextmanager
def killed_server(port):
    """A server that is killed as soon as a run is RUNNING."""
    with server(port) as process:

        def later():
            while process.poll() is None and not running_runs():
                time.sleep(0.05)
            kill(process)

        threading.Thread(target=later, daemon=True).start()
        yield


@contextmanager
def locked():
    other = sqlite3.connect("mlflow.db")
    other.execute("BEGIN EXCLUSIVE")
    yield
    other.rollback()
    other.close()


@contextmanager
def read_only():
    """root may write to any file, but to no file of a file system that is read-only."""
    here = Path("mlflow")
    here.mkdir()
    shutil.copy("mlflow.db", here)
    completed("mount", "--bind", here, here)
    completed("mount", "-o", "remount,ro,bind", here, here)
    yield
    completed("umount", here)


@contextmanager
def other_bytes(path, content):
    """A store with other bytes; None: in a folder that cannot be made."""
    path.parent.mkdir(exist_ok=True)
    shutil.copy("mlflow.db", kept := Path("kept.db"))
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    else:
        path.parent.rmdir()
        path.parent.touch()
    yield
    if path.parent.is_file():
        path.parent.unlink()
        path.parent.mkdir()
    kept.rename(path)


def whole_runs(store):
    """Runs that ended well and have their settings and their seconds."""
    with sqlite3.connect(store) as base:
        of = "select 1 from {} where run_uuid = runs.run_uuid"
        both = f"exists ({of.format('params')}) and exists ({of.format('metrics')} and key = 'seconds')"
        return base.execute(f"select count(*) from runs where status = 'FINISHED' and {both}").fetchone()[0]


def mlflow(place, count, rng, tally):
    """Take MLflow away in eight ways: one warning, the reference's bytes, exit code 0, no long wait.

    Then the next stage, with MLflow back, must send the run that waited.
    """
    port, db = free_port(), f"sqlite:///{place.root}"
    http, broken = f"http://someone:secret@127.0.0.1:{port}", Path("mlflow.db").read_bytes()
    ways = [
        ("closed port", http, nullcontext),
        ("server killed during a stage", http, lambda: killed_server(port)),
        ("read-only SQLite", f"{db}/mlflow/mlflow.db", read_only),
        ("locked SQLite", f"{db}/mlflow.db", locked),
        ("401", http, lambda: stub(port, 401)),
        ("hanging server", http, lambda: stub(port, 0)),
        ("missing folder", f"{db}/mlflow/mlflow.db", lambda: other_bytes(Path("mlflow/mlflow.db"), None)),
        (
            "damaged SQLite",
            f"{db}/mlflow.db",
            lambda: other_bytes(Path("mlflow.db"), broken[:4096] + rng.randbytes(99_999)),
        ),
    ]
    stage = ["python", "-m", "pipelines.align", "wasserstein"]
    usual = running(stage).seconds
    place.restore()
    for kind, uri, faulty in ways[:count]:
        store = uri.removeprefix("sqlite:///") if uri.startswith("sqlite") else "mlflow.db"
        with faulty():
            done = running(stage, limit=usual + 2 * LIMIT, MLFLOW_TRACKING_URI=uri)
        before, others = whole_runs(store), place.differing()
        with server(port) if uri == http else nullcontext():
            again = running(stage, MLFLOW_TRACKING_URI=uri)
        waiting, sent = waiting_runs(), whole_runs(store) - before
        right = [
            (done.code == 0 and not others, f"exit code {done.code}, {others[:1]}"),
            (
                len(done.lines) == 1 and "MLflow" in done.err and "secret" not in done.err,
                f"it says {done.lines}",
            ),
            (done.seconds < usual + WAIT, f"takes {done.seconds:.0f} s where {usual:.0f} are usual"),
            (again.code == 0 and not again.lines, f"the next run says {again.lines}"),
            (
                not waiting and sent == 2 and not running_runs(store),
                f"sent: {sent} runs of 2 are whole, {waiting} files wait",
            ),
        ]
        tally.add(f"{kind} ({done.seconds:.0f} s)", "; ".join(said for held, said in right if not held))
        shutil.copy(place.reference / "mlflow.db", "mlflow.db")
        place.restore()
