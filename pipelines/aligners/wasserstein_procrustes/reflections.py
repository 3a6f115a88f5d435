"""Find a direction that a map takes to the wrong side.

A fit can end with a map that is right but for one direction, whose image has the wrong sign. Couplings then
agree with that image, and no further refinement that was tried repairs it. But to reflect it costs much less
cosine than to reflect a right direction of equal variance.
"""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.matching import draw

AXES = 32  # leading principal axes of the source that are searched: the others have little to reflect
SAMPLE = 2500  # vectors per side
STARTS, STEPS, RATE = 6, 30, 0.1  # of Adam
POWER = 1.5  # of the variance: with 1 directions of small variance win, with 2.5 the first axes
SAME = 0.8  # cosine of two directions that count as one


@torch.enable_grad()
def reflected(
    X: Tensor, Y: Tensor, W: Tensor, inverse_temperature: float, generator: torch.Generator
) -> list[Tensor]:
    """Return maps (I - 2 v v') W for a few unit v, at local minima of the cost for their variance.

    X (n, d), Y (m, e): centred unit vectors. W: (d, e). The cost is what a soft mean cosine
    loses: the mean of log-sum-exp over rows and over columns, divided by the inverse temperature.
    """
    values, axes = torch.linalg.eigh(X.T @ X / len(X))
    variance, axes = values[-AXES:], axes[:, -AXES:]  # (k,), (d, k)
    x, y = draw(X, SAMPLE, generator), draw(Y, SAMPLE, generator)
    length = (x @ W).norm(dim=1, keepdim=True)
    cosines, a, b = (x @ W / length) @ y.T, x @ axes / length, y @ (axes.T @ W).T

    def soft_cosine(v: Tensor) -> Tensor:
        scores = inverse_temperature * (cosines - 2 * torch.outer(a @ v, b @ v))
        return (scores.logsumexp(1).mean() + scores.logsumexp(0).mean()) / (2 * inverse_temperature)

    before, found = soft_cosine(torch.zeros_like(variance)), []
    for _ in range(STARTS):
        v = normalize(torch.randn(len(variance), generator=generator).to(X), dim=0).requires_grad_()
        adam = torch.optim.Adam([v], lr=RATE)
        for _ in range(STEPS):
            unit = normalize(v, dim=0)
            cost = (before - soft_cosine(unit)) / (unit.square() @ variance / variance.mean()) ** POWER
            adam.zero_grad()
            cost.backward()
            adam.step()
        unit = normalize(v.detach(), dim=0)
        if all(abs(unit @ other) < SAME for other in found):
            found.append(unit)
    return [W - 2 * torch.outer(axes @ v, (axes @ v) @ W) for v in found]
