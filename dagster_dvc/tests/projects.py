"""Build DVC projects, run their jobs in Dagster, and compare what Dagster and DVC call stale."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import dagster as dg
from dagster._core.definitions.data_version import CachingStaleStatusResolver, StaleStatus
from dagster._core.loader import LoadingContextForTest
from dvc.repo import Repo

from dagster_dvc import DvcProjectComponent


def initialised(root: Path) -> Path:
    """Make `root` a DVC repository without git."""
    Repo.init(str(root), no_scm=True).close()
    return root


def git(root: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=root, check=True)


def environment(**more: str) -> dict[str, str]:
    """Return an environment in which `python` is this one."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, **more}


def build(root: Path) -> dg.Definitions:
    return dg.build_defs_for_component(DvcProjectComponent(project=root))


def names(keys: Iterable[dg.AssetKey]) -> set[str]:
    """Return the names of the stages: `train@large` for the asset train/large."""
    return {"@".join(key.path) for key in keys}


def run(
    defs: dg.Definitions, instance: dg.DagsterInstance, job: str = "everything", config: dict | None = None
) -> dg.ExecuteInProcessResult:
    found = defs.resolve_job_def(job)
    return found.execute_in_process(config, instance=instance, raise_on_error=False)


def materialized(result: dg.ExecuteInProcessResult) -> dict[str, dict]:
    """Return the metadata that each asset reported, by stage."""
    events = [event.materialization for event in result.get_asset_materialization_events()]
    return {"@".join(e.asset_key.path): {k: v.value for k, v in e.metadata.items()} for e in events}


def outcomes(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """Return the first word of the status by stage: "ran", "unchanged" or "restored"."""
    return {name: metadata["status"].split()[0] for name, metadata in materialized(result).items()}


def tick(root: Path, instance: dg.DagsterInstance, cursor: str | None = None) -> dg.SensorResult:
    """Evaluate the sensor once."""
    defs = build(root)
    (sensor,) = defs.sensors
    return sensor.evaluate_tick(dg.build_sensor_context(instance=instance, cursor=cursor, definitions=defs))


def stale(defs: dg.Definitions, instance: dg.DagsterInstance) -> set[str]:
    """Return the stages that Dagster does not call fresh."""
    graph = defs.resolve_asset_graph()
    resolver = CachingStaleStatusResolver(instance, graph, LoadingContextForTest(instance))
    keys = graph.get_all_asset_keys()
    return names(key for key in keys if resolver.get_status(key) is not StaleStatus.FRESH)


def status(root: Path) -> set[str]:
    """Return the stages that `dvc status` names."""
    with contextlib.chdir(root), Repo() as repo:
        return set(repo.status())
