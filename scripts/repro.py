"""`dvc repro` that says what is going on: which stage of how many, how far, how long still, and the first table once it is there.

What a stage itself says passes through; DVC's own lines become one line a stage. Seconds that stages took are kept for the next
time. Ctrl-C and the exit code are those of `dvc repro`.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import yaml

RWLOCK = Path(".dvc/tmp/rwlock")
SECONDS = Path(".cache/seconds.json")
PATIENCE = 8.0  # seconds of silence before a line says that the stage still runs
STAGE = re.compile(r"(Running stage|Stage) '([^']+)'")
CHATTER = re.compile(  # of DVC
    r"\s*$|> python|(Updating|Generating) lock file|Data and pipelines are up|Use `dvc push`|To (track the changes|enable auto)"
    r"|\s*(git add|dvc config) "
)


class Talk:
    """Where `dvc repro` is among the stages of the study."""

    def __init__(self) -> None:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        graph, study = (yaml.load(Path(file).read_bytes(), loader) for file in ("dvc.yaml", "params.yaml"))
        self.left: set[str] = set()
        for verb, body in graph["stages"].items():
            rows = study[body["foreach"][2:-1]] if "foreach" in body else None
            self.left |= {verb} if rows is None else {f"{verb}@{row}" for row in rows}
        self.count, self.ran, self.now, self.since = len(self.left), 0, "", time.monotonic()
        pairs = {f"evaluate@{name}": (row["source"], row["target"]) for name, row in study["evaluate"].items()}
        self.table = {stage for stage, pair in pairs.items() if pair == next(iter(pairs.values()))}  # rows of the first
        self.kept: dict[str, dict[str, float]] = json.loads(SECONDS.read_text()) if SECONDS.exists() else {}
        self.took = self.kept.setdefault(study["study"], {})

    def hear(self, line: str) -> None:
        """One line of DVC or of a stage."""
        if stage := STAGE.match(line):
            self.end()
            self.left.discard(stage[2])
            if stage[1] == "Running stage":
                self.begin(stage[2])
        elif not CHATTER.match(line):
            print(line if line.startswith("ERROR") else f"    {line}", flush=True)

    def begin(self, stage: str) -> None:
        self.now, self.since, self.ran = stage, time.monotonic(), self.ran + 1
        rest = [self.took.get(name, 0.0) for name in (stage, *self.left)]
        still = f"; about {clock(sum(rest))} to go if all must run" if all(rest) else ""
        print(f"stage {self.count - len(self.left)} of {self.count}: {stage.replace('@', ' ')}{still}", flush=True)

    def end(self) -> None:
        """The stage that was running has ended well: DVC has gone on."""
        if self.now:
            self.took[self.now] = time.monotonic() - self.since
            SECONDS.parent.mkdir(exist_ok=True)
            SECONDS.write_text(json.dumps(self.kept))
        if self.now in self.table and not self.table & self.left:
            subprocess.run([sys.executable, "-m", "pipelines.pages"], check=False)
        self.now = ""

    def silence(self) -> None:
        if self.now:
            usual = f" (last time {clock(self.took[self.now])})" if self.now in self.took else ""
            print(f"    {self.now.replace('@', ' ')}: {clock(time.monotonic() - self.since)}{usual}", flush=True)


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def main() -> int:
    try:
        json.loads(RWLOCK.read_bytes() if RWLOCK.exists() else b"{}")
    except ValueError:  # DVC itself ends with a traceback
        print(f"{RWLOCK} is damaged (a dvc was killed while it wrote): delete it if no dvc is running", file=sys.stderr)
        return 2
    talk, start = Talk(), time.monotonic()
    command = [sys.executable, "-m", "dvc", "repro", *sys.argv[1:]]
    quiet = {"PYTHONUNBUFFERED": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"}  # the latter also of weights that are loaded
    # Ctrl-C reaches DVC and its stage by itself, as they are of the same group; here it must not cut off what they still say.
    signal.signal(signal.SIGINT, lambda *_: None)
    child = subprocess.Popen(
        command, env=os.environ | quiet, text=True, errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    threading.Thread(target=lambda: [*map(lines.put, child.stdout or ()), lines.put(None)], daemon=True).start()
    while True:
        try:
            if (line := lines.get(timeout=PATIENCE)) is None:
                break
            talk.hear(line.rstrip())
        except queue.Empty:
            talk.silence()
    if not (code := child.wait()):
        talk.end()
        done = f"{talk.ran} of them run, in {clock(time.monotonic() - start)}" if talk.ran else "all up to date"
        print(f"{talk.count} stages, {done}")
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
