"""The door for programs: arrays in, arrays out, and docs/python.md and the docstrings are true."""

import doctest
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import pipelines
from pipelines.aligners import arrays, wasserstein_procrustes
from pipelines.aligners.core.translator import Linear, save
from pipelines.runtime.errors import BadInput
from tests.small import QUICK

ROOT = Path(__file__).parents[1]


def linear(seed: int) -> Linear:
    x = torch.randn(50, 6, generator=torch.Generator().manual_seed(seed))
    return Linear.of(torch.linalg.qr(x[:6])[0], x, x)


@pytest.fixture
def row(tmp_path):
    for seed in (0, 1):
        save(linear(seed), tmp_path / f"seed-{seed}")
    (tmp_path / "verdicts.json").write_text('{"0": {"score": 0.2}, "1": {"score": 0.9}}')
    return tmp_path


def test_load_takes_the_best_verdict_or_a_seed(row):
    x = np.random.default_rng(0).normal(size=(10, 6))
    same = torch.from_numpy(x).float()
    for translator, seed in ((pipelines.load(row), 1), (pipelines.load(str(row), seed=0), 0)):
        translated = translator(x)
        assert (type(translated), translated.dtype) == (np.ndarray, np.float32)
        assert (translated == linear(seed)(same).numpy()).all()
        assert torch.equal(translator(same), linear(seed)(same))


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda row: pipelines.load(row, seed=7), "there is no seed 7; there are: 0, 1"),
        (lambda row: pipelines.load(row / "none"), "no translators there"),
        (
            lambda row: pipelines.load(row)(np.zeros((3, 5))),
            r"vectors must be numbers \(n, 6\), got \(3, 5\) float64",
        ),
        (lambda row: pipelines.load(row)(np.zeros(6)), r"got \(6,\) float64"),
        (lambda row: pipelines.load(row)(np.full((3, 6), np.nan)), "row 0 is not finite"),
        (lambda row: pipelines.fit(np.zeros((3, 5)), np.zeros((3, 5))), "source: all 3 vectors are the same"),
        (lambda row: pipelines.fit(np.eye(5, dtype=int), np.eye(5)), "must be a floating point matrix"),
    ],
)
def test_bad_input_is_one_line(row, call, line):
    with pytest.raises(BadInput, match=line) as error:
        call(row)
    assert "\n" not in str(error.value)


def test_docstrings_are_true():
    failed, tried = doctest.testmod(arrays)
    assert tried > 10
    assert failed == 0


def test_the_page_is_true(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick = partial(wasserstein_procrustes.Settings, **QUICK["wasserstein_procrustes"] | {"clusters": 20})
    monkeypatch.setattr(wasserstein_procrustes, "Settings", quick)
    random = np.random.default_rng(0)
    topics = random.normal(size=(40, 64)) * np.linspace(2, 0.5, 64)
    texts = topics[random.integers(40, size=800)] + 0.5 * random.normal(size=(800, 64))
    names = {"source": texts[:400], "target": texts[400:] @ np.linalg.qr(random.normal(size=(64, 64)))[0]}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs/python.md").read_text(), re.S):
        exec(block, names)
    assert names["translated"].shape == (400, 64)


def test_stages_do_not_pay_for_it():
    code = "import sys, pipelines.study; print({'torch', 'pipelines.aligners.arrays'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "arrays" not in done.stdout
