"""Images with their captions, batches of pairs, and random generators made from keys."""

from dataclasses import dataclass

import numpy as np
import polars as pl
import torch
from torch import Tensor

from pipelines.contrastive.pixels import pixels_of
from pipelines.contrastive.towers import Words
from pipelines.runtime.errors import BadInput


@dataclass(frozen=True)
class Pairs:
    """Images, and each image's captions as consecutive rows of `ids`."""

    images: Tensor  # uint8 (images, 3, size, size)
    ids: Tensor  # (captions, context)
    starts: Tensor  # (images + 1,)
    truncated: int  # captions

    def __len__(self) -> int:
        return len(self.images)

    def batch(self, rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the pixels of these images, and of each the ids of one random caption."""
        counts = self.starts[rows + 1] - self.starts[rows]
        drawn = (torch.rand(len(rows), generator=generator) * counts).long()
        return self.images[rows], self.ids[self.starts[rows] + drawn]


def check_images(corpus: str, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the frame. Raises BadInput if it has no images with captions."""
    if not {"image", "captions"} <= {*frame.columns}:
        raise BadInput(f"corpus {corpus}: it has no images with captions; kinds with images: scenes, images")
    return frame


def by_image(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the first row of each image, with the captions of all its rows. A document is one image."""
    first, captions = pl.exclude("captions").first(), pl.col("captions").explode()
    return frame.group_by("document", maintain_order=True).agg(first, captions)


def pairs(frame: pl.DataFrame, size: int, words: Words) -> Pairs:
    """Return the images, `size` pixels a side, with the tokenized captions of all their rows.

    Raises BadInput for fewer than two images.
    """
    frame = by_image(frame)
    if len(frame) < 2:
        raise BadInput(f"{len(frame)} training images: at least two are needed")
    captions = frame["captions"].to_list()
    ids, truncated = words([caption for of_image in captions for caption in of_image])
    starts = torch.tensor([0, *np.cumsum([len(of_image) for of_image in captions])])
    return Pairs(pixels_of(frame, size), ids, starts, truncated)


def generator(*keys: int) -> torch.Generator:
    """Return a random generator whose seed depends on all keys."""
    seed = np.random.SeedSequence(keys).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(seed >> np.uint64(1)))
