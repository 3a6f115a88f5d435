"""Dagster calls unsynced what `dvc status` names: after `dvc repro`, after an edit, wherever a stage ran."""

import contextlib
import shutil
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dvc.repo import Repo
from projects import build, initialised, names, run, status, tick
from projects import stale as stale_of

PIPELINE = f"""
stages:
  make:
    foreach: ${{make}}
    do:
      cmd: {sys.executable} make.py ${{key}}
      deps: [make.py]
      params: ['make.${{key}}', 'seeds.0', {{other.yaml: null}}]
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
EVERYTHING = {"make@one", "make@two", "take", "report"}


def repro(root: Path, *targets: str, **more: bool) -> None:
    with contextlib.chdir(root), Repo() as repo:
        repo.reproduce(targets or None, **more)


def setting(root: Path, one: float = 1e-5, more: str = "no", two: int = 2, seeds=(1, 2)) -> None:
    rows = {"one": {"value": one, "more": more}, "two": {"value": two, "more": "yes"}}
    (root / "params.yaml").write_text(yaml.safe_dump({"make": rows, "seeds": list(seeds)}))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A repository after `dvc repro`. Tests copy it."""
    root = initialised(tmp_path_factory.mktemp("finished"))
    (root / "make.py").write_text(MAKE)
    (root / "dvc.yaml").write_text(PIPELINE)
    (root / "other.yaml").write_text("x: 1\n")
    setting(root)
    repro(root)
    return root


@pytest.fixture
def root(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "repo"))


def report(root: Path, instance: dg.DagsterInstance) -> set[str]:
    """Let the sensor report, as Dagster's daemon does. Return the stages that it reported."""
    events = tick(root, instance).asset_events
    for event in events:
        instance.report_runless_asset_event(event)
    return names(event.asset_key for event in events)


def stale(root: Path, instance: dg.DagsterInstance) -> set[str]:
    return stale_of(build(root), instance)


def test_after_dvc_repro_everything_is_in_sync(root, instance):
    assert stale(root, instance) == EVERYTHING
    assert report(root, instance) == EVERYTHING
    assert stale(root, instance) == status(root) == set()
    assert report(root, instance) == set()


@pytest.mark.parametrize(
    ("edit", "named"),
    [
        (lambda root: setting(root, two=3), {"make@two"}),
        (lambda root: setting(root, more="yes"), {"make@one"}),
        (lambda root: setting(root, seeds=(3, 2)), {"make@one", "make@two"}),
        (lambda root: setting(root, seeds=(1, 3)), set()),
        (lambda root: (root / "other.yaml").write_text("x: 2\n"), {"make@one", "make@two"}),
        (lambda root: (root / "make.py").write_text(MAKE + "\n"), {"make@one", "make@two"}),
        (lambda root: (root / "dvc.yaml").write_text(PIPELINE.replace("cat data", "cat < data")), {"take"}),
    ],
)
def test_after_an_edit_what_dvc_status_names_is_out_of_sync(root, instance, edit, named):
    report(root, instance)
    edit(root)
    assert stale(root, instance) == status(root) == named
    report(root, instance)
    assert stale(root, instance) == named  # the sensor reports what ran, not what is to run


def test_one_stage_run_alone_leaves_its_readers_out_of_sync(root, instance):
    report(root, instance)
    setting(root, one=5)
    repro(root, "make@one", single_item=True)
    assert report(root, instance) == {"make@one"}
    assert stale(root, instance) == status(root) == {"take", "report"}


def test_stages_run_by_dagster_leave_their_readers_out_of_sync_until_they_ran(root, instance):
    report(root, instance)
    setting(root, one=5)
    assert run(build(root), instance, "make").success
    assert stale(root, instance) == status(root) == {"take", "report"}
    assert run(build(root), instance).success
    assert stale(root, instance) == status(root) == set()


def test_a_reader_of_what_did_not_change_stays_in_sync(root, instance):
    report(root, instance)
    setting(root, more="other")  # changes an output of make@one that `take` does not read
    repro(root)
    report(root, instance)
    assert stale(root, instance) == status(root) == set()


def test_a_stage_run_by_dagster_knows_what_it_read_before_the_sensor_does(root, instance):
    report(root, instance)
    setting(root, one=7)
    repro(root, "make@one", single_item=True)
    assert run(build(root), instance, "take").success
    report(root, instance)
    assert stale(root, instance) == status(root) == {"report"}
