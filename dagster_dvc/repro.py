"""Run a stage as a Dagster asset: `dvc repro` of that one stage in a child process that ends with the run."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import dagster as dg
from dvc.repo import Repo

from dagster_dvc.facts import More, facts
from dagster_dvc.graph import Stage, lock, one_line
from dagster_dvc.provenance import tags

GRACE_SECONDS = 20.0  # in which a cancelled stage can save its state; then it is killed
TAIL = 30  # lines of output kept with a failure
LONG = 400  # characters of a line kept with a failure
EXIT_CODE = re.compile(r"exited with (-?\d+)$")


@dataclass(frozen=True)
class Outcome:
    """How a child process ended. output, errors: its last lines on stdout and stderr."""

    code: int
    output: tuple[str, ...]
    errors: tuple[str, ...]
    seconds: float


def asset(root: Path, stages: Mapping[str, Stage], stage: Stage, more: More) -> dg.AssetsDefinition:
    """Return the asset of one stage. It depends on the assets of its upstream stages."""

    @dg.multi_asset(name=stage.op, specs=[spec(stages, stage)], pool=stage.pool, description=stage.desc)
    def body(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        outcome = dvc(root, ["repro", "--single-item", "--", stage.name], context.run.run_id)
        if outcome.code:
            raise failure(stage.name, stage.cmd, outcome)
        with Repo(str(root), _wait_for_lock=True) as repo, repo.lock:
            entries = lock(root)
        if not (entry := entries.get(stage.name)):  # a frozen stage that has never run
            raise dg.Failure(f"{stage.name}: dvc.lock does not have it; is it frozen?", allow_retries=False)
        took = {"status": _status(stage, outcome.output), "took": round(outcome.seconds, 2)}
        return dg.MaterializeResult(
            asset_key=dg.AssetKey(stage.key),
            metadata=took | facts(root, stage, entry) | more(stage),
            data_version=dg.DataVersion(entry.version(stage)),
            tags=tags(stages, entries, stage),
        )

    return body


def spec(stages: Mapping[str, Stage], stage: Stage) -> dg.AssetSpec:
    return dg.AssetSpec(
        key=dg.AssetKey(stage.key),
        deps=[dg.AssetKey(stages[name].key) for name in stage.upstream],
        description=f"{stage.desc}\n\n`{stage.cmd}`".strip(),
        group_name=stage.group,
        code_version=stage.code_version,
        kinds={"dvc", "python"} if "python" in stage.cmd else {"dvc"},
        metadata={"stage": stage.name},
    )


def dvc(root: Path, words: list[str], run_id: str, keep: int | None = TAIL) -> Outcome:
    """Run a command of DVC and pass its output on line by line; keep the last `keep` lines, or all if it is
    None. If interrupted, end its children too.
    """
    # The flag must stand before the subcommand. Another dvc holds the lock for moments only, so this one
    # waits.
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *words]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "DAGSTER_RUN_ID": run_id,
        "PYTHONUNBUFFERED": "1",
        "TQDM_MININTERVAL": "5",  # in a log every update of a progress bar is a line
    }
    started = time.monotonic()
    child = subprocess.Popen(
        command,
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )
    output, errors = deque[str](maxlen=keep), deque[str](maxlen=keep)
    streams = ((child.stdout, sys.stdout, output), (child.stderr, sys.stderr, errors))
    readers = [threading.Thread(target=_echo, args=stream, daemon=True) for stream in streams]
    try:
        for reader in readers:
            reader.start()
        code = child.wait()
        for reader in readers:
            reader.join(GRACE_SECONDS)  # a process that the command left behind may hold its output open
    except BaseException:  # Dagster's interruption among them
        _end(child)
        raise
    return Outcome(code, tuple(output), tuple(errors), time.monotonic() - started)


def failure(what: str, command: str, outcome: Outcome) -> dg.Failure:
    """Return a Failure with the stage's last line, or with DVC's if the stage printed none or was killed."""
    lines = [_cut(line) for line in (*outcome.output, *outcome.errors) if line.strip()]
    # DVC's error is the last one, and may have several lines
    start = max((i for i, line in enumerate(lines) if line.startswith("ERROR: ")), default=len(lines))
    by_dvc = one_line(" ".join(lines[start:]).removeprefix("ERROR: "))
    *_, last = "> ", *(line for line in lines[:start] if not line.startswith("WARNING: "))
    ended = EXIT_CODE.search(by_dvc)
    failed = 0 < int(ended[1]) < 128 if ended else outcome.code > 0 and not by_dvc
    # DVC prints the command as "> command"
    said = last if failed and not last.startswith("> ") else by_dvc or f"dvc exited with {outcome.code}"
    log = "\n".join(["```", *lines, "```"])
    return dg.Failure(
        description=said.strip(),
        metadata={"stage": what, "command": command, "dvc": by_dvc, "log": dg.MetadataValue.md(log)},
        allow_retries=False,  # the same input fails again
    )


def _cut(line: str) -> str:
    return line if len(line) <= LONG else f"{line[: LONG // 2]} ... {line[-LONG // 2 :]}"


def _status(stage: Stage, output: tuple[str, ...]) -> str:
    if f"Stage '{stage.name}' didn't change, skipping" in output:
        return "unchanged since the last run"
    if f"Stage '{stage.name}' is cached - skipping run, checking out outputs" in output:
        return "restored from DVC's run cache"
    return "ran"


def _echo(source: TextIO, sink: TextIO, kept: deque[str]) -> None:
    for line in source:
        kept.append(line.rstrip("\n"))
        # The child goes on if the sink is closed or cannot encode a character
        with suppress(OSError, ValueError):
            sink.write(line)
            sink.flush()


def _end(child: subprocess.Popen[str]) -> None:
    """Interrupt the process group of the child as Ctrl-C does, then terminate it, then kill it."""
    for number, patience in ((signal.SIGINT, GRACE_SECONDS), (signal.SIGTERM, 2.0), (signal.SIGKILL, None)):
        try:
            os.killpg(child.pid, number)
            child.wait(patience)
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
