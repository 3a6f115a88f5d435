"""Real MLflow on SQLite: one run per stage run, live curves, inputs with DVC's digests, and a true status."""

import json
import logging
import os
import select
import shutil
import signal
import sqlite3
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from mlflow.tracking import MlflowClient

from pipelines.runtime import files, intact, sender, track
from pipelines.runtime.again import again
from pipelines.runtime.device import resolve
from pipelines.study import Align, Embed, Evaluate
from pipelines.study.activate import full_text
from scripts import views
from tests.drills.places import free_port
from tests.small import SenderThread, completed, put, write_yaml

START_SENDER = track.start_sender
ROW = Embed(corpus="passages", encoder="minilm")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(empty_store, own_folder, monkeypatch):
    shutil.copy(empty_store, ".")
    # MLflow caches stores by their address
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{own_folder}/mlflow.db")
    logging.disable()  # as in a sender's own process
    started = []

    def begin(log):
        started.append(SenderThread(log))
        return started[-1]

    monkeypatch.setattr(track, "start_sender", begin)
    monkeypatch.setattr(sender, "PATIENCE", 600.0)  # of a busy machine
    yield
    for each in started:
        each.communicate()
    logging.disable(logging.NOTSET)


def embed(name="x", study="smoke"):
    """Start a run of the stage `embed`."""
    return track.run("embed", name, ROW, study)


def evaluate(clusters, study="smoke", **named):
    """Start a run of the stage `evaluate` on a fit with this many clusters."""
    named["align"] = Align(source="a", target="b", aligner="wasserstein_procrustes", clusters=clusters)
    row = Evaluate(translator="t", source="a", target="b")
    return track.run("evaluate", "t", row, study, named)


def runs(verb="embed"):
    """Return an MLflow client and the runs of a stage, the latest first."""
    client = MlflowClient(sender.tracking_uri())
    return client, client.search_runs([client.get_experiment_by_name(verb).experiment_id])


def statuses():
    return {run.info.run_name: run.info.status for run in runs()[1]}


def git(command):
    return completed("git", *command.split()).stdout.strip()


def test_a_run_has_params_tags_curves_inputs_and_artifacts(monkeypatch):
    monkeypatch.setenv("DVC_EXP_NAME", "brave-name")
    monkeypatch.setenv("DAGSTER_RUN_ID", "r")
    write_yaml("dvc.lock", {"stages": {"embed": {"outs": [{"path": "data/x.arrow", "md5": "abc123"}]}}})
    git("init -q")
    git("commit -q --allow-empty -m x")
    with evaluate(7, source=ROW) as run:
        for step in range(1500):  # more than one batch
            run.log({"loss": {"gan": step / 2}}, step)
        run.log({"a": np.float32(0.5), "b": torch.tensor(3), "c": np.int64(2), "skipped": "text"})
        run.input(Path("data/x.arrow"), "source")
        run.artifact(Path("dvc.lock"))
    client, [found] = runs("evaluate")
    assert (found.info.run_name, found.info.status) == ("t", "FINISHED")
    params = {"translator": "t", "align.clusters": "7", "source.encoder": "minilm", "device": "auto"}
    assert params.items() <= found.data.params.items()
    commit = git("rev-parse HEAD")
    tags = {"dvc.stage": "evaluate@t", "dvc.exp": "brave-name", "study": "smoke"}
    tags |= {"mlflow.source.git.commit": commit, "device": str(resolve()), "dagster.run_id": "r"}
    tags |= {"mlflow.note.content": f"`git checkout {commit} && dvc repro evaluate@t`"}
    assert tags.items() <= found.data.tags.items()
    curve = client.get_metric_history(found.info.run_id, "loss/gan")
    assert [(m.step, m.value) for m in curve] == [(s, s / 2) for s in range(1500)]
    logged = {name: found.data.metrics.get(name) for name in ("a", "b", "c", "skipped")}
    assert logged == {"a": 0.5, "b": 3, "c": 2, "skipped": None}
    [used] = found.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("x", "abc123")
    assert [f.path for f in client.list_artifacts(found.info.run_id)] == ["dvc.lock"]


