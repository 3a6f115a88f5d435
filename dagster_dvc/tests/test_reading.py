"""Read dvc.yaml and dvc.lock: names, faults, and the parts of DVC that have no public API."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from dvc.lock import Lock
from dvc.repo import Repo
from projects import initialised

from dagster_dvc.facts import metrics
from dagster_dvc.graph import GraphError, lock, read

USED = {  # module: {name: parameters that graph.py passes}
    "dvc.lock": {"LockError": set()},
    "dvc.repo": {"Repo": {"root_dir"}},
    "dvc.stage": {"PipelineStage": set()},
    "dvc.utils.serialize": {"load_path": {"fs"}},
    "dvc_data.hashfile.build": {"build": {"odb", "path", "fs", "name", "ignore", "dry_run"}},
    "dvc_data.hashfile.db": {"HashFileDB": {"fs", "path"}},
    "dvc_data.hashfile.state": {"StateNoop": set()},
    "dvc_objects.fs.local": {"localfs": set()},
}


@pytest.mark.parametrize("module", USED)
def test_what_the_component_uses_of_dvc_is_still_there(module):
    for name, parameters in USED[module].items():
        found = getattr(import_module(module), name, None)
        if found is None:
            pytest.fail(f"DVC moved {module}.{name}, which dagster_dvc/graph.py uses", pytrace=False)
        if parameters and (gone := parameters - inspect.signature(found).parameters.keys()):
            pytest.fail(f"{module}.{name} has no parameter {sorted(gone)} any more", pytrace=False)


def project(root: Path, stages: dict, **more: list) -> None:
    content = yaml.safe_dump({"stages": stages, **more})
    (initialised(root) / "dvc.yaml").write_text(content)


def rows(*of: str) -> dict:
    return {"a": {"foreach": list(of), "do": {"cmd": "echo ${item}"}}}


SHELL = r"^dvc\.yaml: a: .* is no row name: a shell would read it$"


@pytest.mark.parametrize(
    ("stages", "said"),
    [
        ({}, r"dvc\.yaml: there is no such file, or no stage in it$"),
        ({"a": {"cmd": "echo", "wdir": "src"}}, r"stage 'a' has a wdir"),
        ({"a:b": {"cmd": "echo"}}, r"'a:b': `dvc repro` cannot run a stage with `:` in its name$"),
        ({"a": {"comand": "echo"}}, r"extra keys not allowed .*\(line 3\)$"),
        (rows("b,c", "b_c"), r"'a@b,c' and 'a@b_c' are the same name to Dagster: a/b_c$"),
        *((rows(row), SHELL) for row in ("a;evil", "$(evil)", "a b", "a`evil`", "a'b", "-a", "a\nb")),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path, stages, said):
    project(tmp_path, stages)
    (tmp_path / "src").mkdir()
    with pytest.raises(GraphError, match=said) as error:
        read(tmp_path)
    assert "\n" not in str(error.value)


def test_no_dvc_lock_is_an_empty_one_and_half_of_one_is_an_error(tmp_path):
    assert lock(tmp_path) == {}
    (tmp_path / "dvc.lock").write_text("schema: '2.0'\nstages:\n  a: {cmd: 'x")
    with pytest.raises(GraphError, match=r"dvc\.lock"):
        lock(tmp_path)


def test_a_dvc_lock_that_dvc_is_writing_is_read_again(tmp_path, monkeypatch):
    project(tmp_path, {"a": {"cmd": "echo"}})
    (tmp_path / "dvc.lock").touch()  # open for writing
    lock = Lock.lock

    def after_dvc_wrote(self):
        (tmp_path / "dvc.lock").write_text("schema: '2.0'\n")
        lock(self)

    monkeypatch.setattr(Lock, "lock", after_dvc_wrote)
    assert list(read(tmp_path)) == ["a"]


def test_while_dvc_holds_its_lock_a_project_is_read_and_a_fault_is_named(tmp_path, monkeypatch):
    project(tmp_path, {"a": {"cmd": "echo"}})
    monkeypatch.setattr("dvc.lock.DEFAULT_TIMEOUT", 0)
    with Repo(str(tmp_path)) as repo, repo.lock:
        assert list(read(tmp_path)) == ["a"]
        (tmp_path / "dvc.lock").touch()
        with pytest.raises(GraphError, match=r"dvc\.lock.* validation failed"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("meta", "pool"), [("hello", None), ({"pool": 1}, "1"), ({"pool": "gpu big/1"}, "gpu_big/1")]
)
def test_meta_may_be_anything(tmp_path, meta, pool):
    project(tmp_path, {"train": {"cmd": "true", "meta": meta}})
    assert read(tmp_path)["train"].pool == pool


def test_metrics_may_stand_outside_of_the_stages(tmp_path):
    stages = {
        "train": {"cmd": "true", "outs": ["live", "a.json"], "metrics": ["b.json"]},
        "other": {"cmd": "true", "outs": ["c"]},
    }
    listed = ["${live}/metrics.json", "b.json", "elsewhere.json", "a.json"]
    project(tmp_path, stages, metrics=listed, vars=[{"live": "live"}])
    found = {name: stage.metrics for name, stage in read(tmp_path).items()}
    assert found == {"train": ("b.json", "live/metrics.json", "a.json"), "other": ()}


def test_keys_of_a_parameter_may_be_of_several_types(tmp_path):
    project(tmp_path, {"train": {"cmd": "true", "params": ["rows"]}})
    (tmp_path / "params.yaml").write_text("rows: {1: a, b: c}")
    assert list(read(tmp_path)) == ["train"]


def test_metrics_may_be_a_folder_with_other_files(tmp_path):
    project(tmp_path, {"train": {"cmd": "true", "metrics": ["scores"]}})
    for name in ("a", "v1.0"):
        (tmp_path / "scores" / name).mkdir(parents=True)
        (tmp_path / "scores" / name / "x.json").write_text('{"top1": 0.5}')
    (tmp_path / "scores" / "a.png").write_bytes(b"\x89PNG")
    assert metrics(tmp_path, read(tmp_path)["train"]) == {"a/x/top1": 0.5, "v1.0/x/top1": 0.5}


def test_files_of_dvc_add_are_data(tmp_path):
    project(tmp_path, {"train": {"cmd": "true", "deps": ["x.csv"]}})
    (tmp_path / "x.csv").write_text("1")
    (tmp_path / "x.csv.dvc").write_text(
        "outs:\n- {path: x.csv, md5: c4ca4238a0b923820dcc509a6f75849b, size: 1}"
    )
    assert [(name, stage.sources) for name, stage in read(tmp_path).items()] == [("train", ("x.csv",))]


def test_dependencies_at_a_web_address_are_not_watched(tmp_path):
    stage = {"cmd": "echo > x", "deps": ["https://localhost/data.csv"], "outs": ["x"]}
    project(tmp_path, {"get": stage})
    assert read(tmp_path)["get"].sources == ()
