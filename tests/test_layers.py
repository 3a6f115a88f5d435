"""Packages import only what CONTRIBUTING.md allows, and dvc.yaml lists the code that each stage runs."""

import ast
import re
import sys
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from pipelines.study.params import Study
from tests.small import ROOT, stages_of_dvc

STAGES = stages_of_dvc()
PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
# What every package may import
[LISTED] = re.findall(r"these modules of `runtime`: ([^.]+)\.", PAGE)
PLAIN = {f"runtime.{name}" for name in {*re.findall(r"\w+", LISTED)} - {"and"}}


def named(cell):
    """Return the packages and modules that a cell of the table in CONTRIBUTING.md names."""
    return {name.removesuffix(".py").replace("/", ".") for name in re.findall(r"`([\w/.]+)`", cell)}


# What each package may import beside itself
TABLE = re.findall(r"^\| `pipelines/(\w+)/` .* \| (.+) \|$", PAGE, re.MULTILINE)
MAY_IMPORT = {package: named(cell) for package, cell in TABLE}
MAY_IMPORT["tool"] ^= {*MAY_IMPORT}  # "every package but"
# Modules that import by a name in a row or in a file
IMPORT_BY_NAME = {
    "corpora.core", "corpora.sources.synthetic", "aligners.core.translator", "tool.__main__",
    "study.translation", "study.attacks",
}  # fmt: skip


@cache
def modules():
    return {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in (ROOT / "pipelines").rglob("*.py")
    }


@cache
def imports(path, top_level_only=False):
    """Return every module that a file imports; `from pipelines import store` is pipelines.store."""
    tree = ast.parse(path.read_text())
    found = set()
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{a.name}" for a in node.names} & modules().keys()
            found |= submodules if len(submodules) == len(node.names) else submodules | {node.module}
    return frozenset(found)


def libraries(path, top_level_only=False):
    return {name.split(".")[0] for name in imports(path, top_level_only)} - sys.stdlib_module_names


def within(package):
    """Return the modules of a package; of None, the verbs."""
    return [name for name in modules() if package_of(name) == package]


@cache
def has_code(path):
    """Return whether a file has more than a docstring."""
    return any(not isinstance(node, ast.Expr) for node in ast.parse(path.read_text()).body)


def above(name):
    """Return the packages of a module that have code: it runs when the module is imported."""
    packages = modules().items()
    return [p for p, path in packages if p != "pipelines" and name.startswith(f"{p}.") and has_code(path)]


@cache
def closure(module):
    """Return a module and all that it imports, but nothing that `runtime` and `study` import."""
    seen, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name in seen or name not in modules():
            continue
        seen.add(name)
        if not never_listed(name):
            todo += [*imports(modules()[name]), *above(name)]
    return frozenset(seen)


def never_listed(name):
    """Return whether dvc.yaml lists a module for no stage: docs/decisions/0003."""
    return name == "pipelines" or package_of(name) in ("runtime", "study")


