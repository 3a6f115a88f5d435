"""scripts/repro.py on a few small commands: stages run side by side, and no process outlives the run."""

import os
import signal
import subprocess
import time
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

import pytest
import yaml
from dvc.lock import make_lock

from pipelines.runtime import intact, sender
from tests.small import WITHOUT_GIT, put, write_yaml

WAIT = """
import signal, time
from pathlib import Path

signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    print("waits", flush=True)
    Path("waits").touch()
    signal.pause()
except KeyboardInterrupt:
    time.sleep(1)  # it ends after its worker
    Path("interrupted").touch()
"""
WAITS = "python wait.py & wait"  # its shell ends at once when it is interrupted


def until(file):
    return f"timeout 600 sh -c 'until [ -e {file} ]; do sleep 0.01; done'"


@pytest.fixture
def repro(own_folder):
    """Starts `make repro` on these stages."""
    put(".dvc/config", WITHOUT_GIT)
    put("params.yaml", "study: t\nevaluate: {}\n")
    put("wait.py", WAIT)
    for fifo in "xyz":
        os.mkfifo(fifo)

    lock = open(sender.store_file(".lock"), "ab")  # noqa: SIM115 - no run is sent: so no sender imports MLflow
    assert sender.files.try_lock(lock)
    hangup = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # pytest may run under nohup, which ignores it

    def start(stages, *arguments, program=("-m", "scripts.repro")):
        write_yaml("dvc.yaml", {"stages": stages})
        return subprocess.Popen(["python", *program, *arguments], stdout=-1, stderr=-1, text=True)

    yield start
    signal.signal(signal.SIGHUP, hangup)
    lock.close()


def waits(process):
    """Read what a run prints until its stage `waits` prints a line."""
    while "waits" not in (line := process.stdout.readline()) or "stage" in line:
        assert line


def ended(process, code=0):
    """Wait for a run that ends with this exit code, and return its output and its errors."""
    said = process.communicate()
    assert process.returncode == code, said
    return said


SIDE_BY_SIDE = {  # the first two end only if both run at once: a FIFO opens when both its ends do
    "first": {"cmd": "timeout 99 sh -c 'echo > x && cat y' > a.out", "outs": ["a.out"]},
    "second": {"cmd": "timeout 99 sh -c 'cat x && echo > y' > b.out", "outs": ["b.out"]},
    "last": {"cmd": "cat a.out b.out > c.out", "deps": ["a.out", "b.out"], "outs": ["c.out"]},
    "other": {"cmd": "touch d.out", "outs": ["d.out"]},
}


def test_stages_run_side_by_side_each_after_what_it_needs(repro):
    out, _ = repro(SIDE_BY_SIDE, "last").communicate()
    begun = [line for line in out.splitlines() if line.startswith("stage ")]
    assert {line.split(": ")[1] for line in begun[:2]} == {"first", "second"}
    assert begun[2:] == ["stage 3 of 3: last"]
    assert out.splitlines()[-1].startswith("3 stages, 3 of them run or restored, in ")
    assert not Path("d.out").exists()
    assert repro(SIDE_BY_SIDE, "last").communicate()[0] == "3 stages, all up to date\n"


def test_two_runs_at_once_do_not_disturb_each_other(repro):
    stages = {"a": {"cmd": "echo . >> ran; cat x; touch a", "outs": ["a"]}}
    both = [repro(stages), repro(stages)]
    with ThreadPoolExecutor() as pool:
        ends = [pool.submit(process.communicate) for process in both]
        wait(ends, return_when=FIRST_COMPLETED)
        Path("x").write_text("")  # the stage of the other one ends
    said = {process.returncode: "".join(end.result()) for process, end in zip(both, ends, strict=True)}
    assert said.keys() == {0, 255}
    assert "is busy" in said[255]
    assert Path("ran").read_text() == ".\n"
    assert repro(stages).communicate()[0] == "1 stages, all up to date\n"


def test_stages_share_a_gpu_only_if_jobs_allows_it(repro, monkeypatch):
    program = "-c", "from scripts import repro; repro.GPU = True; raise SystemExit(repro.main())"
    alone = {name: {"cmd": "mkdir busy && sleep 1 && rmdir busy"} for name in "ab"}
    for jobs, stages in (("", alone), ("2", SIDE_BY_SIDE)):
        monkeypatch.setenv("JOBS", jobs)
        process = repro(
            {name: row | {"meta": {"pool": "gpu"}} for name, row in stages.items()}, program=program
        )
        assert ended(process)[1] == ""


def test_a_run_waits_for_the_lock_of_another_dvc(repro):
    Path(".dvc/tmp").mkdir()
    with make_lock(".dvc/tmp/rwlock.lock"):
        process = repro({"a": {"cmd": "touch a", "outs": ["a"]}})
        while not Path(".dvc/tmp/lock").exists():  # DVC takes it just before the other one
            time.sleep(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3)
    ended(process)
    assert Path("a").exists()


