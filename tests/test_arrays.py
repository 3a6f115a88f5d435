"""fit, load and verdict from Python: arrays in, arrays out; docs/python.md and the docstrings are true."""

import doctest
import json
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import pipelines
from pipelines.aligners import wasserstein_procrustes
from pipelines.aligners.core.translator import Linear, load, load_aligned, save, verdicts_in
from pipelines.aligners.core.verdict import Verdict, part_for_replicate
from pipelines.fitting import arrays, fits
from pipelines.runtime import progress
from tests.small import QUICK, blocks, normal, put, refusal, rotation, seeded, two_encoders

EYE = np.eye(9)


def linear(seed):
    x = normal(50, 6, seed=seed)
    return Linear.of(torch.linalg.qr(x[:6])[0], x, x)


@pytest.fixture
def row(tmp_path):
    for seed in (0, 1):
        save(linear(seed), tmp_path / f"seed-{seed}")
    put(tmp_path / "verdicts.json", '{"0": {"score": 0.2}, "1": {"score": 0.9}}')
    return tmp_path


def test_load_takes_the_best_verdict_or_a_seed(row):
    x = np.random.default_rng(0).normal(size=(10, 6))
    same = torch.from_numpy(x).float()
    for translator, seed in ((pipelines.load(row), 1), (pipelines.load(str(row), seed=0), 0)):
        translated = translator(x)
        assert (type(translated), translated.dtype) == (np.ndarray, np.float32)
        assert torch.equal(translator(same), linear(seed)(same))
        assert (translated == translator(same).numpy()).all()


def test_a_name_with_a_dot_is_a_translator_of_its_own(tmp_path):
    for version in (1, 2):
        save(linear(version), tmp_path / f"minilm.v{version}")
    x = torch.ones(1, 6)
    for version in (1, 2):
        assert torch.equal(load(tmp_path / f"minilm.v{version}")(x), linear(version)(x))


def test_load_reads_one_seed_alone(row):
    x = torch.ones(1, 6)
    (row / "seed-0.safetensors").unlink()
    for seed in (None, 1):
        assert torch.equal(pipelines.load(row, seed)(x), linear(1)(x))
    put(row / "verdicts.json", '{"1": {"label": "aligned"}}')
    assert [torch.equal(translator(x), linear(1)(x)) for translator in load_aligned(row)] == [True]
    with refusal("seed-0"):
        pipelines.load(row, seed=0)


def fit(**how):
    return lambda row: pipelines.fit(EYE, EYE, **how)


def judged(method):
    return lambda row: pipelines.verdict(lambda x, y, seed: method, EYE, EYE[:, :7])


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda row: pipelines.load(row, seed=7), "there is no seed 7; there are: 0, 1"),
        (lambda row: pipelines.load(row / "none"), "no translators there"),
        (
            lambda row: pipelines.load(row)(EYE[:3, :5]),
            r"vectors must be numbers \(n, 6\), got \(3, 5\) float64",
        ),
        (lambda row: pipelines.load(row)(torch.zeros(2, 3, 6)), r"\(2, 3, 6\)"),
        (fit(pairs=(EYE[:3], EYE[:2])), "fit: pairs of 3 and 2 vectors: each needs a partner"),
        (
            fit(pairs=np.eye(2)),
            r"fit: pairs: two arrays of vectors are needed, \(k, d\) and \(k, e\), one row for each text",
        ),
        (fit(pairs=3), "fit: pairs: two arrays of vectors are needed"),
        (fit(restart=3), "restart: unknown key; did you mean 'restarts'"),
        (fit(seed=-1), "seeds.0: -1 must be at least 0"),
        (judged(lambda v: v), r"verdict: what fit returned gives \(\d, 9\), and \(\d, 7\) is needed"),
        (judged(lambda v: [[1.0], [2.0, 3.0]]), "verdict: what fit returned gives: no array of numbers"),
        (judged(None), "verdict: fit must return a function of vectors, got NoneType"),
        (judged(lambda v: v[:, :7] * np.nan), "verdict: what fit returned gives vectors that are not finite"),
    ],
)
def test_bad_input_is_one_line(row, call, line):
    with refusal(line):
        call(row)


