"""The report's tables, one module per group; each function gives a section as lines of Markdown, or none."""

from __future__ import annotations

from pathlib import Path

from pipelines.measures.intervals import Interval
from pipelines.pages import drawing
from pipelines.study import AnyCorpus

DIGITS = {"mean_rank": 1, "foscttm": 4}
ENOUGH = 10_000  # vectors a side: with as many, what can be aligned mostly is (docs/experiments/vec2vec.md)


def origin(row: AnyCorpus) -> str:
    """Where a corpus's texts are from; shown with every number about them."""
    words = {
        "library": "real: docstrings of the installed dependencies",
        "synthetic": "GENERATED",
        "hub": "real: the hub",
        "path": "the user's own",
        "vectors": "vectors without text",
    }
    return words[row.source]


def with_error(metrics: dict[str, float], measure: str, error: str = "error") -> str:
    """`mean ± error`; `mean` alone where there is no error."""
    digits = DIGITS.get(measure, 3)
    spread = metrics.get(f"{measure}_{error}")
    return f"{metrics[measure]:.{digits}f}" + (f" ± {spread:.{digits}f}" if spread is not None else "")


def table(header: list[str], rows: list[list]) -> list[str]:
    """A Markdown table with aligned columns, readable in a terminal too."""
    cells = [header, *[[str(c) for c in row] for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return [lines[0], "|" + "|".join("-" * (w + 2) for w in widths) + "|", *lines[1:]]


def escaped(text: str, most: int = 300) -> str:
    """A foreign text as one cell of a table: Markdown in it is shown as it is."""
    line = " ".join(text.split())
    line = line if len(line) <= most else line[: most - 1] + "…"
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#!~&$" else c for c in line)


def percent(share: float) -> str:
    """`91 %`; with a decimal below 10 % and near 100 %, where a whole number would hide what matters."""
    return f"{share:.0%}".replace("%", " %") if 0.095 <= share <= 0.995 else f"{share:.1%}".replace("%", " %")


def above_floor(difference: Interval) -> str:
    """`+9.1 points (95 % interval +6.4 to +11.8)`: an attack's share less its floor's; `at floor level` where 0 is in it."""
    value, low, high = (f"{100 * number:+.1f}" for number in difference)
    said = f"{value} points (95 % interval {low} to {high})"
    return said if difference.above_zero else f"at floor level, {said}"


def points(difference: Interval | None) -> str:
    """`+0.4 [-2.6, +3.4] at floor level`: the same as a cell of a table; empty where there is no floor."""
    if difference is None:
        return ""
    value, low, high = (f"{100 * number:+.1f}" for number in difference)
    return f"{value} [{low}, {high}]" + ("" if difference.above_zero else " at floor level")


def pictures(verb: str, name: str, *files: str) -> list[str]:
    """Those of a stage's pictures that are there, as seen from the report's folder."""
    paths = {f: drawing.picture_path(verb, name, Path(f).stem) for f in files}
    drawn = {f: path for f, path in paths.items() if path.exists()}
    return [
        line
        for f, path in drawn.items()
        for line in ("", f"![{verb} {name}: {Path(f).stem}](pictures/{path.name})")
    ]
