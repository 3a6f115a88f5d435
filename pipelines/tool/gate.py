"""Compare an audit with the targets of its owner: `audit --gate targets.yaml`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from pipelines.measures.defences import Defence
from pipelines.pages.audit import VERDICTS, Findings, Label, leakage_to_best, unfinished
from pipelines.runtime.errors import BadInput
from pipelines.study.params import faults
from pipelines.study.reading import read
from pipelines.study.row import Row

LEAKS = ("texts", "labels", "facts")
Share = Annotated[float | None, Field(ge=0, le=1, strict=True)]  # `true` is no number
# A defence as `--defences` names it: `noise 0.10` is `noise 0.1`
InUse = Annotated[str, AfterValidator(lambda name: str(Defence.of(name)))]


class Targets(Row):
    """The content of targets.yaml. A target that is not set is not compared."""

    defence: InUse = "none"
    verdict: Label | None = None  # the strongest attack that is tolerated
    encoder: Share = None  # highest share of vectors whose encoder is named, by a fit or a fingerprint
    texts: Share = None  # highest share of vectors that are matched to their true text
    labels: Share = None  # highest share of vectors with the label of their true text
    facts: Share = None  # highest share of the true texts' facts that the inverted texts state
    leakage: Share = None  # highest leakage to the strongest attacker
    recall: Share = None  # lowest share of the 10 nearest neighbours that is kept


def targets_of(path: Path, defences: Sequence[Defence], truth: bool) -> Targets:
    """Read targets. Raises BadInput for other content, and for what the audit does not try or measure."""
    content = read(path)
    try:
        targets = Targets.model_validate(content)
    except ValidationError as error:
        raise BadInput(f"{path}: {'; '.join(faults(error))}") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    if targets.defence not in ("none", *map(str, defences)):
        raise BadInput(f"{path}: defence: {targets.defence!r} is not tried")
    by_defence = targets.leakage is not None or targets.recall is not None
    if by_defence and not defences:
        raise BadInput(f"{path}: leakage and recall are measured only with --defences")
    if not truth and (needed := limits(targets)):
        raise BadInput(f"{path}: {', '.join(needed)}: measured only with --truth, the texts behind the dump")
    return targets


def limits(targets: Targets) -> dict[str, float]:
    """Return the targets that are compared with the true texts."""
    return {name: limit for name in LEAKS if (limit := getattr(targets, name)) is not None}


def missed(targets: Targets, findings: Findings) -> list[str]:
    """Return one line for each target that the audit missed.

    Defences are tried only against an attack that works. If none works, leakage is 0 and recall is not
    compared.
    """
    best, (named, share) = findings.best, findings.named
    out = [unfinished(findings)] if findings.unfinished else []
    if targets.verdict and VERDICTS.index(best.verdict) > VERDICTS.index(targets.verdict):
        out.append(f"verdict: {best.verdict} with {best.encoder}; at most {targets.verdict}")
    if targets.encoder is not None and share > targets.encoder:
        out.append(f"encoder: {share:.3f} of the vectors name {named}; at most {targets.encoder:g}")
    if not findings.evidence:
        return out
    found = {row["what"]: row for row in findings.leaks if row["of"]}  # true texts may state no facts
    for name, limit in limits(targets).items():
        if not (row := found.get(name)):
            out.append(f"{name}: not measured")
        elif row["found"] / row["of"] > limit:
            out.append(f"{name}: {row['found']} of {row['of']}; at most {limit:g}")
    return out + _missed_by_defence(targets, findings)


def _missed_by_defence(targets: Targets, findings: Findings) -> list[str]:
    """Compare leakage and recall of the defence in use."""
    if targets.leakage is None and targets.recall is None:
        return []
    row = next((row for row in findings.defences if row["defence"] == targets.defence), None)
    if row is None:
        return [f"leakage and recall of {targets.defence}: not measured"]
    out = []
    left, kept = leakage_to_best(row), row["recall"]
    if targets.leakage is not None and left > targets.leakage:
        out.append(f"leakage of {targets.defence}: {left:.3f}; at most {targets.leakage:g}")
    if targets.recall is not None and kept < targets.recall:
        out.append(f"recall of {targets.defence}: {kept:.3f}; at least {targets.recall:g}")
    return out