CLEAN = normal(300, 60)
FAULTY = {"zero": torch.zeros(1, 60), "repeated": CLEAN[:1].repeat(120, 1), "far off": 1e4 * CLEAN[1:2]}


@pytest.mark.parametrize("faulty", FAULTY.values(), ids=FAULTY)
def test_faulty_rows_are_left_out_of_a_fit_and_of_its_verdict(monkeypatch, caplog, faulty):
    fit = Mock(side_effect=lambda source, target, *_: Linear.of(torch.eye(60), source, target))
    monkeypatch.setattr(wasserstein_procrustes, "fit", fit)
    monkeypatch.setattr(fits, "judge", judge := Mock(return_value=Verdict(0.99, "aligned", 0.9, 100)))
    given = torch.cat([CLEAN, faulty])
    pipelines.fit(given, given)
    fitted = max((call.args[:2] for call in fit.call_args_list), key=lambda of_call: len(of_call[0]))
    for side in (*fitted, judge.call_args.args[0], judge.call_args.args[2]):
        assert torch.equal(side, CLEAN.float())
    said = f"%s: {len(faulty)} of {len(given)} vectors are left out of the fit: zero, repeated or far off"
    assert caplog.messages == [said % side for side in ("source", "target")]


def test_known_pairs_reach_the_aligner_as_rows_of_one_text_and_the_replicate_has_others(monkeypatch):
    known, seen = (normal(7, 60, seed=2), normal(7, 50, seed=3)), []

    def fit(source, target, settings, seed, pairs, *_):
        i, j = pairs.T
        seen.append((source[i], target[j]))
        return Linear.of(torch.eye(60, 50), source, target)

    monkeypatch.setattr(wasserstein_procrustes, "fit", fit)
    sides = normal(300, 60), normal(200, 50)
    pipelines.fit(*sides, pairs=known, restarts=0)
    wanted = [[side[first::2] for side in known] for first in (0, 1)]
    assert sorted(len(x) for x, _ in seen) == [3, 4]
    for given in seen:
        assert any(all(map(torch.equal, given, both)) for both in wanted if len(both[0]) == len(given[0]))
    with refusal("pairs of 50 dimensions; the other vectors have 60"):
        pipelines.fit(*sides, pairs=known[::-1])


def test_wrong_known_pairs_do_not_make_a_wrong_map_aligned():
    texts, turned = two_encoders()
    quick = QUICK["wasserstein_procrustes"] | {"restarts": 0}
    given = texts[:400], turned[400:800]
    right, wrong = ((texts[800:1000], turned[800 + off : 1000 + off]) for off in (0, 1))
    agreed = [pipelines.fit(*given, pairs=pairs, **quick)[1].agreement for pairs in (right, wrong)]
    assert agreed[0] > 0.5
    assert agreed[1] < 0.05


def test_integers_are_vectors_too():
    texts, turned = two_encoders()
    small, quick = (texts[:400] * 20).astype(np.int8), QUICK["wasserstein_procrustes"] | {"restarts": 0}
    by_int, by_float = (pipelines.fit(x, turned[400:800], **quick)[0] for x in (small, small.astype(float)))
    assert (by_int(small) == by_float(small)).all()
    by_tensor = pipelines.fit(torch.from_numpy(small), turned[400:800], **quick)[0]
    assert (by_tensor(small) == by_int(small)).all()


