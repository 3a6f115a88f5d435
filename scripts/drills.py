"""Fault drills in numbers: what is broken on purpose around study `smoke`, how often, and what held.

    python scripts/drills.py {studies,hostile,damage,disk,mlflow,kills}
        [--count N] [--seed 0] [--minutes M] [--folder F] [--write]

Drills work in clones of the repository below F, beside one that has reproduced the study once: the reference, whose bytes are
what a stage must come to, or it says one line and ends with exit code 2. --write: the drill's row of docs/drills.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from drill.disk import WRITERS, disk
from drill.inputs import damage, hostile, studies
from drill.kills import kills
from drill.places import ROOT, Place, Tally, imports
from drill.tracking import mlflow

sys.path.insert(0, str(ROOT))
PAGE = ROOT / "docs" / "drills.md"
DRILLS: dict[str, tuple[Callable[[Place, int, random.Random, Tally], None], int]] = {
    "studies": (studies, 3600), "hostile": (hostile, 500), "damage": (damage, 112), "disk": (disk, len(WRITERS)),
    "mlflow": (mlflow, 8), "kills": (kills, 50),
}  # fmt: skip
HEAD = "| drill | tried | held | what did not hold | of these | seed | commit | minutes |\n|---|---|---|---|---|---|---|---|\n"


def row(drill: str, tally: Tally, seed: int, commit: str, minutes: float) -> str:
    faults = "; ".join(f"{n} x {what}" for what, n in tally.faults.items()) or "-"
    held = tally.tried - sum(tally.faults.values())
    cells = [
        drill,
        f"{tally.tried:,}",
        f"{held:,}",
        faults,
        "; ".join(filter(None, tally.notes)),
        seed,
        commit,
        f"{minutes:.0f}",
    ]
    return "| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |"


def write(line: str) -> None:
    """The page, with one drill's row in it."""
    rows = re.findall(r"^\| \w+ \| \d.*$", PAGE.read_text() if PAGE.exists() else "", re.M)
    known = {row.split()[1]: row for row in (*rows, line)}
    model = re.search("model name\\s*: (.*)", Path("/proc/cpuinfo").read_text())
    about = [f"* **{name}**: {' '.join((of.__doc__ or '').split())}" for name, (of, _) in DRILLS.items()]
    page = (
        "# Fault drills\n\n`python scripts/drills.py <drill> --write` runs one and writes its row. A fault ends in one "
        "line, with an exit code that is not 0, and\nnothing is lost: this is what was tried.\n\n"
        f"{HEAD}{chr(10).join(known[name] for name in DRILLS if name in known)}\n\n"
        f"{os.cpu_count()} cores of {model[1] if model else platform.machine()}, other work on them.\n\n{chr(10).join(about)}\n"
    )
    PAGE.write_text(page)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("drill", choices=DRILLS)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/drills"))
    parser.add_argument("--minutes", type=float, default=float("inf"))
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    drill, count = DRILLS[asked.drill]
    if (
        asked.drill in ("disk", "mlflow") and "DRILL_MOUNTS" not in os.environ
    ):  # mounts of its own, that go with it
        command = ["unshare", "--map-root-user", "--mount", sys.executable, *sys.argv]
        os.execvpe("unshare", command, os.environ | {"DRILL_MOUNTS": "1"})
    place, began = Place(asked.folder.resolve(), asked.drill), time.monotonic()
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    tally = Tally(began + 60 * asked.minutes)
    if asked.drill in ("studies", "damage"):
        imports()
    drill(place, asked.count or count, random.Random(asked.seed), tally)
    print(line := row(asked.drill, tally, asked.seed, commit, (time.monotonic() - began) / 60))
    if asked.write:
        write(line)
    return int(bool(tally.faults))


if __name__ == "__main__":
    sys.exit(main())
