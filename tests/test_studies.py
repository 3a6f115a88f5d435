"""Every study of the repository, activated in a copy of it and read by DVC itself: its stages are there and would run."""

import shutil
from pathlib import Path

import pytest
import yaml
from dvc.repo import Repo

from pipelines.study import activate, params
from pipelines.study.row import Made

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep")  # what DVC does with pygtrie
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """This project's code and studies, without git and without data."""
    root = tmp_path_factory.mktemp("repository")
    for name in ("pipelines", "studies", ".dvc/config", ".dvcignore", "dvc.yaml", "constraints.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    (root / ".dvc/config").write_text("[core]\n    analytics = false\n    no_scm = true\n")
    return root


def stand_ins(study):
    """An empty file or folder for each path that the user would bring."""
    for _, row in study.rows():
        path = Path(getattr(row, "path", "constraints.txt"))
        if not str(path).startswith(tuple(Made.FOLDERS)) and not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch() if path.suffix else path.mkdir()


def read_by_dvc(path, study):
    """What DVC would run, in its order: the stages' names, and the words of their commands."""
    stand_ins(study)
    activate.activate(path)
    with Repo() as repo:
        stages = repo.reproduce(dry=True, force=True)  # else DVC looks for the outputs of the stages before
    return [stage.addressing for stage in stages], [stage.cmd.split() for stage in stages]


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_dvc_reads_every_study(path, repository, monkeypatch):
    monkeypatch.chdir(repository)
    study = params.load(path)
    names, commands = read_by_dvc(path, study)
    templates = yaml.safe_load(Path("dvc.yaml").read_text())["stages"]
    tables = {verb: body["foreach"][2:-1] for verb, body in templates.items() if "foreach" in body}
    stages = {f"{verb}@{row}" for verb, table in tables.items() for row in getattr(study, table)}
    assert sorted(names) == sorted(stages | {"report"})
    assert ["@".join(words).removeprefix("python@-m@pipelines.") for words in commands] == names


def test_documented_rows_for_vectors_without_text_go_with_the_study_of_own_texts():
    (block,) = (
        block
        for block in (ROOT / "docs/configuration.md").read_text().split("```yaml\n")
        if block.startswith("corpora:  {leaked")
    )
    study, more = (
        yaml.safe_load(text) for text in ((ROOT / "studies/own.yaml").read_text(), block.partition("```")[0])
    )
    both = params.Study.model_validate(
        study | {table: study.get(table, {}) | rows for table, rows in more.items()}
    )
    assert both.translators()["leaked"].supervision == "unpaired"


def test_the_first_table_of_the_sample_study_waits_for_nothing_that_it_does_not_need(repository, monkeypatch):
    monkeypatch.chdir(repository)
    study = params.load("studies/sample.yaml")
    _, commands = read_by_dvc("studies/sample.yaml", study)
    verbs, rows = zip(
        *[(words[2].removeprefix("pipelines."), words[3]) for words in commands if len(words) > 3],
        strict=True,
    )
    last = max(n for n, (verb, _) in enumerate(zip(verbs, rows, strict=True)) if verb == "evaluate")
    assert set(verbs[: last + 1]) == {"collect", "fetch", "embed", "align", "evaluate"}
    assert set(rows[: last + 1]) == {"docstrings", "minilm", "wordllama", *study.align} | {
        name for name in study.embed if name.startswith("docstrings-")
    }


def test_dvc_yaml_and_the_study_agree_on_the_table_of_each_verb():
    templates = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    tables = {verb: body["foreach"][2:-1] for verb, body in templates.items() if "foreach" in body}
    assert tables == {verb: table for verb, table in params.Study.tables().items() if verb != "audit"}


def test_a_rows_name_is_all_that_reaches_a_command_line():
    for verb, body in yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"].items():
        assert body.get("do", body)["cmd"] == f"python -m pipelines.{verb}" + (
            " ${key}" if "foreach" in body else ""
        )
