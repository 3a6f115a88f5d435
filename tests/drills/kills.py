"""The drill of kills."""

import json
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.drills.places import LIMIT, running, running_runs, started
from tests.small import read_yaml, write_yaml

SIGNALS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM, "SIGHUP": signal.SIGHUP}
KILLS = ["kill -9 stage", "kill -9 dvc", "kill -9 both", "kill -9 driver"]
WAYS = [*KILLS, *SIGNALS, "write of the stage", "write of dvc"]
HOOK = """
import os, signal, sys
left, root, process = int(os.environ["DRILL_WRITES"]), os.getcwd(), os.environ["DRILL_PROCESS"]
def hook(event, args):
    global left
    opens = event == "open" and isinstance(args[2], int) and args[2] & 3
    if opens or event in ("os.rename", "os.remove", "os.mkdir", "os.rmdir"):
        path = os.path.abspath(os.fsdecode(args[0])) if isinstance(args[0], (str, bytes, os.PathLike)) else ""
        if path.startswith(root) and "__pycache__" not in path:
            left -= 1
            if not left:
                open(root + "/killed", "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
if any(process in argument for argument in sys.orig_argv):
    install = lambda: sys.addaudithook(hook)
    os.register_at_fork(after_in_child=install) if process == "scripts.repro" else install()
"""


def processes(root, named=""):
    """Return the processes that work in a folder and have this in their command line."""
    found = [process.info for process in psutil.process_iter(["pid", "cwd", "cmdline"])]
    here = [info for info in found if info["cwd"] == str(root) and named in " ".join(info["cmdline"] or ())]
    return sorted({info["pid"] for info in here} - {os.getpid()})


def waited(until, seconds):
    end = time.monotonic() + seconds
    while not (value := until()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


def struck(place, stage, way, rng, share, usual):
    """Start a stage through DVC, end it at a share of its time or writes; False if it was over before."""
    lock = read_yaml("dvc.lock")
    lock["stages"].pop(stage, None)
    write_yaml("dvc.lock", lock)
    shutil.rmtree(".dvc/cache/runs", ignore_errors=True)  # else DVC restores the stage
    workers = rng.random() < 0.5
    arguments = ["-m", "scripts.repro", stage] if workers else ["-m", "dvc", "repro", "--single-item", stage]
    verb, dvc = f"pipelines.{stage.split('@')[0]}", "scripts.repro" if workers else "dvc"
    variables = {}
    if way.startswith("write"):
        of_dvc = way.endswith("dvc")
        variables = {"PYTHONPATH": ".cache/hook", "DRILL_PROCESS": dvc if of_dvc else verb}
        variables["DRILL_WRITES"] = str(1 + int(share * (60 if of_dvc else 30)))
    driver = started(["python", *arguments], **variables)
    hit = False
    if variables:
        driver.wait(10 * LIMIT)
        hit = (place.root / "killed").exists()
    elif waited(lambda: processes(place.root, verb) or driver.poll() is not None, LIMIT):
        time.sleep(share * usual)
        if stages := processes(place.root, verb):
            hit = True
            strike(
                driver,
                way,
                stages,
                [pid for pid in processes(place.root, dvc) if pid != driver.pid or not workers],
            )
    driver.wait(10 * LIMIT)
    (place.root / "killed").unlink(missing_ok=True)
    return hit


def strike(driver, way, stages, dvcs):
    with suppress(ProcessLookupError):
        if way in SIGNALS:
            os.killpg(driver.pid, SIGNALS[way])
        else:
            killed = {"kill -9 stage": stages, "kill -9 dvc": dvcs, "kill -9 driver": [driver.pid]}
            for pid in killed.get(way, dvcs + stages):
                os.kill(pid, signal.SIGKILL)


def aftermath(place):
    """Say what is wrong after a kill, and after the `make repro` that follows it."""
    waited(lambda: not processes(place.root), 60)
    if left := processes(place.root):
        return f"left running: {[Path(f'/proc/{pid}/cmdline').read_text() for pid in left]}"
    again = running(["python", "-m", "scripts.repro"])
    if again.code:
        said = f"{again.out.strip()[-200:]} {again.err.strip()[-200:]}"
        return f"dvc repro after it: exit code {again.code}: {said}"
    if others := place.differing():
        return f"other bytes: {others}"
    if running_runs():
        running(["python", "-m", "pipelines.runtime.sender"])
    if runs := running_runs():
        return f"{runs} runs are RUNNING"
    drafts = place.drafts()
    return f"a draft is left: {drafts[0]}" if drafts else ""


def kills(place, count, rng, tally):
    """End a stage under DVC in one of nine ways, at a random moment or write; then run `make repro`."""
    (hook := Path(".cache/hook")).mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    runs = {
        file.stem: json.loads(file.read_text()) for file in (place.reference / ".cache/runs").glob("*.json")
    }
    took = {stage: run["ended"] - run["began"] + 3.0 for stage, run in runs.items()}  # and its imports
    stages = rng.sample(sorted(place.stages), len(place.stages))
    for n in range(count):
        stage, way, share = stages[n % len(stages)], WAYS[n % len(WAYS)], rng.random()
        while not struck(place, stage, way, rng, share, took.get(stage, 10.0)):
            if fault := aftermath(place):
                tally.add(f"{stage}, over before", fault)
            share /= 2
        tally.add(f"{stage}, {way} at {share:.2f}", aftermath(place))
