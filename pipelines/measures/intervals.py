"""Intervals of shares, and of the difference of two, from counts alone.

Newcombe 1998, "Interval estimation for the difference between independent proportions: comparison of eleven methods"
(Statistics in Medicine 17, 873-890), method 10: the hybrid of two score intervals (Wilson 1927). It keeps its coverage at
shares near 0 and in small counts, where a normal interval does not.
"""

from __future__ import annotations

import math
from typing import NamedTuple

Z95 = 1.959963984540054  # the normal distribution's 97.5 % quantile


class Interval(NamedTuple):
    """An estimate, and its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def normal(cls, mean: float, error: float) -> Interval:
        """mean ± 1.96 standard errors."""
        return cls(mean, mean - Z95 * error, mean + Z95 * error)

    @property
    def above_zero(self) -> bool:
        """Whether 0 lies below the interval: of an attack and its floor, whether anything leaked."""
        return self.low > 0


def share(count: float, of: float, z: float = Z95) -> Interval:
    """count / of, with Wilson's score interval. `count` may be a mean over seeds. Raises ValueError where it is no share."""
    if not 0 <= count <= of or not of:
        raise ValueError(f"{count} of {of} is no share")
    p = count / of
    centre, half = p + z * z / (2 * of), z * math.sqrt(p * (1 - p) / of + (z / (2 * of)) ** 2)
    scale = 1 + z * z / of
    low, high = (centre - half) / scale, (centre + half) / scale
    return Interval(
        p, max(0.0, min(low, p)), min(1.0, max(high, p))
    )  # at 0 and 1 rounding must not put p outside


def difference(count: float, of: float, floor: float, floor_of: float, z: float = Z95) -> Interval:
    """count / of - floor / floor_of, with Newcombe's interval.

    All counts are taken as independent. Where the same facts come back in both, the true interval is narrower; where those of
    one text come back together, wider.
    """
    a, b = share(count, of, z), share(floor, floor_of, z)
    value = a.value - b.value
    low = value - math.hypot(a.value - a.low, b.high - b.value)
    return Interval(value, low, value + math.hypot(a.high - a.value, b.value - b.low))
