"""Find directions that a map takes to the wrong side.

A fit can end with a map that is right but for a few directions, whose images have the wrong sign. Couplings
then agree with those images, and no further refinement that was tried repairs them. But to reflect such a
direction costs much less cosine than to reflect a right direction of equal variance.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.matching import draw

AXES = 32  # leading principal axes of the source that are searched: the others have little to reflect
REFLECTION_SAMPLE = 2000  # vectors per side
STARTS, RATE = 200, 0.1  # of Adam
STEPS = 40, 15  # of Adam, on the series (`ReflectionCost.series`) and then on the exact cost
FOUND = 4  # largest number of directions that are returned: usually the cheapest is the wrong one
REFLECTION_POWER = 1.5  # of the variance: 1 favours directions of small variance, 2.5 the first axes
SAME_DIRECTION = 0.8  # cosine of two directions that count as one

# Takes unit rows v (s, k), and returns the cost of reflecting each direction (s,), and its gradient (s, k)
Cost = Callable[[Tensor], tuple[Tensor, Tensor]]


def reflected(
    X: Tensor, Y: Tensor, W: Tensor, inverse_temperature: float, generator: torch.Generator
) -> list[Tensor]:
    """Return maps (I - 2 v v') W for a few unit v that minimise cost / variance^REFLECTION_POWER locally.

    The cost is what the soft mean cosine loses. X (n, d), Y (m, e): centred unit vectors. W: (d, e).
    """
    values, axes = torch.linalg.eigh(X.T @ X / len(X))
    variance, axes = values[-AXES:], axes[:, -AXES:]  # (k,), (d, k)
    variance = variance / variance.mean()
    x, y = draw(X, REFLECTION_SAMPLE, generator), draw(Y, REFLECTION_SAMPLE, generator)
    length = (x @ W).norm(dim=1, keepdim=True).clamp_min(0.3)  # so that no exponential overflows
    logits = inverse_temperature * ((x @ W / length) @ y.T - 1)
    cost = ReflectionCost(logits, x @ axes / length, y @ (axes.T @ W).T, inverse_temperature)
    starts = torch.randn(STARTS, len(variance), generator=generator).to(X)
    v = distinct_directions(descend(cost.series(), variance, starts, STEPS[0]))[: 2 * FOUND]
    v = distinct_directions(descend(cost, variance, v, STEPS[1]))[:FOUND]
    return [W - 2 * torch.outer(axes @ row, (axes @ row) @ W) for row in v]


def descend(cost: Cost, variance: Tensor, v: Tensor, steps: int) -> Tensor:
    """Minimise cost / variance^REFLECTION_POWER from each row of v (s, k) by Adam on the sphere.

    Return unit rows, the cheapest first.
    """
    first, second = torch.zeros_like(v), torch.zeros_like(v)  # moments of the gradient
    for step in range(1, steps + 1):
        unit = normalize(v, dim=1)
        value, slope = cost(unit)
        along = (unit.square() @ variance)[:, None]  # the variance along each direction
        # The gradient of cost / along^p is cost' / along^p - p cost / along^(p + 1) * 2 variance * unit
        gradient = slope / along**REFLECTION_POWER
        gradient -= 2 * REFLECTION_POWER * value[:, None] / along ** (REFLECTION_POWER + 1) * unit * variance
        gradient = (gradient - (gradient * unit).sum(1, keepdim=True) * unit) / v.norm(dim=1, keepdim=True)
        # Adam by hand: torch.optim takes seconds to import
        first.lerp_(gradient, 0.1)
        second.lerp_(gradient.square(), 0.001)
        v = v - RATE * first / (1 - 0.9**step) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
    unit = normalize(v, dim=1)
    return unit[(cost(unit)[0] / (unit.square() @ variance) ** REFLECTION_POWER).argsort()]


def distinct_directions(v: Tensor) -> Tensor:
    """Return the unit rows of v (s, k) whose cosine with each one kept before, up to sign, is below
    SAME_DIRECTION.
    """
    found = v[:1]
    for row in v[1:]:
        if (found @ row).abs().max() < SAME_DIRECTION:
            found = torch.cat([found, row[None]])
    return found


@dataclass(frozen=True)
class ReflectionCost:
    """The cost of reflecting a map along a unit v (k,): how much the soft mean cosine of two samples falls.

    Logits (n, m) are inverse_temperature (cosine - 1). The soft mean cosine, minus 1, is the mean of their
    log-sum-exp over rows and over columns, divided by inverse_temperature. a (n, k), b (m, k): both samples
    in the axes of v. To reflect the map along v, subtract 2 (a v)(b v)' from the cosines.
    """

    logits: Tensor
    a: Tensor
    b: Tensor
    inverse_temperature: float

    def __call__(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the cost (s,) of each row of v (s, k), and its gradient (s, k)."""
        values, slopes = zip(*map(self.soft, v), strict=True)
        return self.before - torch.stack(values), -torch.stack(slopes)

    @cached_property
    def before(self) -> Tensor:
        """The soft mean cosine minus 1 of the map itself."""
        return self.soft(torch.zeros_like(self.a[0]))[0]

    def soft(self, v: Tensor) -> tuple[Tensor, Tensor]:
        """Return the soft mean cosine minus 1 for one v (k,), and its gradient (k,)."""
        beta, p, q = self.inverse_temperature, self.a @ v, self.b @ v
        kernel = torch.addr(self.logits, p, q, alpha=-2 * beta).exp_()
        rows, columns = kernel.sum(1), kernel.sum(0)
        value = (rows.log().mean() + columns.log().mean()) / (2 * beta)
        n, m = kernel.shape
        of_p = kernel @ q / rows / n + kernel @ (q / columns) / m
        of_q = kernel.T @ (p / rows) / n + kernel.T @ p / columns / m
        return value, -(self.a.T @ of_p + self.b.T @ of_q)

    def series(self) -> Cost:
        """Return the cost to second order in (a v)(b v)', which is a polynomial of degree four in v.

        Hundreds of starts take no longer than one start with the exact cost, and the minima are similar. Let
        p = a v and q = b v, and E_i and Var_i be the mean and the variance of q under the softmax of row i.
        The rows lose the mean over i of 2 p_i E_i - 2 beta p_i^2 Var_i, the columns alike. The cost is the
        mean of both.
        """
        kernel = self.logits.exp()
        rows, columns = moments(kernel, self.a, self.b), moments(kernel.T, self.b, self.a)
        linear, quadratic = rows[0] + columns[0], rows[1] + columns[1]
        linear, quadratic = (linear + linear.T) / 2, (quadratic + quadratic.T) / 2
        k = len(linear)

        def cost(v: Tensor) -> tuple[Tensor, Tensor]:
            vv = column_products(v)  # (s, k k)
            of_v, of_vv = v @ linear, self.inverse_temperature * vv @ quadratic
            value = (v * of_v).sum(1) - (vv * of_vv).sum(1)
            slope = of_v - 2 * torch.einsum("sij,sj->si", of_vv.view(-1, k, k), v)
            return value, 2 * slope

        return cost


def column_products(a: Tensor) -> Tensor:
    """Return all products of two columns of a (n, k), as (n, k k)."""
    return (a[:, :, None] * a[:, None, :]).flatten(1)


def moments(kernel: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return sum_i a_i E_i[b]' (k, k) and sum_i (a_i a_i') Cov_i[b] (k k, k k), divided by n.

    E_i and Cov_i are of b (m, k) under the weights of row i of the kernel (n, m). a: (n, k).
    """
    weights = kernel / kernel.sum(1, keepdim=True)
    mean = weights @ b
    covariance = weights @ column_products(b) - column_products(mean)
    return a.T @ mean / len(a), column_products(a).T @ covariance / len(a)
