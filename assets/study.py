"""The component of this project: further checks, links to MLflow, and the smoke study as a job."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from assets import checks
from dagster_dvc import DvcProjectComponent
from dagster_dvc.checks import Check
from dagster_dvc.graph import Stage
from dagster_dvc.repro import dvc, failure


class StudyComponent(DvcProjectComponent):
    """Show the active study: one asset for each row of params.yaml."""

    def checks_of(self, stage: Stage) -> Mapping[str, Check]:
        return checks.CHECKS.get(stage.base, {})

    def metadata_of(self, stage: Stage) -> dict[str, Any]:
        return last_run(self.project, stage)

    def jobs(self) -> Sequence[dg.JobDefinition]:
        return [smoke(self.project)]


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
        page = f"{server}/#/experiments/{run['experiment']}/runs/{run['run']}"
        return seconds | {"mlflow": dg.MetadataValue.url(page)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def smoke(root: Path) -> dg.JobDefinition:
    """Return a job that reproduces studies/smoke.yaml in a copy of this repository."""

    @dg.op(name="reproduce_smoke", out=dg.Out(dg.Nothing))
    def op(context: dg.OpExecutionContext) -> None:
        with tempfile.TemporaryDirectory(prefix="smoke-") as folder:
            copied(root, Path(folder))
            for words in (["init", "--no-scm", "--force", "--quiet"], ["repro"]):
                outcome = dvc(Path(folder), words, context.run.run_id)
                if outcome.code:
                    raise failure("smoke", " ".join(["dvc", *words]), outcome) from None
            context.add_output_metadata({"seconds": round(outcome.seconds, 2)})

    @dg.job(name="smoke", description="does it run: studies/smoke.yaml in a copy of this repository")
    def job() -> None:
        op()

    return job


def copied(root: Path, to: Path) -> None:
    """Copy code and studies, with the smoke study as params.yaml. Raises Failure if it is not valid."""
    made = shutil.ignore_patterns(
        ".[a-z]*", "__pycache__", "data", "results", "report", "dvc.lock", "mlflow.db*"
    )
    shutil.copytree(root, to, ignore=made, dirs_exist_ok=True)
    shutil.copy(root / ".dvcignore", to)
    command = [sys.executable, "-m", "pipelines.study", "activate", "smoke"]
    done = subprocess.run(command, cwd=to, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        raise dg.Failure(done.stderr.strip() or "the smoke study is not valid", allow_retries=False)
