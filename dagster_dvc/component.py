"""The Dagster component: a defs.yaml names a folder with a dvc.yaml, and each stage becomes an asset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import dagster as dg

from dagster_dvc.checks import Check, checks
from dagster_dvc.experiments import experiment
from dagster_dvc.graph import JOBS, Stage, identifier, is_valid_name, read
from dagster_dvc.repro import asset
from dagster_dvc.sensor import lock_sensor


def _folder(context: dg.ResolutionContext, project: str) -> Path:
    return context.resolve_source_relative_path(context.resolve_value(project, as_type=str))


class DvcProjectComponent(dg.Component, dg.Resolvable, dg.Model):
    """Show a DVC project: an asset for each stage of its dvc.yaml, materialized by `dvc repro --single-item`.

    dvc.yaml is read when Dagster loads: reload after dvc.yaml or params.yaml got another stage. A subclass
    may add checks (`checks_of`) and metadata (`metadata_of`). Raises GraphError if DVC cannot
    read the project.
    """

    project: Annotated[
        Path,
        dg.Resolver(
            _folder,
            model_field_type=str,
            description="The folder of dvc.yaml, relative to this file. It is in a DVC repository.",
            examples=["../../..", "{{ context.project_root }}/training"],
        ),
    ]
    prefix: Annotated[
        str,
        dg.Resolver.default(
            description="Begins asset keys, groups and jobs, so that projects can share a code location.",
            examples=["training"],
        ),
    ] = ""

    def stages(self) -> dict[str, Stage]:
        """Return the stages by name, upstream first."""
        return read(self.project, self.prefix)

    def checks_of(self, stage: Stage) -> Mapping[str, Check]:
        """Return further checks of a stage by name. They warn."""
        return {}

    def metadata_of(self, stage: Stage) -> dict[str, Any]:
        """Return further metadata of a stage that has run."""
        return {}

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        root, stages = self.project, self.stages()
        everything, *groups = _jobs(self.prefix, stages)
        # `dvc exp` needs git
        git = any((folder / ".git").exists() for folder in (root, *root.parents))
        return dg.Definitions(
            assets=[asset(root, stages, stage, self.metadata_of) for stage in stages.values()],
            asset_checks=[checks(root, stage, self.checks_of(stage)) for stage in stages.values()],
            jobs=[everything, *groups, *([experiment(root, self.prefix)] if git else ())],
            schedules=[
                dg.ScheduleDefinition(
                    identifier(self.prefix, "nightly"),
                    job=everything,
                    cron_schedule="0 3 * * *",
                    description="runs `dvc repro` at 3:00; off until it is switched on",
                )
            ],
            sensors=[lock_sensor(root, self.prefix, stages, self.metadata_of, self.checks_of)],
        )


def _jobs(prefix: str, stages: Mapping[str, Stage]) -> Iterator[dg.UnresolvedAssetJobDefinition]:
    """Yield a job of all stages, then one for each group whose name Dagster accepts for a job."""
    keys = {stage.name: dg.AssetKey(stage.key) for stage in stages.values()}
    # DVC runs one stage at a time, so a process for each step would only add seconds.
    job = partial(dg.define_asset_job, executor_def=dg.in_process_executor)
    fixed = [identifier(prefix, name) for name in JOBS]
    yield job(fixed[0], [*keys.values()], description="all stages, like `dvc repro`")
    for group in dict.fromkeys(stage.group for stage in stages.values()):
        if is_valid_name(group) and group not in fixed:
            of = [keys[stage.name] for stage in stages.values() if stage.group == group]
            yield job(group, of, description=f"the stages of `{group}` alone")
