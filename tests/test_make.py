"""Names on make's command line reach the program as they were typed; neither make nor a shell reads them."""

import json
import os
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.small import ROOT, copied, put

RECORDS = f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"


@pytest.fixture
def make(own_folder):
    """Return a function that runs make on programs that only print their arguments, and returns these."""
    for path in copied(own_folder, "Makefile pyproject.toml constraints.txt").iterdir():
        os.utime(path, (0, 0))
    Path(".git").mkdir()
    put(".venv/.ready", "")
    for program in ("python", "dvc"):
        executable(program, RECORDS)

    def run(*arguments, **environment):
        env = os.environ | environment
        done = subprocess.run(["make", *arguments], capture_output=True, text=True, env=env)
        assert not list(Path().rglob("evil"))
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]

    return run


def executable(program, script):
    path = Path(".venv/bin", program)
    put(path, script)
    path.chmod(0o755)


@pytest.mark.parametrize(
    "name",
    [
        "x`touch evil`.npy",
        "x; touch evil",
        "$(shell touch evil)",
        "$$(touch evil)",
        '"; touch evil; "',
        "a b'c ${HOME}",
    ],
)
def test_names_reach_the_program_as_they_were_typed(make, name):
    audits = ["-m", "pipelines.tool", "audit", "--texts", name, "--", name]
    assert make("audit", f"VECTORS={name}", f"TEXTS={name}") == [audits]
    assert make("publish", f"ROW={name}", f"SEED={name}") == [["-m", "pipelines.publish", name, name]]
    activates = [["-m", "pipelines.study", "activate", name]]
    assert make("study", f"STUDY={name}") == make("study", STUDY=name) == activates
    assert make("repro", f"STUDY={name}")[0] == ["-m", "pipelines.study", "names", name]


def test_the_study_is_checked_before_dvc_runs(make):
    names, study = ["-m", "pipelines.study", "names"], ["-m", "pipelines.tool", "validate", "params.yaml"]
    assert make("repro")[:3] == [names, study, ["-m", "scripts.repro"]]


def test_audit_and_publish_need_one_variable(make):
    assert make("audit", "VECTORS=x") == [["-m", "pipelines.tool", "audit", "--", "x"]]
    assert make("publish", "ROW=x") == [["-m", "pipelines.publish", "x"]]


def test_a_folder_of_the_users_files_is_not_the_link(make, tmp_path):
    Path("data/raw").mkdir(parents=True)
    assert make("study", "STUDY=x", CORPORA_ROOT=str(tmp_path)) == []
    assert list(Path("data/raw").iterdir()) == []


def test_a_folder_that_is_not_there_leaves_the_link(make, tmp_path):
    make("study", "STUDY=x", CORPORA_ROOT=str(tmp_path))
    assert make("study", "STUDY=x", CORPORA_ROOT=str(tmp_path / "none")) == []
    assert Path("data/raw").readlink() == tmp_path


SERVES = f"""#!{sys.executable}
import os, socket, sys
from pathlib import Path
if set(sys.argv) & {{"-p", "--port"}}:
    port = sys.argv[sys.argv.index("-p" if "-p" in sys.argv else "--port") + 1]
    said = [*sys.argv[1:], os.environ.get("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "")]
    said += [os.environ["PYTHONWARNINGS"], os.environ["PYTHONPATH"]]
    Path(Path(sys.argv[0]).name).write_text("|".join(said))
    listening = socket.create_server(("127.0.0.1", int(port)))
    while True:
        listening.accept()
"""


def test_make_ui_starts_one_mlflow_worker(make, tmp_path):
    copied(tmp_path, "scripts/ui assets/dagster.yaml")
    for program in ("mlflow", "python", "dagster-daemon"):
        executable(program, SERVES)
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        ports = [str(free.getsockname()[1]) for free in (one, other)]
    env = os.environ | {"DAGSTER_PORT": ports[0], "MLFLOW_PORT": ports[1], "MLFLOW_TRACKING_URI": ""}
    with subprocess.Popen(["scripts/ui"], env=env, stdout=subprocess.PIPE, text=True) as ui:
        assert "  Ctrl-C stops both.\n" in ui.stdout
        ui.terminate()
        assert ui.wait(timeout=60) == 0
    for port in ports:  # nothing is left behind
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", int(port)))
    mlflow = Path("mlflow").read_text().split("|")
    assert mlflow[-5:-1] == ["--workers", "1", "false", "ignore"]
    assert mlflow[-1].split(os.pathsep)[0] == str(tmp_path)  # a checkout's `assets` is in no package
    assert "sqlite:///mlflow.db" in mlflow
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["mlflow.app"]
    assert declared[mlflow[mlflow.index("--app-name") + 1]] == "assets.mlflow_app:app"
