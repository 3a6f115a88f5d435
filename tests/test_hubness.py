"""The correction for hubs: its formula, what it does to neighbours, and when the map stays linear."""

from dataclasses import replace

import torch
from torch.nn.functional import normalize

from pipelines.aligners.core.hubness import InvertedSoftmax
from pipelines.aligners.core.translator import Linear
from pipelines.measures.vectors import centred_unit
from tests.small import normal, seeded
from tests.test_aligners import SMALL, clouds, wasserstein


def pairs(d=48, seed=0):
    """Return noisy copies of one skewed cloud, (1500, d) each, with hubs near its centre."""
    g = seeded(seed)
    axes = torch.linspace(2, 0.5, d)
    x = torch.randn(1500, d, generator=g) * axes
    return x, x + 1.5 * torch.randn(1500, d, generator=g) * axes


def bent(strength):
    source, target = pairs()
    return InvertedSoftmax.around(Linear.of(torch.eye(48), source, target), source, strength), *pairs(seed=1)


def test_inverted_softmax_leaves_the_density_of_the_translated_cloud():
    """Against the gradient of the log density, by differentiation in float64."""
    translator, x, _ = bent(1.5)
    translator.double()
    linear = Linear.forward(translator, x.double()) - translator.target_mean
    q = normalize(linear).requires_grad_()
    s = translator.config["strength"] / translator.deviation
    density = torch.logsumexp(s * q @ translator.anchors.T, 1).sum()
    (gradient,) = torch.autograd.grad(density / s, q)
    want = normalize(q.detach() - gradient, dim=1) * linear.norm(dim=1, keepdim=True) + translator.target_mean
    torch.testing.assert_close(translator(x.double()), want, atol=1e-10, rtol=0)


def test_inverted_softmax_ranks_better_and_hubs_lose_their_queries():
    translator, x, y = bent(0.0)
    straight = centred_unit(translator(x)) @ centred_unit(y).T
    translator.set_hub_correction(1.5)
    bends = centred_unit(translator(x)) @ centred_unit(y).T

    def right(of):
        return float((of.argmax(1) == torch.arange(len(of))).double().mean())

    def uneven(of):  # the variance of how many queries a candidate is the nearest of
        return float(of.argmax(1).bincount(minlength=len(of)).double().var())

    assert right(straight) < right(bends)
    assert uneven(bends) < uneven(straight)


def test_a_vector_that_is_an_anchor_is_corrected_by_the_others_alone():
    """In many dimensions at a high strength, where its own weight rounds to 1."""
    x = normal(1500, 300)
    translator = InvertedSoftmax.around(Linear.of(torch.eye(300), x, x), x, 4.0)
    q, s = translator.anchors.double(), 4.0 / translator.deviation.double()
    others = (s * q @ q.T).fill_diagonal_(-torch.inf).softmax(1) @ q
    got = normalize(translator(x) - translator.target_mean, dim=1)
    torch.testing.assert_close(got.double(), normalize(q - others, dim=1), atol=1e-4, rtol=0)


def test_a_fit_bends_where_there_are_many_dimensions():
    settings = replace(SMALL, refinements=3, passes=1, rotations=0)
    assert type(wasserstein(*clouds(10, 10)[:2], settings=settings)) is Linear
    many = wasserstein(*pairs(d=64), settings=settings)
    assert isinstance(many, InvertedSoftmax)
    straight = wasserstein(*pairs(d=64), settings=replace(settings, hub_correction=0))
    assert type(straight) is Linear
    assert torch.equal(many.map, straight.map)
