"""This project in Dagster: stages, edges, links to MLflow, and the guarded web server."""

import json
import os
from dataclasses import replace

import dagster as dg
import pytest
from dvc.repo import Repo
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from assets import definitions
from assets.own_pages import OwnPagesOnly
from assets.study import last_run
from assets.webserver import Webserver
from dagster_dvc.graph import read
from tests.small import ROOT, completed, put, upstream_of

STAGES = read(ROOT)


def names(keys):
    return {"@".join(key.path) for key in keys}


def asset_graph():
    return definitions.defs.resolve_asset_graph()


def test_assets_and_edges_are_those_of_dvc_and_lead_forward():
    with Repo(ROOT) as repo:
        upstream = upstream_of(repo)
    graph, order = asset_graph(), list(STAGES)
    assert names(graph.get_all_asset_keys()) == set(order)
    assert upstream == {n: names(graph.get(dg.AssetKey(n.split("@"))).parent_keys) for n in order}
    assert all(order.index(up) < order.index(name) for name in order for up in upstream[name])
    assert all(stage.desc for stage in STAGES.values())


def test_an_asset_shows_only_metrics_tables_and_pictures():
    assert STAGES["evaluate@wasserstein"].metrics == ("results/evaluate/wasserstein.json",)
    tables = [f"results/evaluate/wasserstein/{name}.csv" for name in ("seeds", "spaces")]
    assert sorted(STAGES["evaluate@wasserstein"].plots) == tables
    assert STAGES["report"].plots == ("report/pictures",)
    # examples.csv has texts, and Dagster's database must have none
    assert not STAGES["invert@synthetic-emails"].plots
    checks = asset_graph().get_check_keys_for_assets({dg.AssetKey("report")})
    assert "audit_targets" in {key.name for key in checks}


@pytest.mark.filterwarnings("ignore")
def test_selection_strings_work():
    """They need another antlr than the one DVC asks for by itself: see pyproject.toml."""
    found = dg.AssetSelection.from_string('group:"align" and not key:"*oracle*"').resolve(asset_graph())
    assert names(found) == {name for name in STAGES if name.startswith("align@") and "oracle" not in name}


def test_the_schedule_is_off_and_the_sensor_on():
    (schedule,), (sensor,) = definitions.defs.schedules, definitions.defs.sensors
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    assert len(schedule.evaluate_tick(dg.build_schedule_context()).run_requests) == 1


@pytest.mark.slow
def test_dg_checks_this_project():
    said = completed("dg", "check", "defs", cwd=ROOT, env={"DO_NOT_TRACK": "1"})
    assert "All definitions loaded successfully" in said.stdout


def test_what_ran_outside_has_its_mlflow_run(tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    stage, metrics = replace(STAGES["align@identity"], metrics=("metrics.json",)), tmp_path / "metrics.json"
    put(metrics, "{}")
    written = metrics.stat().st_mtime
    run = {"run": "r1", "experiment": "7", "began": written - 4, "ended": written + 0.5}
    put(tmp_path / f".cache/runs/{stage.name}.json", json.dumps(run))
    found = last_run(tmp_path, stage)
    page = "#/experiments/7/runs/r1?workflowType=machine_learning"
    assert found["seconds"] == 4.5
    assert found["mlflow"].value == f"http://127.0.0.1:5000/{page}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://me:secret@mlflow.example/")
    link = last_run(tmp_path, stage)["mlflow"].value
    assert link == f"https://mlflow.example/{page}"  # Dagster keeps and shows it
    os.utime(metrics, (written + 60, written + 60))  # as `git checkout` of another commit's
    assert "seconds" not in last_run(tmp_path, stage)


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/runs", {}, 200),
        ("POST", "/graphql", {"origin": "http://127.0.0.1:3000"}, 200),
        ("GET", "/graphql?query=mutation{launchRun}", {}, 403),  # <img src="...">
        ("POST", "/graphql", {"origin": "http://evil.example"}, 403),  # a form, or fetch
        ("POST", "/graphql", {"origin": "null"}, 403),  # a sandboxed frame
        ("POST", "/graphql", {"host": "evil.example:3000"}, 403),  # a name that now points to this machine
        ("POST", "/graphql", {"host": "[::1"}, 403),  # no address
    ],
)
def test_another_web_page_cannot_reach_dagster(method, path, headers, status):
    client = TestClient(OwnPagesOnly(PlainTextResponse("reached")), base_url="http://127.0.0.1:3000")
    assert client.request(method, path, headers=headers).status_code == status


def test_dagster_s_own_server_has_the_guard():
    """`python -m assets.webserver` puts it before everything that Dagster serves."""
    assert Webserver.build_middleware(object.__new__(Webserver))[0].cls is OwnPagesOnly


@pytest.mark.slow  # MLflow's server takes seconds to import
def test_mlflow_s_server_has_the_guard(own_folder):
    from assets.mlflow_app import app

    client = TestClient(app, base_url="http://127.0.0.1:5000")
    assert client.get("/version").status_code == 200
    for headers in ({"origin": "http://evil.example"}, {"host": "10.evil.example:5000"}):
        assert client.post("/graphql", headers=headers).status_code == 403
