"""How far a loop is, as a log shows it: whole lines, and of a short loop none."""

import re

import pytest
import torch

from pipelines.aligners import mini_vec2vec, network, vec2vec, wasserstein_procrustes
from pipelines.runtime import progress as module
from pipelines.runtime.progress import progress


def test_a_short_loop_says_nothing_and_a_long_one_lines_without_carriage_returns(capsys, monkeypatch):
    assert list(progress(range(3), what="count", unit="steps")) == [0, 1, 2]
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(module, "SECONDS", 0.0)
    assert list(progress(range(3), what="count", unit="steps")) == [0, 1, 2]
    with progress(what="write", unit="texts", total=8) as bar:
        bar.update(5)
    assert list(progress(iter("ab"), what="read")) == ["a", "b"]
    out, err = capsys.readouterr()
    assert (out, "\r" in err) == ("", False)
    said = [line.partition(",")[0] for line in err.splitlines()]
    assert {"count: 2 of 3 steps", "write: 5 of 8 texts", "read: 1"} <= set(said)


FITS = {
    "network": lambda x, y: network.fit_oracle(x, y, network.Settings(width=8, steps=2), 0),
    "mini_vec2vec": lambda x, y: mini_vec2vec.fit(
        x,
        y,
        mini_vec2vec.Settings(clusters=4, repeats=2, assignment_restarts=2, neighbours=5, refine_steps=2),
        0,
    ),
    "wasserstein_procrustes": lambda x, y: wasserstein_procrustes.fit(
        x,
        y,
        wasserstein_procrustes.Settings(
            clusters=4, repeats=2, assignment_restarts=2, rounds=(40, 40), refinements=2, passes=1
        ),
        0,
    ),
    "vec2vec": lambda x, y: vec2vec.fit(
        x,
        y,
        vec2vec.Settings(
            width=8, disc_width=8, batch=32, steps=2, starts=(2, 1), start_axes=(4, 4), start_steps=1
        ),
        0,
    ),
}


@pytest.mark.parametrize("aligner", FITS)
def test_an_aligner_says_what_it_does_how_much_of_it_is_done_and_how_long_the_rest_takes(
    aligner, capsys, monkeypatch
):
    monkeypatch.setattr(module, "SECONDS", 0.0)
    FITS[aligner](*torch.randn(2, 120, 6, generator=torch.Generator().manual_seed(0)))
    lines = capsys.readouterr().err.splitlines()
    phases = {line.partition(":")[2].partition(":")[0] for line in lines}
    assert len(phases) == (1 if aligner == "network" else 3)
    form = rf"{aligner}: [^:]+: \d+ of \d+ (steps|maps|repeats|starts), [\d:?]+ left"
    assert not [line for line in lines if not re.fullmatch(form, line)]
