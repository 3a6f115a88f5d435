"""How far a loop is, as a log shows it: whole lines, and of a short loop none."""

import re

import pytest

from pipelines.runtime import progress
from tests.small import normal, quick_fit


def test_a_short_loop_says_nothing_and_a_long_one_lines(capsys, monkeypatch):
    def counted():
        return list(progress.progress(range(3), what="count", unit="steps"))

    assert counted() == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    assert counted() == [0, 1, 2]
    with progress.progress(what="write", unit="texts", total=8) as bar:
        bar.update(5)
    assert list(progress.progress(iter("ab"), what="read")) == ["a", "b"]
    out, err = capsys.readouterr()
    assert (out, "\r" in err) == ("", False)
    said = [line.partition(",")[0] for line in err.splitlines()]
    assert {"count: 2 of 3 steps", "write: 5 of 8 texts", "read: 1"} <= set(said)


LONGER = {  # so that every phase has its line
    "network": {},
    "mini_vec2vec": {},
    "rosetta": {},
    "wasserstein_procrustes": {"refinements": 2, "rotations": 1},
    "vec2vec": {"starts": (2, 1), "start_axes": (4, 4), "start_steps": 1},
}


@pytest.mark.parametrize("aligner", LONGER)
def test_an_aligner_reports_its_progress(aligner, capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    quick_fit(aligner, *normal(2, 120, 6), **LONGER[aligner])
    lines = capsys.readouterr().err.splitlines()
    phases = {line.partition(":")[2].partition(":")[0] for line in lines}
    assert len(phases) == {"network": 1, "rosetta": 2, "wasserstein_procrustes": 4}.get(aligner, 3)
    form = rf"{aligner}: [^:]+: \d+ of \d+ (steps|maps|repeats|starts), [\d:?]+ left"
    assert not [line for line in lines if not re.fullmatch(form, line)]
