"""Break study `smoke` on purpose, many times, and count what holds.

    python -m tests.drills {studies,hostile,disk,mlflow,kills} [--count N] [--seed 0] [--folder F]

Drills work in clones of the repository below F. One reproduces the study once: the reference. A stage must
write the reference's bytes, or print one line and exit with code 2. The last line is a row of docs/drills.md.
"""

import argparse
import os
import random
import sys
import time
from pathlib import Path

from tests.drills.disk import WRITERS, disk
from tests.drills.inputs import hostile, studies
from tests.drills.kills import kills
from tests.drills.places import Place, Tally
from tests.drills.tracking import mlflow
from tests.small import ROOT, completed

COUNTS = {"studies": 3600, "hostile": 500, "disk": len(WRITERS), "mlflow": 8, "kills": 50}
DRILLS = {drill.__name__: drill for drill in (studies, hostile, disk, mlflow, kills)}


def main():
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("drill", choices=DRILLS)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/drills"))
    asked = parser.parse_args()
    if (
        asked.drill in ("disk", "mlflow") and "DRILL_MOUNTS" not in os.environ
    ):  # mounts that end with this process
        command = ["unshare", "--map-root-user", "--mount", sys.executable, *sys.orig_argv[1:]]
        os.execvpe("unshare", command, os.environ | {"DRILL_MOUNTS": "1"})
    commit = completed("git", "describe", "--always", "--dirty", cwd=ROOT).stdout.strip()
    place, began = Place(asked.folder.resolve(), asked.drill), time.monotonic()
    tally = Tally()
    DRILLS[asked.drill](place, asked.count or COUNTS[asked.drill], random.Random(asked.seed), tally)
    faults = "; ".join(f"{n} x {what}" for what, n in tally.faults.items()) or "-"
    cells = [asked.drill, f"{tally.tried:,}", f"{tally.tried - sum(tally.faults.values()):,}", faults]
    cells += ["; ".join(tally.notes), asked.seed, commit, f"{(time.monotonic() - began) / 60:.0f}"]
    print("| " + " | ".join(str(cell).replace("|", "/") for cell in cells) + " |")
    return int(bool(tally.faults))


if __name__ == "__main__":
    sys.exit(main())
