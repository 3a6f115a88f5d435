"""docs/reference.md is what scripts/reference.py writes."""

import re
from dataclasses import dataclass

from pipelines.study import params
from scripts import reference
from tests.small import ROOT


def test_the_reference_is_current_and_complete():
    made = reference.page()
    assert (ROOT / "docs/reference.md").read_text(encoding="utf-8") == made + "\n", (
        "run `python -m scripts.reference > docs/reference.md`"
    )
    without = dataclass(type("Settings", (), {"__module__": __name__}))
    assert reference.section("x", without) == "\n## x\n\n\n\n| key | type | default | |\n|---|---|---|---|"
    assert not [line for line in made.splitlines() if line.endswith("|  |")]
    assert all(re.search(rf"\n## {table}(:|\n)", made) for table in params.Study.table_by_verb().values())
