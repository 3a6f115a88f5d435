"""Asset checks: outputs match dvc.lock, metrics are finite, and further checks of a project, which warn."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from inspect import getdoc
from pathlib import Path
from typing import Any

import dagster as dg
from dvc.exceptions import DvcException
from dvc.repo import Repo
from dvc.utils.serialize import ParseError

from dagster_dvc.facts import finite, metrics
from dagster_dvc.graph import GraphError, Stage, lock, md5, one_line

Found = tuple[str, dict[str, Any]]  # what is wrong ("" if nothing is), and metadata
Check = Callable[[Path, Stage], Found]  # takes the folder of the project and a stage


def checks(root: Path, stage: Stage, warnings: Mapping[str, Check]) -> dg.AssetChecksDefinition:
    """Return the checks of one stage. They run after it in every job, and alone from its page."""
    every = {**errors_of(stage), **warnings}
    key = dg.AssetKey(stage.key)
    specs = [dg.AssetCheckSpec(name, asset=key, description=_summary(check)) for name, check in every.items()]

    @dg.multi_asset_check(name=f"{stage.op}__checks", specs=specs, can_subset=True)
    def body(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        for selected in context.selected_asset_check_keys:
            name = selected.name
            yield dg.AssetCheckResult(**result(stage, name, every[name](root, stage), name in warnings))

    return body


def evaluations(root: Path, stage: Stage, warnings: Mapping[str, Check]) -> Iterator[dg.AssetCheckEvaluation]:
    """Yield the result of each check of a stage that ran outside Dagster.

    `as_locked` then trusts the md5s that DVC remembers.
    """
    every = {**errors_of(stage), "as_locked": partial(as_locked, anew=False), **warnings}
    for name, check in every.items():
        line, numbers = check(root, stage)
        texts = {key: dg.MetadataValue.text(str(value)) for key, value in numbers.items()}
        yield dg.AssetCheckEvaluation(**result(stage, name, (line, texts), name in warnings))


def errors_of(stage: Stage) -> dict[str, Check]:
    """Return the checks that every stage has."""
    return {"as_locked": as_locked} | ({"finite_metrics": finite_metrics} if stage.metrics else {})


def result(stage: Stage, name: str, found: Found, warns: bool) -> dict[str, Any]:
    """Return the fields of Dagster's result of a check."""
    line, metadata = found
    return {
        "asset_key": dg.AssetKey(stage.key),
        "check_name": name,
        "severity": dg.AssetCheckSeverity.WARN if warns else dg.AssetCheckSeverity.ERROR,
        "passed": not line,
        "description": line or None,
        "metadata": metadata,
    }


def _summary(check: Check) -> str:
    """Return the first paragraph of the docstring of a check."""
    return (getdoc(check) or "").partition("\n\n")[0]


def as_locked(root: Path, stage: Stage, anew: bool = True) -> Found:
    """Every output is there, with the md5 of dvc.lock; `anew` reads every byte."""
    try:
        with Repo(str(root), _wait_for_lock=True) as repo:
            with repo.lock:
                entry = lock(root).get(stage.name)
            locked = entry.md5s if entry else {}
            found = {path: md5(repo, root / path, anew) for path in stage.outs if path in locked}
    except (DvcException, GraphError, OSError) as error:
        return _listed({"dvc": one_line(error)})
    wrong = {
        path: "deleted" if digest is None else "modified"
        for path, digest in found.items()
        if digest != locked[path]
    }
    return _listed(wrong | dict.fromkeys(sorted({*stage.outs} - {*locked}), "not in dvc.lock"))


def finite_metrics(root: Path, stage: Stage) -> Found:
    """There are metrics, and each is a finite number."""
    try:
        numbers = metrics(root, stage)
    except ParseError as error:
        return _listed({"metrics": str(error)})
    if not numbers:
        return _listed({", ".join(stage.metrics): "no number in it"})
    return _listed({name: str(value) for name, value in numbers.items() if not finite(value)})


def _listed(problems: dict[str, str]) -> Found:
    return "; ".join(f"{path}: {what}" for path, what in problems.items()), problems
