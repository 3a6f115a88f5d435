"""Run a tiny pipeline through Dagster: reports, failures, and stages that `dvc repro` ran outside."""

import contextlib
import io
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import dagster as dg
import psutil
import pytest
import yaml
from projects import build, environment, git, materialized, names, outcomes, run, tick

from dagster_dvc import repro
from dagster_dvc.checks import as_locked, finite_metrics
from dagster_dvc.experiments import example
from dagster_dvc.facts import INLINE, facts, show, within
from dagster_dvc.graph import Entry, lock, read
from dagster_dvc.repro import Outcome

# One pixel
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PIPELINE = """
stages:
  make:
    foreach: ${make}
    do:
      desc: numbers to look at
      cmd: python make.py ${key}
      deps: [make.py]
      params: ['make.${key}']
      outs: ['data/${key}.txt']
      metrics:
        - 'results/${key}.json':
            cache: false
      plots: ['results/${key}/picture.png', 'results/${key}/table.csv']
  sum:
    desc: every number of the rows, added
    cmd: >-
      python -c "import os; open('sum.md', 'w').write(os.environ['DAGSTER_RUN_ID'])"
    deps: ['data/one-row.txt']
    outs: [sum.md]
"""
MAKE = f"""
import base64, json, sys, pathlib, yaml
name = sys.argv[1]
value = yaml.safe_load(open("params.yaml"))["make"][name]["value"]
if value == "bad":
    print("looking at the row", file=sys.stderr)
    sys.exit(print(f"make {{name}}: make.{{name}}.value is no number: bad", file=sys.stderr) or 2)
if value == "crash":
    raise ArithmeticError("of all things")
if value == "sleep":
    import subprocess
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("sleeping", child.pid, flush=True)
    child.wait()
folder = pathlib.Path("results", name)
folder.mkdir(parents=True, exist_ok=True)
pathlib.Path("data").mkdir(exist_ok=True)
pathlib.Path("data", name + ".txt").write_text(str(value))
metrics = {{"top1": {{"mean": value, "n": 3}}, "name": name, "ok": True}}
pathlib.Path("results", name + ".json").write_text(json.dumps(metrics))
(folder / "picture.png").write_bytes(base64.b64decode("{PNG}"))
(folder / "table.csv").write_text("seed,top1\\n0,0.5\\n1,0.75\\n")
"""


def dvc(root: Path, *words: str) -> None:
    command, env = [sys.executable, "-m", "dvc", *words], environment(DAGSTER_RUN_ID="none")
    subprocess.run(command, cwd=root, check=True, capture_output=True, env=env)


def setting(root: Path, value) -> None:
    rows = {"one-row": {"value": value}, "two-rows": {"value": 7}}
    (root / "params.yaml").write_text(yaml.safe_dump({"make": rows}))


@dataclass(frozen=True)
class Finished:
    """A repository in which Dagster has run everything once."""

    root: Path
    instance: dg.DagsterInstance
    result: dg.ExecuteInProcessResult


@pytest.fixture(scope="module")
def fresh(tmp_path_factory):
    """A repository in which nothing has run. Tests copy it."""
    root = tmp_path_factory.mktemp("fresh")
    git(root, "init", "--quiet")
    dvc(root, "init", "--quiet")
    (root / "make.py").write_text(MAKE)
    (root / "dvc.yaml").write_text(PIPELINE)
    setting(root, 0.5)
    return root


@pytest.fixture(scope="module")
def finished(fresh, tmp_path_factory):
    root = Path(shutil.copytree(fresh, tmp_path_factory.mktemp("finished") / "repo"))
    with dg.DagsterInstance.ephemeral() as instance:
        yield Finished(root, instance, run(build(root), instance))


@pytest.fixture
def root(fresh, tmp_path):
    return Path(shutil.copytree(fresh, tmp_path / "repo"))


@pytest.fixture
def after(finished, tmp_path):
    """A copy of the finished repository, as `dvc repro` outside Dagster would leave it."""
    return Path(shutil.copytree(finished.root, tmp_path / "after"))


ROWS = {"make@one-row", "make@two-rows"}
CHECKS = {("sum", "as_locked"), *((row, check) for row in ROWS for check in ("as_locked", "finite_metrics"))}


def failure(result: dg.ExecuteInProcessResult, op: str):
    return result.failure_data_for_node(op).user_failure_data


def checked(root: Path, instance: dg.DagsterInstance) -> dg.ExecuteInProcessResult:
    """Run the checks alone."""
    job = dg.define_asset_job("checks", dg.AssetSelection.all_asset_checks())
    return run(dg.Definitions.merge(build(root), dg.Definitions(jobs=[job])), instance, "checks")


