"""The verdict: right fits agree, wrong fits do not, and its constants fit the recorded runs."""

import sys

import numpy as np
import polars as pl
import pytest
import torch
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import paired_distances

from benchmarks import few
from benchmarks import verdict as calibration
from pipelines.aligners.core import verdict
from pipelines.aligners.core.parts import Parts, judge_parts
from pipelines.aligners.core.translator import Linear
from pipelines.aligners.core.verdict import FEW, MIDDLE, RIGHT, agreement, dimensions, judge, verdict_of
from tests.small import ROOT, normal, put, refusal, rotation, seeded
from tests.test_aligners import clouds, wasserstein


def turn(d, e, seed):
    return rotation(max(d, e), d, seeded(seed)).T[:, :e]


def linear(W):
    x = normal(50, len(W), seed=9)
    return Linear.of(W, x, x @ W)


def test_agreement_is_the_cosine_beside_the_leading_directions():
    source = normal(400, 50) * torch.linspace(3, 1, 50)
    one, other = linear(turn(50, 60, 1)), linear(turn(50, 60, 1) + 0.5 * turn(50, 60, 2))
    a, b = (translator(source).double().numpy() for translator in (one, other))
    a, b = (cloud / np.linalg.norm(cloud, axis=1, keepdims=True) for cloud in (a - a.mean(0), b - b.mean(0)))
    fine = np.linalg.svd(a)[2][FEW:].T
    expected = 1 - paired_distances(a @ fine, b @ fine, metric="cosine").mean()
    assert agreement(source, one(source), [other]) == pytest.approx(expected, abs=1e-5)
    assert agreement(source, one(source), [other, one]) == pytest.approx(1, abs=1e-5)


def test_sharing_the_leading_directions_is_no_agreement():
    source = normal(2000, 60)
    source[:, :10] *= 5
    shared = turn(10, 60, 1)
    one, other = (linear(torch.cat([shared, turn(60, 60, seed)[10:]])) for seed in (2, 3))
    assert torch.cosine_similarity(one(source), other(source)).mean() > 0.6
    assert abs(agreement(source, one(source), [other])) < 0.1


def test_fits_of_one_geometry_agree_and_fits_of_none_do_not(monkeypatch):
    monkeypatch.setattr(verdict, "FEW", 3)  # these clouds have few dimensions
    source, target, _ = clouds(8, 10, n=1200)
    verdicts = []
    for there in (target, normal(1200, 10, seed=4)):
        first, second = (wasserstein(source[i::2], there[i::2], i) for i in (0, 1))
        verdicts.append(judge(source, first, there, [second]))
    right, wrong = verdicts
    assert (right.label, wrong.label) == ("aligned", "failed")
    assert 0 <= wrong.score < 0.05 < 0.95 <= right.score <= 1


def test_of_more_vectors_a_sample_is_judged_and_of_fewer_all(monkeypatch):
    source = normal(4000, 40)
    one, other = linear(turn(40, 30, 1)), linear(turn(40, 30, 1) + 0.2 * turn(40, 30, 2))
    whole, judged = agreement(source, one(source), [other]), (source, one, one(source), [other])
    assert judge(*judged).agreement == whole
    monkeypatch.setattr(verdict, "SAMPLE", 2000)
    sampled = judge(*judged)
    assert sampled.agreement == pytest.approx(whole, abs=0.01)
    assert sampled.agreement != whole
    assert sampled == judge(*judged)


def test_a_translator_into_another_width_is_refused():
    x, y = normal(50, 6), normal(50, 8)
    with refusal("Linear: translations have 6 dimensions, target vectors 8"):
        judge(x, Linear.of(torch.eye(6), x, x), y, [])


def test_dimensions_are_those_that_vectors_spread_over():
    cloud = normal(4000, 30)
    assert dimensions(cloud) == pytest.approx(30, rel=0.03)
    assert dimensions(5 * cloud + 7) == pytest.approx(dimensions(cloud), rel=1e-3)
    for one in (0.1, 0.3, 0.7, torch.randn(64)):
        assert dimensions(torch.zeros(1000, 64) + one) == 0
    assert dimensions(cloud[:, :6] @ turn(6, 30, 0)) == pytest.approx(6, rel=0.03)
    assert dimensions(torch.ones(5, 30)) == 0


def test_a_verdict_of_few_dimensions_says_so():
    why = "the translations have 8 effective dimensions; below 20 wrong maps agree, too"
    assert str(verdict_of(0.98, 8)) == f"doubtful (agreement 0.98); {why}"
    assert "to try: more texts" in str(verdict_of(0.02, 8))


@pytest.mark.parametrize(
    ("agreed", "width", "share", "label", "told"),
    [
        (0.7, 100, 0.9, "aligned", 0.9),
        (0.7, 100, 0.8, "partial", 0.8),  # right for less than nearly the whole source
        (0.7, 100, 0.0, "doubtful", 0.0),
        (MIDDLE, 100, 1.0, "doubtful", 0.0),
        (0.7, FEW + 1, 1.0, "aligned", 1.0),
        (0.7, FEW - 1, 1.0, "doubtful", 0.0),  # in few dimensions agreement is no proof
        (0.0, FEW - 1, 1.0, "failed", 0.0),
    ],
)
def test_labels_by_agreement_dimensions_and_share(agreed, width, share, label, told):
    said = verdict_of(agreed, width, share)
    assert (said.label, said.share) == (label, told)


