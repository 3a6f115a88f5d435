"""The translation measures against their definitions, written out in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from pipelines.aligners.core.translator import Identity
from pipelines.measures import mean_and_error, translation
from pipelines.measures.translation import paired_scores, ranks, translated_scores
from tests.small import normal


def naive_rank(a, b, i):
    """1 + the number of targets nearer than the true one, counting a tie as half."""
    cosine = [float((a[i] / a[i].norm()) @ (y / y.norm())) for y in b]
    return rankdata([-c for c in cosine])[i]


def test_scores_are_their_definitions_and_ties_no_match():
    assert ranks(torch.ones(10, 4), torch.ones(10, 4)).tolist() == [5.5] * 10
    same = normal(1025, 384).float()
    same[512:] = same[-1]  # the products of equal columns can differ by rounding
    found = ranks(torch.nn.functional.normalize(same), torch.nn.functional.normalize(same))
    assert set(found[512:].tolist()) == {257.0}
    x, y = normal(23, 5).double(), normal(23, 5, seed=1).double()
    scores = paired_scores(x, y)
    cx, cy = x - x.mean(0), y - y.mean(0)
    for i in range(23):
        rank = naive_rank(cx, cy, i)
        assert scores["mean_rank"][i] == rank
        assert scores["foscttm"][i] == pytest.approx((rank - 1) / 22)
        assert scores["top1"][i] == (rank <= 1)
        assert scores["top10"][i] == (rank <= 10)
        published = naive_rank(y, x, i)  # a real vector ranks the translated ones, by raw cosine
        assert scores["raw_mean_rank"][i] == published
        assert scores["raw_top1"][i] == (published <= 1)
        for name, a, b in (("cosine", x[i], y[i]), ("centred_cosine", cx[i], cy[i])):
            assert scores[name][i] == pytest.approx(float(a @ b / a.norm() / b.norm()))


@pytest.mark.parametrize("kinds", [(torch.half, torch.float), (torch.float, torch.half), (torch.half,) * 2])
def test_vectors_of_16_bits_are_compared_in_float32(kinds):
    x, y = (normal(50, 6, seed=seed).to(kind) for seed, kind in enumerate(kinds))
    found, wide = paired_scores(x, y), paired_scores(x.float(), y.float())
    torch.testing.assert_close(found, wide, rtol=0, atol=0)


def scores_in_batches(x, y, batch):
    return translated_scores(Identity(6, 6), x, y, torch.arange(len(x)), batch)


@settings(max_examples=25)
@given(n=st.integers(3, 40), batch=st.integers(2, 50))
def test_batches_rank_each_text_among_its_own_batch(n, batch):
    x, y = normal(n, 6), normal(n, 6, seed=1)
    whole, parts = scores_in_batches(x, y, batch), translation.batches(n, batch)
    sizes = [part.stop - part.start for part in parts]
    assert sum(sizes) == n
    assert max(sizes) <= max(batch, 3)
    assert max(sizes) - 1 <= min(sizes) >= 2  # a smaller batch would be easier
    for part in parts:
        assert torch.equal(whole["mean_rank"][part], paired_scores(x[part], y[part])["mean_rank"])
    assert whole["foscttm"].max() <= 1


def test_scores_do_not_depend_on_how_much_is_held_at_once(monkeypatch):
    x, y = normal(41, 6).float(), normal(41, 6, seed=1).float()
    for batch in (7, 8, 40, 100):
        whole = scores_in_batches(x, y, batch)
        parts = [paired_scores(x[part], y[part]) for part in translation.batches(41, batch)]
        assert all(torch.equal(torch.cat([part[name] for part in parts]), whole[name]) for name in whole)
        with monkeypatch.context() as patch:
            patch.setattr(translation, "ROWS", 3)
            held = scores_in_batches(x, y, batch)
        assert all(torch.equal(held[name], whole[name]) for name in ("mean_rank", "raw_mean_rank"))


def test_standard_error():
    scores, documents = torch.randn(200).repeat_interleave(5), torch.arange(200).repeat_interleave(5)
    assert mean_and_error(scores, documents) == pytest.approx(mean_and_error(scores[::5]), rel=1e-6)
    mean, error = mean_and_error(torch.tensor([1.0, 2.0, 4.0]))
    assert mean == pytest.approx(7 / 3)
    assert error == pytest.approx(math.sqrt(7 / 3) / math.sqrt(3))