def test_aligned_counts_before_share_and_share_before_score(tmp_path):
    rows = {0: ("aligned", 0.9, 0.96), 1: ("partial", 0.8, 1.0), 2: ("partial", 0.5, 1.0)}
    given = {seed: dict(zip(("label", "share", "score"), row, strict=True)) for seed, row in rows.items()}
    for seed in (2, 1, 0):
        put(tmp_path / f"seed-{seed}.json", "")
    assert list(verdicts_in(tmp_path)) == [0, 1, 2]  # without verdicts the first seed is the best
    for seeds in ((0, 1, 2), (1, 2)):
        put(tmp_path / "verdicts.json", json.dumps({seed: given[seed] for seed in seeds}))
        assert list(verdicts_in(tmp_path).items())[: len(seeds)] == [(seed, given[seed]) for seed in seeds]


def test_fit_refits_a_partial_map_and_keeps_the_better_verdict(monkeypatch):
    x = normal(400, 60)
    right = Linear.of(torch.eye(60), x, x)
    part = Verdict(0.9999, "partial", 0.6, 100, 0.6)
    whole = Verdict(0.99, "aligned", 0.5, 100)
    monkeypatch.setattr(wasserstein_procrustes, "fit", lambda *_: right)
    for verdicts, label, judged in (((part, whole, part), "aligned", 3), ((part,) * 9, "partial", 6)):
        judge = Mock(side_effect=verdicts)
        monkeypatch.setattr(fits, "judge", judge)
        assert pipelines.fit(x, x)[1].label == label
        assert judge.call_count == judged


def test_a_failed_fit_says_what_to_try(monkeypatch):
    x, guess, seeds = normal(400, 60), seeded(1), set()

    def wrong_replicates(source, target, settings, seed, *_):
        whole = len(source) == len(x)
        seeds.add(None if whole else seed)
        return Linear.of(torch.eye(60) if whole else rotation(60, 60, guess), source, target)

    monkeypatch.setattr(wasserstein_procrustes, "fit", wrong_replicates)
    said = str(pipelines.fit(x, x, restarts=1)[1])
    assert len(seeds - {None}) == 2
    assert said.startswith("failed (agreement ")
    places = [said.index(word) for word in ("texts", "pairs", "restarts", "match_in")]
    assert places == sorted(places)


@pytest.mark.parametrize(("rows", "share"), [((9000, 8000), 1 / 2), ((9000, 7999), 3 / 4)])
def test_each_replicate_leaves_out_other_texts_and_fewer_of_few(rows, share):
    sides = [torch.arange(n)[:, None].float() for n in rows]
    drawn = [part_for_replicate(sides, number) for number in range(4)]
    for side, *seen in zip(sides, *drawn, strict=True):
        assert all(abs(len(texts) / len(side) - share) < 0.001 for texts in seen)
        assert len(torch.cat(seen).unique()) == len(side)  # a text that one leaves out is in another


def test_progress_names_the_fit(capsys, monkeypatch):
    monkeypatch.setattr(progress, "SECONDS", 0.0)
    x = np.random.default_rng(0).normal(size=(240, 6))
    pipelines.fit(x, x, restarts=1, **QUICK["wasserstein_procrustes"] | {"refinements": 4})
    said = {line.partition(": w")[0] for line in capsys.readouterr().err.splitlines()}
    assert said == {"seed 0" + of for of in ("", ", replicate", ", restart 1", ", replicate, restart 1")}


def test_docstrings_are_true():
    failed, tried = doctest.testmod(arrays)
    assert tried > 10
    assert failed == 0


def test_the_page_is_true(own_folder, monkeypatch):
    for name in ("fit", "fit_parts"):
        quick = partial(getattr(arrays, name), restarts=0, **QUICK["wasserstein_procrustes"])
        monkeypatch.setattr(arrays, name, quick)
    texts, turned = two_encoders()
    names = {"source": texts[:400], "target": turned[400:800]}
    names["partners"] = names["target"][:50]
    for block in blocks("docs/python.md", "python"):
        exec(block, names)
    assert names["translated"].shape == (400, 64)