def package_of(name):
    """Return the package of `pipelines` that a module is in; None for a verb."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in MAY_IMPORT else None


def inside(name, places):
    return any(f"{name}.".startswith(f"pipelines.{place}.") for place in places)


def test_the_modules_of_pipelines_are_stages_and_commands():
    verbs = {stage["cmd"].split()[2].removeprefix("pipelines.") for stage in STAGES.values()}
    assert {p.stem for p in (ROOT / "pipelines").glob("*.py")} == verbs | {"__init__", "publish"}
    assert {p.parent.name for p in (ROOT / "pipelines").glob("*/__init__.py")} == set(MAY_IMPORT)


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_a_package_imports_only_what_it_may(package):
    allowed = {package, *PLAIN, *MAY_IMPORT[package]}
    for name in within(package):
        mine = imports(modules()[name]) & modules().keys() - {"pipelines"}
        assert {i for i in mine if not inside(i, allowed)} == set(), name


def test_no_stage_but_the_report_depends_on_pages():
    assert {verb for verb in within(None) if closure(verb) & {*within("pages")}} == {"pipelines.report"}


def test_few_modules_import_by_name():
    calls = ("import_module", "__import__")
    by_name = {name for name, path in modules().items() if any(call in path.read_text() for call in calls)}
    assert by_name == {f"pipelines.{name}" for name in IMPORT_BY_NAME}


def test_an_aligner_imports_the_core_and_no_other_aligner():
    for name in {*within("aligners")} - {"pipelines.aligners"}:
        allowed = {"aligners.core", f"aligners.{name.split('.')[2]}"}
        assert all(inside(i, allowed) for i in imports(modules()[name]) & {*within("aligners")}), name


def test_aligners_and_measures_load_with_torch_and_numpy():
    for package, needs in (("aligners", {"tqdm"}), ("measures", set())):
        for name in within(package):
            assert libraries(modules()[name], True) <= {"torch", "numpy", "pipelines", *needs}, name


def test_libraries_of_dagster_and_mlflow_stay_where_they_belong():
    for path in (ROOT / "assets").rglob("*.py"):
        foreign = libraries(path) & {"torch", "mlflow", "pipelines", "polars", "numpy"}
        assert foreign == ({"mlflow"} if path.name == "mlflow_app.py" else set()), path
    for path in (ROOT / "dagster_dvc").glob("*.py"):
        assert libraries(path) <= {"dagster", "dagster_dvc", "dvc", "dvc_data", "dvc_objects", "yaml"}, path
    for name, path in modules().items():
        assert not libraries(path) & {"dagster", "dvc", "assets", "dagster_dvc"}, name
    using_mlflow = {name for name, path in modules().items() if "mlflow" in libraries(path)}
    assert using_mlflow == {"pipelines.runtime.sender", "pipelines.publish"}


STYLE = "pipelines/pages/style.css"  # page.py reads it


def code(stage):
    """Return the code that dvc.yaml lists for every row of a stage, and folders with one for each row."""
    listed = [Path(dep) for dep in STAGES[stage]["deps"] if dep.startswith("pipelines/") and dep != STYLE]
    by_row = {dep.parent for dep in listed if "$" in dep.name}
    return {dep for dep in listed if "$" not in dep.name}, by_row


def with_code(paths):
    return {str(path.relative_to(ROOT)) for path in paths if has_code(path)}


def sources(place):
    """Return the Python files of a file or folder that have code."""
    return with_code([ROOT / place] if place.suffix else (ROOT / place).rglob("*.py"))


def needed(module):
    """Return the files that a stage depends on if it runs a module."""
    return with_code(modules()[name] for name in closure(module) if not never_listed(name))


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_dvc_yaml_lists_the_code_that_each_stage_runs(stage):
    fixed, by_row = code(stage)
    listed = set().union(*map(sources, fixed))
    runs = needed(STAGES[stage]["cmd"].split()[2])
    # The packages that a row can name: all of a folder but `core`
    found = [path.parent for folder in by_row for path in (ROOT / folder).glob("*/__init__.py")]
    packages = [package for package in found if package.name != "core"]
    for package in packages:
        names = [name for name, path in modules().items() if path.is_relative_to(package)]
        of_row = set().union(*map(needed, names)).difference(*map(sources, packages))
        assert of_row <= listed, f"{stage} with {package} runs code that dvc.yaml does not list"
        runs |= of_row
    assert listed - runs == set(), f"dvc.yaml lists code that {stage} does not run"
    assert runs - listed == set(), f"{stage} runs code that dvc.yaml does not list"
    assert (STYLE in STAGES[stage]["deps"]) == ("pipelines/pages/page.py" in runs)


NEW = "aligners batchwise contrastive corpora/kinds corpora/sources encoders inverters measures"


@pytest.mark.parametrize("place", NEW.split())
def test_a_new_file_makes_no_stage_stale(place):
    path = Path("pipelines", place, "new.py")
    assert [stage for stage in STAGES for dep in code(stage)[0] if path.is_relative_to(dep)] == []


def test_stages_that_compute_on_a_device_share_a_pool():
    tables = {
        verb: get_args(Study.model_fields[table].annotation)[1]
        for verb, table in Study.table_by_verb().items()
    }
    computed = {verb for verb, row in tables.items() if "device" in getattr(row, "model_fields", ())}
    assert computed == {verb for verb, stage in STAGES.items() if stage.get("meta") == {"pool": "gpu"}}
