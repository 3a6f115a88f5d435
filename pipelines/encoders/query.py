"""An encoder as an attacker uses it: a function from texts to vectors."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from pipelines.study import Encoder

Encode = Callable[[Sequence[str]], Tensor]


def as_function(
    folder: Path, row: Encoder, device: torch.device | None = None, queries: bool = False
) -> Encode:
    """Return a function from texts to raw vectors (n, dimension) on the CPU.

    The encoder in `folder` runs on `device`. `queries`: with its prompt of queries, if it has one. The
    function raises BadInput for a vector that is not finite.
    """
    # Their imports take seconds, and a command first checks its arguments.
    from pipelines.encoders.encode import encode, finite
    from pipelines.encoders.loading import for_queries, load

    loaded = load(folder, row, device)
    loaded = for_queries(loaded) if queries else loaded

    def encode_texts(texts: Sequence[str]) -> Tensor:
        with tempfile.TemporaryDirectory() as parts:
            return finite(loaded, encode(loaded, list(texts), row, Path(parts)))

    return encode_texts
