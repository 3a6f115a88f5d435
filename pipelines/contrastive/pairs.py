"""Images with their captions: a corpus with images, batches of pairs, and random draws that are a function of their keys."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from pipelines.contrastive.pixels import Pixels
from pipelines.contrastive.towers import Words
from pipelines.runtime.errors import BadInput


@dataclass(frozen=True)
class Pairs:
    """Images, and each image's captions as consecutive rows of `ids`."""

    images: Pixels
    ids: Tensor  # (captions, context)
    starts: Tensor  # (images + 1,)
    truncated: int

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Pixels and, of each image, the ids of one of its captions."""
        counts = self.starts[rows + 1] - self.starts[rows]
        drawn = (torch.rand(len(rows), generator=generator) * counts).long()
        return self.images[rows], self.ids[self.starts[rows] + drawn]


def check_images(corpus: str, frame: pl.DataFrame) -> pl.DataFrame:
    """The frame. Raises BadInput for one without images, or without rows."""
    if "image" not in frame.columns:
        raise BadInput(f"corpus {corpus}: there is no column 'image'; kinds with images: scenes, images")
    if frame.is_empty():
        raise BadInput(f"corpus {corpus}: no rows")
    return frame


def captions_of(frame: pl.DataFrame) -> list[list[str]]:
    """Every image's captions: the column `captions`, or else the text alone."""
    return (
        frame["captions"].to_list()
        if "captions" in frame.columns
        else [[text] for text in frame["text"].to_list()]
    )


def pairs(frame: pl.DataFrame, size: int, words: Words) -> Pairs:
    """Images of `size` pixels a side, and their captions in `words`."""
    captions = captions_of(frame)
    ids, truncated = words([c for cs in captions for c in cs])
    starts = torch.tensor([0, *np.cumsum([len(cs) for cs in captions])])
    return Pairs(Pixels(frame["image"].to_list(), frame["id"].to_list(), size), ids, starts, truncated)


def generator(*keys: int) -> torch.Generator:
    """A generator for each combination of keys."""
    seed = np.random.SeedSequence(keys).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed >> np.uint64(1)))
