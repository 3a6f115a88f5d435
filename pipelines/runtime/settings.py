"""Bounds of settings, in one form for rows (pydantic) and for plain dataclasses, which need only the standard
library.

    @dataclass(frozen=True)
    class Settings(Checked):
        steps: Count = 100
        rate: Annotated[float, Bounds(gt=0, le=1)] = 0.1
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Bounds:
    """Mark the interval of a number, or of each number of a tuple: `Annotated[int, Bounds(ge=1)]`.

    Infinity and NaN are always out of bounds. True and False are no numbers.
    """

    ge: float = -math.inf
    gt: float = -math.inf
    le: float = math.inf
    lt: float = math.inf

    def __str__(self) -> str:
        said = {"at least": self.ge, "more than": self.gt, "at most": self.le, "less than": self.lt}
        return " and ".join(f"{words} {number}" for words, number in said.items() if math.isfinite(number))

    def check(self, value: Any) -> Any:
        """Return the value. Raises ValueError if one of its numbers is out of bounds."""
        if isinstance(value, bool):
            raise ValueError(f"{str(value).lower()} is no number")
        for number in value if isinstance(value, tuple) else (value,):
            if not isinstance(number, (int, float)):
                continue
            if not math.isfinite(number):
                raise ValueError(f"{value} must be finite")
            if not (self.ge <= number <= self.le and self.gt < number < self.lt):
                raise ValueError(f"{value} must be {self}")
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Let pydantic check rows in the same way: also before it makes a number of the value."""
        from pydantic_core.core_schema import no_info_wrap_validator_function

        def check(value: Any, convert: Any) -> Any:
            return self.check(convert(self.check(value)))

        return no_info_wrap_validator_function(check, handler(source))


Finite = Annotated[float, Bounds()]
Positive = Annotated[float, Bounds(gt=0)]
NonNegative = Annotated[float, Bounds(ge=0)]
Share = Annotated[float, Bounds(ge=0, le=1)]
Natural = Annotated[int, Bounds(ge=0)]
Count = Annotated[int, Bounds(ge=1)]


class Checked:
    """Base of a dataclass of settings: raises ValueError, naming the field, for a value out of its bounds or
    choices.
    """

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self), include_extras=True)
        for field in fields(self):  # pyright: ignore[reportArgumentType]
            hint, value = hints[field.name], getattr(self, field.name)
            choices = get_args(hint) if get_origin(hint) is Literal else (value,)
            if value not in choices:
                raise ValueError(f"{field.name}: {value!r} is none of {', '.join(map(str, choices))}")
            every = [] if isinstance(value, bool) else [Bounds()]  # every number is finite
            for bounds in (*every, *marks(hint)):
                try:
                    bounds.check(value)
                except ValueError as error:
                    raise ValueError(f"{field.name}: {error}") from None


def marks(hint: Any) -> Iterator[Bounds]:
    """Yield the bounds in a type, at any depth: `Annotated[int, Bounds(ge=1)] | None` has one."""
    yield from (mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Bounds))
    for inner in get_args(hint):
        yield from marks(inner)
