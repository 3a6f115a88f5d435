"""The component: a defs.yaml names a folder with a dvc.yaml, and Dagster has its stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from dagster._core.definitions.utils import is_valid_name

from dagster_dvc.checks import Check, checks
from dagster_dvc.experiments import experiment
from dagster_dvc.graph import JOBS, Stage, read, word
from dagster_dvc.repro import asset
from dagster_dvc.sensor import lock_sensor


def _folder(context: dg.ResolutionContext, project: str) -> Path:
    return context.resolve_source_relative_path(context.resolve_value(project, as_type=str))


class DvcProjectComponent(dg.Component, dg.Resolvable, dg.Model):
    """A DVC project: an asset for each stage of its dvc.yaml, materialized by `dvc repro --single-item`.

    dvc.yaml is read when Dagster loads: reload after it, or params.yaml, has another stage. A subclass says what else is known
    of its stages: `checks_of`, `metadata_of`, `jobs`. GraphError where DVC cannot read the project.
    """

    project: Annotated[
        Path,
        dg.Resolver(
            _folder,
            model_field_type=str,
            description="The folder of dvc.yaml, from the folder of this file; in a DVC repository or a folder of one.",
            examples=["../../..", "{{ context.project_root }}/training"],
        ),
    ]
    prefix: Annotated[
        str,
        dg.Resolver.default(
            description="Of asset keys, groups and jobs, so that several DVC projects fit into one code location.",
            examples=["training"],
        ),
    ] = ""

    def stages(self) -> dict[str, Stage]:
        """By name, upstream first."""
        return read(self.project, self.prefix)

    def checks_of(self, stage: Stage) -> Mapping[str, Check]:
        """More checks of a stage, by name, which warn."""
        return {}

    def metadata_of(self, stage: Stage) -> dict[str, Any]:
        """More metadata of a stage that has run."""
        return {}

    def jobs(self) -> Sequence[dg.JobDefinition]:
        """More jobs."""
        return ()

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        root, stages = self.project, self.stages()
        everything, *groups = _jobs(self.prefix, stages)
        git = any(
            (folder / ".git").exists() for folder in (root, *root.parents)
        )  # `dvc exp` is made of git's commits
        return dg.Definitions(
            assets=[asset(root, stages, stage, self.metadata_of) for stage in stages.values()],
            asset_checks=[checks(root, stage, self.checks_of(stage)) for stage in stages.values()],
            jobs=[everything, *groups, *([experiment(root, self.prefix)] if git else ()), *self.jobs()],
            schedules=[
                dg.ScheduleDefinition(word(self.prefix, "nightly"), job=everything, cron_schedule="0 3 * * *")
            ],  # off
            sensors=[lock_sensor(root, self.prefix, stages, self.metadata_of)],
        )


def _jobs(prefix: str, stages: Mapping[str, Stage]) -> Iterator[dg.UnresolvedAssetJobDefinition]:
    """All stages, then those of each group whose name Dagster takes for a job, and no other job has."""
    keys = {stage.name: dg.AssetKey(stage.key) for stage in stages.values()}
    # In one process: DVC runs one stage at a time; a process per step would only add seconds.
    job = partial(dg.define_asset_job, executor_def=dg.in_process_executor)
    fixed = [word(prefix, name) for name in JOBS]
    yield job(fixed[0], [*keys.values()], description="all stages, like `dvc repro`")
    for group in dict.fromkeys(stage.group for stage in stages.values()):
        if is_valid_name(group) and group not in fixed:
            of = [keys[stage.name] for stage in stages.values() if stage.group == group]
            yield job(group, of, description=f"the stages of `{group}` alone")
