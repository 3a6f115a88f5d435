"""A finding, and phrases that several findings use."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.measures.intervals import Interval
from pipelines.pages.page import slug
from pipelines.pages.tables import level, origin
from pipelines.study.params import Study


class Finding(NamedTuple):
    """Hold sentences, the first of which is the claim, their picture, if drawn, and their table's anchor."""

    sentence: str
    picture: Path | None
    anchor: str


def finding(sentences: Sequence[str], picture: Path | None, heading: str) -> Finding:
    """Join the sentences. The picture is left out if it was not drawn."""
    return Finding(" ".join(sentences), picture if picture and picture.is_file() else None, slug(heading))


def of_corpus(study: Study, name: str) -> str:
    """Return `synthetic-tweets (GENERATED)`, `docstrings (real)`"""
    return f"{name} ({origin(study, name).partition(':')[0]})"


def seeds_of(count: float) -> str:
    """Return `1 seed`, `mean of 2 seeds`"""
    return "1 seed" if count == 1 else f"mean of {count:.0f} seeds"


def verdicts(metrics: dict[str, Any]) -> Counter[str]:
    """Count the labels of a translator's seeds: aligned, partial, doubtful, failed. An oracle has none."""
    return Counter(seed["label"] for seed in metrics.get("by seed", {}).values())


def mostly_aligned(labels: Counter[str]) -> bool:
    """Return whether more than half of the seeds are aligned."""
    return labels["aligned"] * 2 > labels.total()


def counted(labels: Counter[str]) -> str:
    """Return `2 of 2 seeds aligned`, `1 of 3 seeds aligned, 2 failed`"""
    others = [f", {labels[label]} {label}" for label in ("partial", "doubtful", "failed") if labels[label]]
    seeds = "seed" if labels.total() == 1 else "seeds"
    return f"{labels['aligned']} of {labels.total()} {seeds} aligned{''.join(others)}"


def above_floor(leak: Interval) -> str:
    """Return `+9.1 points (95 % interval +6.4 to +11.8)`; before it, `at floor level, ` if 0 is in it."""
    value, low, high = (f"{100 * number:+.1f}" for number in leak)
    said = f"{value} points (95 % interval {low} to {high})"
    return said if leak.above_zero else f"{level(leak)}, {said}"