def verdicts(checks: Iterable[dg.AssetCheckEvaluation]) -> dict[tuple[str, str], str | None]:
    """Return the text of each failed check, None if it passed, by stage and check."""
    return {
        ("@".join(e.asset_key.path), e.check_name): None if e.passed else str(e.description) for e in checks
    }


def test_a_stage_reports_ran_then_unchanged_then_restored(finished, after, instance):
    assert outcomes(finished.result) == dict.fromkeys(ROWS | {"sum"}, "ran")
    assert outcomes(run(build(after), instance)) == dict.fromkeys(ROWS | {"sum"}, "unchanged")
    setting(after, 0.75)
    made = outcomes(run(build(after), instance, "make"))
    assert made == {"make@one-row": "ran", "make@two-rows": "unchanged"}
    setting(after, 0.5)
    (after / "data/two-rows.txt").unlink()
    assert outcomes(run(build(after), instance, "make")) == dict.fromkeys(ROWS, "restored")
    assert [(after / f"data/{row}.txt").read_text() for row in ("one-row", "two-rows")] == ["0.5", "7"]


def test_what_an_asset_reports(finished):
    root, found = finished.root, materialized(finished.result)
    assert found["sum"]["sum.md"] == finished.result.run_id  # the stage sees Dagster's run
    row = found["make@one-row"]
    assert (row["metrics/top1/mean"], row["metrics/top1/n"]) == (0.5, 3.0)
    assert isinstance(row["metrics/top1/n"], float)
    assert not {"metrics/name", "metrics/ok"} & set(row)
    assert f"data:image/png;base64,{PNG}" in row["results/one-row/picture.png"]
    table = [record.data for record in row["results/one-row/table.csv"].records]
    assert table == [{"seed": "0", "top1": "0.5"}, {"seed": "1", "top1": "0.75"}]
    locked = lock(root)["make@one-row"]
    (md5,) = (o["md5"] for o in locked.outs if o["path"] == "data/one-row.txt")
    assert {r.data["path"]: r.data["md5"] for r in row["outputs"].records}["data/one-row.txt"] == md5
    assert row["size"] == sum((root / o["path"]).stat().st_size for o in locked.outs)
    assert row["path"] == str(root / "data/one-row.txt")
    event = finished.instance.get_latest_materialization_event(dg.AssetKey(["make", "one-row"]))
    assert event.asset_materialization.tags["dagster/data_version"] == md5  # the one output that `sum` reads


def test_a_failed_stage_is_one_line_and_the_rest_goes_on(root, instance):
    setting(root, "bad")
    result = run(build(root), instance)
    assert not result.success
    assert outcomes(result) == {"make@two-rows": "ran"}
    said = failure(result, "make_one_row")
    assert said.description == "make one-row: make.one-row.value is no number: bad"
    assert "looking at the row" in said.metadata["log"].value
    assert said.metadata["dvc"].value.endswith("failed to run: python make.py one-row, exited with 2")


def test_a_crash_is_named_by_its_exception(root):
    setting(root, "crash")
    command = [sys.executable, "make.py", "one-row"]
    said = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stderr.splitlines()
    outcome = Outcome(255, (), (*said, "ERROR: failed to run: python make.py one-row, exited with 1"), 1.0)
    assert repro.failure("one-row", "make.py", outcome).description == "ArithmeticError: of all things"


EXITED = "ERROR: failed to reproduce 'a': failed to run: x, exited with 1"
BLOCKED = ("ERROR: 'o' is busy, it is being blocked by:", "  (PID 7): dvc", "", "If there are none, remove")
KILLED = ("ERROR: failed to run: echo", "kill $$, exited with 143")


@pytest.mark.parametrize(
    ("output", "errors", "said"),
    [
        ((), ("WARNING: 'folder' is empty.", EXITED), EXITED.removeprefix("ERROR: ")),
        (("boom", ""), (EXITED,), "boom"),
        (("boom",), ("WARNING: 'folder' is empty.", EXITED), "boom"),
        ((), ("ERROR: mine", EXITED), "ERROR: mine"),
        ((), BLOCKED, "'o' is busy, it is being blocked by: (PID 7): dvc If there are none, remove"),
        (("boom",), KILLED, "failed to run: echo kill $$, exited with 143"),
        ((), ("x" * 3_000_000, EXITED), "x" * 200 + " ... " + "x" * 200),
    ],
)
def test_the_reason_of_a_failure(output, errors, said):
    found = repro.failure("a", "x", Outcome(255, ("Running stage 'a':", "> x", *output), errors, 1.0))
    assert found.description == said
    assert len(found.metadata["log"].value) < 1000
    assert repro.failure("a", "x", Outcome(-9, output, (), 1.0)).description == "dvc exited with -9"


