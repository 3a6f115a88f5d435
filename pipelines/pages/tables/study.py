"""What was published beside what was measured here; how to run it again, and how long each stage took."""

from __future__ import annotations

import subprocess
from functools import reduce
from typing import Any

from pipelines.pages.tables import table
from pipelines.runtime import intact, store
from pipelines.study import params


def published_table(study: params.Study) -> list[str]:
    """The papers' own numbers, each beside the cell of this study that repeats it; apart from these, and beside no number, those
    of other data or other encoders."""
    beside, apart = [], []
    for row in study.published.values():
        ours = measured(row.of) if row.of and row.comparable else None
        cells = [row.what, f"{row.value:g}", row.by]
        if row.comparable:
            centred = measured(row.of.replace(".raw_", ".")) if row.of and ".raw_" in row.of else None
            numbers = [
                f"{ours:.4g}" if ours is not None else "not measured",
                f"{centred:.4g}" if centred is not None else "",
            ]
            beside.append([*cells, *numbers, row.of or ""])
        else:
            apart.append([*cells, row.of or ""])
    lines = []
    if beside:
        legend = [
            "Published numbers are the papers' own, of their machines. Beside ranks as vec2vec takes them, of translated vectors",
            "for each real one by raw cosine, stand those of the tables above, the other way round and *centred*.",
        ]
        header = ["what", "PUBLISHED", "where", "measured here", "centred", "cell"]
        lines += ["", *legend, "", *table(header, beside)]
    if apart:
        legend = "Not to be compared: each is of other data or other encoders than the cell of this study that it stands for."
        lines += ["", "### For orientation: other data", "", legend, ""]
        lines += table(["what", "PUBLISHED", "where", "cell here, on other data"], apart)
    return ["## Published numbers", *lines] if lines else []


def measured(cell: str) -> float | None:
    """The number at `verb.row.measure`, or None where that has not been run."""
    verb, row, *keys = cell.split(".")
    value: Any = store.read_metrics(verb).get(row)
    value = reduce(lambda v, k: v.get(k) if isinstance(v, dict) else None, keys, value)
    return value if isinstance(value, (int, float)) else None


def again(study: params.Study) -> list[str]:
    """How a row is run again. What differs between two runs of one study stands in the file that is named here."""
    legend = [
        "A row of a table above is a row of params.yaml under its verb, and a stage `verb@row`: `dvc repro -s verb@row` runs it",
        "again, without the others. [stages.md](stages.md) beside this page says how long each took, on which device, at which",
        "commit.",
    ]
    return ["## How to reproduce this", "", *legend]


def stages(study: params.Study) -> str:
    """Every stage's latest run: how long, on which device, and the command that repeats it."""
    took = intact.took(study.study)
    rows = [
        [f"`dvc repro -s {stage}`", f"{seconds:.1f}", device] for stage, (seconds, device) in took.items()
    ]
    total = sum(seconds for seconds, _ in took.values())
    legend = f"Code: commit {commit()}. Seconds of each stage's latest run, {total:.0f} in all."
    return (
        "\n".join(
            [f"# Stages of {study.study}", "", legend, "", *table(["stage", "seconds", "device"], rows)]
        )
        + "\n"
    )


def commit() -> str:
    """The checkout's commit, marked where files differ from it."""
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return f"`{done.stdout.strip()}`" if done.returncode == 0 else "unknown (not a git checkout)"
