"""validate: say whether a study is valid."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from pipelines.study import params
from pipelines.tool import Answer


def run(args: Namespace) -> Answer:
    """Check a study, and count the rows of its tables."""
    study = params.load(args.study)
    if Path("dvc.yaml").is_file():  # paths in a study are of its checkout
        params.check_files(study, args.study)
    rows = {table: len(rows) for table, rows in study if isinstance(rows, dict)}
    said = ", ".join(f"{count} {table}" for table, count in rows.items() if count)
    return Answer([f"{study.study}: valid: {said}"], {"study": study.study, "rows": rows})
