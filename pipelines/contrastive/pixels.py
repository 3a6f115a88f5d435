"""Image bytes to pixels."""

import io
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import numpy as np
import polars as pl
import torch
from PIL import Image, ImageOps
from torch import Tensor

from pipelines.runtime.errors import BadInput

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")  # hold only pixels; PostScript, for one, is a program
LARGEST = 2**27  # most pixels of an image, before and after its shorter side is resized


def pixels(data: bytes, size: int) -> Tensor:
    """Decode, turn upright as its EXIF says, resize the shorter side to `size`, cut the centre.

    Transparency becomes white. Damaged EXIF is ignored. -> uint8 (3, size, size)

    Raises ValueError for what is no whole image, or too large.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as image:
            resized = size * size * max(image.size) / min(image.size)
            if max(image.width * image.height, resized) > LARGEST:
                raise ValueError(f"{image.width} x {image.height} pixels are too many, or too uneven")
            image.load()
            with suppress(Exception):  # of damaged EXIF, which Pillow reports in many ways
                ImageOps.exif_transpose(image, in_place=True)
            if image.mode.startswith("I"):  # 16 bits of grey, which `convert` would clip
                image = Image.fromarray((np.array(image) // 257).astype(np.uint8))
            if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image.convert("RGBA"))
            image = image.convert("RGB")
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"cannot be read: {' '.join(str(error).split())[:120]}") from None
    return torch.from_numpy(np.array(ImageOps.fit(image, (size, size)))).permute(2, 0, 1)


def pixels_of(frame: pl.DataFrame, size: int) -> Tensor:
    """Decode the column `image`. -> uint8 (n, 3, size, size)

    Raises BadInput, naming the image, for one that cannot be decoded.
    """

    def decoded(image: bytes, name: str) -> Tensor:
        try:
            return pixels(image, size)
        except ValueError as error:
            raise BadInput(f"image {name!r}: {error}") from None

    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return torch.stack(list(pool.map(decoded, frame["image"], frame["id"])))
