"""Asset checks: outputs match dvc.lock, metrics are finite, and further checks of a project, which warn."""

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
from dvc.exceptions import DvcException
from dvc.repo import Repo

from dagster_dvc.facts import metrics
from dagster_dvc.graph import GraphError, Stage, lock, md5

AS_LOCKED, FINITE = "as_locked", "finite_metrics"
Found = tuple[str, dict[str, float]]  # the fault ("" if there is none), and the numbers behind it
Check = Callable[[Path, Stage], Found]  # takes the folder of the project and a stage


def checks(root: Path, stage: Stage, warnings: Mapping[str, Check]) -> dg.AssetChecksDefinition:
    """Return the checks of one stage. They run after it in every job, and alone from its page."""
    key = dg.AssetKey(stage.key)
    specs = [
        dg.AssetCheckSpec(AS_LOCKED, asset=key, description="every output is there, with the md5 of dvc.lock")
    ]
    if stage.metrics:
        specs.append(
            dg.AssetCheckSpec(FINITE, asset=key, description="there are metrics, and each is a finite number")
        )
    specs += [
        dg.AssetCheckSpec(name, asset=key, description=_said(check)) for name, check in warnings.items()
    ]

    @dg.multi_asset_check(name=f"{stage.op}__checks", specs=specs, can_subset=True)
    def body(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for selected in context.selected_asset_check_keys:
            yield dg.AssetCheckResult(**result(root, stage, selected.name, warnings))

    return body


def evaluations(root: Path, stage: Stage, warnings: Mapping[str, Check]) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the result of each check of a stage that ran outside Dagster. It trusts files DVC knows."""
    for name in (AS_LOCKED, *([FINITE] if stage.metrics else ()), *warnings):
        found = result(root, stage, name, warnings, anew=False)
        found["metadata"] = {
            key: dg.MetadataValue.text(str(value)) for key, value in found["metadata"].items()
        }
        yield dg.AssetCheckEvaluation(**found)


def result(
    root: Path, stage: Stage, name: str, warnings: Mapping[str, Check], anew: bool = True
) -> dict[str, Any]:
    """Return what a check found, as the fields of Dagster's result."""
    found: dict[str, Any] = {"asset_key": dg.AssetKey(stage.key), "check_name": name}
    if name in warnings:
        line, numbers = warnings[name](root, stage)
        found |= {"severity": dg.AssetCheckSeverity.WARN, "metadata": numbers}
    else:
        problems = not_as_locked(root, stage, anew) if name == AS_LOCKED else not_finite(root, stage)
        line = "; ".join(f"{path}: {what}" for path, what in problems.items())
        found |= {"severity": dg.AssetCheckSeverity.ERROR, "metadata": problems}
    return found | {"passed": not line, "description": line or None}


def _said(check: Check) -> str:
    return (check.__doc__ or "").split(";")[0].rstrip(".")


def not_as_locked(root: Path, stage: Stage, anew: bool = True) -> dict[str, str]:
    """Return {output: "deleted" | "modified" | "not in dvc.lock"}. `anew` reads every byte."""
    try:
        entry = lock(root).get(stage.name)
        locked = {out["path"]: out.get("md5") for out in entry.outs} if entry else {}
        with Repo(str(root)) as repo:
            found = {path: md5(repo, root / path, anew) if path in locked else None for path in stage.outs}
    except (DvcException, GraphError, OSError) as error:
        return {"dvc": " ".join(str(error).split())}
    wrong = {
        path: "deleted" if digest is None else "modified"
        for path, digest in found.items()
        if digest != locked.get(path)
    }
    return wrong | dict.fromkeys(sorted({*stage.outs} - {*locked}), "not in dvc.lock")


def not_finite(root: Path, stage: Stage) -> dict[str, str]:
    """Return {metric: "nan"} for each metric that is not finite, and name metrics files without a number."""
    try:
        numbers = metrics(root, stage)
    except ValueError as error:
        return {"metrics": str(error)}
    if not numbers:
        return {", ".join(stage.metrics): "no number in it"}
    return {name: str(value) for name, value in numbers.items() if not math.isfinite(value)}
