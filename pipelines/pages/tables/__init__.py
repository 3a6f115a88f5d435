"""The report's tables.

Each function returns one section as lines of Markdown. All but Corpora, the published numbers and the last
section return no lines without results.
"""

import re
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

from pipelines.measures import Measure
from pipelines.measures.intervals import Interval
from pipelines.runtime import store
from pipelines.study.params import Study

ENOUGH = 10_000  # vectors a side with which most pairs of encoders align (docs/experiments/vec2vec.md)
ORIGINS = {
    "library": "real: docstrings of the installed dependencies",
    "synthetic": "GENERATED",
    "hub": "real: the hub",
    "path": "the user's own",
    "vectors": "vectors without text",
}


Measured = dict[str, tuple[Any, dict[str, Any]]]  # name -> row, metrics


def measured(study: Study, verb: str) -> Measured:
    """Return the rows of a verb that have results, with their metrics."""
    rows = getattr(study, verb)
    return {name: (rows[name], metrics) for name, metrics in store.read_metrics(verb, rows).items()}


def by_keys(study: Study, verb: str, *keys: str) -> dict[Any, Measured]:
    """Return the rows of `measured`, by the values that they have under `keys`."""
    groups = {}
    for name, (row, metrics) in measured(study, verb).items():
        groups.setdefault(attrgetter(*keys)(row), {})[name] = row, metrics
    return groups


def origin(study: Study, corpus: str) -> str:
    """Say where a corpus's texts come from. Every number about them is shown with it."""
    return ORIGINS[study.corpora[corpus].source]


def section(heading: str, legend: str, blocks: list[str]) -> list[str]:
    """Return a section of the report; no lines if it has no blocks."""
    return [f"## {heading}", "", legend, *blocks] if blocks else []


def block(title: str, header: Iterable[str], rows: Iterable[Iterable[Any]], *about: str) -> list[str]:
    """Return a table below its title and the lines `about` it."""
    return ["", f"### {title}", "", *about, *table(header, rows)]


def table(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> list[str]:
    """Return a Markdown table with aligned columns, which is readable in a terminal, too."""
    cells = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return [lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]]


def numbers(measures: list[Measure], metrics: dict[str, float], error: str = "error") -> list[str]:
    """Format measures: `0.552 ± 0.003`, `0.552` without an error, nothing if one was not measured."""
    cells = []
    for m in measures:
        found = [metrics[key] for key in (m.name, f"{m.name}_{error}") if key in metrics]
        cells.append(" ± ".join(f"{number:.{m.digits}f}" for number in found))
    return cells


def lower_is_better(measures: list[Measure]) -> str:
    """Name the measures of a table that are better when lower."""
    return f"Lower is better: {', '.join(m.title for m in measures if m.better == 'lower')}."


def escaped(text: str, most: int = 300) -> str:
    """Return a text of others as one line that Markdown shows as it is, cut to `most` characters."""
    line = " ".join(text.split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    line = "".join(f"\\{c}" if c in "\\`*_[]<|#!~&$" else c for c in line)
    return re.sub(r"^(\d*)([-+=.)>])", r"\1\\\2", line)  # begins no list, quotation or heading


def percent(share: float) -> str:
    """Format a share as `91 %`, with one decimal below 9.5 % and from 99.5 % on."""
    return f"{100 * share:.{0 if 0.095 <= share < 0.995 else 1}f} %"


def points(difference: Interval | None) -> str:
    """Format a share less its floor as a cell: `+0.4 [-2.6, +3.4] at floor level`; empty without a floor."""
    if difference is None:
        return ""
    value, low, high = (f"{100 * number:+.1f}" for number in difference)
    return f"{value} [{low}, {high}] {level(difference)}".rstrip()


def level(difference: Interval) -> str:
    """Return `at floor level` or `below the floor` for a share less its floor; empty if it is above."""
    return "" if difference.above_zero else "below the floor" if difference.high < 0 else "at floor level"
