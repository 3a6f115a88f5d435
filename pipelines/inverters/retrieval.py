"""The baseline that nobody should lose to: of the attacker's own texts, those nearest to the vector."""

from __future__ import annotations

import torch
from torch import Tensor

from pipelines.measures.vectors import finite

BLOCK = 1024


def nearest(vectors: Tensor, known: Tensor, texts: list[str], count: int = 1) -> list[list[str]]:
    """The `count` texts whose unit vectors `known` (m, e) are nearest to each of the unit `vectors` (n, e), nearest first."""
    return [[texts[j] for j in row] for row in neighbours(vectors, known, count).tolist()]


def overlap(first: Tensor, second: Tensor) -> Tensor:
    """Share of the ids of each row of `first` (n, k) that are in the same row of `second` (n, k). -> (n,)"""
    return (first[:, :, None] == second[:, None, :]).any(2).double().mean(1)


def neighbours(vectors: Tensor, known: Tensor, count: int) -> Tensor:
    """Indices (n, count) of the nearest known vectors, nearest first; both sides unit rows. Raises BadInput for a row that is not
    finite."""
    vectors, known = finite("vectors", vectors), finite("known", known)
    blocks = [
        (vectors[i : i + BLOCK] @ known.T).topk(min(count, len(known)), dim=1).indices for i in range(0, len(vectors), BLOCK)
    ]
    return torch.cat(blocks)