def test_an_error_of_dvc_itself_is_one_line(root, instance):
    said = failure(run(build(root), instance, "sum"), "sum_stage").description
    assert "data/one-row.txt" in said
    assert "\n" not in said


def test_an_interrupted_run_leaves_no_process(root, capfd, request):
    """As when Dagster cancels: an exception reaches the thread that waits for the child."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores SIGINT
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))
    setting(root, "sleep")
    mine, pids = psutil.Process(), []
    others = {child.pid for child in mine.children(recursive=True)}  # of tests before

    def asleep():
        """Whether the stage's child runs its own program: before that, it swallows an interruption."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return any("sleep(600)" in " ".join(child.cmdline()) for child in mine.children(recursive=True))

    def interrupt_once_asleep():
        while not asleep():
            time.sleep(0.01)
        pids[:] = {child.pid for child in mine.children(recursive=True)} - others  # dvc, stage, its child
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt_once_asleep)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        repro.dvc(root, ["repro", "--single-item", "make@one-row"], "run")
    thread.join()
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=10)
    assert not alive
    dvc(root, "status")  # no lock is left


def test_checks_pass_after_a_run_and_fail_on_what_was_touched(finished, after, instance):
    assert verdicts(finished.result.get_asset_check_evaluations()) == dict.fromkeys(CHECKS)
    (after / "data/one-row.txt").chmod(0o644)
    (after / "data/one-row.txt").write_text("touched")
    (after / "sum.md").unlink()
    (after / "results/two-rows.json").write_text('{"top1": NaN}')
    result = checked(after, instance)
    failed = {key: said for key, said in verdicts(result.get_asset_check_evaluations()).items() if said}
    assert set(failed) == {
        ("make@one-row", "as_locked"), ("sum", "as_locked"),
        ("make@two-rows", "as_locked"), ("make@two-rows", "finite_metrics"),
    }  # fmt: skip
    assert failed["make@one-row", "as_locked"] == "data/one-row.txt: modified"
    assert failed["sum", "as_locked"] == "sum.md: deleted"
    assert not materialized(result)


def test_a_damaged_object_that_dvc_restores_from_its_cache_is_not_as_locked(after):
    """DVC trusts its cache: `dvc status` calls such a file unchanged."""
    stage, path = read(after)["make@one-row"], after / "data/one-row.txt"
    (md5,) = (o["md5"] for o in lock(after)[stage.name].outs if o["path"] == "data/one-row.txt")
    cached = after / ".dvc/cache/files/md5" / md5[:2] / md5[2:]
    cached.chmod(0o644)
    cached.write_bytes(b"0.7")
    cached.chmod(0o444)
    path.unlink()
    dvc(after, "checkout")
    assert path.read_bytes() == b"0.7"
    assert as_locked(after, stage) == ("data/one-row.txt: modified", {"data/one-row.txt": "modified"})


def test_a_stage_that_never_ran_is_not_as_locked(root, instance):
    found = verdicts(checked(root, instance).get_asset_check_evaluations())
    assert found["sum", "as_locked"] == "sum.md: not in dvc.lock"


def changing(*changes: str) -> dict:
    return {"ops": {"dvc_exp_run": {"config": {"set": list(changes)}}}}


def reported(result: dg.SensorResult) -> set[str]:
    return names(event.asset_key for event in result.asset_events)


def test_the_sensor_reports_what_dvc_repro_did_outside_dagster(root, after, instance):
    assert not tick(root, instance).asset_events
    first = tick(after, instance)
    assert reported(first) == ROWS | {"sum"}
    event = next(event for event in first.asset_events if event.asset_key.path[-1] == "one-row")
    assert event.metadata["status"].value == "ran outside Dagster"
    assert event.metadata["metrics/top1/mean"].value == 0.5
    version = lock(after)["make@one-row"].version(read(after)["make@one-row"])
    assert event.tags["dagster/data_version"] == version
    found = (event for event in first.asset_events if isinstance(event, dg.AssetCheckEvaluation))
    assert verdicts(found) == dict.fromkeys(CHECKS)
    assert not tick(after, instance, first.cursor).asset_events


def test_the_launchpad_of_an_experiment_shows_a_parameter_that_is_there(root):
    (root / "params.yaml").write_text("name: x\ntrain: {rate: 0.1, on: true}\n")
    assert list(example(root / "params.yaml")) == ["train.rate=0.1"]
    assert not list(example(root / "no.yaml"))


