"""Compare an audit with the targets of its owner: `audit --gate targets.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.pages.audit import VERDICTS, Findings, leakage_to_best
from pipelines.runtime.errors import BadInput
from pipelines.study.reading import read


class Targets(BaseModel):
    """The content of targets.yaml. A target that is not set is not compared."""

    model_config = ConfigDict(extra="forbid")

    defence: str = "none"  # the one in use, as `--defences` names it
    verdict: Literal["failed", "doubtful", "partial", "aligned"] | None = (
        None  # the strongest attack that is tolerated
    )
    leakage: float | None = Field(None, ge=0, le=1)  # at most this is left to the attacker who knows most
    recall: float | None = Field(None, ge=0, le=1)  # at least this share of the 10 nearest neighbours is kept


def targets_of(path: Path, defences: list[str]) -> Targets:
    """Read targets. Raises BadInput for other content, and for a defence that the audit does not try."""
    try:
        targets = Targets.model_validate(read(path))
    except ValidationError as error:
        fault = error.errors()[0]
        raise BadInput(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    if targets.defence not in defences:
        raise BadInput(f"{path}: defence: {targets.defence!r} is not tried; tried are {', '.join(defences)}")
    return targets


def missed(targets: Targets, findings: Findings) -> list[str]:
    """Return one line for each target that the audit missed.

    Defences are tried only against an attack that works. If none works, leakage is 0 and recall is not
    compared.
    """
    out = []
    best = findings.best
    if targets.verdict and VERDICTS.index(best.verdict) > VERDICTS.index(targets.verdict):
        out.append(f"verdict: {best.verdict} with {best.encoder}; at most {targets.verdict}")
    rows = {row["defence"]: row for row in findings.defences}
    if targets.defence not in rows:
        if findings.evidence and (targets.leakage is not None or targets.recall is not None):
            out.append(f"{targets.defence}: not measured: the audit was stopped")
        return out
    row = rows[targets.defence]
    left, kept = leakage_to_best(row), row["utility"]
    if targets.leakage is not None and left > targets.leakage:
        out.append(f"leakage of {targets.defence}: {left:.3f}; at most {targets.leakage:g}")
    if targets.recall is not None and kept < targets.recall:
        out.append(f"recall of {targets.defence}: {kept:.3f}; at least {targets.recall:g}")
    return out
