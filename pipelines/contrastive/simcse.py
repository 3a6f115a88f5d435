"""SimCSE (Gao, Yao and Chen, EMNLP 2021, arXiv:2104.08821): contrastive learning of sentence vectors.

Unsupervised: a sentence is its own positive, seen through two dropout masks. Supervised: an entailed sentence is the
positive, a contradiction the hard negative. The other sentences of the batch are negatives. The loss is in losses.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu

from pipelines.contrastive.losses import info_nce

Gather = Callable[[Tensor], Tensor]
Features = dict[str, Tensor]


class InfoNce(nn.Module):
    """`info_nce` as a loss of sentence-transformers, for its Trainer and (text, text) or (text, positive, negative) columns.

    >>> trainer = SentenceTransformerTrainer(model, train_dataset=triples, loss=InfoNce(model, negative_weight=0.5))
    """

    def __init__(
        self, model: SentenceTransformer, temperature: float = 0.05, negative_weight: float = 1.0
    ) -> None:
        super().__init__()
        self.model, self.temperature, self.negative_weight = model, temperature, negative_weight

    def forward(self, sentence_features: Iterable[Features], labels: Tensor | None = None) -> Tensor:
        vectors = [self.model(dict(features))["sentence_embedding"] for features in sentence_features]
        return info_nce(*vectors, temperature=self.temperature, negative_weight=self.negative_weight)


# ---------------------------------------------------------------- views


def tokenized(model: SentenceTransformer, texts: Sequence[str], max_tokens: int) -> Features:
    """Padded token ids and mask of a batch, cut at `max_tokens`, on the model's device. n texts -> each (n, tokens)"""
    transformer: Any = model[0]
    batch = transformer.tokenizer(
        list(texts), padding=True, truncation=True, max_length=max_tokens, return_tensors="pt"
    )
    return {k: v.to(model.device) for k, v in batch.items()}


def embed_columns(
    model: SentenceTransformer,
    columns: Sequence[Sequence[str]],
    max_tokens: int,
    mask: Literal["independent", "fixed"],
) -> list[Tensor]:
    """Vectors of k columns of n texts in one pass, so that every row has a dropout mask of its own. -> k x (n, d)

    fixed: k passes from one state of the random number generator, so that a sentence meets the same mask twice; the paper's
    "fixed 0.1", which loses the alignment that dropout noise gives.
    """
    n = len(columns[0])
    if mask == "independent":
        features = tokenized(model, [text for column in columns for text in column], max_tokens)
        return list(model(features)["sentence_embedding"].split(n))
    state, out = random_state(model.device), []
    for column in columns:
        set_random_state(state, model.device)
        out.append(model(tokenized(model, column, max_tokens))["sentence_embedding"])
    return out


def random_state(device: torch.device) -> list[Tensor]:
    """State of the CPU's random number generator, and of the device's where that is an accelerator."""
    accelerator = [] if device.type == "cpu" else [torch.get_device_module(device).get_rng_state(device)]
    return [torch.get_rng_state(), *accelerator]


def set_random_state(state: list[Tensor], device: torch.device) -> None:
    """Continue from what `random_state` gave."""
    torch.set_rng_state(state[0])
    if device.type != "cpu":
        torch.get_device_module(device).set_rng_state(state[1], device)


def augmented(text: str, kind: Literal["crop", "delete"], share: float, rng: np.random.Generator) -> str:
    """The text without `share` of its words: crop keeps one stretch, delete drops words at random. At least a word stays."""
    words = text.split()
    keep = max(1, round(len(words) * (1 - share)))
    if kind == "crop":
        start = int(rng.integers(len(words) - keep + 1))
        return " ".join(words[start : start + keep])
    return " ".join(words[i] for i in np.sort(rng.permutation(len(words))[:keep]))


def set_dropout(model: nn.Module, p: float) -> None:
    """Every dropout layer of the network to probability p, attention's included."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = p


# ---------------------------------------------------------------- auxiliary masked language model


class MaskedWords(nn.Module):
    """BERT's masked language model on a transformer's last layer, its output layer tied to the word embeddings."""

    def __init__(self, embeddings: nn.Embedding, width: int) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(embeddings.num_embeddings))
        self._embeddings = [
            embeddings
        ]  # in a list: the transformer's parameter, not a second one of this module

    def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Summed cross entropy of masked tokens. (m, width), (m,) -> scalar"""
        hidden = self.norm(gelu(self.dense(hidden)))
        return cross_entropy(hidden @ self._embeddings[0].weight.T + self.bias, targets, reduction="sum")


def masked(
    ids: Tensor, allowed: Tensor, mask_id: int, vocabulary: int, share: float = 0.15
) -> tuple[Tensor, Tensor]:
    """BERT's masking: `share` of the allowed tokens are targets; of these 80% become [MASK], 10% any token, 10% stay.

    (n, t) ids, (n, t) bool -> ids with masks, which are targets
    """
    targets = (torch.rand(ids.shape, device=ids.device) < share) & allowed
    fate = torch.rand(ids.shape, device=ids.device)
    ids = torch.where(targets & (fate < 0.8), mask_id, ids)
    return torch.where(targets & (fate >= 0.9), torch.randint_like(ids, vocabulary), ids), targets
