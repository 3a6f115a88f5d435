"""The two clouds of a fit, and how they are coupled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import leading, principal_axes, spectral
from pipelines.aligners.core.matching import draw, partners, times, transport
from pipelines.runtime.progress import progress

TUNED_AT = 13_000  # vectors per side for which batch sizes and temperatures are tuned
LEAST = 500  # smallest batch, and smallest size of a side that `relative_size` tells apart
ROUND_STEPS = 10  # refinements of each candidate per round
REFINEMENT_POWER = 0.25  # power of the singular values during refinement
WARM = 30.0  # inverse temperature of the first coupling
PAIR_WEIGHT = 10.0  # weight of a known pair; a coupled point has weight 1


@dataclass(frozen=True)
class Sides:
    """Two clouds X (n, d) and Y (m, e) of centred unit vectors, of which random batches are drawn.

    known (k, 2): rows of known pairs. known_cross (d, e): their weighted cross-covariance, zero without
    pairs. Maps between the sides are (d, e).
    """

    X: Tensor
    Y: Tensor
    known: Tensor
    known_cross: Tensor
    generator: torch.Generator

    @classmethod
    def of(cls, X: Tensor, Y: Tensor, known: Tensor, generator: torch.Generator) -> Sides:
        """Weigh the known pairs of the two clouds."""
        return cls(X, Y, known, PAIR_WEIGHT * X[known[:, 0]].T @ Y[known[:, 1]], generator)

    def leading(self) -> tuple[Sides, Tensor, Tensor]:
        """Return the sides projected on their leading principal directions, with rows of length 1, and these
        directions P (d, k) and Q (e, l).
        """
        (x, P), (y, Q) = leading(self.X), leading(self.Y)
        return Sides(x, y, self.known, P.T @ self.known_cross @ Q, self.generator), P, Q

    @cached_property
    def axes(self) -> tuple[Tensor, Tensor]:
        """All principal axes of both sides, (d, d) and (e, e), as columns, the leading one last."""
        return principal_axes(self.X), principal_axes(self.Y)

    def batch(self, size: int) -> tuple[Tensor, Tensor]:
        """Draw at most `size` vectors of each side."""
        return draw(self.X, size, self.generator), draw(self.Y, size, self.generator)

    def batch_size(self, size: int) -> int:
        """Scale `size` with the smaller side if it has fewer than TUNED_AT vectors, down to LEAST.

        A batch of nearly a whole side has no noise: the map would stay in the poor optimum where it began.
        """
        return min(size, max(LEAST, round(size * min(len(self.X), len(self.Y)) / TUNED_AT)))

    def refined(self, maps: list[Tensor], size: int, what: str, steps: int = ROUND_STEPS) -> list[Tensor]:
        """Refine all maps on the same batches, one for each step. what: their name in a progress bar."""
        batches = [self.batch(self.batch_size(size)) for _ in range(steps)]
        refined = []
        for W in progress(maps, what=f"wasserstein_procrustes: {what}", unit="maps"):
            for x, y in batches:
                coupled, _ = couple([x], [y], W, WARM)
                W = spectral(coupled + self.known_cross, REFINEMENT_POWER)
            refined.append(W)
        return refined

    def cosines(self, maps: list[Tensor], size: int) -> list[float]:
        """Return the mean cosine of each map on one batch of `size` vectors.

        Small clouds get batches of the same size: noise helps to refine maps, not to rank them.
        """
        x, y = self.batch(size)
        images = (normalize(x @ W, dim=1) for W in maps)
        return [float((moved * partners(moved, y, WARM)).sum() / len(y)) for moved in images]


def couple(
    xs: Sequence[Tensor], ys: Sequence[Tensor], W: Tensor, inverse_temperature: float
) -> tuple[Tensor, float]:
    """Couple each group of xs (n_a, d) with each of ys (m_b, e) under the map W (d, e).

    Returns the cross-covariance (d, e), in which each target vector has total weight 1, and the mean cosine
    of coupled points, weighted by the lengths of the images x W.
    """
    # (x W) y' is computed as x (y W')' if that has fewer columns: such products take most of the time.
    # Divided by the length of x W, both are the cosine
    in_source_space = W.shape[0] < W.shape[1]
    images = [x @ W for x in xs]
    lengths = [image.norm(dim=1, keepdim=True).clamp_min(1e-12) for image in images]
    queries = xs if in_source_space else images
    queries = [query / length for query, length in zip(queries, lengths, strict=True)]
    keys = [y @ W.T for y in ys] if in_source_space else ys
    # In the source space, the sums of P' x for each y, else the sums of P y for each x
    coupled = [torch.zeros_like(one) for one in (keys if in_source_space else images)]
    length_of_coupled = W.new_zeros(())
    for a, b in product(range(len(xs)), range(len(ys))):
        u, kernel, v = transport(queries[a], keys[b], inverse_temperature)
        if in_source_space:
            coupled[b] += times(kernel.T, xs[a] * u) * v
        else:
            coupled[a] += times(kernel, ys[b] * v) * u
        length_of_coupled += (times(kernel, v) * u * lengths[a]).sum()
    factors = zip(coupled, ys, strict=True) if in_source_space else zip(xs, coupled, strict=True)
    cross = torch.stack([one.T @ other for one, other in factors]).sum(0)
    return cross / len(xs), float((W * cross).sum() / length_of_coupled)
