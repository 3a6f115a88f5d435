"""The examples run as they stand."""

import json
import re
import runpy

import pytest

from tests.small import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.slow
def test_two_arrays_are_aligned(capsys):
    runpy.run_path(str(EXAMPLES / "align_two_arrays.py"), run_name="__main__")
    assert float(re.search(r"top-1 of 500: ([\d.]+)", capsys.readouterr().out)[1]) > 0.05


@pytest.mark.slow
def test_a_dump_is_audited(own_folder, capsys):
    runpy.run_path(str(EXAMPLES / "audit_a_dump.py"), run_name="__main__")
    assert "exit code 3; pages: .html, .json, .md" in capsys.readouterr().out


@pytest.mark.slow
def test_every_cell_of_the_tour_runs():
    names = {}
    for cell in json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert names["top1"] > 0.05
