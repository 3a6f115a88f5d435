"""The installed command `universal-geometry`, short `ugeo`. It needs neither a checkout nor DVC, Dagster or
MLflow.
"""

import csv
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a command prints: lines for people or, with --json, `data`. `code` is its exit code."""

    lines: list[str]
    data: dict[str, Any] = field(default_factory=dict)
    code: int = 0


def names_in(text: str) -> list[str]:
    """Return names separated by commas; one with a comma stands in double quotes."""
    [names] = csv.reader([" ".join(text.split())], skipinitialspace=True)  # csv refuses line breaks
    return names
