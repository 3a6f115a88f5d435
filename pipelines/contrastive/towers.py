"""An image and a text encoder that give every token: small transformers from scratch, or a vision transformer of timm."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn

from pipelines.runtime.errors import BadInput
from pipelines.study import ImageTower, TextTower

TOKEN = re.compile(r"\w+|[^\w\s]")
PAD, START, UNKNOWN = "<pad>", "<start>", "<unknown>"


def _blocks(width: int, depth: int, heads: int) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)


class VisionTransformer(nn.Module):
    """Dosovitskiy et al. (2021) without a class token: (n, 3, size, size) in [-1, 1] -> tokens (n, patches, width)."""

    def __init__(self, row: ImageTower) -> None:
        super().__init__()
        self.width = row.width
        self.patches = nn.Conv2d(3, row.width, row.patch, row.patch)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(1, (row.size // row.patch) ** 2, row.width))
        self.blocks = _blocks(row.width, row.depth, row.heads)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(self.patches(images).flatten(2).transpose(1, 2) + self.position_embedding)


class Timm(nn.Module):
    """All tokens of a vision transformer of timm. Raises BadInput without timm, or for what has no tokens."""

    def __init__(self, row: ImageTower, weights: bool) -> None:
        super().__init__()
        try:
            import timm  # pyright: ignore[reportMissingImports]
        except ImportError:
            raise BadInput(
                f"image tower {row.model}: timm is not installed; `pip install timm`, or `source: scratch`"
            ) from None
        name, _, file = row.model.partition("=")
        if row.source == "path" and not Path(file).is_file():
            raise BadInput(f"image tower {row.model}: write `name=file`; there is no file {file!r}")
        options = {"checkpoint_path": file} if row.source == "path" and weights else {"pretrained": weights}
        try:
            self.model = timm.create_model(name, num_classes=0, img_size=row.size, **options)
        except (
            Exception
        ) as error:  # unknown name, no network, weights of another model: timm has no one class for these
            raise BadInput(f"image tower {row.model}: {' '.join(str(error).split())[:200]}") from None
        self.width = int(self.model.num_features)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.model.forward_features(images)
        if tokens.ndim != 3:
            raise BadInput(
                f"image tower: features of shape {tuple(tokens.shape)}; a vision transformer's tokens are needed"
            )
        return tokens


def image_tower(row: ImageTower, weights: bool = True) -> VisionTransformer | Timm:
    """The image tower of a row; `weights`: load timm's, where the row names them."""
    return VisionTransformer(row) if row.source == "scratch" else Timm(row, weights)


class TextTransformer(nn.Module):
    """Token ids (n, context), 0 is padding -> tokens (n, context, width), attending both ways.

    With `padding: learnt` each padded position has a learnt token of its own (its position's vector on the padding word) that
    is seen like any other; with `mask` padding is neither seen nor weighed.
    """

    def __init__(self, row: TextTower, words: int) -> None:
        super().__init__()
        self.width, self.masked = row.width, row.padding == "mask"
        self.words = nn.Embedding(words, row.width)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(1, row.context, row.width))
        self.nulls = nn.Parameter(0.02 * torch.randn(1, row.context, row.width))
        self.blocks = _blocks(row.width, row.depth, row.heads)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        empty = ids == 0
        if self.masked:
            return self.blocks(self.words(ids) + self.position_embedding, src_key_padding_mask=empty)
        return self.blocks(
            torch.where(empty.unsqueeze(2), self.nulls, self.words(ids)) + self.position_embedding
        )


class Words:
    """Words of the training captions, by frequency; a word that is not there is spelt in its letters."""

    def __init__(self, words: list[str], context: int) -> None:
        self.words, self.context = words, context
        self._ids = {word: i for i, word in enumerate(words)}

    @classmethod
    def of(cls, captions: Iterable[str], row: TextTower) -> Words:
        counts = Counter(token for caption in captions for token in TOKEN.findall(caption.lower()))
        letters = Counter({letter: n for word, n in counts.items() for letter in word})
        first = [PAD, START, UNKNOWN, *(f"#{letter}" for letter in sorted(letters)[: row.vocabulary // 2])]
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(first + ordered[: row.vocabulary - len(first)], row.context)

    def __call__(self, captions: list[str]) -> tuple[Tensor, int]:
        """Ids (n, context) and how many captions were cut. Raises BadInput for an empty caption."""
        out, cut = torch.zeros(len(captions), self.context, dtype=torch.long), 0
        for i, caption in enumerate(captions):
            if not (ids := [j for token in TOKEN.findall(caption.lower()) for j in self._spell(token)]):
                raise BadInput(f"caption {i} is empty: {caption!r}")
            ids = [1, *ids]
            cut += len(ids) > self.context
            out[i, : len(ids)] = torch.tensor(ids[: self.context])[: self.context]
        return out, cut

    def _spell(self, token: str) -> list[int]:
        if token in self._ids:
            return [self._ids[token]]
        return [self._ids.get(f"#{letter}", 2) for letter in token]
