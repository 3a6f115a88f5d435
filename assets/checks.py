"""Asset checks: the files are the ones that dvc.lock names, and every metric is a finite number."""

import math
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
from dvc.exceptions import DvcException
from dvc.repo import Repo

from assets.facts import metrics
from assets.graph import Stage

AS_LOCKED, FINITE = "as_locked", "finite_metrics"


def checks(root: Path, stage: Stage) -> dg.AssetChecksDefinition:
    """The checks of one stage. They run after it in every job, and alone from its page; neither runs the stage."""
    key = dg.AssetKey(stage.key)
    specs = [dg.AssetCheckSpec(AS_LOCKED, asset=key, description="every output is there, with the md5 of dvc.lock")]
    if stage.metrics:
        specs.append(dg.AssetCheckSpec(FINITE, asset=key, description="there are metrics, and each is a finite number"))

    @dg.multi_asset_check(name=f"check_{stage.op}", specs=specs, can_subset=True)
    def body(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for selected in context.selected_asset_check_keys:
            problems = {AS_LOCKED: not_as_locked, FINITE: not_finite}[selected.name](root, stage)
            yield dg.AssetCheckResult(
                asset_key=key, check_name=selected.name, passed=not problems,
                description="; ".join(f"{path}: {what}" for path, what in problems.items()) or None, metadata=problems,
            )  # fmt: skip

    return body


def not_as_locked(root: Path, stage: Stage) -> dict[str, str]:
    """{output: "deleted" | "modified" | "not in dvc.lock"}. DVC remembers the digests of untouched files."""
    try:
        with Repo(str(root)) as repo:
            outs = repo.stage.load_one(str(root / "dvc.yaml"), stage.name).outs
            changed = {out.def_path: out.workspace_status() if out.hash_info else "not in dvc.lock" for out in outs}
        return {path: what if isinstance(what, str) else "".join(what.values()) for path, what in changed.items() if what}
    except (DvcException, OSError) as error:
        return {"dvc": " ".join(str(error).split())}


def not_finite(root: Path, stage: Stage) -> dict[str, str]:
    """{metric: "nan"} for each metric that is not a finite number, and every metrics file without a number."""
    try:
        numbers = metrics(root, stage)
    except ValueError as error:
        return {"metrics": str(error)}
    if not numbers:
        return {", ".join(stage.metrics): "no number in it"}
    return {name: str(value) for name, value in numbers.items() if not math.isfinite(value)}
