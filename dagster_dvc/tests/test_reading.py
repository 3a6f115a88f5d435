"""Read dvc.yaml and dvc.lock: names, versions, faults; and the parts of DVC that have no public API."""

import inspect
from importlib import import_module
from pathlib import Path

import pytest
import yaml

from dagster_dvc.graph import GraphError, lock, read

USED = {  # module: {name: parameters that graph.py passes}
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


def write(root: Path, stages: str, **params) -> Path:
    (root / ".dvc").mkdir(exist_ok=True)
    (root / ".dvc" / "config").write_text("[core]\n    no_scm = true\n    analytics = false\n")
    (root / "dvc.yaml").write_text("stages:\n" + stages)
    (root / "params.yaml").write_text(yaml.safe_dump(params))
    return root


def test_rows_that_differ_in_punctuation_only_are_different_steps(tmp_path):
    rows = {row: None for row in ("a-b", "a.b", "a_b")}
    text = "  s:\n    foreach: ${rows}\n    do: {cmd: 'echo ${key}', outs: ['${key}']}\n"
    stages = read(write(tmp_path, text, rows=rows))
    assert {s.key for s in stages.values()} == {("s", "a-b"), ("s", "a.b"), ("s", "a_b")}
    ops = {s.op for s in stages.values()}
    assert len(ops) == 3
    assert all(op.isidentifier() for op in ops)


def test_the_code_version_follows_the_stage_s_own_row(tmp_path):
    stage = "{cmd: 'echo ${key}', params: ['rows.${key}'], outs: ['${key}']}"
    text = f"  s:\n    foreach: ${{rows}}\n    do: {stage}\n"
    before = read(write(tmp_path, text, rows={"a": {"n": 1}, "b": {"n": 1}}))
    after = read(write(tmp_path, text, rows={"a": {"n": 2}, "b": {"n": 1}}))
    assert before["s@a"].code_version != after["s@a"].code_version
    assert before["s@b"].code_version == after["s@b"].code_version


def test_a_broken_dvc_yaml_is_said_on_one_line(tmp_path):
    with pytest.raises(GraphError, match=r"dvc\.yaml") as said:
        read(write(tmp_path, "  s: {comand: echo}\n"))
    assert "\n" not in str(said.value)


def test_no_dvc_lock_is_an_empty_one_and_half_of_one_is_an_error(tmp_path):
    assert lock(tmp_path) == {}
    (tmp_path / "dvc.lock").write_text("schema: '2.0'\nstages:\n  a: {cmd: 'x")
    with pytest.raises(GraphError, match=r"dvc\.lock"):
        lock(tmp_path)


@pytest.mark.parametrize("row", ["a;evil", "$(evil)", "a b", "a`evil`", "a'b", "-a", "a\nb"])
def test_a_row_whose_name_a_shell_would_read_is_refused(tmp_path, row):
    text = "  s:\n    foreach: ${rows}\n    do: {cmd: 'echo ${key}'}\n"
    with pytest.raises(GraphError, match=r"^dvc\.yaml: s: .* is no row name: a shell would read it$"):
        read(write(tmp_path, text, rows={row: None}))
