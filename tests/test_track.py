"""Real MLflow on SQLite: one run per stage run, live curves, inputs with DVC's digests, and a status that tells the truth."""

import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest
import yaml
from mlflow.tracking import MlflowClient

from pipelines.runtime import track
from pipelines.study import Embed

ROW = Embed(corpus="passages", encoder="minilm")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


def runs(verb):
    client = MlflowClient(track.tracking_uri())
    return client, client.search_runs([client.get_experiment_by_name(verb).experiment_id])


def test_a_run_has_params_tags_curves_inputs_and_tables(monkeypatch):
    monkeypatch.setenv("DVC_EXP_NAME", "brave-name")
    Path("dvc.lock").write_text(yaml.safe_dump({"stages": {"embed": {"outs": [{"path": "data/x.arrow", "md5": "abc123"}]}}}))
    with track.run("embed", "passages-minilm", ROW, "smoke") as run:
        for step in range(1500):  # more than one batch
            run.log({"loss": {"gan": step / 2}}, step)
        run.input(Path("data/x.arrow"), "source")
        run.table([{"a": 1}, {"a": 2}], "examples.json")
    client, [found] = runs("embed")
    assert found.info.run_name == "passages-minilm"
    assert found.info.status == "FINISHED"
    assert found.data.params == {"corpus": "passages", "encoder": "minilm", "device": "auto"}
    assert {k: found.data.tags[k] for k in ("dvc.stage", "dvc.exp", "study")} == {
        "dvc.stage": "embed@passages-minilm",
        "dvc.exp": "brave-name",
        "study": "smoke",
    }
    curve = client.get_metric_history(found.info.run_id, "loss/gan")
    assert [(m.step, m.value) for m in curve] == [(s, s / 2) for s in range(1500)]
    [used] = found.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.digest) == ("x", "abc123")
    assert [f.path for f in client.list_artifacts(found.info.run_id)] == ["examples.json"]


def test_curves_are_live(monkeypatch):
    monkeypatch.setattr(track, "FLUSH_SECONDS", 0.01)
    flushed = threading.Event()
    with track.run("align", "x", ROW, "smoke") as run:
        real = run.flush
        monkeypatch.setattr(run, "flush", lambda: (real(), flushed.set()))
        run.log({"loss": 1.0})
        flushed.clear()
        assert flushed.wait(30)
        client, [found] = runs("align")
        assert found.info.status == "RUNNING"
        assert client.get_metric_history(found.info.run_id, "loss")


@pytest.mark.parametrize(("error", "status"), [(RuntimeError, "FAILED"), (KeyboardInterrupt, "KILLED")])
def test_a_run_that_ends_badly_says_so(error, status):
    with pytest.raises(error), track.run("align", "x", ROW, "smoke"):
        raise error
    assert runs("align")[1][0].info.status == status


def test_a_temporary_experiment_reports_to_the_repository(tmp_path, monkeypatch):
    inside = tmp_path / ".dvc" / "tmp" / "exps" / "tmpx"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    assert track.tracking_uri() == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:1")
    assert track.tracking_uri() == "http://127.0.0.1:1"


def _one_run(name):
    with track.run("collect", name, ROW, "smoke"):
        pass


@pytest.mark.slow
def test_two_processes_may_be_the_first_at_once():
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(_one_run, "ab"))
    assert len(runs("collect")[1]) == 2
