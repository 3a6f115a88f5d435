"""The examples run as they stand."""

import json
import re
import runpy

import pytest
import torch

from pipelines.tool import __main__ as command
from pipelines.tool import encoders
from tests.small import ROOT
from tests.test_tool import fit_quickly

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


def test_the_move_ends_if_nothing_is_moved(own_folder, monkeypatch):
    monkeypatch.setattr(encoders, "texts_of", lambda _: ["text"] * 4000)
    monkeypatch.setattr(encoders, "opened", lambda *_: lambda texts: torch.zeros(len(texts), 4))
    monkeypatch.setattr(command, "main", lambda _: 3)
    with pytest.raises(SystemExit, match="3"):
        runpy.run_path(str(EXAMPLES / "move_an_index.py"))["main"]()


@pytest.mark.slow
def test_an_index_is_moved(own_folder, capsys, monkeypatch):
    fit_quickly(monkeypatch)
    runpy.run_path(str(EXAMPLES / "move_an_index.py"))["main"]()
    said = capsys.readouterr().out
    assert "procrustes: " in said
    assert said.count("found: ") == 3
