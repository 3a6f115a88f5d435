"""The drill of kills."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from drill.places import LIMIT, Place, Tally, running, running_runs

WAYS = (
    "kill -9 stage",
    "kill -9 dvc",
    "kill -9 both",
    "Ctrl-C",
    "SIGTERM",
    "write of the stage",
    "write of dvc",
)
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
    sys.addaudithook(hook)
"""


def processes(root: Path, named: str = "") -> list[int]:
    """Who works in a folder, of those whose command has this in it; the dead that nobody has waited for are not among them."""
    out = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            if (entry / "cwd").readlink() == root and named in (entry / "cmdline").read_text().replace(
                "\0", " "
            ):
                out.append(int(entry.name))
    return sorted(set(out) - {os.getpid()})


def waited(until: Callable[[], Any], seconds: float) -> Any:
    end = time.monotonic() + seconds
    while not (value := until()) and time.monotonic() < end:
        time.sleep(0.02)
    return value


def struck(place: Place, stage: str, way: str, rng: random.Random, share: float, usual: float) -> bool:
    """Start `stage` through DVC and end it in some way at `share` of its time or writes; False: it was over before."""
    lock = yaml.safe_load(Path("dvc.lock").read_text())
    lock["stages"].pop(stage, None)
    Path("dvc.lock").write_text(yaml.safe_dump(lock, sort_keys=False))
    shutil.rmtree(".dvc/cache/runs", ignore_errors=True)  # else DVC has it at once
    command = [
        sys.executable,
        *rng.choice([["scripts/repro.py", stage], ["-m", "dvc", "repro", "--single-item", stage]]),
    ]
    variables, root = {}, place.root
    verb, named = f"pipelines.{stage.split('@')[0]}", "lane.py" if command[1] == "scripts/repro.py" else "dvc"
    if way.startswith("write"):
        variables = {"PYTHONPATH": ".cache/hook", "DRILL_PROCESS": named if way.endswith("dvc") else verb}
        variables["DRILL_WRITES"] = str(1 + int(share * (60 if way.endswith("dvc") else 30)))
    null = subprocess.DEVNULL
    driver = subprocess.Popen(
        command, env=os.environ | variables, start_new_session=True, stdout=null, stderr=null
    )
    hit = False
    if variables:
        driver.wait(10 * LIMIT)
        hit = (root / "killed").exists()
    elif waited(lambda: processes(root, verb) or driver.poll() is not None, LIMIT):
        time.sleep(share * usual)
        signals = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM}
        if hit := bool(processes(root, verb)):
            names = {"kill -9 stage": [verb], "kill -9 dvc": [named]}.get(way, [named, verb])
            with suppress(ProcessLookupError):
                if way in signals:
                    os.killpg(driver.pid, signals[way])
                for pid in () if way in signals else [pid for name in names for pid in processes(root, name)]:
                    os.kill(pid, signal.SIGKILL)
    driver.wait(10 * LIMIT)
    (root / "killed").unlink(missing_ok=True)
    return hit


def aftermath(place: Place) -> str:
    """What is wrong after a kill, and after the `dvc repro` that follows it."""
    waited(lambda: not processes(place.root), 60)
    if left := processes(place.root):
        return f"left running: {[Path(f'/proc/{pid}/cmdline').read_text() for pid in left]}"
    again = running([sys.executable, "scripts/repro.py"], limit=10 * LIMIT)
    if again.code:
        return f"dvc repro after it: exit code {again.code}: {again.out.strip()[-200:]} {again.err.strip()[-200:]}"
    if others := place.differing():
        return f"other bytes: {others}"
    if running_runs():
        running([sys.executable, "-m", "pipelines.runtime.sender"])
    return (
        f"{runs} runs are RUNNING"
        if (runs := running_runs())
        else f"a draft is left: {d[0]}"
        if (d := place.drafts())
        else ""
    )


def kills(place: Place, count: int, rng: random.Random, tally: Tally) -> None:
    """A stage that runs through `dvc repro` or `make repro`'s script is ended at a moment or at a write, both drawn, in one of
    seven ways, each stage in turn; then `dvc repro`: the reference's bytes, nothing left running, no run RUNNING, no draft."""
    (hook := Path(".cache/hook")).mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    runs = {
        file.stem: json.loads(file.read_text()) for file in (place.reference / ".cache/runs").glob("*.json")
    }
    took = {stage: run["ended"] - run["began"] + 3.0 for stage, run in runs.items()}  # and its imports
    stages = rng.sample(sorted(place.stages), len(place.stages))
    for n in tally.each(range(count)):
        stage, way, share = stages[n % len(stages)], WAYS[n % len(WAYS)], rng.random()
        while not struck(place, stage, way, rng, share, took.get(stage, 10.0)):
            if fault := aftermath(place):
                tally.add(f"{stage}, over before", fault)
            share /= 2
        tally.add(f"{stage}, {way} at {share:.2f}", aftermath(place))
