"""A sensor on dvc.lock that shows in Dagster what `dvc repro` did outside of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import dagster as dg
from dvc.exceptions import DvcException
from dvc.repo import Repo

from dagster_dvc import provenance
from dagster_dvc.checks import Check, evaluations
from dagster_dvc.facts import More, facts
from dagster_dvc.graph import Entry, GraphError, Stage, digest, identifier, lock

OUTSIDE = "ran outside Dagster"
RUNNING = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]


def lock_sensor(
    root: Path,
    prefix: str,
    stages: Mapping[str, Stage],
    more: More,
    checks_of: Callable[[Stage], Mapping[str, Check]],
) -> dg.SensorDefinition:
    """Return a sensor that reports stages which `dvc repro`, `dvc exp apply` or `dvc pull` completed outside
    Dagster, with their checks.

    It is on from the start, since without it Dagster would call existing outputs missing. It starts no run.
    """

    @dg.sensor(
        name=identifier(prefix, "dvc_lock"),
        minimum_interval_seconds=30,
        default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=[dg.AssetKey(stage.key) for stage in stages.values()],
        description="shows what `dvc repro` did outside Dagster",
    )
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if context.instance.get_runs_count(dg.RunsFilter(statuses=RUNNING)):
            return dg.SkipReason("a run is in progress: it reports its own stages")
        try:
            with Repo(str(root)) as repo, repo.lock:
                entries = lock(root)
        except (DvcException, GraphError) as error:
            return dg.SkipReason(str(error))
        # After `git pull` without `dvc pull` some outputs are missing
        whole = {name for name, stage in stages.items() if all((root / out).exists() for out in stage.outs)}
        there = {name: entry for name, entry in entries.items() if name in whole}
        seen = digest({name: entry.digest for name, entry in there.items()})
        if seen == context.cursor:
            return dg.SkipReason("dvc.lock has not changed")
        now = provenance.current_md5s(root)
        made, found = [], []
        for name, entry in there.items():
            stage = stages[name]
            tags = provenance.tags(stages, entries, stage, now)
            if _is_new(context.instance, stage, entry, tags):
                key, metadata = dg.AssetKey(stage.key), {"status": OUTSIDE} | facts(root, stage, entry)
                made.append(dg.AssetMaterialization(key, OUTSIDE, metadata | more(stage), tags=tags))
                found += evaluations(root, stage, checks_of(stage))
        return dg.SensorResult(asset_events=made + found, cursor=seen)

    return sensor


def _is_new(instance: dg.DagsterInstance, stage: Stage, entry: Entry, tags: Mapping[str, str]) -> bool:
    """Return True if dvc.lock is newer than Dagster's last event, or a stale stage is up to date again."""
    event = instance.get_latest_materialization_event(dg.AssetKey(stage.key))
    last = event.asset_materialization if event else None
    if not last or "lock" not in last.metadata or last.metadata["lock"].value != entry.digest:
        return True
    return provenance.up_to_date(tags) and not tags.items() <= (last.tags or {}).items()
