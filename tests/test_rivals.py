"""mini-vec2vec against loops; transport plans and rosetta against brute force and their definitions."""

import itertools

import numpy as np
import pytest
import torch
from scipy.linalg import polar
from torch.nn.functional import normalize

from pipelines.aligners import mini_vec2vec as mini
from pipelines.aligners import rosetta, transport
from pipelines.measures.geometry import linear_cka
from pipelines.measures.translation import paired_scores
from pipelines.measures.vectors import centred_unit
from tests.small import normal, quick_fit, refusal, rotation, seeded, two_encoders


def test_one_step_of_refine_1_is_half_way_to_procrustes():
    x, y = (normalize(normal(n, d, seed=d)) for n, d in ((40, 5), (50, 6)))
    start = rotation(6, 5, seeded(1)).T
    settings = mini.Settings(neighbours=4, refine_steps=1)
    found = mini.refine_by_neighbours(start, x, y, settings, seeded(), None)
    partners = []
    for row in x @ start:
        cosines = [float(row @ other / row.norm()) for other in y]
        partners.append(sum(y[j] for j in np.argsort(cosines)[-4:]) / 4)
    turn = torch.from_numpy(polar(x.T @ torch.stack(partners))[0])
    torch.testing.assert_close(found, (start + turn) / 2, rtol=0, atol=1e-5)


def test_too_few_vectors_for_the_clusters_are_refused():
    x, y = normal(2, 300, 8)
    for few, found in ((x[:10], "10 vectors"), (x[:3].repeat(30, 1), "3 distinct vectors")):
        with refusal(f"source: {found}, but at least"):
            quick_fit("mini_vec2vec", few, y)


def cost_of(method, x, y):
    plan = transport.transport_plan(x, y, transport.Settings(method))
    return float((plan * torch.cdist(x, y) ** 2).sum())


@pytest.mark.parametrize("method", ["emd", "sinkhorn", "hungarian", "gromov_wasserstein"])
def test_plans_are_couplings(method, monkeypatch):
    monkeypatch.setattr(transport, "REGULARISATION", 0.05)
    draws = seeded()
    x, y = (normalize(torch.randn(12, d, generator=draws)) for d in (5, 7))
    plan = transport.transport_plan(x, y, transport.Settings(method))
    assert (plan >= 0).all()
    for axis in (0, 1):
        torch.testing.assert_close(plan.sum(axis), torch.full((12,), 1 / 12), rtol=0, atol=1e-4)


def test_exact_plans_are_the_cheapest_permutation(monkeypatch):
    x, y = normalize(normal(2, 6, 4), dim=2)
    costs = (torch.cdist(x, y) ** 2).tolist()
    cheapest = min(sum(costs[i][j] for i, j in enumerate(p)) for p in itertools.permutations(range(6))) / 6
    for method in ("emd", "hungarian"):
        assert cost_of(method, x, y) == pytest.approx(cheapest, rel=1e-5)
    soft = []
    for regularisation in (1.0, 0.1, 0.01):
        monkeypatch.setattr(transport, "REGULARISATION", regularisation)
        soft.append(cost_of("sinkhorn", x, y))
    assert soft[0] > soft[1] > soft[2] == pytest.approx(cheapest, rel=1e-2)


def test_a_plan_that_did_not_come_about_is_an_error(monkeypatch, recwarn):
    monkeypatch.setattr(transport, "REGULARISATION", 1e-5)
    x = 3 * normal(200, 4)
    with refusal("no plan at regularisation 1e-05"):
        transport.transport_plan(x, x, transport.Settings())
    assert not recwarn.list  # POT's own, of which the error is made


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("sinkhorn", "transport: sinkhorn did not converge: a row or column sum of the plan is 3"),
        ("emd", "transport: emd: after 1000 iterations the plan may not be the cheapest"),
    ],
)
def test_a_plan_of_too_few_iterations_is_said_in_one_line(method, said, monkeypatch, caplog, recwarn):
    x, y = normalize(normal(2, 300, 6), dim=2)
    transport.transport_plan(x, y, transport.Settings(method))
    assert not caplog.messages
    monkeypatch.setattr(transport, "ITERATIONS", 1)
    transport.transport_plan(x, y, transport.Settings(method))
    [message] = caplog.messages
    assert message.startswith(said)
    assert not recwarn.list


def test_gromov_wasserstein_undoes_a_rotation():
    x = normal(200, 4) * torch.tensor([3.0, 2.0, 1.0, 0.5])
    x += torch.rand(200, 1, generator=seeded(1))
    y = x @ rotation(6, 4, seeded(2)).T

    def cosine(method):
        translator = transport.fit_oracle(x, y, transport.Settings(method, points=200), 0)
        return torch.cosine_similarity(centred_unit(translator(x)), centred_unit(y)).mean()

    assert cosine("gromov_wasserstein") > 0.95 > cosine("hungarian")


# ---------------------------------------------------------------- rosetta


@pytest.mark.parametrize(("matching", "known"), [("tabu", 0), ("tabu", 3), ("two_opt", 0)])
def test_centres_are_matched_by_linear_cka_with_known_pairs(matching, known, monkeypatch):
    centres = iter(normal(4, 5, 6, dtype=torch.float64))
    monkeypatch.setattr(rosetta, "centres", lambda *_: next(centres))
    paired = normal(2, 3, 6, seed=1, dtype=torch.float64)[:, :known]
    settings = rosetta.Settings(clusters=5, repeats=2, matching=matching)
    x = normal(9, 6)
    a, b = rosetta.start(x, x, tuple(paired), settings, seeded())

    def value(a, b):
        x, y = torch.cat([a, paired[0]]), torch.cat([b, paired[1]])
        return float(linear_cka(x, y, torch.arange(len(x))[None])[0])

    for first in (0, 5):
        a_s, b_s = a[first : first + 5], b[first : first + 5]
        best = max(value(a_s, b_s[list(p)]) for p in itertools.permutations(range(5)))
        assert value(a_s, b_s) == pytest.approx(best)


def test_rows_are_assigned_block_by_block():
    x, y = normal(8, 3), normal(12, 4, seed=1)
    moved = normal(8, 4, seed=2)
    kept, partners = rosetta.assigned(moved, x, y, 4)
    assert torch.equal(kept, x)
    for first in (0, 4):
        scores = moved[first : first + 4] @ y[first : first + 4].T
        total = max(scores[range(4), p].sum() for p in itertools.permutations(range(4)))
        found = (moved * partners)[first : first + 4].sum()
        assert float(found) == pytest.approx(float(total))


def test_known_pairs_weigh_as_much_as_all_matches():
    x, y, known_x, known_y = (normal(n, 5, seed=n).double() for n in (20, 20, 4, 4))
    turn = torch.from_numpy(polar(x.T @ y / 20 + known_x.T @ known_y / 4)[0])
    torch.testing.assert_close(rosetta.procrustes((x, y), (known_x, known_y)), turn)


@pytest.mark.parametrize("read_out", ["assignment", "relative", "direct"])
def test_two_views_of_one_geometry_are_aligned(read_out):
    texts, turned = two_encoders()
    x, y = (torch.from_numpy(side).float() for side in (texts[:1200], turned[1200:2400]))
    found = quick_fit("rosetta", x, y, clusters=30, repeats=5, refine_steps=10, read_out=read_out)
    x, y = (torch.from_numpy(side[2400:]).float() for side in (texts, turned))
    assert paired_scores(found(x), y)["top1"].mean() > 0.9
