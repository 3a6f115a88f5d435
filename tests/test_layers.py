"""The house holds: arrows point down, assets know only DVC, and dvc.yaml lists what each stage's module reads."""

import ast
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
CARRIERS = {
    "pipelines",
    "pipelines.params",
    "pipelines.store",
    "pipelines.track",
    "pipelines.stage",
    "pipelines.errors",
    "pipelines.ranks",
    "pipelines.rows",
}
NOUNS = {"corpora", "encoders", "aligners", "inverters", "measures"}


def modules():
    return {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in (ROOT / "pipelines").rglob("*.py")
    }


@cache
def imports(path: Path, top_level_only: bool = False) -> frozenset[str]:
    """Every module that a file imports; `from pipelines import store` counts as pipelines.store."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{a.name}" for a in node.names if f"{node.module}.{a.name}" in modules()}
    return frozenset(found)


def closure(module: str) -> set[str]:
    """Every module of the project that a module reaches, itself included, not counting what the carriers reach."""
    seen, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name in seen or name not in modules():
            continue
        seen.add(name)
        if not carrier(name):
            todo += [i for i in imports(modules()[name]) if i.startswith("pipelines")]
    return seen


def carrier(name: str) -> bool:
    """Code that carries and does not compute: docs/decisions/0003."""
    return name in CARRIERS or name.startswith("pipelines.rows.")


def noun(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in NOUNS else None


@pytest.mark.parametrize("name", sorted(n for n in modules() if noun(n)))
def test_nouns_import_nothing_above_them(name):
    mine = {i for i in imports(modules()[name]) if i.startswith("pipelines.")}
    allowed = {"pipelines.errors"} | ({"pipelines.rows"} if noun(name) in ("corpora", "encoders") else set())
    above = {i for i in mine if noun(i) is None} - allowed
    assert not above


@pytest.mark.parametrize("name", sorted(n for n in modules() if noun(n) in ("aligners", "measures")))
def test_aligners_and_measures_load_with_torch_and_numpy_alone(name):
    top = {i.split(".")[0] for i in imports(modules()[name], top_level_only=True)}
    stdlib = __import__("sys").stdlib_module_names
    assert {t for t in top if t not in stdlib} <= {"torch", "numpy", "pipelines", "tqdm"} - (
        {"tqdm"} if noun(name) == "measures" else set()
    )


@pytest.mark.parametrize("path", sorted((ROOT / "assets").glob("*.py")), ids=lambda p: p.name)
def test_assets_know_dvc_and_dagster_only(path):
    assert not {i.split(".")[0] for i in imports(path)} & {"torch", "mlflow", "pipelines", "polars", "numpy"}


@pytest.mark.parametrize("name", sorted(modules()))
def test_only_track_knows_mlflow_and_nothing_knows_dagster_or_dvc(name):
    tops = {i.split(".")[0] for i in imports(modules()[name])}
    assert not tops & {"dagster", "dvc", "assets"}
    assert "mlflow" not in tops or name == "pipelines.track"


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_dvc_yaml_lists_the_code_that_each_stage_runs(stage):
    body = STAGES[stage].get("do", STAGES[stage])
    verb = body["cmd"].split()[2]
    deps = [d for d in body["deps"] if d.startswith("pipelines/")]
    needed = {modules()[m].relative_to(ROOT) for m in closure(verb) if not carrier(m)}
    uncovered = {p for p in needed if not any(p.is_relative_to(d) for d in deps)}
    assert not uncovered, f"{stage} runs code that dvc.yaml does not list"
    idle = [d for d in deps if not any(p.is_relative_to(d) for p in needed)]
    assert not idle, f"dvc.yaml lists code that {stage} does not run"


def test_no_file_is_called_utils():
    assert not [p for p in ROOT.glob("[apt]*/**/*.py") if p.stem in ("utils", "helpers", "common", "misc")]