def test_the_sensor_does_not_repeat_what_dagster_ran(finished, after):
    assert not tick(after, finished.instance).asset_events
    setting(after, 0.75)
    dvc(after, "repro")
    assert reported(tick(after, finished.instance)) == {"make@one-row", "sum"}


def test_the_sensor_waits_while_dagster_runs(after, instance):
    busy = dg.DagsterRun(job_name="everything", status=dg.DagsterRunStatus.STARTED)
    instance.add_run(busy)
    assert tick(after, instance).skip_message
    instance.report_run_failed(busy)
    assert reported(tick(after, instance)) == ROWS | {"sum"}


def test_the_sensor_does_not_report_missing_outputs(after, instance):
    page = (after / "sum.md").rename(after / "elsewhere.md")
    first = tick(after, instance)
    assert reported(first) == ROWS
    page.rename(after / "sum.md")
    assert "sum" in reported(tick(after, instance, first.cursor))


def test_a_large_picture_is_named_and_not_embedded(tmp_path):
    large = tmp_path / "large.png"
    large.write_bytes(bytes(INLINE + 1))
    assert show(large).value == str(large)


def test_a_cell_that_is_not_there_is_empty(tmp_path):
    (tmp_path / "t.csv").write_text("\ufeffa,b\n1\n2,3,4\n")  # with a byte order mark, as Excel writes
    assert [row.data for row in show(tmp_path / "t.csv").records] == [
        {"a": "1", "b": ""},
        {"a": "2", "b": "3"},
    ]


@pytest.mark.parametrize(("name", "content"), [("t.csv", b"a,b\n\xe9,1\n"), ("t.md", b"caf\xe9")])
def test_a_table_that_cannot_be_read_is_named_and_no_stage_fails_for_it(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    assert show(tmp_path / name).value == str(tmp_path / name)


def test_a_folder_of_plots_is_shown_file_by_file(tmp_path):
    (tmp_path / "plots").mkdir()
    for name in ("b.csv", "a.png"):
        (tmp_path / "plots" / name).touch()
    paths = ("plots", "missing", "plots/b.csv")
    assert list(within(tmp_path, paths)) == ["plots/a.png", "plots/b.csv", "missing", "plots/b.csv"]


def test_numbers_that_the_web_page_cannot_show_are_words(root):
    (root / "results").mkdir()
    stage, large = read(root)["make@one-row"], str(10**400)  # larger than any float
    (root / "results/one-row.json").write_text(f'{{"a": NaN, "b": Infinity, "c": 1e-05, "d": {large}}}')
    found = facts(root, stage, Entry({}))
    assert [found[f"metrics/{name}"] for name in "abcd"] == ["nan", "inf", 1e-05, large]
    assert finite_metrics(root, stage)[1] == {"a": "nan", "b": "inf", "d": large}
    (root / "results/one-row.json").write_text("{half")
    assert "results/one-row.json" in facts(root, stage, Entry({}))["metrics"]


def test_output_that_cannot_be_shown_is_read_to_its_end():
    """Else the pipe fills, and the stage waits for ever."""
    kept = deque()
    repro._echo(io.StringIO("é\nnext\n"), io.TextIOWrapper(io.BytesIO(), "ascii"), kept)
    assert list(kept) == ["é", "next"]


def test_an_experiment_runs_in_a_copy_and_the_tree_stays_as_it_is(after, instance):
    for words in (("add", "-A"), ("-c", "user.name=t", "-c", "user.email=t@localhost", "commit", "-qm", "x")):
        git(after, *words)
    paths = ("params.yaml", "dvc.lock", "data/one-row.txt", "results/one-row.json")
    before = {path: (after / path).read_bytes() for path in paths}
    result = run(build(after), instance, "experiment", changing("make.one-row.value=3"))
    (event,) = [e for e in result.all_events if e.event_type_value == "STEP_OUTPUT"]
    said = {k: v.value for k, v in event.step_output_data.metadata.items()}
    assert said["apply"] == f"dvc exp apply {said['experiment']}"
    assert "| results/one-row.json | top1.mean" in " ".join(said["changed"].split())
    assert {path: (after / path).read_bytes() for path in paths} == before
    assert not result.get_asset_materialization_events()


BRACES = ("+make={x; touch evil:{value:1}}", "make={'x; touch evil':{}}")


@pytest.mark.parametrize("change", [None, "--force", "clusters", "-S", *BRACES, "~make=1"])
def test_an_experiment_of_no_parameter_is_one_line(after, instance, change):
    result = run(build(after), instance, "experiment", changing(*[change] if change else []))
    assert failure(result, "dvc_exp_run").description.startswith("set: ")