def test_more_agreement_is_never_a_worse_label():
    assert verdict_of(MIDDLE, 100).score == 0.5
    words = [verdict_of(a / 100, 100).label for a in range(-100, 101)]
    assert list(dict.fromkeys(words)) == ["failed", "doubtful", "aligned"]


@pytest.mark.parametrize("point", [torch.full((40,), 0.1), normal(40)])
def test_maps_to_a_single_point_do_not_agree(point):
    cloud = normal(500, 40)
    said = judge(cloud, point.expand_as, cloud, [point.expand_as])
    assert (said.label, said.agreement) == ("failed", 0)


def test_of_a_mixture_the_share_and_its_rows_are_told():
    generator, spread = seeded(), torch.linspace(2, 0.2, 64)
    topics = torch.randn(60, 64, generator=generator) * spread
    topic = torch.randint(60, (4000,), generator=generator)
    texts = topics[topic] + 0.7 * torch.randn(4000, 64, generator=generator) * spread
    map = linear(turn(64, 64, 1))
    target, pure = map(texts[:2000]), texts[2000:]
    own = topic[2000:] < 40  # the target has texts of all topics, the dump of two thirds of them
    mixed = pure.clone()
    mixed[~own] = pure[~own] @ turn(64, 64, 2)  # another encoder
    for dump, right in ((pure, own | ~own), (pure[own], own[own]), (mixed, own)):
        assert (judge_parts(dump, map, target).rows(dump) == right).double().mean() > 0.97
    said = judge(mixed, map, target, [map])
    assert (said.label, said.share) == ("partial", pytest.approx(2 / 3, abs=0.05))
    assert judge(pure, map, target, [map]).label == "aligned"
    with refusal(r"vectors must be \(n, 64\), got \(9, 65\)"):
        judge_parts(pure, map, target).rows(torch.zeros(9, 65))
    backwards, big = dump.numpy()[::-1], dump.numpy().astype(">f4")
    rows = judge_parts(dump, map, target).rows
    assert (rows(backwards).flip(0) == rows(dump)).all()
    assert (rows(big) == rows(dump)).all()


def test_rows_that_a_fit_leaves_out_are_not_aligned(tmp_path):
    cloud = normal(1000, 40) * torch.linspace(2, 0.2, 40) + 1
    judge_parts(cloud, map := linear(turn(40, 40, 1)), map(cloud)).save(tmp_path / "parts")
    rows = Parts.load(tmp_path / "parts").rows
    faulty = torch.stack([0 * cloud[0], 1e4 * cloud[1], 1e30 * cloud[2]])
    assert rows(torch.cat([cloud, faulty])).tolist() == [True] * 1000 + [False] * 3


def test_a_part_on_which_two_fits_differ_is_not_aligned():
    source = normal(2000, 64) * torch.linspace(2, 0.2, 64)
    source[:, 0] += 8 * source[:, 0].sign()
    map = linear(turn(64, 64, 1))

    def other(vectors):
        there = map(vectors)
        return torch.where(vectors[:, :1] > 0, there, there.roll(1, 0))

    rows = judge_parts(source, map, map(source), [other]).rows(source)
    assert (rows == (source[:, 0] > 0)).double().mean() > 0.97
    assert judge_parts(source, map, map(source), [other, map]).rows(source).double().mean() > 0.97


def test_in_a_round_target_no_row_is_strange():
    cloud = normal(1000, 40)
    assert judge_parts(cloud, linear(turn(40, 40, 1)), cloud).aligned.all()


def test_the_constants_tell_the_recorded_runs_apart():
    runs = pl.read_csv(ROOT / "benchmarks" / "verdict.csv")
    assert len(runs) >= 250
    succeeded = (runs["foscttm"] <= RIGHT).to_numpy()
    found = runs["agreement"].to_numpy()
    assert roc_auc_score(succeeded, found) >= 0.97
    called = np.array([verdict_of(a, 100).label == "aligned" for a in found])
    assert (called & ~succeeded).sum() <= 0.01 * called.sum()
    assert (called & succeeded).sum() >= 0.7 * succeeded.sum()


def test_the_labels_of_all_studies_stand_in_the_log():
    page = (ROOT / "docs" / "experiments" / "verdict.md").read_text()
    *table, splits, bound = calibration.counted(sorted((ROOT / "docs" / "numbers").glob("*.json")))
    assert "\n".join(table) in page
    assert f"{splits} {bound}" in " ".join(page.split())


@pytest.mark.parametrize(
    ("program", "words"),
    [(few, "a b"), (calibration, "fit no.csv"), (calibration, "count no.json")],
)
def test_a_benchmark_of_files_that_are_not_there_is_one_line(program, words, own_folder, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["program", *words.split()])
    with pytest.raises(SystemExit, match=r"^.*[Nn]o such file.*$"):
        program.main()


@pytest.mark.parametrize("words", ["fit a.md", "count a.md", "count a.json"])
def test_the_benchmark_of_the_verdict_names_a_file_that_it_cannot_read(words, own_folder, monkeypatch):
    put("a.md", "# a page, of\nmore, commas\n")
    put("a.json", "{}")  # of a study that is not there
    monkeypatch.setattr(sys, "argv", ["program", *words.split()])
    with pytest.raises(SystemExit, match=r"^a\.(md|json): .+$"):
        calibration.main()
