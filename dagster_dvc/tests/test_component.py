"""A foreign DVC project in Dagster through a defs.yaml: what it reports and what it calls stale."""

import contextlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from dvc.repo import Repo

from dagster_dvc import DvcProjectComponent
from dagster_dvc.graph import GraphError, lock, read

pytestmark = pytest.mark.xdist_group("component")  # one worker: it starts processes

PACKAGE = Path(__file__).parents[1]
PIPELINE = """
stages:
  prepare:
    desc: lines without gaps
    cmd: grep . raw.txt > clean.txt
    deps: [raw.txt]
    outs: [clean.txt]
  train:
    foreach: [a, b]
    do:
      cmd: grep -c ${item} clean.txt > ${item}.txt || true
      deps: [clean.txt]
      params: ['seeds.0', {other.yaml: null}]
      outs: ['${item}.txt']
  evaluate:
    desc: how many
    cmd: "echo lines: $(cat a.txt) > metrics.yaml"
    deps: [a.txt]
    metrics:
      - metrics.yaml:
          cache: false
"""
EVERYTHING = {"prepare", "train@a", "train@b", "evaluate"}


def project(root: Path, pipeline: str = PIPELINE, **attributes: str) -> Path:
    """A project with a dvc.yaml, and its definitions in the package `orchestration`."""
    defs = root / "orchestration/defs/counts"
    defs.mkdir(parents=True)
    (root / "dg.toml").write_text('directory_type = "project"\n[project]\nroot_module = "orchestration"\n')
    content = {"type": "dagster_dvc.DvcProjectComponent", "attributes": {"project": "../../..", **attributes}}
    (defs / "defs.yaml").write_text(yaml.safe_dump(content))
    (root / "dvc.yaml").write_text(pipeline)
    (root / "params.yaml").write_text("seeds: [1, 2]\n")
    (root / "other.yaml").write_text("x: 1\n")
    (root / "raw.txt").write_text("a\n\nb\na b\n")
    return root


def load(root: Path) -> dg.Definitions:
    """As Dagster loads a project: its folder is on the path, and its modules have not been imported."""
    sys.path.insert(0, str(root))
    try:
        return dg.load_from_defs_folder(path_within_project=root)
    finally:
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if name.partition(".")[0] == "orchestration"]:
            del sys.modules[name]