def test_the_command_to_reproduce_names_commit_and_study():
    assert again("my own", "align@t") == "dvc repro align@t  # not a git checkout"
    study = Path("studies/my own.yaml")
    put(study, "study: my own")
    for name in ("dvc.lock", "code.py", "params.yaml"):
        put(name, "")
    git("init -q")
    git("add .")
    git("commit -qm x")
    head = git("rev-parse HEAD")
    assert again("my own") == f"git checkout {head} && dvc repro"  # rows that were edited, and committed
    put("params.yaml", full_text(study))
    put("dvc.lock", "changed by every run")
    line = f"git checkout {head} && make study STUDY='my own' && dvc repro align@t"
    assert again("my own", "align@t") == line
    put(study, "study: my own\nabout: another")  # params.yaml was not made from this
    assert "make study" not in again("my own")
    put(study, "study: my own")
    put("code.py", "changed")
    assert again("my own", "align@t") == f"{line}  # with uncommitted changes: code.py"
    put("pipelines/new.py", "")
    assert again("my own", "align@t").endswith("changes: code.py and 1 more")


def test_a_varied_setting_is_in_names_of_runs_and_a_column():
    for clusters, study in ((30, "sample"), (40, "sample"), (30, "sample"), (40, "o'wn")):
        with evaluate(clusters, study):
            pass
    client, found = runs("evaluate")
    assert [run.info.run_name for run in reversed(found)] == ["t", "t clusters=40", "t", "t"]
    assert views.varied(client, found[0].info.experiment_id) == ["align.clusters"]


def test_null_is_a_value_of_a_setting():
    for limit in (None, 150, None):
        with track.run("align", "x", Align(source="a", target="b", aligner="identity", limit=limit), "smoke"):
            pass
    for limit in (150, None):
        fit = Align(source="a", target="b", aligner="wasserstein_procrustes", limit=limit, seeds=[limit or 0])
        with track.run("align", "y", fit, "smoke"):
            pass
    _, found = runs("align")
    names = [run.info.run_name for run in reversed(found)]
    assert names == ["x", "x limit=150", "x", "y", "y limit=null seeds=[0]"]
    assert found[0].data.params["clusters"]


def test_curves_are_live(monkeypatch):
    monkeypatch.setattr(sender, "FLUSH_SECONDS", 0.01)
    sent, send = threading.Event(), sender.Upload._metrics
    monkeypatch.setattr(sender.Upload, "_metrics", lambda *arguments: (send(*arguments), sent.set()))
    with embed() as run:
        run.log({"loss": 1.0})
        assert sent.wait(30)
        client, [found] = runs()
        assert found.info.status == "RUNNING"
        assert client.get_metric_history(found.info.run_id, "loss")


def test_a_run_that_fails_says_so():
    with pytest.raises(RuntimeError), embed():
        raise RuntimeError
    assert statuses() == {"x": "FAILED"}


def test_a_temporary_experiment_reports_to_the_repository(tmp_path, monkeypatch):
    inside = tmp_path / ".dvc" / "tmp" / "exps" / "tmpx"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert sender.repository() == tmp_path
    assert sender.store_file(".jsonl").is_relative_to(tmp_path / ".cache")


