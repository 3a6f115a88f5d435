"""Similarities of weighted point sets against a double loop, and random Fourier features against the exact
ones.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from pipelines.contrastive import kernels
from pipelines.contrastive.kernels import Kernel, PointSets, exact, features, fourier
from tests.small import Largest, seeded

KERNELS = [Kernel("gaussian"), Kernel("imq"), Kernel("gaussian", 1.3, 0.2, 0.9)]


@pytest.fixture
def pair():
    return sets(5, 4, 3, 0), sets(6, 7, 3, 1)


def sets(n, points, dim, seed, dtype=torch.float64):
    g = seeded(seed)
    v = torch.nn.functional.normalize(torch.randn(n, points, dim, generator=g, dtype=dtype), dim=2)
    return PointSets(v, torch.randn(n, points, generator=g, dtype=dtype))


def double_loop(x, y, kernel):
    """The definition, one pair of sets at a time."""
    out, c = np.zeros((len(x.weights), len(y.weights))), kernel.scale
    for a, b in np.ndindex(out.shape):
        v, t = x.points[a].numpy(), y.points[b].numpy()
        r2 = ((v[:, None] - t) ** 2).sum(2)
        k = np.exp(-r2 / (2 * c * c)) if kernel.law == "gaussian" else c / np.sqrt(c * c + r2)
        similar = kernel.linear * v @ t.T + kernel.nonlinear * k
        out[a, b] = x.weights[a].numpy() @ similar @ y.weights[b].numpy()
    return out / (x.weights.shape[1] * y.weights.shape[1])


@pytest.mark.parametrize("block", [kernels.BLOCK, 2 * 4 * 7])  # all at once, one pair of sets
@pytest.mark.parametrize("kernel", KERNELS)
def test_exact_is_the_double_loop(kernel, block, pair, monkeypatch):
    monkeypatch.setattr(kernels, "BLOCK", block)
    assert np.abs(exact(*pair, kernel).numpy() - double_loop(*pair, kernel)).max() < 1e-12


def test_the_similarity_of_kme_clip_is_a_logarithm_of_a_sum(pair):
    x, y = (replace(s, weights=s.weights.abs()) for s in pair)
    kernel = Kernel("gaussian", 0.5, 0.0, 1.0)
    found = exact(x, y, replace(kernel, log=True))
    assert np.abs(found.numpy() - np.log(double_loop(x, y, kernel))).max() < 1e-12


@pytest.mark.parametrize("kernel", KERNELS[:2])
def test_features_are_unbiased(kernel):
    x, y, g = sets(3, 4, 5, 2, torch.float32), sets(4, 3, 5, 3, torch.float32), seeded()
    draws = [fourier(kernel, 5, 64, g) for _ in range(400)]
    s = torch.stack([features(x, kernel, d) @ features(y, kernel, d).T for d in draws])
    z = (s.mean(0) - exact(x, y, kernel)) / (s.std(0) / math.sqrt(len(s)))
    assert z.abs().max() < 3.5  # twelve entries; 3 standard errors each, with room for the largest of twelve
    assert z.square().mean() < 2


def test_linear_features_are_the_mean_weighted_point():
    x = sets(3, 4, 5, 6)
    assert torch.allclose(features(x, Kernel(linear=1, nonlinear=0), None), x.mean())


def test_training_never_holds_a_tensor_of_all_pairs_of_points(monkeypatch):
    n, points, D = 32, 16, 64
    monkeypatch.setattr(kernels, "BLOCK", n * points * D)
    x, y = sets(n, points, 4, 0, torch.float32), sets(n, points, 4, 1, torch.float32)
    x.points.requires_grad_()
    draw = fourier(Kernel(), 4, D, seeded())
    for similarity in (
        lambda: features(x, Kernel(), draw) @ features(y, Kernel(), draw).T,
        lambda: exact(x, y, Kernel()),
    ):
        with Largest() as seen:
            similarity().logsumexp(1).sum().backward()
        assert 0 < seen.numel <= n * points * D < (n * points) ** 2


def test_the_gradient_of_blocks_is_that_of_one(pair, monkeypatch):
    (x, y), gradients = pair, []
    for block in (kernels.BLOCK, 2 * 4 * 7):
        monkeypatch.setattr(kernels, "BLOCK", block)
        w, v = x.weights.clone().requires_grad_(), x.points.clone().requires_grad_()
        gradients.append(torch.autograd.grad(exact(PointSets(v, w), y, Kernel()).logsumexp(1).sum(), (w, v)))
    assert all(torch.allclose(a, b) for a, b in zip(*gradients, strict=True))
