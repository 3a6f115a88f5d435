"""A sensor on dvc.lock: what `dvc repro` did outside Dagster is shown in Dagster."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import dagster as dg

from dagster_dvc import provenance
from dagster_dvc.facts import More, facts
from dagster_dvc.graph import Entry, GraphError, Stage, digest, lock, word

RUNNING = [
    dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING,
]  # fmt: skip


def lock_sensor(root: Path, prefix: str, stages: Mapping[str, Stage], more: More) -> dg.SensorDefinition:
    """Reports stages that `dvc repro` (or `dvc exp apply`, `dvc pull` ...) brought about outside Dagster.

    On from the start: it reads one small file and starts nothing, without it Dagster would call missing what is there.
    """

    @dg.sensor(
        name=word(prefix, "dvc_lock"), minimum_interval_seconds=30, default_status=dg.DefaultSensorStatus.RUNNING,
        asset_selection=[dg.AssetKey(stage.key) for stage in stages.values()],
        description="shows what `dvc repro` did outside Dagster",
    )  # fmt: skip
    def sensor(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        if context.instance.get_runs_count(dg.RunsFilter(statuses=RUNNING)):
            return dg.SkipReason("a run is in progress: it reports its own stages")
        try:
            entries = lock(root)
        except GraphError as error:  # a reader can meet DVC while it writes
            return dg.SkipReason(str(error))
        finished = {
            name: entry for name, entry in entries.items() if name in stages and _exists(root, stages[name])
        }
        seen = digest({name: entry.digest for name, entry in finished.items()})
        if seen == context.cursor:
            return dg.SkipReason("dvc.lock has not changed")
        now = provenance.digests(root)
        tags = {stages[name]: provenance.tags(stages, entries, stages[name], now) for name in finished}
        events = [
            dg.AssetMaterialization(
                asset_key=dg.AssetKey(stage.key),
                description="outside Dagster",
                metadata={"status": "outside"} | facts(root, stage, entries[stage.name]) | more(stage),
                tags=tags[stage],
            )
            for stage in tags
            if _news(context.instance, stage, entries[stage.name], tags[stage])
        ]
        return dg.SensorResult(
            asset_events=events, cursor=seen, skip_reason=None if events else "nothing new"
        )

    return sensor


def _exists(root: Path, stage: Stage) -> bool:
    """Whether the outputs exist. After `git pull` without `dvc pull` dvc.lock names outputs that are missing."""
    return all((root / out).exists() for out in stage.outs)


def _news(instance: dg.DagsterInstance, stage: Stage, entry: Entry, tags: Mapping[str, str]) -> bool:
    """Whether Dagster does not know this of a stage: another entry of dvc.lock, or that it is in line with its inputs again."""
    event = instance.get_latest_materialization_event(dg.AssetKey(stage.key))
    last = event.asset_materialization if event else None
    same = last and "lock" in last.metadata and last.metadata["lock"].value == entry.digest
    return not (last and same and (not provenance.in_line(tags) or tags.items() <= (last.tags or {}).items()))
