"""The type of the function that a fit reports its progress to."""

from collections.abc import Callable

Log = Callable[[dict[str, float], int], None]  # metrics by name, step
