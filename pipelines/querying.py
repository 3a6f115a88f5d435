"""An encoder as an attacker uses it: texts in, vectors out."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pipelines import encoders, params, store
from pipelines.encoders.encode import encode

Encode = Callable[[Sequence[str]], Tensor]


def encoder(study: params.Study, name: str) -> Encode:
    """texts -> raw vectors (n, dimension), by the encoder that `fetch` left under this name."""
    row = study.encoders[name]
    loaded = encoders.load(store.encoder_path(name), row)

    def query(texts: Sequence[str]) -> Tensor:
        with tempfile.TemporaryDirectory() as folder:
            return torch.from_numpy(encode(loaded, list(texts), row, Path(folder), progress=False).vectors).float()

    return query
