"""Numbers in README and docs are those of the results that they name."""

import json
import re
from pathlib import Path

import pytest

from scripts import printed_numbers as numbers

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", numbers.pages(ROOT), ids=lambda page: page.name)
def test_numbers_of_a_page_are_those_of_their_results(page):
    assert numbers.differences(page, ROOT / numbers.NUMBERS) == []


def test_tables_of_numbers_in_the_readme_name_their_results_or_say_that_they_are_not_checked():
    text = (ROOT / "README.md").read_text("utf-8")
    for block in text.split("\n\n"):
        if block.startswith("|") and re.search(r"\d\.\d\d", block):
            before = text[: text.index(block)].rstrip()
            assert before.endswith("-->"), block


@pytest.fixture
def results(tmp_path):
    """Results of two rows, as the stages write them."""
    folder = tmp_path / "results" / "evaluate"
    for row, top1 in {"a": 0.91, "b/c": 0.5}.items():
        (folder / row).mkdir(parents=True)
        (folder / f"{row}.json").write_text(json.dumps({"top1": top1, "supervision": "oracle"}))
        seeds = f"seed,top1,top1_error\n1,{top1 - 0.01},0.2\n2,{top1 + 0.01},0.2\n"
        (folder / row / "seeds.csv").write_text(seeds)
    return tmp_path / "results"


def test_results_are_numbers_by_row_and_by_seed(results):
    found = numbers.collected(results)
    assert found["evaluate.b/c.top1"] == 0.5
    assert found["evaluate.a.seed-2.top1"] == pytest.approx(0.92)  # the seed, not its place
    assert found["evaluate.a.top1_spread"] == pytest.approx(0.0141421, abs=1e-6)
    assert all(isinstance(value, float) for value in found.values())


@pytest.mark.parametrize(
    ("block", "line"),
    [
        ("| a | .91 ± .01 |\n| c | .50 ± .01 |", ""),
        ("| a | .92 ± .01 |\n| c | .50 ± .01 |", "evaluate.a.top1: .92 is 0.91"),
        ("| a | .91 |", "4 names for 1 numbers"),
    ],
)
def test_a_number_that_differs_is_named(tmp_path, results, block, line):
    (tmp_path / "s.json").write_text(json.dumps(numbers.collected(results)))
    page = tmp_path / "page.md"
    page.write_text(f"<!-- numbers s: evaluate.{{a,b/c}}.{{top1,top1_spread}} -->\n\n{block}\n\n7.5 of all\n")
    found = "\n".join(numbers.differences(page, tmp_path))
    assert (line in found) if line else not found
