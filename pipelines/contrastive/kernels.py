"""Similarities of weighted point sets (Uesaka et al., ICLR 2025), exact and by random Fourier features.

An image or a text is a set {(w_i, v_i)} of M unit vectors with real weights. The similarity of two sets is

    S = mean_ij w_i u_j [a1 <v_i, t_j> + a2 k(v_i, t_j)]

or its logarithm (KME-CLIP, arXiv 2510.15508, where all terms are positive), with a Gaussian kernel k =
exp(-r^2 / 2 sigma^2) or the inverse multiquadric k = c / sqrt(c^2 + r^2), r = |v - t|. Both have k(v, v) = 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from pipelines.runtime.device import to_device

BLOCK = 1 << 22  # most kernel values in a block of `exact`, which has at least one pair of sets

Law = Literal["gaussian", "imq"]


@dataclass(frozen=True)
class PointSets:
    """n weighted sets of M points: `points` (n, M, d) of unit norm, `weights` (n, M) of any sign."""

    points: Tensor
    weights: Tensor

    def split(self, size: int) -> list[PointSets]:
        return list(map(PointSets, self.points.split(size), self.weights.split(size)))

    def mean(self) -> Tensor:
        """Return the mean weighted point, which is the linear feature and the set's single vector. (n, d)"""
        return torch.einsum("nm,nmd->nd", self.weights, self.points) / self.weights.shape[1]


@dataclass(frozen=True)
class Kernel:
    """linear * <v, t> + nonlinear * k(v, t)."""

    law: Law = "gaussian"
    scale: float = 0.5  # the Gaussian's sigma or the inverse multiquadric's c
    linear: float = 2 / 3  # a1
    nonlinear: float = 1 / 3  # a2
    log: bool = False  # S is the logarithm of the sum, as in KME-CLIP

    def __call__(self, squares: Tensor) -> Tensor:
        """Return k of squared distances, elementwise."""
        if self.law == "gaussian":
            return torch.exp(squares / (-2 * self.scale**2))
        return torch.rsqrt(1 + squares / self.scale**2)


def exact(x: PointSets, y: PointSets, kernel: Kernel) -> Tensor:
    """Return S of every pair of sets, in blocks that a backward pass recomputes.

    (n, M, d), (m, M', d) -> (n, m)
    """
    linear = kernel.linear * x.mean() @ y.mean().T
    if kernel.nonlinear == 0:
        return linear
    side = max(1, math.isqrt(BLOCK // (x.weights.shape[1] * y.weights.shape[1])))
    rows = []
    for some in x.split(side):
        blocks = [
            checkpoint(_kernel_sums, some, other, kernel, use_reentrant=False) for other in y.split(side)
        ]
        rows.append(torch.cat(blocks, 1))
    total = linear + kernel.nonlinear * torch.cat(rows)
    return total.log() if kernel.log else total


def _kernel_sums(x: PointSets, y: PointSets, kernel: Kernel) -> Tensor:
    """Return mean_ij w_i u_j k(v_i, t_j) of one block of pairs. -> (n, m)"""
    (n, m1), (m, m2) = x.weights.shape, y.weights.shape
    v, t = x.points.flatten(0, 1), y.points.flatten(0, 1)
    squares = v.square().sum(1)[:, None] + t.square().sum(1) - 2 * v @ t.T
    values = kernel(squares.clamp_min_(0)).view(n, m1, m, m2)
    return torch.einsum("ni,nimj,mj->nm", x.weights, values, y.weights) / (m1 * m2)


@dataclass(frozen=True)
class Fourier:
    """One draw of D random Fourier features (Rahimi and Recht 2007): phi(v) = sqrt(2 / D) cos(v W + b)."""

    frequencies: Tensor  # W, (d, D), from the kernel's spectral density
    phases: Tensor  # b, (D,), uniform on [0, 2 pi)

    def to(self, device: torch.device) -> Fourier:
        return Fourier(to_device(self.frequencies, device), to_device(self.phases, device))


def fourier(kernel: Kernel, dim: int, D: int, generator: torch.Generator) -> Fourier:
    """Draw D frequencies of the kernel's exact spectral density in `dim` dimensions.

    Gaussian: N(0, 1/sigma^2). Inverse multiquadric: c / sqrt(c^2 + r^2) = E[exp(-g^2 r^2 / 2 c^2)] with g ~
    N(0, 1). Its density, |w|^((1-d)/2) K_((d-1)/2)(c |w|), is thus a mixture of Gaussians: that of |g| / c
    times a standard normal vector.
    """
    frequencies = torch.randn(dim, D, generator=generator) / kernel.scale
    if kernel.law == "imq":
        frequencies *= torch.randn(D, generator=generator).abs()
    return Fourier(frequencies, 2 * math.pi * torch.rand(D, generator=generator))


def features(sets: PointSets, kernel: Kernel, draw: Fourier | None) -> Tensor:
    """Return vectors of point sets. Without `log`, their inner products estimate S without bias.

    Time and memory are linear in M. (n, M, d) -> (n, d + D); (n, d) without a draw or with
    a2 = 0; (n, D) with a1 = 0
    """
    linear = math.sqrt(kernel.linear) * sets.mean()
    if draw is None or kernel.nonlinear == 0:
        return linear
    scale = math.sqrt(kernel.nonlinear * 2 / draw.phases.shape[0]) / sets.weights.shape[1]
    angles = torch.addmm(draw.phases, sets.points.flatten(0, 1), draw.frequencies)
    cosines = angles.view(*sets.weights.shape, -1).cos()  # (n, M, D)
    nonlinear = torch.bmm((scale * sets.weights).unsqueeze(1), cosines).squeeze(1)  # (n, D)
    return nonlinear if kernel.linear == 0 else torch.cat([linear, nonlinear], 1)
