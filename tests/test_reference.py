"""docs/reference.md is what scripts/reference.py writes, and the report links to the glossary."""

import re
from dataclasses import dataclass
from pathlib import Path

from pipelines.pages import page
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
    assert all(re.search(rf"\n## {table}(:|\n)", made) for table in params.Study.tables().values())


def test_a_column_s_title_links_to_its_definition(monkeypatch):
    monkeypatch.chdir(ROOT)
    for folder, up in (("report", ".."), ("report/audit", "../..")):
        html = page.rendered("t", "| FOSCTTM | nothing |\n|---|---|\n| 0 | 1 |\n", Path(folder))
        link = f"<th><a href='{up}/docs/glossary.md#foscttm'>FOSCTTM</a></th><th>nothing</th>"
        assert link in html.replace("\n", "")
