"""Packages import only what they may, assets know only DVC, and dvc.yaml lists what each stage reads."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
STAGES = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
# what every room may use
PLAIN = {
    "runtime.device",
    "runtime.errors",
    "runtime.files",
    "runtime.log",
    "runtime.progress",
    "runtime.settings",
}
# Of each room: what it may import beside itself. Arrows point down only; runtime and study carry and compute nothing.
ROOMS = {
    "runtime": {"study"},  # stage reads the study; store, track and errors know nothing above them
    "study": {"aligners.core.aligner", *PLAIN},
    "distributed": PLAIN,
    "measures": PLAIN,
    "aligners": {"measures", *PLAIN},
    "fitting": {"aligners", "distributed", "runtime", "study"},
    "inverters": {"measures", *PLAIN},
    "batchwise": {"aligners", "encoders", "inverters", "measures", "study", *PLAIN},
    "corpora": {"study", *PLAIN},
    "encoders": {"study", *PLAIN},
    "contrastive": {"distributed", "encoders", "measures", "study", *PLAIN},
    "pages": {"measures", "runtime", "study"},
}
CARRIERS = ("pipelines", "pipelines.runtime", "pipelines.study")  # docs/decisions/0003
# Where a name in a row or in a file decides what is imported: an aligner, an inverter, a translator's class.
NAMED_BY_ROWS = {
    "corpora.core",
    "corpora.sources.synthetic",
    "study.translation",
    "study.attacks",
    "aligners.core.translator",
}


@cache
def modules():
    return {
        ".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p
        for p in (ROOT / "pipelines").rglob("*.py")
    }


@cache
def imports(path: Path, top_level_only: bool = False) -> frozenset[str]:
    """Return every module that a file imports, with its packages; `from pipelines import store` is pipelines.store."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            submodules = {f"{node.module}.{a.name}" for a in node.names} & modules().keys()
            found |= submodules if len(submodules) == len(node.names) else submodules | {node.module}
    return frozenset(found)


def has_code(path: Path) -> bool:
    """Return whether a file has more than a docstring."""
    return any(not isinstance(node, ast.Expr) for node in ast.parse(path.read_text()).body)


def packages(name: str) -> set[str]:
    """Return the packages of a module whose own code runs when it is imported."""
    parts = name.split(".")
    above = {".".join(parts[:n]) for n in range(2, len(parts))}
    return {package for package in above if package in modules() and has_code(modules()[package])}


def closure(module: str) -> set[str]:
    """Return all modules that a module imports, itself included, but nothing that `runtime` and `study` import."""
    seen, todo = set(), [module]
    while todo:
        name = todo.pop()
        if name in seen or name not in modules():
            continue
        seen.add(name)
        if not changes_no_number(name):
            todo += [i for i in imports(modules()[name]) if i.startswith("pipelines")]
            todo += packages(name)
    return seen


def changes_no_number(name: str) -> bool:
    """Return whether a module changes no number: it is no dependency of a stage."""
    return name == "pipelines" or room(name) in ("runtime", "study")


