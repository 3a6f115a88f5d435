"""`dvc repro` in two lanes that says what is going on: which stage of how many, how far, how long still, and the first table once
it is there.

    python scripts/repro.py [--lanes n] [stage ...]

A lane is a process that has DVC imported (`scripts/lane.py`); the first stage in DVC's order whose needs are done goes to the
first lane that is free. Stages of DVC's pool `gpu` run one at a time where there is a GPU. What a stage itself says passes
through; DVC's own lines become one line a stage. Seconds that stages took are kept for the next time. The first stage that
fails ends all, with DVC's exit code; so do Ctrl-C and SIGTERM, with 130 and 143.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import yaml

RWLOCK = Path(".dvc/tmp/rwlock")
SECONDS = Path(".cache/seconds.json")
NICE = 5  # of 19: what the first table does not need, as long as that is not there
PATIENCE = 8.0  # seconds of silence before a line says what still runs
END = "\x1e"  # of lane.py
STAGE = re.compile(r"(Running stage|Stage) '([^']+)'")
CHATTER = re.compile(  # of DVC
    r"\s*$|> python|(Updating|Generating) lock file|Data and pipelines are up|Use `dvc push`|To (track the changes|enable auto)"
    r"|\s*(git add|dvc config) "
)
QUIET = {"PYTHONUNBUFFERED": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}
GPU = any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd"))


class Lane:
    """A process that has DVC imported. What it says comes as (lane, line), and its end as (lane, None)."""

    def __init__(self, lines: queue.SimpleQueue[tuple[Lane, str | None]], nice: bool = False) -> None:
        self.stage, self.nice = (
            "",
            nice,
        )  # the stage that it is at, and whether it leaves the cores to other lanes
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("lane.py")), str(NICE * nice)], env=os.environ | QUIET,
            process_group=0,  # Ctrl-C comes to it and its stage from here, and once
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", bufsize=1,
        )  # fmt: skip
        self.reader = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self.reader.start()

    def _read(self, lines: queue.SimpleQueue[tuple[Lane, str | None]]) -> None:
        for line in self.process.stdout or ():
            lines.put((self, line.rstrip()))
        lines.put((self, None))

    def ask(self, *words: str) -> None:
        with suppress(BrokenPipeError):  # `_read` tells
            print(*words, file=self.process.stdin)

    def interrupt(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGINT)

    def close(self) -> None:
        if self.process.stdin:
            self.process.stdin.close()
        self.process.wait()
        self.reader.join()  # a shell may end before the stage that it started: until nobody is left who could write


class Study:
    """Its stages: what may start, how far they are, how long they took; and what is said of that."""

    def __init__(self, plan: list[tuple[str, list[str], bool, str | None]], lanes: int) -> None:
        self.needs = {stage: set(needs) for stage, needs, *_ in plan}
        self.gpu = {stage for stage, *_, pool in plan if GPU and pool == "gpu"}
        self.left = [stage for stage, _, changed, _ in plan if changed]
        self.done = {*self.needs}.difference(self.left)
        self.lanes, self.ran, self.at, self.since = lanes, 0, len(self.done), dict[str, float]()
        study = yaml.load(Path("params.yaml").read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        pairs = {
            f"evaluate@{name}": (row["source"], row["target"]) for name, row in study["evaluate"].items()
        }
        first = {stage for stage, pair in pairs.items() if pair == next(iter(pairs.values()))}
        self.table = first.intersection(self.needs)  # stages of the first table
        self.path = {*self.table}  # and all that they need
        for stage, needs, *_ in reversed(plan):
            self.path |= set(needs) if stage in self.path else set()
        self.kept: dict[str, dict[str, float]] = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
        self.took = self.kept.setdefault(study["study"], {})

    def next(self, running: set[str]) -> str | None:
        """The first stage that may start beside those."""
        held = self.gpu if self.gpu & running else set()
        return next(
            (stage for stage in self.left if self.needs[stage] <= self.done and stage not in held), None
        )

    def nice(self, stage: str) -> bool:
        """Whether it is for the first table to go first."""
        return stage not in self.path and not self.table <= self.done

    def hear(self, line: str, stage: str, alone: bool) -> None:
        """A line of DVC or of a stage."""
        if said := STAGE.match(line):
            self.at += 1
            if said[1] == "Running stage":
                self.ran, self.since[stage] = self.ran + 1, time.monotonic()
                rest = [self.took.get(name, 0.0) for name in (*self.since, *self.left)]
                still = f"; about {clock(sum(rest) / self.lanes)} to go if all must run" if all(rest) else ""
                print(f"stage {self.at} of {len(self.needs)}: {shown(stage)}{still}", flush=True)
        elif not CHATTER.match(line):
            whose = "" if alone else f"{shown(stage)}: "
            print(line if line.startswith("ERROR") else f"    {whose}{line}", flush=True)

    def end(self, stage: str) -> bool:
        """A stage has ended well. Returns whether the first table is there."""
        self.done.add(stage)
        if stage not in self.since:  # as it was
            return False
        self.took[stage] = time.monotonic() - self.since.pop(stage)
        SECONDS.parent.mkdir(exist_ok=True)
        SECONDS.write_text(json.dumps(self.kept))
        return stage in self.table and self.table <= self.done

    def silence(self) -> None:
        for stage, since in self.since.items():
            usual = f" (last time {clock(self.took[stage])})" if stage in self.took else ""
            print(f"    {shown(stage)}: {clock(time.monotonic() - since)}{usual}", flush=True)


def shown(stage: str) -> str:
    return stage.replace("@", " ")


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class Repro:
    """One run: its lanes, and the sender of what its stages have for MLflow."""

    def __init__(self, lanes: int) -> None:
        self.lines: queue.SimpleQueue[tuple[Lane, str | None]] = queue.SimpleQueue()
        self.most, self.lanes, self.code = lanes, [Lane(self.lines)], 0
        self.sender: subprocess.Popen[bytes] | None = None
        self.table = False  # whether the first is there, and not shown yet

    def stop(self, code: int) -> None:
        """Start nothing more, and interrupt what runs."""
        self.code = self.code or code
        for lane in self.lanes:
            lane.interrupt()

    def plan(self, targets: list[str]) -> list[tuple[str, list[str], bool, str | None]]:
        self.lanes[0].ask("plan", *targets)
        plan = []
        while (line := self.lines.get()[1]) is not None and not line.startswith(END):
            if line.startswith("[["):
                plan = json.loads(line)
            elif line and not self.code:
                print(line, flush=True)
        self.code = self.code or (int(line[1:]) if line else 1)
        return plan

    def run(self, study: Study) -> None:
        while True:
            busy = {lane.stage for lane in self.lanes if lane.stage}
            while not self.code and len(busy) < self.most and (stage := study.next(busy)):
                study.left.remove(stage)
                busy.add(stage)
                self.start(stage, study.nice(stage))
            if self.table:  # when lanes are at work again
                subprocess.run([sys.executable, "-m", "pipelines.pages"], check=False)
                self.table = False
            if not busy:
                return
            try:
                lane, line = self.lines.get(timeout=PATIENCE)
            except queue.Empty:
                study.silence()
                continue
            if line is None and not self.code:
                print(f"ERROR: DVC was killed while it ran {shown(lane.stage)}", flush=True)
            if line is None or line.startswith(END):
                self.end(study, lane, int(line[1:]) if line else 1)
            elif not self.code:
                study.hear(line, lane.stage, len(busy) == 1)
            if study.ran and not self.sender:
                self.sender = subprocess.Popen(
                    [sys.executable, "-m", "pipelines.runtime.sender", "--serve"], stdin=subprocess.PIPE
                )

    def start(self, stage: str, nice: bool) -> None:
        lane = next((lane for lane in self.lanes if not lane.stage and lane.nice == nice), None)
        if lane is None:
            lane = Lane(self.lines, nice)
            self.lanes.append(lane)
        lane.stage = stage
        lane.ask("run", stage)
        if self.code:  # the signal came meanwhile
            lane.interrupt()

    def end(self, study: Study, lane: Lane, code: int) -> None:
        stage, lane.stage = lane.stage, ""
        if not code:
            self.table = study.end(stage)
        elif not self.code:  # a stage that is interrupted once saves what it has; twice, and it could not
            self.stop(code)

    def close(self) -> None:
        for lane in self.lanes:
            lane.close()
        if self.sender:
            self.sender.communicate()


def main() -> int:
    parser = argparse.ArgumentParser(description="dvc repro that says what is going on")
    parser.add_argument(
        "--lanes",
        type=int,
        default=min(2, os.cpu_count() or 1),
        help="stages at a time (default: %(default)s)",
    )
    parser.add_argument("targets", nargs="*", help="stages, with what they need (default: all)")
    asked = parser.parse_args()
    try:
        json.loads(RWLOCK.read_bytes() if RWLOCK.exists() else b"{}")
    except ValueError:  # DVC itself ends with a traceback
        print(
            f"{RWLOCK} is damaged (a dvc was killed while it wrote): delete it if no dvc is running",
            file=sys.stderr,
        )
        return 2
    start, repro = time.monotonic(), Repro(max(1, asked.lanes))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: repro.stop(128 + number))
    plan = repro.plan(asked.targets)
    if not repro.code:
        repro.run(study := Study(plan, repro.most))
    repro.close()
    if not repro.code:
        done = (
            f"{study.ran} of them run, in {clock(time.monotonic() - start)}"
            if study.ran
            else "all up to date"
        )
        print(f"{len(study.needs)} stages, {done}")
    return repro.code


if __name__ == "__main__":
    sys.exit(main())
