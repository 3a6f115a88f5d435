"""A lane of `make repro`: DVC, imported once, does what comes on standard input, line by line; `scripts/repro.py` asks.

`plan [target ...]` prints, as JSON, what `dvc repro` would go through: stages in DVC's order, each with what it needs, whether
it may have work to do, and its pool. `run stage` is `dvc repro --single-item stage`. Each ends with a line of END and a code.
"""

from __future__ import annotations

import json
import os
import sys

import dvc.lock
from dvc.cli import main
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.repo.reproduce import collect_stages, get_active_graph, plan_repro

END = "\x1e"
dvc.lock.DEFAULT_TIMEOUT = (
    0.3  # DVC looks six times in that time whether the other lane has let go of its lock
)


def plan(targets: list[str]) -> int:
    changed, stages = set(), []
    try:
        repo = Repo(_wait_for_lock=True)
        with repo.lock:
            graph = get_active_graph(repo.index.graph)
            for stage in plan_repro(graph, collect_stages(repo, targets) or None):
                needs = list(graph.successors(stage))
                if changed.intersection(needs) or stage.changed():
                    changed.add(stage)
                pool = (stage.meta or {}).get("pool")
                stages.append((stage.addressing, [need.addressing for need in needs], stage in changed, pool))
    except DvcException as error:
        print(f"ERROR: {error}" + (f": {error.__cause__}" if error.__cause__ else ""))
        return 255
    print(json.dumps(stages))
    return 0


def lane() -> None:
    asked = os.fdopen(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # stages have nothing to read there
    for line in asked:
        verb, *words = line.split()
        code = plan(words) if verb == "plan" else main(["--wait-for-lock", "repro", "--single-item", *words])
        print(f"\n{END}{code}", flush=True)


if __name__ == "__main__":
    os.nice(int(sys.argv[1]))
    try:
        lane()
    except KeyboardInterrupt:
        os._exit(130)
    os._exit(0)
