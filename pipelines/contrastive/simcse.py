"""SimCSE (Gao, Yao and Chen, EMNLP 2021, arXiv:2104.08821).

Unsupervised: a sentence is its own positive, seen through two dropout masks. Supervised: an entailed sentence
is the positive, a contradiction the hard negative. The other sentences of the batch are negatives. For unit
vectors h of anchors, p of positives and n of hard negatives, and a temperature t, the loss is InfoNCE (van
den Oord et al. 2018). Without n it is the paper's equations 1 and 4; with one n for each text it is equation
5, and with a weight w equation 8:

    loss_i = -log exp(h_i . p_i / t) / sum_j [ exp(h_i . p_j / t) + w^(i = j) exp(h_i . n_j / t) ]

The auxiliary masked language model differs from the authors' code in two ways. It masks the first sentence of
each row only, not all. Its head starts at random, not from the checkpoint's weights.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, normalize

from pipelines.runtime.device import forked, to_device


def info_nce(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor | None = None,
    *,
    temperature: float,
    negative_weight: float,
) -> Tensor:
    """Return the loss, averaged over i. All (n, d), of any norm -> scalar

    With w = 1 this is sentence-transformers' MultipleNegativesRankingLoss(scale=1/t).
    """
    h = normalize(anchor, dim=1)
    scores = h @ normalize(positive, dim=1).T / temperature  # (n, n)
    if negative is not None:
        hard = h @ normalize(negative, dim=1).T / temperature
        weight = math.log(negative_weight) if negative_weight > 0 else -math.inf
        hard = hard + torch.zeros_like(hard).fill_diagonal_(weight)
        scores = torch.cat([scores, hard], 1)  # (n, 2n)
    return cross_entropy(scores, torch.arange(len(h), device=h.device))


# ---------------------------------------------------------------- views


def embed_columns(
    model: SentenceTransformer,
    columns: Sequence[Sequence[str]],
    max_tokens: int,
    mask: Literal["independent", "fixed"],
) -> list[Tensor]:
    """Return the vectors of k columns of n texts. -> k x (n, d)

    independent: one pass, in which every row has its own dropout mask. fixed (the paper's "fixed 0.1"): one
    pass for each column, all from the same random state. The masks are the same if the columns are padded to
    the same length. Then equal texts in the same row get equal vectors.
    """

    def embedded(texts: Sequence[str]) -> Tensor:
        return model(tokenize(model, texts, max_tokens))["sentence_embedding"]

    if mask == "independent":
        return list(embedded([text for column in columns for text in column]).split(len(columns[0])))
    out = []
    for column in columns[:-1]:  # each starts from the state of the last one, which alone advances it
        with forked(model.device):
            out.append(embedded(column))
    return [*out, embedded(columns[-1])]


def tokenize(model: SentenceTransformer, texts: Sequence[str], max_tokens: int) -> dict[str, Tensor]:
    """Return padded token ids and mask on the model's device, truncated to `max_tokens`.

    n texts -> each (n, tokens)
    """
    transformer: Any = model[0]
    tokens = transformer.tokenizer(
        list(texts), padding=True, truncation=True, max_length=max_tokens, return_tensors="pt"
    )
    return {name: to_device(ids, model.device) for name, ids in tokens.items()}


def augment(text: str, kind: Literal["crop", "delete"], share: float, rng: np.random.Generator) -> str:
    """Drop `share` of the words: crop keeps one stretch, delete drops words at random.

    At least one word stays.
    """
    words = text.split() or [text]
    keep = max(1, round(len(words) * (1 - share)))
    if kind == "crop":
        start = int(rng.integers(len(words) - keep + 1))
        return " ".join(words[start : start + keep])
    return " ".join(words[i] for i in np.sort(rng.permutation(len(words))[:keep]))


def set_dropout(model: nn.Module, p: float) -> None:
    """Set the probability of every dropout layer, including attention's.

    Some networks, such as ModernBERT and CLIP, keep the latter as a number.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = p
        for name in {"attention_dropout", "dropout"} & vars(module).keys():  # where it is no layer
            setattr(module, name, p)


# ---------------------------------------------------------------- auxiliary masked language model


class MaskedWords(nn.Module):
    """BERT's masked language model on a transformer's last layer, tied to the word embeddings."""

    def __init__(self, embeddings: nn.Embedding, width: int) -> None:
        super().__init__()
        self.dense, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.bias = nn.Parameter(torch.zeros(embeddings.num_embeddings))
        self._embeddings = [embeddings]  # a list, so that the weights are not this module's parameters, too

    def forward(self, hidden: Tensor, targets: Tensor) -> Tensor:
        """Return the summed cross entropy of masked tokens. (m, width), (m,) -> scalar"""
        hidden = self.norm(gelu(self.dense(hidden)))
        return cross_entropy(hidden @ self._embeddings[0].weight.T + self.bias, targets, reduction="sum")


def mask_words(ids: Tensor, allowed: Tensor, mask_id: int, vocabulary: int) -> tuple[Tensor, Tensor]:
    """Mask 15% of the allowed tokens as BERT: 80% of these become [MASK], 10% a random token, 10% stay.

    (n, t) ids, (n, t) bool -> (n, t) masked ids, (n, t) bool targets
    """
    targets = (torch.rand(ids.shape, device=ids.device) < 0.15) & allowed
    fate = torch.rand(ids.shape, device=ids.device)
    ids = torch.where(targets & (fate < 0.8), mask_id, ids)
    return torch.where(targets & (fate >= 0.9), torch.randint_like(ids, vocabulary), ids), targets
