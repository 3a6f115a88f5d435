"""Bounds of settings, in one form for rows (pydantic) and for plain dataclasses, which need the standard library alone.

@dataclass(frozen=True)
class Settings(Checked):
    steps: Count = 100
    rate: Annotated[float, Bounds(gt=0, le=1)] = 0.1
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Bounds:
    """Mark the interval of a number, or of each number of a tuple: `Annotated[int, Bounds(ge=1)]`.

    Infinity and NaN are out of every bounds.
    """

    ge: float = -math.inf
    gt: float = -math.inf
    le: float = math.inf
    lt: float = math.inf

    def __str__(self) -> str:
        if self.le == self.lt == math.inf:
            return f"more than {self.gt}" if self.gt > self.ge else f"at least {self.ge}"
        low = f"({self.gt}" if self.gt > self.ge else f"[{self.ge}"
        return f"in {low}, {self.lt})" if self.lt < self.le else f"in {low}, {self.le}]"

    def check(self, value: Any) -> Any:
        """Return the value. Raises ValueError if one of its numbers is out of bounds."""
        for number in numbers(value):
            if not (self.ge <= number <= self.le and self.gt < number < self.lt):
                raise ValueError(f"{value} must be {self}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Let pydantic check rows in the same way."""
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(self.check, handler(source))


Finite = Annotated[float, Bounds(gt=-math.inf, lt=math.inf)]
Positive = Annotated[float, Bounds(gt=0)]
NonNegative = Annotated[float, Bounds(ge=0)]
Share = Annotated[float, Bounds(ge=0, le=1)]
Count = Annotated[int, Bounds(ge=1)]
Number = Annotated[int, Bounds(ge=0)]


class Checked:
    """Base of a dataclass of settings: raises ValueError, naming the field, for a value out of its bounds or choices."""

    def __post_init__(self) -> None:
        check_settings(self)


def check_settings(
    settings: Any, least: Mapping[Any, float] | None = None, ranges: Mapping[str, str] | None = None
) -> None:
    """Raise ValueError, naming the field, unless each number is finite and in bounds, and each Literal one of its choices.

    `least`: lowest value of a field. `ranges`: its interval, such as "[0, 1)" or "(0, inf)". Of a tuple every number is checked.
    """
    hints = get_type_hints(type(settings), include_extras=True)
    for field in fields(settings):
        value = getattr(settings, field.name)
        choices = get_args(hints[field.name]) if get_origin(hints[field.name]) is Literal else (value,)
        if value not in choices:
            raise ValueError(f"{field.name}: {value!r} is none of {', '.join(map(str, choices))}")
        if any(not math.isfinite(number) for number in numbers(value)):
            raise ValueError(f"{field.name}: {value} must be finite")
        for bounds in marks(hints[field.name]):
            try:
                bounds.check(value)
            except ValueError as error:
                raise ValueError(f"{field.name}: {error}") from None
    for name, bound in (least or {}).items():
        if any(number < bound for number in numbers(getattr(settings, name))):
            raise ValueError(f"{name}: {getattr(settings, name)} must be at least {bound}")
    for name, interval in (ranges or {}).items():
        if not all(inside(number, interval) for number in numbers(getattr(settings, name))):
            raise ValueError(f"{name}: {getattr(settings, name)} must be in {interval}")


def marks(hint: Any) -> Iterator[Bounds]:
    """Yield the bounds in a type, at any depth: `Annotated[int, Bounds(ge=1)] | None` has one."""
    yield from (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Bounds))
    for inner in get_args(hint):
        yield from marks(inner)


def numbers(value: Any) -> list[float]:
    """Return the numbers of a value: the elements of a tuple, a number itself, else none."""
    values = value if isinstance(value, (tuple, list)) else (value,)
    return [v for v in values if isinstance(v, (int, float)) and not isinstance(v, bool)]


def inside(value: float, interval: str) -> bool:
    """Whether a number is in an interval: "[" and "]" include the end, "(" and ")" do not."""
    low, high = (float(end) for end in interval[1:-1].split(","))
    above = value >= low if interval[0] == "[" else value > low
    return above and (value <= high if interval[-1] == "]" else value < high)
