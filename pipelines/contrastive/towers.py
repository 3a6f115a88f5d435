"""An image and a text tower that return every token: small transformers, trained from scratch."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from pipelines.contrastive.shape import CONTEXT, HEADS, PATCH
from pipelines.study import ImageTower, TextTower

TOKEN = re.compile(r"\w+|[^\w\s]")
PAD, START, UNKNOWN = "<pad>", "<start>", "<unknown>"  # ids 0, 1, 2
# A decorator of what computes convolutions or their gradients. cuDNN's default, TF32, is 1e-3 off
in_float32 = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)


class VisionTransformer(nn.Module):
    """Dosovitskiy et al. (2021) without a class token.

    (n, 3, size, size) in [-1, 1] -> tokens (n, patches, width)
    """

    def __init__(self, row: ImageTower) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, row.width, PATCH, PATCH)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(1, (row.size // PATCH) ** 2, row.width))
        self.blocks = _blocks(row.width, row.depth)

    def forward(self, images: Tensor) -> Tensor:
        return self.blocks(self.patches(images).flatten(2).transpose(1, 2) + self.position_embedding)


class TextTransformer(nn.Module):
    """Token ids (n, context), 0 is padding -> tokens (n, context, width), with attention in both directions.

    Each padded position has a learnt token of its own, which is attended to like any other.
    """

    def __init__(self, row: TextTower, words: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, row.width)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(1, CONTEXT, row.width))
        self.nulls = nn.Parameter(0.02 * torch.randn(1, CONTEXT, row.width))
        self.blocks = _blocks(row.width, row.depth)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, ids: Tensor) -> Tensor:
        tokens = torch.where((ids == 0).unsqueeze(2), self.nulls, self.words(ids))
        return self.blocks(tokens + self.position_embedding)


def _blocks(width: int, depth: int) -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(
        width, HEADS, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
    )
    return nn.TransformerEncoder(layer, depth, norm=nn.LayerNorm(width), enable_nested_tensor=False)


class Words:
    """A tokenizer of words, by frequency in the training captions. Other words are spelt in letters."""

    def __init__(self, words: list[str]) -> None:
        self.words = words
        self._ids = {word: i for i, word in enumerate(words)}

    @classmethod
    def of(cls, captions: Iterable[str], row: TextTower) -> Words:
        counts = Counter(token for caption in captions for token in TOKEN.findall(caption.lower()))
        frequency = Counter(letter for word in counts.elements() for letter in word)
        letters = sorted(letter for letter, _ in frequency.most_common(row.vocabulary // 2))
        first = [PAD, START, UNKNOWN, *(f"#{letter}" for letter in letters)]
        ordered = sorted(counts, key=lambda word: (-counts[word], word))
        return cls(first + ordered[: row.vocabulary - len(first)])

    def __call__(self, captions: list[str]) -> tuple[Tensor, int]:
        """Return ids (n, context) and the number of truncated captions."""
        out, truncated = torch.zeros(len(captions), CONTEXT, dtype=torch.long), 0
        for row, caption in zip(out, captions, strict=True):
            ids = [1]
            for token in TOKEN.findall(caption.lower()):
                ids += self._spell(token)
            truncated += len(ids) > CONTEXT
            row[: len(ids)] = torch.tensor(ids[:CONTEXT])
        return out, truncated

    def _spell(self, token: str) -> list[int]:
        if token in self._ids:
            return [self._ids[token]]
        return [self._ids.get(f"#{letter}", 2) for letter in token]
