"""What measures and aligners share: a cloud of vectors is refused where it is not finite."""

from __future__ import annotations

from torch import Tensor

from pipelines.runtime.errors import BadInput


def finite(name: str, rows: Tensor) -> Tensor:
    """`rows` (n, ...) as they are. Raises BadInput, naming the first row that holds NaN or an infinity: NaN compares false, so
    that ranks of it would be perfect."""
    good = rows.isfinite().flatten(1).all(1)
    if not good.all():
        bad = (~good).nonzero()
        raise BadInput(f"{name}: row {int(bad[0])} is not finite ({len(bad)} such rows of {len(rows)})")
    return rows
