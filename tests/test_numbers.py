"""Numbers in README and docs are those of the results that they name."""

import json
import re
from pathlib import Path

import pytest

from scripts import printed_numbers as numbers
from tests.small import ROOT, put


@pytest.mark.parametrize("page", numbers.pages(ROOT), ids=lambda page: page.name)
def test_numbers_of_a_page_are_those_of_their_results(page):
    assert numbers.differences(page, ROOT / numbers.NUMBERS) == []


def test_tables_in_the_readme_name_their_results():
    text = (ROOT / "README.md").read_text("utf-8")
    blocks = [block for block in text.split("\n\n") if block.startswith("|") and re.search(r"\.\d\d", block)]
    assert len(blocks) > 1
    for block in blocks:
        assert text[: text.index(block)].rstrip().endswith("-->"), block


SEVERAL = "evaluate.{a,b/c}.{top1,top1_spread}"


@pytest.mark.parametrize(
    ("names", "block", "line"),
    [
        (SEVERAL, "| a | .91 ± .01 |\n| c | .50 ± .01 |", ""),
        (SEVERAL, "| a | .92 ± .01 |\n| c | .50 ± .01 |", "evaluate.a.top1: .92 is 0.91"),
        (SEVERAL, "| a | .91 |", "4 names for 1 numbers"),
        ("evaluate.a.seed-2.top1", "| a | .92 |", ""),  # the seed, not its place
        ("evaluate.a.top1 t: evaluate.a.top1", "| a | .91 | .71 |", ""),
        ("evaluate.a.top1 t: evaluate.a.top1", "| a | .91 | .91 |", "t evaluate.a.top1: .91 is 0.71"),
        ("evaluate.a.top1 u: evaluate.a.top1", "| a | .91 | .91 |", "there is no u.json"),
        ("evaluate.a.top1_spread", "| a | .014142 |", ""),
        ("evaluate.a.top1", "| a | .91 |\n\n<!-- numbers s evaluate.a.top1 -->\n\n.92", "1 comments are not"),
    ],
)
def test_a_number_that_differs_from_the_results_is_named(own_folder, names, block, line):
    folder = Path("results/evaluate")
    for row, top1 in {"a": 0.91, "b/c": 0.5}.items():
        put(folder / f"{row}.json", json.dumps({"top1": top1, "supervision": "oracle"}))
        put(folder / row / "seeds.csv", f"seed,top1,top1_error\n1,{top1 - 0.01},0.2\n2,{top1 + 0.01},0.2\n")
    put("s.json", json.dumps(numbers.collected(Path("results"))))
    put("t.json", json.dumps({"evaluate.a.top1": 0.71}))
    put("page.md", f"<!-- numbers s: {names} -->\n\n{block}\n\n7.5 of all\n")
    found = "\n".join(numbers.differences(Path("page.md"), Path()))
    assert (line in found) if line else not found
