"""The baseline that nobody should lose to: of the attacker's own texts, those nearest to the vector."""

from __future__ import annotations

from torch import Tensor

from pipelines.measures.vectors import neighbours


def nearest(vectors: Tensor, known: Tensor, texts: list[str], count: int = 1) -> list[list[str]]:
    """The `count` texts whose unit vectors `known` (m, e) are nearest to each of the unit `vectors` (n, e), nearest first.

    Raises BadInput for a row that is not finite.
    """
    return [[texts[j] for j in row] for row in neighbours(vectors, known, count).tolist()]