def test_a_stage_that_fails_ends_the_one_beside_it(repro):
    fails = f"{until('waits')}; echo no such luck; exit 1"
    process = repro({"waits": {"cmd": WAITS}, "fails": {"cmd": fails}})
    out, _ = ended(process, code=255)
    assert "    fails: no such luck" in out.splitlines()
    assert out.splitlines()[-1].startswith("    fails: ERROR: failed to reproduce 'fails'")
    assert Path("interrupted").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_sigterm_and_a_closed_terminal_leave_nothing_running(repro, number):
    process = repro({"waits": {"cmd": WAITS, "outs": ["w"]}, "next": {"cmd": "touch next", "deps": ["w"]}})
    waits(process)
    process.send_signal(number)
    ended(process, code=128 + number)  # until nobody is left who could write to it
    assert Path("interrupted").exists()
    assert not Path("next").exists()


def test_nohup_keeps_a_run_whose_terminal_closes(repro):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    process = repro({"waits": {"cmd": "echo waits; cat x"}})
    waits(process)
    process.send_signal(signal.SIGHUP)
    Path("x").write_text("")  # its stage ends
    ended(process)


def test_a_run_that_is_killed_leaves_nothing_running(repro):
    put("wait.py", WAIT + "print('x' * 10**6)\n")  # more than fits into a pipe
    process = repro({name: {"cmd": "python wait.py"} for name in ("waits", "beside")})
    waits(process)
    process.kill()
    ended(process, code=-signal.SIGKILL)  # its sender ends after all workers
    assert Path("interrupted").exists()


@pytest.mark.parametrize("patience", [0.01, 600.0])
def test_a_slow_sender_is_not_waited_for(repro, patience):
    """A sender that still works when standard input has ended. At Ctrl-C it is not waited for, either."""
    put("sender", "#!/bin/sh\ncat\ntouch waits\nexec > y 2>&1\ncat x\n")
    Path("sender").chmod(0o755)
    changes = f"repro.sender.PATIENCE, repro.sys.executable = {patience}, './sender'"
    program = "-c", f"from scripts import repro; {changes}; raise SystemExit(repro.main())"
    process = repro({"a": {"cmd": "touch a"}}, program=program)
    while not Path("waits").exists():
        time.sleep(0.01)
    with open("y"):  # a FIFO; else the sender would hold the run's output
        if patience > 1:
            process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert "1 stages, 1 of them run" in ended(process)[0]
        Path("x").write_text("")  # the sender is still there: it reads this


def test_jobs_says_how_many_stages_run_at_a_time(repro, monkeypatch):
    """Each stage ends only if all three run at once."""
    commands = {"a": "echo > x && cat z", "b": "cat x && echo > y", "c": "cat y && echo > z"}
    stages = {name: {"cmd": f"timeout 99 sh -c '{command}'"} for name, command in commands.items()}
    monkeypatch.setenv("JOBS", "3")
    assert "3 stages, 3 of them run or restored" in ended(repro(stages))[0]
    for jobs in ("all", "0"):
        monkeypatch.setenv("JOBS", jobs)
        line = f"ERROR: JOBS={jobs}: how many stages at a time? A whole number, at least 1\n"
        assert ended(repro(stages), code=2) == ("", line)


def test_a_stage_whose_inputs_stay_the_same_is_not_counted(repro):
    stages = {"a": {"cmd": "echo > x", "deps": ["in"], "outs": ["x"]}, "b": {"cmd": "cat x", "deps": ["x"]}}
    for content, count in (("1", 2), ("2", 1)):
        put("in", content)
        assert f"2 stages, {count} of them run or restored" in ended(repro(stages))[0]


def test_a_damaged_lock_of_dvc_is_one_line(repro):
    put(".dvc/tmp/rwlock", '{"x": {"write')
    line = "ERROR: .dvc/tmp/rwlock is damaged (a dvc was killed): delete it if no dvc is running\n"
    assert ended(repro({}), code=2) == ("", line)


def test_dvc_lock_is_read_when_dvc_does_not_write_it(own_folder, monkeypatch):
    whole = yaml.safe_dump({"stages": {"s": {"outs": [{"path": "x", "md5": "0123456789abcdef"}]}}})
    put("dvc.lock", whole[:-5])  # in the middle of the write
    Path(".dvc/tmp").mkdir(parents=True)
    lock = os.open(".dvc/tmp/lock", os.O_CREAT | os.O_RDWR)
    intact.fcntl.flock(lock, intact.fcntl.LOCK_EX)

    def dvc_ends(seconds):
        put("dvc.lock", whole)
        os.close(lock)

    monkeypatch.setattr(intact.time, "sleep", dvc_ends)
    assert intact.locked("outs") == [("s", "x", "0123456789abcdef")]


def test_dvc_lock_is_read_without_waiting_if_it_is_as_before(own_folder, monkeypatch):
    write_yaml("dvc.lock", {"stages": {"s": {"outs": [{"path": "x", "md5": "0123456789abcdef"}]}}})
    before = intact.locked("outs")
    Path(".dvc/tmp").mkdir(parents=True)
    monkeypatch.setattr(intact.time, "sleep", lambda seconds: pytest.fail("it waits"))
    with open(".dvc/tmp/lock", "w") as lock:  # of a long `dvc push`
        intact.fcntl.flock(lock, intact.fcntl.LOCK_EX)
        assert intact.locked("outs") == before != []
