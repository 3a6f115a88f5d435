"""Run `dvc repro`, two stages at a time. Print stage n of m, time left, and the first table once it exists.

    python scripts/repro.py [stage ...]

A worker is a fork of this process, which has imported DVC, and runs one stage. Stages of DVC's pool `gpu` run
one at a time where there is a GPU. A stage that fails interrupts the other one; the exit code is DVC's.
Ctrl-C and SIGTERM interrupt both; the exit code is 130 or 143. All that a stage started has ended by then.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from multiprocessing import connection, get_context
from pathlib import Path

import dvc.lock
import yaml
from dvc.cli import main as dvc_command
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.repo.reproduce import collect_stages, get_active_graph, plan_repro

dvc.lock.DEFAULT_TIMEOUT = 0.3  # seconds; DVC tries its lock six times in that time
RWLOCK, SECONDS = Path(".dvc/tmp/rwlock"), Path(".cache/seconds.json")  # DVC's; what stages took, by study
SILENCE = 8.0  # seconds without a line before the running stages are named
NICE = 5  # of 19, for stages that the first table does not need, until it exists
GPU = any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd"))
BEGINS = re.compile(r"(Running stage|Stage) '")
COLOUR = re.compile("\x1b\\[[0-9;]*m")
CHATTER = re.compile(
    r"\s*$|> python|(Updating|Generating) lock file|Data and pipelines|Use `dvc push|To (track|enable)"
    r"|\s*(git add|dvc config)"
)


class Worker(get_context("fork").Process):
    """Runs one stage in a process group of its own; what the stage prints comes through a pipe."""

    def __init__(self, stage: str, nice: int) -> None:
        super().__init__()
        self.stage, self.nice, self.ran, self.rest = stage, nice, False, b""
        self.began = time.monotonic()
        self.pipe, self.write = os.pipe()
        self.start()
        os.close(self.write)

    def __str__(self) -> str:
        return self.stage.replace("@", " ")

    def run(self) -> None:
        os.setpgid(0, 0)  # Ctrl-C comes from `Repro.stop`, once
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(self.write, 1)
        os.dup2(self.write, 2)
        sys.stdout = sys.stderr = open(1, "w", encoding="utf-8", buffering=1, closefd=False)  # noqa: SIM115
        os.nice(self.nice)
        sys.exit(dvc_command(["--wait-for-lock", "repro", "--single-item", self.stage]))

    def lines(self) -> list[str] | None:
        """Return the whole lines that came; None once the stage and all that it started have ended."""
        if not (new := os.read(self.pipe, 2**16)):
            os.close(self.pipe)
            self.join()
            return None
        *lines, self.rest = (self.rest + new).split(b"\n")
        return [COLOUR.sub("", line.decode(errors="replace")).rstrip() for line in lines]

    def interrupt(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid or 0, signal.SIGINT)


class Repro:
    """One run. Once its exit code is not 0, no stage is started and nothing is printed."""

    def __init__(self, targets: list[str]) -> None:
        self.code, self.ran, self.show_table, self.workers = 0, 0, False, list[Worker]()
        self.needs, self.left, self.gpu = dict[str, set[str]](), list[str](), set[str]()
        with Repo(_wait_for_lock=True) as repo, repo.lock:
            graph = get_active_graph(repo.index.graph)
            for stage in plan_repro(graph, collect_stages(repo, targets) or None):
                name = stage.addressing
                self.needs[name] = {need.addressing for need in graph.successors(stage)}
                if self.needs[name].intersection(self.left) or stage.changed():
                    self.left.append(name)
                if GPU and (stage.meta or {}).get("pool") == "gpu":
                    self.gpu.add(name)
        self.done = set(self.needs).difference(self.left)
        self.number = len(self.done)
        study = yaml.load(Path("params.yaml").read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        rows = {f"evaluate@{name}": (row["source"], row["target"]) for name, row in study["evaluate"].items()}
        first = next(iter(rows.values()), None)
        self.table = {stage for stage in rows if rows[stage] == first}.intersection(self.needs)
        self.hurried = set(self.table)  # and what they need
        for stage in reversed(self.needs):
            self.hurried |= self.needs[stage] if stage in self.hurried else set()
        self.kept = json.loads(SECONDS.read_text(encoding="utf-8")) if SECONDS.exists() else {}
        self.took = self.kept.setdefault(study["study"], {})

    def run(self) -> None:
        """Run stages until nothing is left or one fails. One sender takes the runs of all to MLflow."""
        command = [sys.executable, "-m", "pipelines.runtime.sender", "--serve"]
        sender = subprocess.Popen(command, stdin=subprocess.PIPE) if self.left else None
        self.start()
        while self.workers:
            self.listen()
            self.start()
        if sender:
            sender.communicate()

    def start(self) -> None:
        """Start the stages that may start, then show the first table if it is new."""
        while not self.code and len(self.workers) < 2 and (stage := self.next()):
            self.left.remove(stage)
            hurried = stage in self.hurried or self.table <= self.done
            self.workers.append(worker := Worker(stage, 0 if hurried else NICE))
            if self.code:  # a signal came meanwhile
                worker.interrupt()
        if self.show_table:
            subprocess.run([sys.executable, "-m", "pipelines.pages"], check=False)
            self.show_table = False

    def listen(self) -> None:
        """Wait for lines or ends of stages, SILENCE at most."""
        ready = connection.wait([worker.pipe for worker in self.workers], SILENCE)
        for worker in [worker for worker in self.workers if worker.pipe in ready]:
            if (lines := worker.lines()) is None:
                self.end(worker)
            for line in () if self.code else lines or ():
                self.hear(worker, line)
        for worker in () if ready or self.code else self.workers:
            last = f" (last time {clock(self.took[worker.stage])})" if worker.stage in self.took else ""
            print(f"    {worker}: {clock(time.monotonic() - worker.began)}{last}", flush=True)

    def next(self) -> str | None:
        """Return the first stage, in DVC's order, that may start now."""
        busy = self.gpu.intersection(worker.stage for worker in self.workers)
        ready = (stage for stage in self.left if self.needs[stage] <= self.done)
        return next((stage for stage in ready if not (busy and stage in self.gpu)), None)

    def hear(self, worker: Worker, line: str) -> None:
        """Print a line of a stage; of DVC's own lines, print one for each stage."""
        if begins := BEGINS.match(line):
            self.number += 1
            if begins[1] == "Running stage":
                self.ran, worker.ran = self.ran + 1, True
                rest = [self.took.get(stage, 0.0) for stage in (*(w.stage for w in self.workers), *self.left)]
                still = f"; about {clock(sum(rest) / 2)} to go if all must run" if all(rest) else ""
                print(f"stage {self.number} of {len(self.needs)}: {worker}{still}", flush=True)
        elif not CHATTER.match(line):
            whose = f"{worker}: " if len(self.workers) > 1 else ""
            print(line if line.startswith("ERROR") else f"    {whose}{line}", flush=True)

    def end(self, worker: Worker) -> None:
        """Note what a stage took. After a failure, stop the others."""
        self.workers.remove(worker)
        if not worker.exitcode:
            self.done.add(worker.stage)
            if worker.ran:  # and was not restored
                self.took[worker.stage] = time.monotonic() - worker.began
                SECONDS.parent.mkdir(exist_ok=True)
                SECONDS.write_text(json.dumps(self.kept), encoding="utf-8")
                self.show_table = worker.stage in self.table <= self.done
        elif not self.code:
            if worker.exitcode < 0:
                print(f"ERROR: DVC was killed while it ran {worker}", flush=True)
            self.stop(max(worker.exitcode, 1))

    def stop(self, code: int) -> None:
        """Start nothing more, and interrupt what runs."""
        self.code = self.code or code
        for worker in self.workers:
            worker.interrupt()


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def main() -> int:
    try:
        json.loads(RWLOCK.read_bytes() if RWLOCK.exists() else b"{}")
    except ValueError:  # DVC itself ends with a traceback
        print(
            f"{RWLOCK} is damaged (a dvc was killed while it wrote): delete it if no dvc is running",
            file=sys.stderr,
        )
        return 2
    start = time.monotonic()
    try:
        repro = Repro(sys.argv[1:])
    except DvcException as error:
        print(f"ERROR: {error}" + (f": {error.__cause__}" if error.__cause__ else ""))
        return 255
    except KeyboardInterrupt:
        return 130
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: repro.stop(128 + number))
    repro.run()
    if not repro.code:
        took = clock(time.monotonic() - start)
        done = f"{repro.ran} of them run, in {took}" if repro.ran else "all up to date"
        print(f"{len(repro.needs)} stages, {done}")
    return repro.code


if __name__ == "__main__":
    sys.exit(main())
