"""The component of this project: checks of the field, links to MLflow, and the smoke study as a job."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import dagster as dg

from assets import field
from dagster_dvc import DvcProjectComponent
from dagster_dvc.checks import Check
from dagster_dvc.graph import GraphError, Stage
from dagster_dvc.repro import dvc, failure

ROW = re.compile(
    r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
)  # dvc.yaml puts a row's name into a command that a shell reads


class StudyComponent(DvcProjectComponent):
    """The active study: one asset per row of params.yaml."""

    def stages(self) -> dict[str, Stage]:
        """GraphError also for a row whose name a shell would not read as one plain word."""
        stages = super().stages()
        for stage in stages.values():
            if stage.row is not None and not ROW.fullmatch(stage.row):
                raise GraphError(
                    f"{stage.base}: {stage.row!r} is no row name: letters, digits, '_', '-' and '.' only"
                )
        return stages

    def checks_of(self, stage: Stage) -> Mapping[str, Check]:
        return field.CHECKS.get(stage.base, {}) if stage.row else {}

    def metadata_of(self, stage: Stage) -> dict[str, Any]:
        return last_run(self.project, stage)

    def jobs(self) -> Sequence[dg.JobDefinition]:
        return [smoke(self.project)]


def last_run(root: Path, stage: Stage) -> dict[str, Any]:
    """Seconds and MLflow run of the stage's last run, if what it wrote is what is here: not restored, not of another commit."""
    try:
        run = json.loads((root / ".cache/runs" / f"{stage.name}.json").read_text())
        began, ended = run["began"], run["ended"]
        written = [(root / path).stat().st_mtime for path in stage.metrics]
        if not written or not all(
            began - 1 <= time <= ended + 1 for time in written
        ):  # DVC leaves these files in place
            return {}
        seconds = {"seconds": round(ended - began, 2)}
        if "run" not in run:  # MLflow could not be reached
            return seconds
        server = os.environ.get("MLFLOW_TRACKING_URI", "")
        server = (
            server
            if server.startswith("http")
            else f"http://127.0.0.1:{os.environ.get('MLFLOW_PORT', '5000')}"
        )
        page = f"{server}/#/experiments/{run['experiment']}/runs/{run['run']}"
        return seconds | {"mlflow": dg.MetadataValue.url(page)}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def smoke(root: Path) -> dg.JobDefinition:
    """A job that reproduces studies/smoke.yaml in a copy of the files that git knows."""

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
    """The files that git knows or would add, with the smoke study as params.yaml. Failure where it is not valid."""
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], cwd=root, capture_output=True, check=True
    )
    for name in listed.stdout.decode().split("\0"):
        if (
            name
            and (root / name).is_file()
            and not name.startswith((".dvc/", "results/", "report/", "dvc.lock"))
        ):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(root / name, to / name)
    command = [sys.executable, "-m", "pipelines.study", "activate", "smoke"]
    done = subprocess.run(command, cwd=to, capture_output=True, text=True, check=False)
    if done.returncode:
        raise dg.Failure(done.stderr.strip() or "the smoke study is not valid", allow_retries=False)