def room(name: str) -> str | None:
    """The package of `pipelines` that a module stands in; None: a verb."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in ROOMS else None


def inside(name: str, places: set[str]) -> bool:
    return any(f"{name}.".startswith(f"pipelines.{place}.") for place in places)


def test_verbs_alone_stand_at_the_root():
    verbs = {STAGES[s].get("do", STAGES[s])["cmd"].split()[2].removeprefix("pipelines.") for s in STAGES}
    assert {p.stem for p in (ROOT / "pipelines").glob("*.py")} == {
        "__init__",
        "audit",
        "publish",
    } | verbs  # commands, no stages
    assert {p.parent.name for p in (ROOT / "pipelines").glob("*/__init__.py")} == set(ROOMS)


@pytest.mark.parametrize("name", sorted(n for n in modules() if room(n)))
def test_arrows_point_down(name):
    mine = {i for i in imports(modules()[name]) if i.startswith("pipelines.") and i in modules()}
    assert not {i for i in mine if not inside(i, {room(name), *ROOMS[room(name)]})}


@pytest.mark.parametrize("verb", sorted(n for n in modules() if not room(n)))
def test_pictures_and_pages_belong_to_stages_that_compute_nothing(verb):
    pages = {m for m in closure(verb) if room(m) == "pages"}
    assert not pages or verb in ("pipelines.report", "pipelines.audit")


def test_no_module_reaches_itself():
    graph = {n: {i for i in imports(p, True) if i in modules() and i != n} for n, p in modules().items()}
    while leaves := {n for n, out in graph.items() if not out & graph.keys()}:
        graph = {n: out for n, out in graph.items() if n not in leaves}
    assert not graph


def test_no_module_is_imported_by_a_computed_name_but_those_that_a_row_names():
    by_name = {
        n.removeprefix("pipelines.")
        for n, p in modules().items()
        if "import_module" in p.read_text() or "__import__" in p.read_text()
    }
    assert by_name == NAMED_BY_ROWS


ALIGNERS = [n for n in modules() if n.startswith("pipelines.aligners.") and n != "pipelines.aligners.arrays"]


@pytest.mark.parametrize("name", ALIGNERS)
def test_an_aligner_imports_the_core_and_no_other_aligner(name):
    others = {i for i in imports(modules()[name]) if i.startswith("pipelines.aligners.")}
    assert not {i for i in others if i.split(".")[2] not in ("core", name.split(".")[2])}


@pytest.mark.parametrize("name", sorted(n for n in modules() if room(n) in ("aligners", "measures")))
def test_aligners_and_measures_load_with_torch_and_numpy_alone(name):
    top = {i.split(".")[0] for i in imports(modules()[name], top_level_only=True)}
    stdlib = __import__("sys").stdlib_module_names
    assert {t for t in top if t not in stdlib} <= {"torch", "numpy", "pipelines", "tqdm"} - (
        {"tqdm"} if room(name) == "measures" else set()
    )


@pytest.mark.parametrize("path", sorted((ROOT / "assets").rglob("*.py")), ids=lambda p: p.name)
def test_assets_know_dvc_and_dagster_only(path):
    assert not {i.split(".")[0] for i in imports(path)} & {"torch", "mlflow", "pipelines", "polars", "numpy"}


@pytest.mark.parametrize("path", sorted((ROOT / "dagster_dvc").glob("*.py")), ids=lambda p: p.name)
def test_the_component_needs_what_any_dvc_project_has_under_dagster(path):
    tops = {i.split(".")[0] for i in imports(path)} - sys.stdlib_module_names
    assert tops <= {"dagster", "dagster_dvc", "dvc", "dvc_data", "dvc_objects", "yaml"}


@pytest.mark.parametrize("name", sorted(modules()))
def test_only_the_sender_and_publish_know_mlflow_and_nothing_knows_dagster_or_dvc(name):
    tops = {i.split(".")[0] for i in imports(modules()[name])}
    assert not tops & {"dagster", "dvc", "assets", "dagster_dvc"}
    assert "mlflow" not in tops or name in ("pipelines.runtime.sender", "pipelines.publish")


def body(stage: str) -> dict:
    return STAGES[stage].get("do", STAGES[stage])


def code(stage: str) -> tuple[set[Path], set[Path]]:
    """Return the code that dvc.yaml lists for a stage: for every row, and folders of which a row names one package."""
    listed = [Path(dep) for dep in body(stage)["deps"] if dep.startswith("pipelines/")]
    by_row = {dep.parent for dep in listed if "$" in dep.name}
    return {dep for dep in listed if "$" not in dep.name}, by_row


def sources(place: Path) -> set[Path]:
    """Return the Python files of a file or folder, without those that have no code."""
    paths = [ROOT / place] if place.suffix else (ROOT / place).rglob("*.py")
    return {path.relative_to(ROOT) for path in paths if has_code(path)}


def needed(module: str) -> set[Path]:
    return {
        path.relative_to(ROOT)
        for m in closure(module)
        if not changes_no_number(m) and has_code(path := modules()[m])
    }


def choices(folder: Path) -> list[Path]:
    """Return the packages that a row can name: all of a folder but `core`."""
    return sorted(
        p.parent.relative_to(ROOT) for p in (ROOT / folder).glob("*/__init__.py") if p.parent.name != "core"
    )


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_dvc_yaml_lists_the_code_that_each_stage_runs(stage):
    fixed, by_row = code(stage)
    listed = set().union(*map(sources, fixed))
    runs = needed(body(stage)["cmd"].split()[2])
    for package in (package for folder in by_row for package in choices(folder)):
        of_row = needed(".".join(package.parts)) | {f for f in sources(package) if f.parent != package}
        of_row -= sources(package)
        assert not of_row - listed, f"{stage} with {package} runs code that dvc.yaml does not list"
        runs |= of_row
    assert sorted(map(str, listed - runs)) == [], f"dvc.yaml lists code that {stage} does not run"
    assert sorted(map(str, runs - listed)) == [], f"{stage} runs code that dvc.yaml does not list"


NEW = [
    f"pipelines/{place}.py"
    for place in (
        "aligners/new/__init__",
        "batchwise/new",
        "contrastive/new",
        "corpora/kinds/new/__init__",
        "corpora/sources/new/__init__",
        "encoders/new",
        "inverters/new",
        "measures/new",
    )
]


@pytest.mark.parametrize("path", NEW)
def test_a_new_file_makes_no_stage_stale(path):
    assert [stage for stage in STAGES for dep in code(stage)[0] if Path(path).is_relative_to(dep)] == []


def test_no_file_is_called_utils():
    assert not [p for p in ROOT.glob("[adpt]*/**/*.py") if p.stem in ("utils", "helpers", "common", "misc")]


def unspoken(call: ast.Call) -> bool:
    """Whether a call opens a text file, or reads a child's text, in the encoding of the user's locale."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given, words = len(call.args), {word.arg: word.value for word in call.keywords}
    if name == "open" and isinstance(call.func, ast.Name):
        mode = call.args[1] if given > 1 else words.get("mode", ast.Constant("r"))
        return "encoding" not in words and "b" not in ast.unparse(mode)
    texts = (name, given) in (("read_text", 0), ("write_text", 1))
    return "encoding" not in words and (
        texts or ast.unparse(words.get("text", ast.Constant(False))) == "True"
    )


@pytest.mark.parametrize("folder", ["pipelines", "assets", "dagster_dvc", "scripts", "benchmarks"])
def test_text_is_read_and_written_in_a_given_encoding(folder):
    found = []
    for path in (ROOT / folder).rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(node, ast.Call)]
        found += [f"{path.relative_to(ROOT)}:{call.lineno}" for call in calls if unspoken(call)]
    assert [place for place in found if "/tests/" not in place] == []
