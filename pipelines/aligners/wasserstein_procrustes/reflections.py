"""Find a direction that a map takes to the wrong side.

A fit can end with a map that is right but for one direction, whose image has the wrong sign. Couplings then
agree with that image, and no further refinement that was tried repairs it. But to reflect it costs much less
cosine than to reflect a right direction of equal variance.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from pipelines.aligners.core.matching import draw

AXES = 32  # leading principal axes of the source that are searched: the others have little to reflect
SAMPLE = 2500  # vectors per side
STARTS, STEPS, RATE = 6, 30, 0.1  # of Adam
POWER = 1.5  # of the variance: with 1 directions of small variance win, with 2.5 the first axes
SAME = 0.8  # cosine of two directions that count as one


def reflected(
    X: Tensor, Y: Tensor, W: Tensor, inverse_temperature: float, generator: torch.Generator
) -> list[Tensor]:
    """Return maps (I - 2 v v') W for a few unit v that minimise cost / variance^POWER locally.

    The cost is what the soft mean cosine loses. X (n, d), Y (m, e): centred unit vectors. W: (d, e).
    """
    values, axes = torch.linalg.eigh(X.T @ X / len(X))
    variance, axes = values[-AXES:], axes[:, -AXES:]  # (k,), (d, k)
    variance = variance / variance.mean()
    x, y = draw(X, SAMPLE, generator), draw(Y, SAMPLE, generator)
    length = (x @ W).norm(dim=1, keepdim=True).clamp_min(0.3)  # so that no exponential overflows
    soft = SoftCosine((x @ W / length) @ y.T, x @ axes / length, y @ (axes.T @ W).T, inverse_temperature)
    before, _ = soft(torch.zeros_like(variance))
    found: list[Tensor] = []
    for _ in range(STARTS):
        v = torch.randn(len(variance), generator=generator).to(X)
        v /= v.norm()
        # Adam by hand: torch.optim takes seconds to import
        first, second = torch.zeros_like(v), torch.zeros_like(v)  # moments of the gradient
        for step in range(1, STEPS + 1):
            unit = v / v.norm()
            value, slope = soft(unit)
            total = unit.square() @ variance
            # The gradient of (before - value) / total^POWER, along the sphere
            gradient = -slope / total**POWER
            gradient -= 2 * POWER * (before - value) / total ** (POWER + 1) * unit * variance
            gradient = (gradient - (gradient @ unit) * unit) / v.norm()
            first.lerp_(gradient, 0.1)
            second.lerp_(gradient.square(), 0.001)
            v -= RATE * first / (1 - 0.9**step) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        unit = v / v.norm()
        if all(abs(unit @ other) < SAME for other in found):
            found.append(unit)
    return [W - 2 * torch.outer(axes @ v, (axes @ v) @ W) for v in found]


@dataclass(frozen=True)
class SoftCosine:
    """The soft mean cosine of two samples when the map is reflected along a unit v (k,).

    It is the mean of log-sum-exp over the rows and over the columns of their cosines (n, m), divided by the
    inverse temperature. a (n, k), b (m, k): both samples in the axes of v. To reflect the map along v,
    subtract 2 (a v)(b v)' from the cosines.
    """

    cosines: Tensor
    a: Tensor
    b: Tensor
    inverse_temperature: float

    def __call__(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the soft mean cosine minus 1, and its gradient (k,)."""
        beta, p, q = self.inverse_temperature, self.a @ v, self.b @ v
        kernel = torch.addr(self.cosines, p, q, alpha=-2).sub_(1).mul_(beta).exp_()
        rows, columns = kernel.sum(1), kernel.sum(0)
        value = (rows.log().mean() + columns.log().mean()) / (2 * beta)
        n, m = kernel.shape
        of_p = kernel @ q / rows / n + kernel @ (q / columns) / m
        of_q = kernel.T @ (p / rows) / n + kernel.T @ p / columns / m
        return value, -(self.a.T @ of_p + self.b.T @ of_q)
