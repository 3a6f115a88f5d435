"""A foreign DVC project in Dagster through a defs.yaml."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from projects import environment, git, initialised, names, outcomes, run, stale

from dagster_dvc.graph import read

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
      outs: ['${item}.txt']
      meta: {pool: gpu}
  evaluate:
    cmd: "echo lines: $(cat a.txt) > metrics.yaml"
    deps: [a.txt]
    metrics: [metrics.yaml]
"""
EVERYTHING = {"prepare", "train@a", "train@b", "evaluate"}


def project(root: Path, pipeline: str = PIPELINE, **attributes: str) -> Path:
    """Write a project with a dvc.yaml, and its definitions in the package `orchestration`."""
    defs = root / "orchestration/defs/counts"
    defs.mkdir(parents=True)
    (root / "dg.toml").write_text('directory_type = "project"\n[project]\nroot_module = "orchestration"\n')
    content = {"type": "dagster_dvc.DvcProjectComponent", "attributes": {"project": "../../..", **attributes}}
    (defs / "defs.yaml").write_text(yaml.safe_dump(content))
    (root / "dvc.yaml").write_text(pipeline)
    (root / "raw.txt").write_text("a\n\nb\na b\n")
    return root


def load(root: Path) -> dg.Definitions:
    """Load a project as Dagster does: its folder is on the path, and its modules have not been imported."""
    sys.path.insert(0, str(root))
    try:
        return dg.load_from_defs_folder(path_within_project=root)
    finally:
        sys.path.remove(str(root))
        for name in [name for name in sys.modules if name.partition(".")[0] == "orchestration"]:
            del sys.modules[name]


def keys(defs: dg.Definitions) -> set[str]:
    return names(defs.resolve_asset_graph().get_all_asset_keys())


def test_a_defs_yaml_is_all_that_a_project_adds(tmp_path):
    defs = load(project(initialised(tmp_path)))
    graph = defs.resolve_asset_graph()
    parents = {name: names(graph.get(dg.AssetKey(name.split("@"))).parent_keys) for name in EVERYTHING}
    assert keys(defs) == EVERYTHING
    assert parents == {
        "prepare": set(), "train@a": {"prepare"}, "train@b": {"prepare"}, "evaluate": {"train@a"}
    }  # fmt: skip
    prepare, train = graph.get(dg.AssetKey("prepare")), graph.get(dg.AssetKey(["train", "b"]))
    assert (train.group_name, train.pools, prepare.pools) == ("train", {"gpu"}, set())
    assert prepare.description == "lines without gaps\n\n`grep . raw.txt > clean.txt`"
    # no git, no experiments
    assert {job.name for job in defs.jobs} == {"everything", "prepare", "train", "evaluate"}


@pytest.mark.slow
def test_a_folder_of_a_larger_repository_is_a_project(tmp_path, instance):
    root = tmp_path / "models/counts"
    root.mkdir(parents=True)
    (initialised(tmp_path) / "dvc.yaml").write_text("stages:\n  other: {cmd: 'echo > o', outs: [o]}\n")
    project(root)
    result = run(load(root), instance)
    assert outcomes(result) == dict.fromkeys(EVERYTHING, "ran")
    assert all(e.passed for e in result.get_asset_check_evaluations())
    assert stale(load(root), instance) == set()
    assert outcomes(run(load(root), instance)) == dict.fromkeys(EVERYTHING, "unchanged")


def test_two_projects_fit_into_one_code_location(tmp_path):
    project(initialised(tmp_path), prefix="one")
    other = tmp_path / "orchestration/defs/other"
    shutil.copytree(tmp_path / "orchestration/defs/counts", other)
    (other / "defs.yaml").write_text((other / "defs.yaml").read_text().replace("prefix: one", "prefix: two"))
    git(tmp_path, "init", "--quiet")
    defs = load(tmp_path)
    dg.Definitions.validate_loadable(defs)
    assert keys(defs) == {f"{prefix}@{name}" for prefix in ("one", "two") for name in EVERYTHING}
    jobs = ("everything", "experiment", "prepare", "train", "evaluate")
    assert {job.name for job in defs.jobs} == {f"{prefix}_{job}" for prefix in ("one", "two") for job in jobs}
    selected = defs.resolve_job_def("one_everything").asset_layer.selected_asset_keys
    assert {key.path[0] for key in selected} == {"one"}


def test_names_that_dagster_takes_for_no_step_or_job(tmp_path):
    plain = ["everything", "experiment", "nightly", "dvc_lock", "check-x", "x", "check_x"]
    stages = {name: {"cmd": f"echo {name}"} for name in [*plain, "import", "type", "größe"]}
    rows = ["a,b", "a-b", "a.b", "größe", "data/e.csv"]
    stages["rows"] = {"foreach": rows, "do": {"cmd": "echo ${item}"}}
    stages["cube"] = {"matrix": {"m": [1, 2], "n": ["a"]}, "cmd": "echo ${item.m}${item.n}"}
    root = project(initialised(tmp_path), yaml.safe_dump({"stages": stages}))
    git(root, "init", "--quiet")
    defs = load(root)
    dg.Definitions.validate_loadable(defs)
    changed = {"import_", "type_", "gr__e", "rows@a_b", "rows@gr__e", "rows@data_e.csv"}
    assert keys(defs) == {*plain, *changed, "rows@a-b", "rows@a.b", "cube@1-a", "cube@2-a"}
    assert len({stage.op for stage in read(root).values()}) == len(keys(defs))


def test_names_that_are_no_plain_argument_of_dvc_run(tmp_path, instance):
    rows = {"foreach": ["llama3:8b"], "do": {"cmd": "echo ${item}"}}
    stages = {"-x": {"cmd": "echo"}, "a/b": {"cmd": "echo"}, "ask": rows}
    defs = load(project(initialised(tmp_path), yaml.safe_dump({"stages": stages})))
    assert outcomes(run(defs, instance)) == dict.fromkeys(("-x", "a_b", "ask@llama3_8b"), "ran")


@pytest.mark.slow
def test_the_five_minutes_of_the_docs_do_what_they_say(tmp_path):
    page = (PACKAGE / "README.md").read_text()
    _, *blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)  # the first one installs
    env = environment(PYTHONPATH=str(PACKAGE.parent), DO_NOT_TRACK="1")
    script = "set -e\n" + "\necho END OF BLOCK\n".join(blocks)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    _, listed, launched, edited = done.stdout.split("END OF BLOCK")
    assert all(name in listed for name in ("prepare", "train", "evaluate", "as_locked", "finite_metrics"))
    assert "up to date" in launched.splitlines()[-1]
    assert re.findall(r"^(\w+):$", edited, re.M) == ["prepare", "train", "evaluate"]
