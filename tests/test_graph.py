"""Dagster shows what dvc.yaml says, stage for stage and edge for edge, and says it fast."""

import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dvc.repo import Repo

from assets import definitions
from assets.study import StudyComponent
from dagster_dvc.graph import GraphError, lock, read

ROOT = Path(__file__).parents[1]
STAGES = read(ROOT)
TEMPLATES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
PARAMS = yaml.safe_load((ROOT / "params.yaml").read_text())
VERBS = {
    verb for verb, body in TEMPLATES.items() if "foreach" not in body or PARAMS[body["foreach"][2:-1]]
}  # of some rows


def expanded() -> dict[str, tuple[str, dict, str]]:
    """dvc.yaml's stages with `foreach` unrolled by hand: {name: (verb, body, row)}."""
    out = {}
    for verb, template in TEMPLATES.items():
        table = template.get("foreach")
        rows = PARAMS[table[2:-1]] if table else [None]
        out |= {f"{verb}@{row}" if row else verb: (verb, template.get("do", template), row) for row in rows}
    return out


def readers(name: str) -> set[str]:
    return {other for other, stage in STAGES.items() if name in stage.upstream}


def asset_graph():
    return definitions.defs.resolve_asset_graph()


def test_the_assets_are_the_stages():
    keys = {"@".join(key.path) for key in asset_graph().get_all_asset_keys()}
    assert keys == set(expanded()) == set(STAGES)


def test_the_edges_are_those_of_dvc():
    command = [sys.executable, "-m", "dvc", "dag", "--dot"]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    edges = {
        tuple(part.strip(' ";') for part in line.split("->"))
        for line in said.stdout.splitlines()
        if "->" in line
    }
    graph = asset_graph()
    mine = {
        ("@".join(p.path), "@".join(k.path))
        for k in graph.get_all_asset_keys()
        for p in graph.get(k).parent_keys
    }
    assert mine == edges
    assert edges


@pytest.mark.parametrize("name", STAGES)
def test_an_asset_tells_what_dvc_yaml_tells(name):
    verb, body, row = expanded()[name]
    node = asset_graph().get(dg.AssetKey(name.split("@")))
    assert node.group_name == verb
    assert body["desc"] in node.description
    assert body["cmd"].replace("${key}", row or "") in node.description
    assert node.pools == ({body["meta"]["pool"]} if "meta" in body else set())


def test_an_asset_shows_the_outputs_that_dvc_yaml_calls_metrics_table_and_picture_and_no_others():
    assert STAGES["evaluate@wasserstein"].metrics == ("results/evaluate/wasserstein.json",)
    tables = [f"results/evaluate/wasserstein/{name}.csv" for name in ("heatmap", "seeds", "spaces")]
    assert sorted(STAGES["evaluate@wasserstein"].plots) == tables
    assert STAGES["report"].plots == ("report/pictures",)
    assert not STAGES[
        "invert@synthetic-emails"
    ].plots  # its examples.csv has texts, which Dagster's database must not


def test_no_two_stages_share_a_step():
    ops = [stage.op for stage in STAGES.values()]
    assert len(set(ops)) == len(STAGES)
    assert not set(ops) & {job.name for job in definitions.defs.jobs}


def test_jobs_are_everything_and_one_per_group():
    jobs = {job.name: definitions.defs.resolve_job_def(job.name) for job in definitions.defs.jobs}
    assert set(jobs) == {"everything", "experiment", "smoke", *VERBS}
    keys = {
        name: {"@".join(k.path) for k in job.asset_layer.selected_asset_keys} for name, job in jobs.items()
    }
    assert not keys["experiment"] | keys["smoke"]  # they leave the assets alone
    assert keys["everything"] == set(STAGES)
    assert all(keys[verb] == {n for n in STAGES if n.partition("@")[0] == verb} for verb in VERBS)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ('group:"align"', lambda: {n for n in STAGES if n.startswith("align@")}),
        ('+key:"fetch/minilm"', lambda: {"fetch@minilm"}),
        ("kind:dvc", lambda: set(STAGES)),
        ('key:"align/identity"+1', lambda: {"align@identity"} | readers("align@identity")),
        (
            'group:"align" and not key:"*oracle*"',
            lambda: {n for n in STAGES if "align@" in n and "oracle" not in n},
        ),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_selection_strings_work(words, expected):
    """They need another antlr than the one DVC asks for by itself: see pyproject.toml."""
    found = dg.AssetSelection.from_string(words).resolve(asset_graph())
    assert {"@".join(key.path) for key in found} == expected()


def test_the_schedule_is_off_and_the_sensor_on():
    (schedule,), (sensor,) = definitions.defs.schedules, definitions.defs.sensors
    assert schedule.default_status is dg.DefaultScheduleStatus.STOPPED
    assert sensor.default_status is dg.DefaultSensorStatus.RUNNING
    context = dg.build_schedule_context()
    assert len(schedule.evaluate_tick(context).run_requests) == 1


def test_loading_needs_neither_torch_nor_mlflow():
    code = (
        "import sys, assets.definitions; print({'torch', 'mlflow', 'pipelines', 'polars'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "set()"


def test_the_upstream_of_a_stage_comes_before_it():
    place = {name: i for i, name in enumerate(STAGES)}
    assert all(place[u] < place[name] for name, stage in STAGES.items() for u in stage.upstream)


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
    text = "  s:\n    foreach: ${rows}\n    do: {cmd: 'echo ${key}', params: ['rows.${key}'], outs: ['${key}']}\n"
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


@pytest.mark.parametrize("row", ["a; touch evil #", "$(touch evil)", "a b", "a`touch evil`", "a'b"])
def test_a_row_whose_name_a_shell_would_read_is_refused(tmp_path, row):
    Repo.init(str(tmp_path), no_scm=True)
    (tmp_path / "params.yaml").write_text(yaml.safe_dump({"align": {row: {"seeds": [0]}}}))
    template = {"foreach": "${align}", "do": {"cmd": "python -m pipelines.align ${key}"}}
    (tmp_path / "dvc.yaml").write_text(yaml.safe_dump({"stages": {"align": template}}))
    with pytest.raises(
        GraphError, match=r"^align: .* is no row name: letters, digits, '_', '-' and '.' only$"
    ):
        StudyComponent(project=tmp_path).stages()
