"""Confidence intervals of a mean, and from counts: of a share, and of the difference of two shares.

Newcombe 1998, "Interval estimation for the difference between independent proportions: comparison of eleven
methods" (Statistics in Medicine 17, 873-890), method 10: a hybrid of two score intervals (Wilson 1927).
Unlike a normal interval, it keeps its coverage for shares near 0 and for small counts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

Z = 1.959963984540054  # 97.5 % quantile of the normal distribution


class Interval(NamedTuple):
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float

    @classmethod
    def student(cls, mean: float, error: float, count: int) -> Interval:
        """Return Student's interval of a mean over `count` independent things, such as documents.

        error: the standard error of the mean. One thing shows no spread: then the interval is unbounded.
        """
        from scipy.stats import t  # takes a second

        half = float(t.ppf(0.975, count - 1)) * error if count > 1 else math.inf
        return cls(mean, mean - half, mean + half)

    def widened(self, error: float, count: int) -> Interval:
        """Return the least interval that contains this one and Student's."""
        other = Interval.student(self.value, error, count)
        return Interval(self.value, min(self.low, other.low), max(self.high, other.high))

    def within(self, least: float, most: float) -> Interval:
        """Return the interval with both ends clipped to [least, most]."""
        return Interval(self.value, max(least, self.low), min(most, self.high))

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval is above 0. For an attack less its floor: whether anything leaked."""
        return self.low > 0


def share(count: float, of: float) -> Interval:
    """Return count / of with Wilson's score interval. `count` may be a mean over seeds.

    Raises ValueError unless 0 <= count <= of and of > 0.
    """
    if not 0 <= count <= of or not of:
        raise ValueError(f"{count} of {of} is no share")
    p, scale = count / of, 1 + Z * Z / of
    centre = p + Z * Z / (2 * of)
    half = Z * math.sqrt(p * (1 - p) / of + (Z / (2 * of)) ** 2)
    low, high = (centre - half) / scale, (centre + half) / scale
    # Rounding must not exclude p at 0 and 1
    return Interval(p, max(0.0, min(low, p)), min(1.0, max(high, p)))


def difference(count: float, of: float, floor: float, floor_of: float) -> Interval:
    """Return count / of - floor / floor_of with Newcombe's interval.

    It takes all counts as independent. If both sides recover the same facts, the true interval is narrower.
    If facts of one text are recovered together, it is wider.
    """
    a, b = share(count, of), share(floor, floor_of)
    value = a.value - b.value
    low = value - math.hypot(a.value - a.low, b.high - b.value)
    return Interval(value, low, value + math.hypot(a.high - a.value, b.value - b.low))
