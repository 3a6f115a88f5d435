"""docs/paper.md: each table and figure of the papers has one of three states, and the rows it names exist."""

import re
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from pipelines.study.expand import expand
from pipelines.study.reading import read

ROOT = Path(__file__).parents[1]
STATES = ("ran here", "GPU", "not possible")


@cache
def rows(study: str) -> list[str]:
    """Return `<table>.<row>` of all rows of a study."""
    tables = expand(read(ROOT / f"studies/{study}.yaml"))
    return [f"{table}.{row}" for table, rows in tables.items() if isinstance(rows, dict) for row in rows]


def wrong(page: str) -> Iterator[str]:
    """Yield what is wrong with the lines of the table."""
    table = page.partition("| table or figure | state | rows |")[2].partition("\n\n")[0]
    for line in table.splitlines()[2:]:
        what, state, named, result = [cell.strip() for cell in line.split("|")[1:-1]]
        if state not in STATES:
            yield f"{what}: state {state!r}"
        if state == "GPU" and not named:
            yield f"{what}: no row"
        if not result:
            yield f"{what}: neither result nor cost nor reason"
        for study, pattern in re.findall(r"`(\S+): (\S+)`", named):
            if not any(fnmatch(row, pattern) for row in rows(study)):
                yield f"{what}: study {study} has no row {pattern}"


def test_every_table_of_the_papers_has_a_state_and_its_rows_exist():
    page = (ROOT / "docs/paper.md").read_text("utf-8")
    assert page.count("| ran here |") > 20
    assert not list(wrong(page))


def test_a_line_with_another_state_or_an_unknown_row_is_named():
    head = "| table or figure | state | rows | result |\n|---|---|---|---|\n"
    lines = ["| a | soon | | x |", "| b | GPU | `smoke: align.nothing` | x |", "| c | GPU | | 1 hour |"]
    found = list(wrong(head + "\n".join(lines) + "\n\n"))
    assert found == ["a: state 'soon'", "b: study smoke has no row align.nothing", "c: no row"]
