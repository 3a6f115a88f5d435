"""What a fit reports its progress to; `track` makes one, and a method calls it."""

from __future__ import annotations

from collections.abc import Callable

Log = Callable[[dict[str, float], int], None]  # metrics by name, step