def repository(root: Path) -> Path:
    Repo.init(str(root), no_scm=True).close()
    return root


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project in which Dagster has run everything once, what it said, and the instance that remembers."""
    root = project(repository(tmp_path_factory.mktemp("finished")))
    with dg.DagsterInstance.ephemeral() as instance:
        yield root, run(load(root), instance), instance


@pytest.fixture
def root(finished, tmp_path):
    """A copy, to be changed."""
    return Path(shutil.copytree(finished[0], tmp_path / "copy"))


def run(
    defs: dg.Definitions, instance: dg.DagsterInstance, job: str = "everything"
) -> dg.ExecuteInProcessResult:
    return defs.resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False)


def stale(defs: dg.Definitions, instance: dg.DagsterInstance) -> set[str]:
    graph = defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    return {
        "@".join(k.path)
        for k in graph.get_all_asset_keys()
        if resolver.get_status(k) is not StaleStatus.FRESH
    }


def status(root: Path) -> set[str]:
    with contextlib.chdir(root), Repo() as repo:
        return set(repo.status())


def test_a_defs_yaml_is_all_that_a_project_adds(finished):
    defs = load(finished[0])
    graph = defs.resolve_asset_graph()
    edges = {
        ("@".join(p.path), "@".join(k.path))
        for k in graph.get_all_asset_keys()
        for p in graph.get(k).parent_keys
    }
    assert {"@".join(key.path) for key in graph.get_all_asset_keys()} == EVERYTHING
    assert edges == {("prepare", "train@a"), ("prepare", "train@b"), ("train@a", "evaluate")}
    assert graph.get(dg.AssetKey(["train", "b"])).group_name == "train"
    assert (
        graph.get(dg.AssetKey("prepare")).description == "lines without gaps\n\n`grep . raw.txt > clean.txt`"
    )
    assert {job.name for job in defs.jobs} == {
        "everything",
        "prepare",
        "train",
        "evaluate",
    }  # no git, no experiments


def test_a_stage_is_run_and_checked_and_says_what_it_made(finished):
    root, result, _ = finished
    assert result.success
    events = {
        "@".join(e.materialization.asset_key.path): e.materialization
        for e in result.get_asset_materialization_events()
    }
    assert {name: event.metadata["status"].value for name, event in events.items()} == dict.fromkeys(
        EVERYTHING, "ran"
    )
    assert events["evaluate"].metadata["metrics/lines"].value == 2.0
    assert events["train@a"].metadata["path"].value == str(root / "a.txt")
    (md5,) = (out["md5"] for out in lock(root)["prepare"].outs)
    assert events["prepare"].tags["dagster/data_version"] == md5
    checks = {
        ("@".join(e.asset_key.path), e.check_name): e.passed for e in result.get_asset_check_evaluations()
    }
    assert checks == {(name, "as_locked"): True for name in EVERYTHING} | {
        ("evaluate", "finite_metrics"): True
    }


@pytest.mark.parametrize(
    ("file", "text", "named"),
    [
        ("raw.txt", "a\n", {"prepare"}),
        ("params.yaml", "seeds: [3, 2]\n", {"train@a", "train@b"}),
        ("params.yaml", "seeds: [1, 5]\n", set()),
        ("other.yaml", "x: 2\n", {"train@a", "train@b"}),
        ("dvc.yaml", PIPELINE.replace("grep .", "grep -v '^$'"), {"prepare"}),
    ],
)
def test_stale_is_what_dvc_status_names(finished, root, file, text, named):
    _, _, instance = finished
    with dg.DagsterInstance.ephemeral() as blank:
        assert stale(load(root), blank) == EVERYTHING
    assert stale(load(root), instance) == status(root) == set()
    (root / file).write_text(text)
    assert stale(load(root), instance) == status(root) == named


def test_what_a_stage_made_anew_makes_its_readers_stale_until_they_ran(root):
    with dg.DagsterInstance.ephemeral() as instance:
        assert run(load(root), instance).success
        (root / "raw.txt").write_text("a\na\na\n")
        assert run(load(root), instance, "prepare").success
        assert stale(load(root), instance) == status(root) == {"train@a", "train@b"}
        assert run(load(root), instance).success
        assert stale(load(root), instance) == status(root) == set()


@pytest.mark.slow
def test_a_folder_of_a_larger_repository_is_a_project(tmp_path):
    root = tmp_path / "models/counts"
    root.mkdir(parents=True)
    (repository(tmp_path) / "dvc.yaml").write_text("stages:\n  other: {cmd: 'echo > o', outs: [o]}\n")
    project(root)
    with dg.DagsterInstance.ephemeral() as instance:
        result = run(load(root), instance)
        assert result.success
        assert {"@".join(e.asset_key.path) for e in result.get_asset_materialization_events()} == EVERYTHING
        assert all(e.passed for e in result.get_asset_check_evaluations())
        assert stale(load(root), instance) == set()
        assert {
            e.materialization.metadata["status"].value
            for e in run(load(root), instance).get_asset_materialization_events()
        } == {"unchanged"}


def test_two_projects_fit_into_one_code_location(tmp_path):
    repository(tmp_path)
    project(tmp_path, prefix="one")
    other = tmp_path / "orchestration/defs/other"
    shutil.copytree(tmp_path / "orchestration/defs/counts", other)
    (other / "defs.yaml").write_text((other / "defs.yaml").read_text().replace("prefix: one", "prefix: two"))
    subprocess.run(["git", "init", "--quiet"], cwd=tmp_path, check=True)
    defs = load(tmp_path)
    dg.Definitions.validate_loadable(defs)
    keys = {"@".join(key.path) for key in defs.resolve_asset_graph().get_all_asset_keys()}
    assert keys == {f"{prefix}@{name}" for prefix in ("one", "two") for name in EVERYTHING}
    jobs = {
        f"{prefix}_{job}"
        for prefix in ("one", "two")
        for job in ("everything", "experiment", "prepare", "train", "evaluate")
    }
    assert {job.name for job in defs.jobs} == jobs
    assert {
        key.path[0] for key in defs.resolve_job_def("one_everything").asset_layer.selected_asset_keys
    } == {"one"}


def test_names_that_dagster_takes_for_no_step_or_job(tmp_path):
    names = (
        "import",
        "type",
        "everything",
        "experiment",
        "nightly",
        "dvc_lock",
        "check-x",
        "x",
        "check_x",
        "größe",
    )
    stages = {name: {"cmd": f"echo > {i}", "outs": [str(i)]} for i, name in enumerate(names)}
    stages["rows"] = {
        "foreach": ["a,b", "a-b", "größe", "data/e.csv"],
        "do": {"cmd": "echo > ${item}", "outs": ["${item}"]},
    }
    stages["cube"] = {
        "matrix": {"m": [1, 2], "n": ["a"]},
        "cmd": "echo > ${item.m}${item.n}",
        "outs": ["${item.m}${item.n}"],
    }
    root = project(repository(tmp_path), yaml.safe_dump({"stages": stages}))
    subprocess.run(["git", "init", "--quiet"], cwd=root, check=True)
    defs = load(root)
    dg.Definitions.validate_loadable(defs)
    keys = {"@".join(key.path) for key in defs.resolve_asset_graph().get_all_asset_keys()}
    plain = {*names} - {"import", "type", "größe"} | {"import_", "type_", "gr__e"}
    assert keys == plain | {"rows@a_b", "rows@a-b", "rows@gr__e", "rows@data_e.csv", "cube@1-a", "cube@2-a"}


@pytest.mark.parametrize(
    ("pipeline", "said"),
    [
        ("stages: {}", r"dvc\.yaml: there is no such file, or no stage in it$"),
        ("stages:\n  a: {cmd: echo, wdir: src}", r"stage 'a' has a wdir"),
        ("stages:\n  a: {comand: echo}", r"dvc\.yaml"),
        (
            "stages:\n  a: {foreach: ['b,c', b_c], do: {cmd: echo}}",
            r"'a@b,c' and 'a@b_c' are the same name to Dagster: a/b_c$",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, pipeline, said):
    (repository(tmp_path) / "src").mkdir()
    (tmp_path / "dvc.yaml").write_text(pipeline)
    with pytest.raises(GraphError, match=said) as error:
        DvcProjectComponent(project=tmp_path).stages()
    assert "\n" not in str(error.value)


def test_metrics_may_stand_outside_of_the_stages(tmp_path):
    stages = {
        "train": {"cmd": "true", "outs": ["live", "a.json"], "metrics": ["b.json"]},
        "other": {"cmd": "true", "outs": ["c"]},
    }
    listed = ["live/metrics.json", "b.json", "elsewhere.json", "a.json", "live/pictures"]
    (repository(tmp_path) / "dvc.yaml").write_text(yaml.safe_dump({"stages": stages, "metrics": listed}))
    found = {name: stage.metrics for name, stage in read(tmp_path).items()}
    assert found == {"train": ("b.json", "live/metrics.json", "a.json"), "other": ()}


def test_data_with_another_address_than_a_path_are_not_watched(tmp_path):
    repository(tmp_path)
    (tmp_path / "dvc.yaml").write_text(
        "stages:\n  get: {cmd: 'echo > x', deps: ['https://localhost/data.csv'], outs: [x]}\n"
    )
    assert read(tmp_path)["get"].sources == ()


@pytest.mark.slow
def test_the_five_minutes_of_the_docs_do_what_they_say(tmp_path):
    page = (PACKAGE / "README.md").read_text()
    _, *blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)  # the first one installs
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path, "PYTHONPATH": str(PACKAGE.parent), "DO_NOT_TRACK": "1"}
    script = "set -e\n" + "\necho END OF BLOCK\n".join(blocks)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    _, listed, launched, edited = done.stdout.split("END OF BLOCK")
    assert all(name in listed for name in ("prepare", "train", "evaluate", "as_locked", "finite_metrics"))
    assert "up to date" in launched.splitlines()[-1]
    before, after = re.findall(r"^(\w+):$", edited, re.M)[:1], re.findall(r"^(\w+):$", edited, re.M)[1:]
    assert (before, after) == (["prepare"], ["train", "evaluate"])
