"""Dagster calls unsynced what `dvc status` names: after `dvc repro`, after an edit, wherever a stage ran."""

import contextlib
import shutil
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from dvc.repo import Repo

from dagster_dvc import DvcProjectComponent
from dagster_dvc.graph import lock, read

pytestmark = pytest.mark.xdist_group("provenance")  # one worker: what the tests share is made once

PIPELINE = f"""
stages:
  make:
    foreach: ${{make}}
    do:
      cmd: {sys.executable} make.py ${{key}}
      deps: [make.py]
      params: ['make.${{key}}']
      outs: ['data/${{key}}.txt', 'data/${{key}}-more.txt']
      metrics:
        - 'results/make/${{key}}.json':
            cache: false
  take:
    cmd: cat data/one.txt > took.txt
    deps: ['data/one.txt']
    outs: [took.txt]
  report:
    cmd: cat results/make/one.json results/make/two.json > report.md
    deps: [results]
    outs: [report.md]
"""
MAKE = """
import json, pathlib, sys, yaml
row = yaml.safe_load(open("params.yaml"))["make"][sys.argv[1]]
for folder in ("data", "results/make"):
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
pathlib.Path(f"data/{sys.argv[1]}.txt").write_text(str(row["value"]))
pathlib.Path(f"data/{sys.argv[1]}-more.txt").write_text(str(row["more"]))
pathlib.Path(f"results/make/{sys.argv[1]}.json").write_text(json.dumps({"value": row["value"]}))
"""


def build(root: Path) -> dg.Definitions:
    return dg.build_defs_for_component(DvcProjectComponent(project=root))


def repro(root: Path, *targets: str, **more: bool) -> None:
    with contextlib.chdir(root), Repo() as repo:
        repo.reproduce(targets or None, **more)


def setting(root: Path, one: float = 1e-5, more: str = "no", two: int = 2) -> None:
    rows = {"one": {"value": one, "more": more}, "two": {"value": two, "more": "yes"}}
    (root / "params.yaml").write_text(yaml.safe_dump({"make": rows}))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A repository after `dvc repro`; to be copied, not to be used."""
    root = tmp_path_factory.mktemp("finished")
    Repo.init(str(root), no_scm=True).close()
    (root / "make.py").write_text(MAKE)
    (root / "dvc.yaml").write_text(PIPELINE)
    setting(root)
    repro(root)
    return root


@pytest.fixture
def root(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "repo"))


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def tick(root: Path, instance: dg.DagsterInstance) -> set[str]:
    """Let the sensor report, as Dagster's daemon does; the names of the stages that it reported."""
    defs = build(root)
    (sensor,) = defs.sensors
    result = sensor.evaluate_tick(dg.build_sensor_context(instance=instance, definitions=defs))
    for event in result.asset_events:
        instance.report_runless_asset_event(event)
    return {"@".join(event.asset_key.path) for event in result.asset_events}


def stale(root: Path, instance: dg.DagsterInstance) -> set[str]:
    graph = build(root).resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    return {
        "@".join(k.path)
        for k in graph.get_all_asset_keys()
        if resolver.get_status(k) is not StaleStatus.FRESH
    }


def status(root: Path) -> set[str]:
    with contextlib.chdir(root), Repo() as repo:
        return set(repo.status())


EVERYTHING = {"make@one", "make@two", "take", "report"}


def test_after_dvc_repro_everything_is_in_sync(root, instance):
    assert stale(root, instance) == EVERYTHING
    assert tick(root, instance) == EVERYTHING
    assert stale(root, instance) == status(root) == set()
    assert tick(root, instance) == set()


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda root: setting(root, two=3), {"make@two"}),
        (lambda root: setting(root, more="yes"), {"make@one"}),
        (lambda root: (root / "make.py").write_text(MAKE + "\n"), {"make@one", "make@two"}),
        (lambda root: (root / "dvc.yaml").write_text(PIPELINE.replace("cat data", "cat < data")), {"take"}),
    ],
)
def test_after_an_edit_what_dvc_status_names_is_out_of_sync(root, instance, edit, named):
    tick(root, instance)
    edit(root)
    assert stale(root, instance) == status(root) == named
    tick(root, instance)
    assert stale(root, instance) == named  # the sensor reports what ran, not what is to run


def test_one_stage_run_alone_leaves_its_readers_out_of_sync(root, instance):
    tick(root, instance)
    setting(root, one=5)
    repro(root, "make@one", single_item=True)
    assert tick(root, instance) == {"make@one"}
    assert stale(root, instance) == status(root) == {"take", "report"}


def test_a_reader_of_what_did_not_change_stays_in_sync(root, instance):
    tick(root, instance)
    setting(root, more="other")  # changes an output of make@one that `take` does not read
    repro(root)
    tick(root, instance)
    assert stale(root, instance) == status(root) == set()


def test_a_stage_run_by_dagster_knows_what_it_read_before_the_sensor_does(root, instance):
    tick(root, instance)
    setting(root, one=7)
    repro(root, "make@one", single_item=True)
    assert build(root).resolve_job_def("take").execute_in_process(instance=instance).success
    tick(root, instance)
    assert stale(root, instance) == status(root) == {"report"}


def test_dvc_lock_is_read_as_dvc_writes_it(root):
    (params,) = lock(root)["make@one"].raw["params"].values()
    assert params == {"make.one": {"value": 1e-5, "more": "no"}}
    stages = read(root)
    assert all(
        entry.code_version(stages[name]) == stages[name].code_version for name, entry in lock(root).items()
    )
