"""The component of this project: further checks, and links to MLflow."""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from assets import checks
from dagster_dvc import DvcProjectComponent
from dagster_dvc.checks import Check
from dagster_dvc.graph import Stage


class StudyComponent(DvcProjectComponent):
    """Show the active study: one asset for each stage."""

    def checks_of(self, stage: Stage) -> Mapping[str, Check]:
        return checks.CHECKS.get(stage.base, {})

    def metadata_of(self, stage: Stage) -> dict[str, Any]:
        return last_run(self.project, stage)


def last_run(root: Path, stage: Stage) -> dict[str, Any]:
    """Return the seconds and the MLflow run of the stage's last run.

    Return nothing if its metrics were restored since or come from another commit.
    """
    try:
        run = json.loads((root / ".cache/runs" / f"{stage.name}.json").read_text(encoding="utf-8"))
        began, ended = run["began"], run["ended"]
        written = [(root / path).stat().st_mtime for path in stage.metrics]
        if not written or not all(began - 1 <= time <= ended + 1 for time in written):
            return {}
        seconds = {"seconds": round(ended - began, 2)}
        if "run" not in run:  # MLflow could not be reached
            return seconds
        server = os.environ.get("MLFLOW_TRACKING_URI", "")
        if not server.startswith("http"):
            server = f"http://127.0.0.1:{os.environ.get('MLFLOW_PORT', '5000')}"
        server = re.sub(r"//[^/@]*@", "//", server).rstrip("/")  # Dagster must not keep a password
        page = f"{server}/#/experiments/{run['experiment']}/runs/{run['run']}?workflowType=machine_learning"
        return seconds | {"mlflow": dg.MetadataValue.url(page)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
