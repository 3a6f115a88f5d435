"""Tell whether vectors are of a known encoder, by the mean and covariance of this encoder's vectors.

Each encoder's vectors have their own mean and covariance. Other topics change both, but less than a rotation
does. So the Mahalanobis distance from an encoder's mean to its vectors of new texts is small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.measures.vectors import shuffled
from pipelines.runtime.errors import BadInput

SHRINK = 0.3  # weight of an even covariance: texts of other kinds vary in directions in which these do not
MIN_MATCH = 0.15  # smallest mean match of vectors that are recognised (docs/identify.md)
MAX_DISTANCE = 0.2  # largest spectral distance of two clouds of one encoder (docs/identify.md)
DEVIATIONS = 3  # the mean match must exceed so many standard deviations of that of a randomly rotated cloud


@dataclass(frozen=True)
class Fingerprint:
    """Mean (d,) and covariance (d, d) of an encoder's unit vectors, float64."""

    mean: Tensor
    covariance: Tensor

    @classmethod
    def of(cls, vectors: Tensor) -> Fingerprint:
        """Return the fingerprint of an encoder from its vectors (n, d) of any texts: a thousand will do.

        Raises BadInput for fewer than two.
        """
        if len(vectors) < 2:
            raise BadInput(f"a fingerprint needs at least two vectors, got {len(vectors)}")
        unit = _unit(vectors)
        return cls(unit.mean(0), unit.T.cov(correction=0))

    def match(self, vectors: Tensor) -> Tensor:
        """Return how well each vector fits the fingerprint. (n, d) -> (n,)

        It is 1 on average for the vectors that the fingerprint was made from. After a random rotation it is 0
        on average.
        """
        precision, turned, scale = self._distances
        centred = _unit(vectors) - self.mean
        return (turned - ((centred @ precision) * centred).sum(1)) / scale

    def threshold(self, vectors: Tensor) -> float:
        """Return the mean match above which vectors (n, d) are recognised."""
        precision, _, scale = self._distances
        unit, d = _unit(vectors), len(precision)
        # The variance of the mean of (u - m)' P (u - m) if one random rotation turns all unit vectors u. It
        # does not fall with n for vectors that have a common direction.
        variance = 2 * _spread(precision) * _spread(unit.T @ unit / len(unit)) / ((d - 1) * (d + 2))
        variance += 4 * (precision @ self.mean).square().sum() * unit.mean(0).square().sum() / d
        return max(MIN_MATCH, DEVIATIONS * float(variance.sqrt() / scale))

    def recognises(self, vectors: Tensor) -> bool:
        """Return whether vectors (n, d) are of this encoder. Vectors that are all the same tell nothing."""
        all_the_same = len(vectors) > 1 and not vectors.var(0).any()
        if vectors.shape[1] != len(self.mean) or all_the_same:
            return False
        return float(self.match(vectors).mean()) > self.threshold(vectors)

    @cached_property
    def _distances(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the precision (d, d), the mean distance of rotated vectors, and by how much it exceeds that
        of the encoder's own vectors.
        """
        d = len(self.mean)
        even = self.covariance.trace() / d * torch.eye(d, dtype=torch.float64)
        precision = torch.linalg.inv((1 - SHRINK) * self.covariance + SHRINK * even)
        turned = precision.trace() / d + self.mean @ precision @ self.mean
        return precision, turned, turned - (precision * self.covariance).sum()


@dataclass(frozen=True)
class Matches:
    """The mean match of vectors with the fingerprint of each encoder of their width."""

    found: dict[str, float]
    needed: dict[str, float]  # the mean match above which they are recognised

    @classmethod
    def of(cls, vectors: Tensor, fingerprints: Mapping[str, Fingerprint]) -> Matches:
        """Compare vectors (n, d), not all the same, with fingerprints."""
        same_width = {name: one for name, one in fingerprints.items() if len(one.mean) == vectors.shape[1]}
        return cls(
            {name: float(one.match(vectors).mean()) for name, one in same_width.items()},
            {name: one.threshold(vectors) for name, one in same_width.items()},
        )

    @property
    def best(self) -> str | None:
        """The best match among the encoders that are recognised."""
        recognised = [name for name, match in self.found.items() if match > self.needed[name]]
        return max(recognised, key=self.found.__getitem__, default=None)


def spectral_distance(a: Tensor, b: Tensor) -> float:
    """Return the mean absolute difference of the log spectra of two clouds (n, d) and (m, d).

    A spectrum is the eigenvalues of the covariance of unit vectors, scaled to sum 1. No rotation changes it.
    It depends on the number of vectors, so the same number is drawn from each cloud, at least two. With fewer
    vectors than dimensions only as many eigenvalues count as can differ from 0. Under 100 vectors the
    distance tells little.
    """
    rows, logs = min(len(a), len(b)), []
    for cloud in (a, b):
        unit = _unit(cloud[shuffled(len(cloud), 0)[:rows]])
        values = torch.linalg.eigvalsh(unit.T.cov(correction=0)).clamp_min(1e-12)[1 - rows :]
        logs.append((values / values.sum()).log())
    return float((logs[0] - logs[1]).abs().mean())


def _unit(vectors: Tensor) -> Tensor:
    """Return unit vectors in float64, on the CPU."""
    return normalize(vectors.double().cpu(), dim=1)


def _spread(A: Tensor) -> Tensor:
    """Return the squared norm of A (d, d) less that of its multiple of the identity."""
    return A.square().sum() - A.trace() ** 2 / len(A)
