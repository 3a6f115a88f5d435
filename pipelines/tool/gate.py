"""Compare an audit with the targets of its owner: `audit --gate targets.yaml`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, ValidationError

from pipelines.measures.defences import Defence
from pipelines.pages.audit import VERDICTS, Findings, Label, leakage_to_best, unfinished_line
from pipelines.runtime.errors import BadInput
from pipelines.study.params import faults
from pipelines.study.reading import read
from pipelines.study.row import Row

LEAKS = {"texts", "labels", "facts"}  # compared with the true texts
BY_DEFENCE = {"leakage", "recall"}  # of the defence in use
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
    if not defences and targets.model_dump(include=BY_DEFENCE, exclude_none=True):
        raise BadInput(f"{path}: leakage and recall are measured only with --defences")
    if not truth and (needed := targets.model_dump(include=LEAKS, exclude_none=True)):
        raise BadInput(f"{path}: {', '.join(needed)}: measured only with --truth, the texts behind the dump")
    return targets


def missed(targets: Targets, findings: Findings) -> list[str]:
    """Return one line for each target that the audit missed.

    If no attack works, nothing is read and no defence is tried. Then `texts`, `labels`, `facts` and `leakage`
    are met, and `recall` is not compared.
    """
    best = findings.best
    out = [unfinished_line(findings)] if findings.unfinished else []
    if targets.verdict and VERDICTS.index(best.verdict) > VERDICTS.index(targets.verdict):
        out.append(f"verdict: {best.verdict} with {best.encoder}; at most {targets.verdict}")
    names = {"encoder", *LEAKS, *BY_DEFENCE} if findings.evidence else {"encoder"}
    measured = _measured(findings, targets.defence)
    for name, limit in targets.model_dump(include=names, exclude_none=True).items():
        what = f"{name} of {targets.defence}" if name in BY_DEFENCE else name
        if name not in measured:
            out.append(f"{what}: not measured")
            continue
        share, said = measured[name]
        lowest = name == "recall"  # all other limits are highest shares
        if (share < limit) if lowest else (share > limit):
            out.append(f"{what}: {said}; at {'least' if lowest else 'most'} {limit:g}")
    return out


def _measured(findings: Findings, defence: str) -> dict[str, tuple[float, str]]:
    """Return the share that each target limits, and how a line says it."""
    named, share = findings.named
    out = {"encoder": (share, f"{share:.3f} of the vectors name {named}")}
    for row in findings.leaks:
        if row["of"]:  # true texts may state no facts
            out[row["what"]] = row["found"] / row["of"], f"{row['found']} of {row['of']}"
    for row in findings.defences:
        if row["defence"] == defence:
            found = {"leakage": leakage_to_best(row), "recall": row["recall"]}
            out |= {name: (share, f"{share:.3f}") for name, share in found.items()}
    return out
