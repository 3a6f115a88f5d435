"""DVC reads every study, activated in a copy of the repository."""

import os
import re
from pathlib import Path

import pytest
import yaml
from dvc.exceptions import ReproductionError
from dvc.repo import Repo

from pipelines.study import activate, params
from pipelines.study.row import MAKERS
from tests.small import ROOT, STUDIES, WITHOUT_GIT, blocks, copied, put, read_yaml, stages_of_dvc, write_yaml

pytestmark = pytest.mark.filterwarnings("ignore:_NoneStep")  # what DVC does with pygtrie


@pytest.fixture(scope="module")
def repository(module_patch):
    """Change into a copy of this project's code and studies, without git and data."""
    copied(Path.cwd(), "pipelines studies .dvcignore dvc.yaml constraints.txt")
    put(".dvc/config", WITHOUT_GIT)


def stand_ins(study):
    """Make an empty file or folder for each path of the user's."""
    for _, row in study.rows():
        path = Path(getattr(row, "path", "constraints.txt"))
        if not str(path).startswith(tuple(MAKERS)) and not path.exists():
            put(path, "") if path.suffix else path.mkdir(parents=True)


def read_by_dvc(path, study):
    """Return the names of the stages that DVC would run, in its order."""
    stand_ins(study)
    activate.activate(path)
    with Repo() as repo:
        stages = repo.reproduce(dry=True, force=True)  # else DVC looks for the outputs of the stages before
    return [stage.addressing for stage in stages]


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] * p.stem.startswith("paper")) for p in STUDIES],
)
def test_dvc_reads_every_study(path, repository):
    study = params.load(path)
    assert sorted(read_by_dvc(path, study)) == sorted([*study.stages(), "report"])


@pytest.mark.parametrize("page", ["README.md", "docs/dvc.md"])
def test_changes_on_the_command_line_are_to_keys_that_the_sample_has(page):
    study = read_yaml(ROOT / "studies/sample.yaml")
    changes = re.findall(r"-S ([\w.-]+)=", (ROOT / page).read_text())
    assert changes
    for change in changes:
        table, row, key = change.split(".")
        assert key in study[table][row], change


def test_configuration_lists_every_study():
    page = (ROOT / "docs/configuration.md").read_text("utf-8").partition("\n## Studies\n")[2]
    listed = re.findall(r"^\| `([\w-]+)` \|", page, re.MULTILINE)
    assert sorted(listed) == sorted(path.stem for path in STUDIES)


def test_documented_rows_go_with_the_study_of_own_texts():
    [block] = [rows for rows in blocks("docs/configuration.md", "yaml") if rows.startswith("corpora:\n  l")]
    study = read_yaml(ROOT / "studies/own.yaml")
    for table, rows in yaml.safe_load(block).items():
        study[table] = study.get(table, {}) | rows
    assert params.Study.model_validate(study).translators()["leaked"].supervision == "unpaired"


def test_the_first_table_of_the_sample_study_comes_soon(repository):
    study = params.load("studies/sample.yaml")
    stages = read_by_dvc("studies/sample.yaml", study)
    verbs, rows = zip(*[stage.split("@") for stage in stages if "@" in stage], strict=True)
    last = max(n for n, verb in enumerate(verbs) if verb == "evaluate")
    assert set(verbs[: last + 1]) == {"collect", "fetch", "embed", "align", "evaluate"}
    spaces = {name for name in study.embed if name.startswith("docstrings-")}
    assert set(rows[: last + 1]) == {"docstrings", "minilm", "wordllama", *study.align} | spaces


HOSTILE = [
    "x; touch FILE #",
    "$(touch FILE)",
    "`touch FILE`",
    "x'; touch FILE; '",
    'x"; touch FILE; "',
    "x\ntouch FILE\n",
]


def test_no_name_of_a_row_reaches_a_shell(repository, monkeypatch):
    row = {"kind": "tweets", "source": "synthetic", "path": "constraints.txt"}
    study = {table: {} for table in params.Study.model_fields} | {"corpora": dict.fromkeys(HOSTILE, row)}
    write_yaml("params.yaml", study)
    put("bin/python", "#!/bin/sh\nexit 1\n")  # Python itself takes seconds to start
    Path("bin/python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{Path('bin').resolve()}:{os.environ['PATH']}")
    with Repo() as repo, pytest.raises(ReproductionError):
        repo.reproduce(targets=["collect"], on_error="keep-going")
    assert not Path("FILE").exists()
    for verb, stage in stages_of_dvc().items():
        named = "" if verb == "report" else ' "$DVC_STAGE"'
        assert stage["cmd"] == f"python -m pipelines.{verb}{named}"
