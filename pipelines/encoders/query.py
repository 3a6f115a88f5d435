"""An encoder as an attacker uses it: texts in, vectors out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pipelines import encoders
from pipelines.encoders.encode import encode
from pipelines.study import Encoder

Encode = Callable[[Sequence[str]], Tensor]


def as_function(folder: Path, row: Encoder, device: torch.device | None = None) -> Encode:
    """texts -> raw vectors (n, dimension), on the CPU, by the encoder that `fetch` left in this folder. device: as of
    `encoders.load`."""
    loaded = encoders.load(folder, row, device)

    def encode_texts(texts: Sequence[str]) -> Tensor:
        with tempfile.TemporaryDirectory() as parts:
            return torch.from_numpy(encode(loaded, list(texts), row, Path(parts)).vectors).float()

    return encode_texts