def test_runs_and_their_files_stay_in_a_folder_of_any_name(empty_store, tmp_path, monkeypatch):
    (folder := tmp_path / "repository" / "it's #1 100%20 a?b").mkdir(parents=True)
    shutil.copy(empty_store, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    monkeypatch.setattr(track, "start_sender", START_SENDER)
    put("picture.txt", "drawn")
    with embed() as run:
        run.artifact(Path("picture.txt"))
    with sqlite3.connect("mlflow.db") as store:
        assert store.execute("select name, status from runs").fetchall() == [("x", "FINISHED")]
    assert len(list(folder.glob("mlruns/**/picture.txt"))) == 1
    assert list(folder.parent.iterdir()) == [folder]


# ---------------------------------------------------------------- a store that is slow, down or locked


class Stub(ThreadingHTTPServer):
    """As much of an MLflow server as a run needs. After `left` requests it closes connections unanswered."""

    daemon_threads = True

    def __init__(self, port=0, error=None):
        super().__init__(("127.0.0.1", port), Answers)
        self.left, self.runs, self.error, self.go_on = 10**6, {}, error, threading.Event()
        self.go_on.set()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def answer(self, path, body):
        match path.split("?")[0].split("mlflow/")[-1]:
            case "experiments/get-by-name":
                return {"experiment": {"experiment_id": "1"}}
            case "runs/search":
                return {"runs": [self.shown(key) for key in self.runs if key in body["filter"]]}
            case "runs/create":
                [key] = [t["value"] for t in body["tags"] if t["key"] == sender.KEY]
                self.runs[key] = {"params": {}, "metrics": set(), "status": "RUNNING"}
                return {"run": self.shown(key)}
            case "runs/log-batch":
                run = self.runs[body["run_id"]]
                run["params"] |= {p["key"]: p["value"] for p in body.get("params", ())}
                run["metrics"] |= {(m["key"], m["step"]) for m in body.get("metrics", ())}
            case "runs/update":
                self.runs[body["run_id"]]["status"] = body["status"]
        return {}

    def shown(self, key):
        return {"info": {"run_id": key, "experiment_id": "1", "status": "RUNNING"}}


class Answers(BaseHTTPRequestHandler):
    def do_POST(self):
        self.server.go_on.wait()
        self.server.left -= 1
        if self.server.left < 0:
            return
        if self.server.error:
            self.send_error(self.server.error)
            return
        body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        said = json.dumps(self.server.answer(self.path, body)).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_PATCH = do_POST  # noqa: N815

    def log_message(self, format, *args): ...


@pytest.fixture
def stub(monkeypatch):
    with Stub() as server:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://someone:secret@127.0.0.1:{server.server_port}")
        yield server
        server.shutdown()


def stage():
    with embed() as run:
        run.log({"loss": 1.0}, 0)
        run.log({"loss": 0.5}, 1)
        run.input(Path("data/x.arrow"), "corpus")


def waiting_runs():
    return len(list(Path(".cache/mlflow").glob("*.jsonl")))


def warnings_of(capfd):
    return capfd.readouterr().err.splitlines()


@pytest.mark.parametrize("answered", range(8))
def test_a_run_whose_server_dies_is_sent_by_a_later_stage(stub, answered, capfd):
    stub.left = answered
    stage()
    out, warning = capfd.readouterr()
    assert (out, warning.count("\n")) == ("", 1)
    assert "MLflow cannot be reached" in warning
    assert "secret" not in warning + str(list(Path(".cache/mlflow").glob("*")))
    assert (sender.main([]), waiting_runs()) == (1, 1)
    capfd.readouterr()
    stub.left = 10**6
    stage()
    first, second = stub.runs.values()
    assert first == second
    assert (first["status"], first["params"]["encoder"]) == ("FINISHED", "minilm")
    assert first["metrics"] == {("loss", 0), ("loss", 1), ("seconds", 0)}
    assert capfd.readouterr() == ("", "")
    assert waiting_runs() == 0


def test_a_server_that_does_not_answer_is_not_waited_for(stub, monkeypatch, capfd):
    monkeypatch.setattr(sender, "PATIENCE", 0.01)
    stub.go_on.clear()
    stage()
    [warning] = warnings_of(capfd)
    assert "still being sent" in warning
    assert waiting_runs() == 1
    stub.go_on.set()


def test_a_slow_sender_lets_go_of_what_its_stage_prints():
    with open(sender.store_file(".lock"), "ab") as lock, open(log := sender.store_file("-1.jsonl"), "w"):
        assert files.try_lock(lock)  # another sender is at work, and does not send this log
        changed = "import sys; from pipelines.runtime import sender; sender.PATIENCE = 0.1"
        command = ["python", "-c", f"{changed}; sys.exit(sender.main(['--serve', {str(log)!r}]))"]
        process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=subprocess.STDOUT)
        process.stdin.close()
        assert select.select([process.stdout], [], [], 60)[0]
        assert (process.stdout.read(), process.poll(), log.exists()) == (b"", None, True)
        log.unlink()  # as when it has been sent
        assert process.wait() == 0


