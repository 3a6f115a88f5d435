"""One check for the frozen dataclass `Settings` of every aligner and inverter. It needs the standard library alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints


def check_settings(
    settings: Any, least: Mapping[Any, float], ranges: Mapping[str, str] | None = None
) -> None:
    """Raise ValueError, naming the field, unless each number is finite and in bounds, and each Literal one of its choices.

    `least`: lowest value of a field. `ranges`: its interval, such as "[0, 1)" or "(0, inf)". Of a tuple every number is checked.
    """
    hints = get_type_hints(type(settings))
    for field in fields(settings):
        value = getattr(settings, field.name)
        if get_origin(hints[field.name]) is Literal and value not in get_args(hints[field.name]):
            raise ValueError(
                f"{field.name}: {value!r} is none of {', '.join(map(str, get_args(hints[field.name])))}"
            )
        if any(not math.isfinite(number) for number in numbers(value)):
            raise ValueError(f"{field.name}: {value} must be finite")
    for name, bound in least.items():
        if any(number < bound for number in numbers(getattr(settings, name))):
            raise ValueError(f"{name}: {getattr(settings, name)} must be at least {bound}")
    for name, interval in (ranges or {}).items():
        if not all(inside(number, interval) for number in numbers(getattr(settings, name))):
            raise ValueError(f"{name}: {getattr(settings, name)} must be in {interval}")


def numbers(value: Any) -> list[float]:
    """The numbers of a value: of a tuple its elements, of a number itself, of anything else none."""
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]


def inside(value: float, interval: str) -> bool:
    """Whether a number is in an interval: "[" and "]" include the end, "(" and ")" do not."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    return above and (value <= high if interval[-1] == "]" else value < high)
