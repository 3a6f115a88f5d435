"""What a user names on make's command line reaches the program as it was typed; no shell and no make reads it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORDS = f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"
UNSAFE = [
    "x`touch evil`.npy",
    "x; touch evil",
    "$(shell touch evil)",
    "$$(touch evil)",
    '"; touch evil; "',
    "a b'c",
    "${HOME}",
]


@pytest.fixture
def make(tmp_path):
    """Runs the Makefile where every program only prints its arguments: gives the arguments of each."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (0, 0))
    (tmp_path / ".venv/bin").mkdir(parents=True)
    (tmp_path / ".venv/.ready").touch()
    for program in ("python", "dvc"):
        (tmp_path / ".venv/bin" / program).write_text(RECORDS)
        (tmp_path / ".venv/bin" / program).chmod(0o755)

    def run(*arguments, **environment):
        done = subprocess.run(
            ["make", *arguments], cwd=tmp_path, capture_output=True, text=True, env=os.environ | environment
        )
        assert not list(tmp_path.rglob("evil"))
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]

    return run


@pytest.mark.parametrize("name", UNSAFE)
def test_names_reach_the_program_as_they_were_typed(make, name):
    assert make("audit", f"VECTORS={name}")[-1] == ["-m", "pipelines.audit", name]
    assert make("audit", f"VECTORS={name}", f"TEXTS={name}")[-1] == ["-m", "pipelines.audit", name, name]
    assert make("study", f"STUDY={name}") == [["-m", "pipelines.study", "activate", name]]
    assert make("publish", f"ROW={name}") == [["-m", "pipelines.publish", name]]
    assert make("publish", f"ROW={name}", f"SEED={name}") == [["-m", "pipelines.publish", name, name]]
    assert make("study", STUDY=name) == [["-m", "pipelines.study", "activate", name]]


def test_the_names_of_rows_are_checked_before_dvc_runs(make):
    assert make("repro")[:2] == [["-m", "pipelines.study", "names"], ["scripts/repro.py"]]
    assert make("audit", "VECTORS=x")[:2] == [
        ["-m", "pipelines.study", "names"],
        ["repro", "--quiet", "fetch", "collect"],
    ]


@pytest.mark.parametrize("content", ["", '{"x": {"write'])
def test_a_damaged_lock_of_dvc_is_one_line(tmp_path, content):
    (tmp_path / ".dvc/tmp").mkdir(parents=True)
    (tmp_path / ".dvc/tmp/rwlock").write_text(content)
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/repro.py"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr
        == ".dvc/tmp/rwlock is damaged (a dvc was killed while it wrote): delete it if no dvc is running\n"
    )
