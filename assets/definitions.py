"""Everything Dagster is told: `defs`, built from dvc.yaml as it is when Dagster loads. Another study: reload."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from assets import experiments, provenance, repro
from assets.checks import checks
from assets.facts import facts
from assets.graph import Entry, GraphError, Stage, digest, lock, read
from assets.provenance import Now

ROOT = Path(__file__).parents[1]
RUNNING = [
    dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING,
]  # fmt: skip


def build(root: Path) -> dg.Definitions:
    """Assets, checks, jobs, schedule and sensor for the pipeline in `root`. GraphError where DVC cannot read it."""
    stages = read(root)
    groups = dict.fromkeys(stage.group for stage in stages.values())
    everything = dg.define_asset_job("everything", dg.AssetSelection.all(), description="all stages, like `dvc repro`")
    nightly = dg.ScheduleDefinition("nightly", job=everything, cron_schedule="0 3 * * *")  # off until switched on
    return dg.Definitions(
        assets=[repro.asset(root, stages, stage) for stage in stages.values()],
        asset_checks=[checks(root, stage) for stage in stages.values()],
        jobs=[everything, *(_job(group) for group in groups), experiments.experiment(root), experiments.smoke(root)],
        schedules=[nightly],
        sensors=[lock_sensor(root, stages)],
        executor=dg.in_process_executor,  # DVC runs one stage at a time; a process per step would only add seconds
    )


def lock_sensor(root: Path, stages: Mapping[str, Stage]) -> dg.SensorDefinition:
    """Reports stages that `dvc repro` (or `dvc exp apply`, `dvc pull` ...) brought about outside Dagster.

    On from the start: it reads one small file and starts nothing, without it Dagster would call missing what is there.
    """

    @dg.sensor(
        name="dvc_lock", minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=dg.AssetSelection.all(), description="shows what `dvc repro` did outside Dagster",
    )  # fmt: skip
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if context.instance.get_runs_count(dg.RunsFilter(statuses=RUNNING)):
            return dg.SkipReason("a run is in progress: it reports its own stages")
        try:
            entries = lock(root)
        except GraphError as error:  # a reader can meet DVC while it writes
            return dg.SkipReason(str(error))
        finished = {name: entry for name, entry in entries.items() if name in stages and _exists(root, stages[name])}
        seen = digest({name: entry.digest for name, entry in finished.items()})
        if seen == context.cursor:
            return dg.SkipReason("dvc.lock has not changed")
        now = provenance.digests(root)
        events = [e for name in finished if (e := _news(root, context.instance, stages, entries, stages[name], now))]
        return dg.SensorResult(asset_events=events, cursor=seen, skip_reason=None if events else "nothing new")

    return sensor


def _exists(root: Path, stage: Stage) -> bool:
    """Whether the outputs exist. After `git pull` without `dvc pull` dvc.lock names outputs that are missing."""
    return all((root / out).exists() for out in stage.outs)


def _news(
    root: Path, instance: dg.DagsterInstance, stages: Mapping[str, Stage], entries: Mapping[str, Entry], stage: Stage, now: Now
) -> dg.AssetMaterialization | None:
    """What Dagster does not know of a stage yet: another entry of dvc.lock, or that it is in line with its inputs again."""
    entry, tags = entries[stage.name], provenance.tags(stages, entries, stage, now)
    event = instance.get_latest_materialization_event(dg.AssetKey(stage.key))
    last = event.asset_materialization if event else None
    same = last and "lock" in last.metadata and last.metadata["lock"].value == entry.digest
    if last and same and (not provenance.in_line(tags) or tags.items() <= (last.tags or {}).items()):
        return None
    return dg.AssetMaterialization(
        asset_key=dg.AssetKey(stage.key),
        description="outside Dagster",
        metadata={"status": "outside"} | facts(root, stage, entry),
        tags=tags,
    )


def _job(group: str) -> dg.UnresolvedAssetJobDefinition:
    return dg.define_asset_job(group, dg.AssetSelection.groups(group), description=f"the stages of `{group}` alone")


defs = build(ROOT)