@pytest.mark.slow  # MLflow has SQLite wait 20 seconds
def test_a_locked_database(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db?timeout=0")
    with embed("before"):
        pass
    other = sqlite3.connect("mlflow.db")
    other.execute("BEGIN EXCLUSIVE")
    put("picture.png", "of this run")
    put("report.md", "of this run")
    with embed() as run:
        run.artifact(Path("picture.png"))
        run.artifact(Path("report.md"))
    put("report.md", "of a later run")
    other.rollback()
    [warning] = warnings_of(capfd)
    assert "locked" in warning
    assert sender.main([]) == 0
    client, [late, _] = runs()
    assert (late.info.run_name, late.info.status) == ("x", "FINISHED")
    assert late.data.metrics["seconds"] * 1000 <= late.info.end_time - late.info.start_time + 1
    assert [f.path for f in client.list_artifacts(late.info.run_id)] == ["picture.png"]


def test_what_mlflow_refuses_is_named_otherwise_or_dropped(capfd):
    for name in ("what?", "/../up"):
        with embed() as run:
            run.log({name: 1.0})
    [warning] = warnings_of(capfd)
    assert "MLflow refuses metrics" in warning
    dropped, renamed = (run.data.metrics for run in runs()[1])
    assert renamed["what_"] == 1.0
    assert set(dropped) <= {"seconds"}
    assert waiting_runs() == 0


STAGE = """
import signal, sys
from pipelines.runtime import track
with track.run("embed", sys.argv[1], None, "smoke") as run:
    print("ready", "mlflow" in sys.modules, flush=True)
    while True:  # only the signal that the test sends may end it
        signal.pause()
"""


def killed_by(number):
    process = subprocess.Popen(["python", "-c", STAGE, number.name], stdout=-1, stderr=-1, text=True)
    assert process.stdout.readline() == "ready False\n"
    process.send_signal(number)
    _, said = process.communicate()  # until nothing is left that could write to it: its sender too has ended
    return process.returncode, said


def test_a_stage_that_is_killed_has_a_run_that_says_so():
    numbers = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    ends = [killed_by(number) for number in numbers]
    assert [code for code, _ in ends[1:]] == [-signal.SIGTERM, -signal.SIGKILL]
    assert not any("MLflow" in said for _, said in ends)
    assert statuses() == {number.name: "KILLED" for number in numbers}
    assert waiting_runs() == 0


def test_the_draft_of_a_killed_stage_is_removed_by_the_next():
    leaves = """
import os, pathlib, signal
from pipelines.runtime import track
pathlib.Path.rename = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
track.Run().open("embed", "x", {}, {})
"""
    completed("python", "-c", leaves, code=-signal.SIGKILL)
    assert list(Path(".cache/mlflow").glob("*.part")) != []
    with embed():
        assert list(Path(".cache/mlflow").glob("*.part")) == []


def test_a_run_killed_after_its_last_line_is_marked_killed():
    log = sender.store_file("-1.jsonl")
    with open(log, "w") as file:
        assert files.try_lock(file)
        print(json.dumps(["start", 0, "embed", "x", {}, {}]), file=file, flush=True)
        upload = sender.Upload(sender.client(), log)
        assert not upload.advance()
        assert statuses() == {"x": "RUNNING"}
    assert upload.advance()
    assert statuses() == {"x": "KILLED"}
    assert waiting_runs() == 0


def test_a_kill_is_sent_once_the_server_is_back(stub, capfd):
    stub.left = 0
    code, said = killed_by(signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "secret" not in said
    assert waiting_runs() == 1
    stub.left = 10**6
    assert sender.main([]) == 0
    assert capfd.readouterr() == ("", "")
    assert [run["status"] for run in stub.runs.values()] == ["KILLED"]


# ---------------------------------------------------------------- senders


def test_a_sender_explains_itself_and_names_what_stops_it(capfd, monkeypatch):
    monkeypatch.setattr(sender, "serve", Mock(side_effect=FileExistsError(17, "File exists", ".cache")))
    for arguments in (["--help"], ["--serve", "a", "b"], ["a"]):
        assert sender.main(arguments) == 2
        assert "pipelines.runtime.sender --serve [LOG]" in capfd.readouterr().err
    assert sender.main([]) == 1
    assert capfd.readouterr().err.startswith("no run can be sent: FileExistsError: ")


def test_views_need_an_address():
    done = completed("python", "-m", "scripts.views", code=1)
    assert done.stderr == "usage: python -m scripts.views <address of MLflow>\n"


def test_a_sender_waits_for_one_at_work_and_follows_it(monkeypatch, capfd):
    client = Mock(wraps=sender.client)
    monkeypatch.setattr(sender, "client", client)
    at_work = SenderThread()
    while not client.called:  # it calls once it has the lock
        assert at_work.thread.is_alive()
    with embed():
        pass
    assert (sender.main([]), client.call_count) == (0, 1)
    with embed("y"):
        at_work.communicate()
    assert client.call_count == 2
    assert statuses() == {"x": "FINISHED", "y": "FINISHED"}
    assert capfd.readouterr() == ("", "")


def test_the_note_of_a_stage_has_its_last_run():
    for study in ("smoke", "sample"):
        with embed(study=study):
            pass
    note = intact.read_note("embed@x")
    run = runs()[1][0]
    assert (note["run"], note["experiment"]) == (run.info.run_id, run.info.experiment_id)
    assert note["began"] <= note["ended"]


def test_a_clock_that_is_set_back_changes_no_duration(monkeypatch):
    with embed() as run:
        monkeypatch.setattr(track.time, "time", lambda: 1.0)
        monkeypatch.setattr(track.time, "time_ns", lambda: 10**9)
        run.log({"loss": 1.0})
    [found] = runs()[1]
    assert found.info.status == "FINISHED"
    assert found.data.metrics["seconds"] >= 0


def test_a_line_that_a_full_disk_cut_short_costs_that_line(stub):
    with embed() as run:
        run._file.write(b'["metrics", [["lo')
        run.log({"loss": 1.0})
        log, run._file = run._file, open("/dev/full", "wb", 0)  # noqa: SIM115 - closed by the run
        run.log({"lost": 1.0})
        log.write(b'\n["end", 0, "FINISHED"]\n')
    log.close()
    [kept] = stub.runs.values()
    assert kept["status"] == "FINISHED"
    assert kept["metrics"] == {("loss", 0)}


def test_a_stage_goes_on_where_there_is_no_room_for_its_run(monkeypatch, capfd):
    monkeypatch.setattr(track.Run, "open", Mock(side_effect=OSError("No space left on device")))
    stage()
    [line] = warnings_of(capfd)
    assert line.startswith("no MLflow run: its file cannot be written (OSError")


# ---------------------------------------------------------------- PostgreSQL


@pytest.mark.slow
def test_runs_go_to_a_server_on_postgresql(tmp_path, monkeypatch):
    pytest.importorskip("psycopg", reason="needs the extra [postgresql]")
    postgres = pytest.importorskip("pgserver", reason="needs the extra [servers]")
    database = postgres.get_server(tmp_path / "postgresql")
    port = str(free_port())
    command = ["mlflow", "server", "--port", port, "--workers", "1"]
    command += ["--backend-store-uri", database.get_uri(), "--artifacts-destination", "artifacts"]
    server = subprocess.Popen(command, stdout=-3, stderr=-1, text=True, start_new_session=True)
    try:
        assert any("Application startup complete" in line for line in server.stderr), "it has ended"
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{port}")
        put("picture.txt", "drawn")
        with embed() as run:
            run.log({"loss": 0.5})
            run.artifact(Path("picture.txt"))
        _, [found] = runs()
        assert (found.info.status, found.data.metrics["loss"], waiting_runs()) == ("FINISHED", 0.5, 0)
        assert [file.read_text() for file in Path("artifacts").rglob("picture.txt")] == ["drawn"]
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.communicate(timeout=60)
        database.cleanup()
