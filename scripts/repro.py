"""Run `dvc repro`, two stages at a time. Print `stage n of m`, each stage's output, and its silences.

    [JOBS=8] python -m scripts.repro [stage ...]

Each stage is a fork of this process, which has imported DVC. With a GPU, stages of `meta: {pool: gpu}` run
one at a time unless JOBS is set. If a stage fails, at Ctrl-C, SIGTERM or SIGHUP, or if nobody reads the
output, all are interrupted, and the command exits once they have ended. The exit code is DVC's, 2 for bad
input, or 130, 143, 129 or 141. If the command itself is killed, all are interrupted, too.
"""

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from dvc import lock, rwlock
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.repo.reproduce import collect_stages, get_active_graph, plan_repro, reproduce
from dvc.stage.cache import StageCache

from pipelines.runtime import files, intact, sender

lock.DEFAULT_TIMEOUT = 0.3  # seconds; DVC tries its lock six times in that time
rwlock.make_lock = partial(lock.make_lock, wait=True)  # else a stage fails if another holds it longer
load_cached = StageCache._load_cache  # without `value` for an empty folder, which a killed DVC leaves
StageCache._load_cache = lambda self, key, value: load_cached(self, key, value) if value else None
LOG = logging.getLogger("dvc")
LOG.setLevel(logging.WARNING)
FORK = multiprocessing.get_context("fork")
UNCHANGED = 64  # exit code of a process that found its stage up to date
SILENCE = 8.0  # seconds without a line of a stage before it is named
GPU = any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd"))


class Repro:
    """One run. Once its exit code is not 0, no stage is started and nothing is printed."""

    def __init__(self, targets: list[str], jobs: int) -> None:
        self.most = jobs or 2  # stages at a time
        self.code, self.unchanged = 0, 0
        self.running: dict[str, multiprocessing.process.BaseProcess] = {}
        self.needs: dict[str, set[str]] = {}  # each stage, and the stages whose outputs it reads
        self.left: list[str] = []
        self.gpu: set[str] = set()
        with Repo(_wait_for_lock=True) as repo, repo.lock:
            graph = get_active_graph(repo.index.graph)
            for stage in plan_repro(graph, collect_stages(repo, targets) or None):
                name = stage.addressing
                self.needs[name] = {need.addressing for need in graph.successors(stage)}
                if self.needs[name].intersection(self.left) or stage.changed():
                    self.left.append(name)
                if GPU and not jobs and (stage.meta or {}).get("pool") == "gpu":
                    self.gpu.add(name)

    async def run(self) -> None:
        """Run stages until nothing is left or one fails."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores it
                asyncio.get_running_loop().add_signal_handler(number, self.stop, 128 + number)
        async with asyncio.TaskGroup() as self.tasks:
            self.start()

    def start(self) -> None:
        """Start the stages that may start, in DVC's order."""
        for stage in self.left.copy():
            full = len(self.running) == self.most or (stage in self.gpu and self.gpu & self.running.keys())
            ready = self.needs[stage].isdisjoint([*self.left, *self.running])
            number = f"{len(self.needs) - len(self.left) + 1} of {len(self.needs)}"
            if ready and not full and self.say(f"stage {number}: {stage}"):
                self.left.remove(stage)
                read, write = os.pipe()
                self.running[stage] = worker = FORK.Process(target=work, args=(stage, read, write))
                worker.start()
                os.setpgid(worker.pid or 0, 0)  # `stop` interrupts this process group
                os.close(write)
                self.tasks.create_task(self.follow(stage, read))

    async def follow(self, stage: str, pipe: int) -> None:
        """Print what a stage prints until all that it started has ended; then start others, or stop them."""
        began, note, out = time.monotonic(), intact.read_note(stage), asyncio.StreamReader(limit=2**24)
        last = f" (last time {note['ended'] - note['began']:.0f} s)" if note else ""
        reads = asyncio.StreamReaderProtocol(out)
        await asyncio.get_running_loop().connect_read_pipe(lambda: reads, os.fdopen(pipe))
        while not out.at_eof():
            try:
                line = await asyncio.wait_for(out.readline(), SILENCE)
            except TimeoutError:
                line = f"{time.monotonic() - began:.0f} s{last}".encode()
            if line.strip():
                self.say(f"    {stage}: {line.decode(errors='replace').rstrip()}")
        worker = self.running.pop(stage)
        worker.join()
        if worker.exitcode == UNCHANGED:
            self.unchanged += 1
        elif worker.exitcode and not self.code:
            if worker.exitcode < 0:
                self.say(f"ERROR: DVC was killed while it ran {stage}")
            self.stop(max(worker.exitcode, 1))
        self.start()

    def say(self, line: str) -> bool:
        if not self.code and not files.say(line):
            self.stop(141)
        return not self.code

    def stop(self, code: int) -> None:
        """Start nothing more, and interrupt what runs."""
        self.code = self.code or code
        for worker in self.running.values():
            with suppress(ProcessLookupError):
                os.killpg(worker.pid or 0, signal.SIGINT)


def work(stage: str, read: int, write: int) -> None:
    """Run one stage, in a process of its own. What it prints goes to `write`, which the parent reads."""
    os.close(read)  # else the stage would block in a write once the parent is killed
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os.killpg(0, signal.SIGINT)), daemon=True).start()
    signal.set_wakeup_fd(-1)  # else asyncio of the parent would hear this process's signals
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.dup2(write, 1)
    os.dup2(write, 2)
    try:
        with Repo(_wait_for_lock=True) as repo:
            sys.exit(0 if reproduce(repo, stage, single_item=True) else UNCHANGED)
    except DvcException:
        LOG.exception("")
        sys.exit(255)


def main() -> int:
    start, jobs = time.monotonic(), os.environ.get("JOBS") or None
    if jobs and (not jobs.isdecimal() or not int(jobs)):
        LOG.error(f"JOBS={jobs}: how many stages at a time? A whole number, at least 1")
        return 2
    try:
        if (held := Path(".dvc/tmp/rwlock")).exists():
            with rwlock.make_lock(f"{held}.lock"):  # else another DVC may be writing it
                json.loads(held.read_text("utf-8", "replace"))
        repro = Repro(sys.argv[1:], int(jobs or 0))
    except json.JSONDecodeError:
        LOG.error(".dvc/tmp/rwlock is damaged (a dvc was killed): delete it if no dvc is running")
        return 2
    except DvcException:
        LOG.exception("")
        return 255
    except KeyboardInterrupt:
        return 130
    if stages := len(repro.left):
        command = [sys.executable, "-m", "pipelines.runtime.sender", "--serve"]  # sends all runs to MLflow
        sends = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)
        asyncio.run(repro.run())
        with suppress(KeyboardInterrupt, subprocess.TimeoutExpired):  # if it is slow, it goes on by itself
            sends.communicate(timeout=sender.PATIENCE)
    did = f"{stages - repro.unchanged} of them run or restored, in {time.monotonic() - start:.0f} s"
    repro.say(f"{len(repro.needs)} stages, {did if stages else 'all up to date'}")
    return repro.code


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="replace")  # pyright: ignore - a terminal may not have all signs
    sys.exit(print(__doc__) if {"-h", "--help"} & {*sys.argv} else main())
