"""Clones in which drills work, ways to run a stage there, and the tally of how stages ended."""

import filecmp
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from tests.small import ROOT, completed, read_yaml

LIMIT = 60.0  # seconds for a stage of `smoke`; a busy machine may take ten times as long
WRITTEN = ("data", "results", "report", ".cache")  # folders that stages write to
PROGRESS = re.compile(r"\d+ of \d+\b.*left$")
os.environ |= {"OMP_NUM_THREADS": "1", "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "1"}
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"


@dataclass
class Done:
    """How a command ended. `code` is None if its time ran out."""

    code: int | None
    err: str
    seconds: float
    out: str

    @property
    def lines(self):
        """Lines on stderr, without those about progress."""
        return [line for line in self.err.splitlines() if line.strip() and not PROGRESS.search(line)]

    def fault(self, right):
        """Return what is wrong; "" for the right bytes, or for one line and exit code 2."""
        lines = self.lines
        if "Traceback" in self.err:
            return f"traceback: {lines[-1][:150]}"
        if self.code == 2:
            return "" if len(lines) == 1 else f"{len(lines)} lines instead of one: {' | '.join(lines)[:400]}"
        if self.code == 0:
            return f"silent difference: {others[0]}" if (others := right()) else ""
        return (
            f"hangs: {self.seconds:.0f} s"
            if self.code in (None, -signal.SIGXCPU)
            else f"exit code {self.code}: {lines[-1:]}"
        )


@dataclass
class Tally:
    """Counts of a drill."""

    tried: int = 0
    notes: list[str] = field(default_factory=list)  # beside the numbers, for the table
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, what, fault):
        self.tried += 1
        print(f"{self.tried:5} {what}: {fault or 'held'}", flush=True)
        if fault:
            self.faults[fault.partition(":")[0]] += 1


# ---------------------------------------------------------------- places


class Place:
    """A clone with everything that the reference made. Its artefacts are hard links to the reference's."""

    def __init__(self, folder, name):
        self.reference, self.root = folder / "reference", folder / name
        if not (self.reference / "report" / "report.html").exists():
            clone(ROOT, self.reference)
            for command in ("python -m pipelines.study activate smoke", "dvc repro"):
                subprocess.run(command.split(), cwd=self.reference, check=True)
        shutil.rmtree(self.root, ignore_errors=True)
        clone(self.reference, self.root)  # the same code
        shutil.copytree(self.reference / ".dvc", self.root / ".dvc", dirs_exist_ok=True)
        shutil.copy(self.reference / "mlflow.db", self.root)
        lock = read_yaml(self.reference / "dvc.lock")["stages"]
        self.stages = {  # the committed dvc.lock also has stages of study `sample`
            name: stage
            for name, stage in lock.items()
            if all((self.reference / out["path"]).exists() for out in stage["outs"])
        }
        self.restore()
        os.chdir(self.root)

    def restore(self):
        """Make everything as it is in the reference, and remove the folder `mlflow`."""
        shutil.rmtree(self.root / "mlflow", ignore_errors=True)
        for name in WRITTEN:
            shutil.rmtree(self.root / name, ignore_errors=True)
            shutil.copytree(
                self.reference / name,
                self.root / name,
                copy_function=shutil.copy2 if name == ".cache" else os.link,
            )
        for name in ("dvc.lock", "params.yaml"):
            shutil.copy(self.reference / name, self.root)

    def differing(self):
        """Return the files of outputs that differ from the reference's."""
        outs = [out["path"] for stage in self.stages.values() for out in stage["outs"]]
        sides = self.reference, self.root
        files = {Path(out, name) for out in outs for side in sides for name in inside(side / out)}
        return sorted(str(file) for file in files if not same(*(side / file for side in sides)))

    def drafts(self):
        """Return temporary files that no process should leave."""
        left = [p for top in WRITTEN for p in (self.root / top).rglob("*.part")]
        return sorted(str(p) for p in (*left, *(self.root / ".cache" / "work").rglob("*.*")))


def clone(repository, to):
    completed("git", "clone", "--quiet", repository, to)


def inside(path):
    """Return the files in a folder, relative to it; for a file, "."."""
    return [p.relative_to(path) for p in path.rglob("*") if p.is_file()] if path.is_dir() else [Path()]


def same(a, b):
    return a.is_file() and b.is_file() and (a.samefile(b) or filecmp.cmp(a, b, shallow=False))


# ---------------------------------------------------------------- stages by hand


def started(command, output=subprocess.DEVNULL, **variables):
    """Start a command in a process group of its own."""
    env = os.environ | variables
    return subprocess.Popen(command, stdout=output, stderr=output, env=env, start_new_session=True)


def running(command, limit=10 * LIMIT, **variables):
    """Run a command; kill its process group when its time runs out."""
    began = time.monotonic()
    process = started(command, subprocess.PIPE, **variables)
    try:
        out, err = process.communicate(timeout=limit)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        (out, err), code = process.communicate(), None
    return Done(code, err.decode(errors="replace"), time.monotonic() - began, out.decode(errors="replace"))


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def running_runs(store="mlflow.db"):
    with sqlite3.connect(f"file:{store}?mode=ro", uri=True) as base:
        return base.execute("select count(*) from runs where status = 'RUNNING'").fetchone()[0]
