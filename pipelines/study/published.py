"""Rows of published: the papers' own numbers, for the report to show beside ours."""

from __future__ import annotations

from pydantic import Field

from pipelines.study.row import Row


class Published(Row):
    """A number that a paper reports. It is shown, and never computed with."""

    what: str  # measure, model, data: as a reader needs it
    value: float
    by: str  # paper and table
    of: str | None = Field(None, pattern=r"^\w+(\.[\w@-]+){2,}$")  # `verb.row.measure`: the number of ours to show beside it
