"""A finding, and the words that findings share."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from pipelines.pages import drawing
from pipelines.pages.tables import origin
from pipelines.study import params


class Finding(NamedTuple):
    """One sentence or a few, plain text; a picture of them, where one is drawn; and the anchor of their table in the report."""

    sentence: str
    picture: Path | None
    anchor: str


def picture(verb: str, name: str, kind: str) -> Path | None:
    path = drawing.picture_path(verb, name, kind)
    return path if path.is_file() else None


def of_corpus(study: params.Study, name: str) -> str:
    """`synthetic-tweets (GENERATED)`, `docstrings (real)`"""
    return f"{name} ({origin(study.corpora[name]).partition(':')[0]})"


def several(count: int, what: str, before: str = "") -> str:
    """`1 seed`, `mean of 2 seeds`"""
    return f"1 {what}" if count == 1 else f"{before}{count} {what}s"


def verdicts(metrics: dict[str, Any]) -> Counter[str]:
    """How many of a translator's seeds were judged aligned, doubtful, failed; none of an oracle's."""
    return Counter(seed["label"] for seed in metrics.get("by seed", {}).values())


def counted(words: Counter[str]) -> str:
    """`2 of 2 seeds aligned`, `1 of 3 seeds aligned, 2 failed`"""
    others = [f"{words[word]} {word}" for word in ("doubtful", "failed") if words[word]]
    return ", ".join([f"{words['aligned']} of {several(words.total(), 'seed')} aligned", *others])
