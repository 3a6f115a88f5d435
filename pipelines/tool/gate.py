"""Compare an audit with the targets of its owner: `audit --gate targets.yaml`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipelines.pages.audit import VERDICTS, Findings, leakage_to_best
from pipelines.runtime.errors import BadInput
from pipelines.study.reading import read

LEAKS = ("texts", "labels", "facts")


class Targets(BaseModel):
    """The content of targets.yaml. A target that is not set is not compared."""

    model_config = ConfigDict(extra="forbid")

    defence: str = "none"  # the one in use, as `--defences` names it
    verdict: Literal["failed", "doubtful", "partial", "aligned"] | None = (
        None  # the strongest attack that is tolerated
    )
    encoder: float | None = Field(None, ge=0, le=1)  # at most this share of vectors, of which it is named
    texts: float | None = Field(None, ge=0, le=1)  # at most this share is told from the other true texts
    labels: float | None = Field(None, ge=0, le=1)  # at most this share has the label of its text
    facts: float | None = Field(None, ge=0, le=1)  # at most this share is in the inverted texts
    leakage: float | None = Field(None, ge=0, le=1)  # at most this is left to the attacker who knows most
    recall: float | None = Field(None, ge=0, le=1)  # at least this share of the 10 nearest neighbours is kept


def targets_of(path: Path, defences: list[str], truth: bool) -> Targets:
    """Read targets. Raises BadInput for other content, and for what the audit does not try or measure."""
    try:
        targets = Targets.model_validate(read(path))
    except ValidationError as error:
        fault = error.errors()[0]
        raise BadInput(f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    if targets.defence not in defences:
        raise BadInput(f"{path}: defence: {targets.defence!r} is not tried; tried are {', '.join(defences)}")
    if not truth and (needed := [name for name in LEAKS if getattr(targets, name) is not None]):
        raise BadInput(f"{path}: {needed[0]}: is measured only with --truth, the texts behind the dump")
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
    named = findings.named
    if targets.encoder is not None and named > targets.encoder:
        out.append(f"encoder: {best.encoder} is named of {named:.3f}; at most {targets.encoder:g}")
    out += _leaked(targets, findings)
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


def _leaked(targets: Targets, findings: Findings) -> list[str]:
    found, out = {row["what"]: row for row in findings.leaks}, []
    for name in LEAKS:
        limit = getattr(targets, name)
        if limit is None or not findings.evidence:
            continue
        if name not in found:
            out.append(f"{name}: not measured: the audit was stopped")
        elif found[name]["found"] > limit * found[name]["of"]:
            out.append(f"{name}: {found[name]['found']} of {found[name]['of']}; at most {limit:g}")
    return out
