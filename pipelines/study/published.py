"""Rows of published: the papers' numbers, which the report shows beside ours."""

from __future__ import annotations

from typing import Annotated

from pipelines.runtime.settings import Finite
from pipelines.study.row import Row, Study, known, matching


class Published(Row):
    """A number that a paper reports. It is shown only."""

    what: str  # measure, model, data: as a reader needs it
    value: Finite  # the published number
    by: str  # paper and table
    comparable: bool = True  # false: of other data or encoders than ours; shown apart
    # Our number beside it: `verb.row.measure`
    of: Annotated[str, matching(r"\w+(\.[\w@-]+){2,}", "is not `verb.row.measure`")] | None = None

    def check(self, study: Study) -> None:
        """Raise ValueError if `of` names a verb or a row that is missing."""
        if self.of:
            verb, row, *_ = self.of.split(".")
            known(".of", verb, study.table_by_verb(), "verb")
            known(".of", row, study.table(study.table_by_verb()[verb]))
