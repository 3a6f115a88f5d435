"""How token vectors change from layer to layer, and the words that change most (SBERT-WK, section III)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from pipelines.encoders.sbert_wk import adjacent, layer_cosines

LEAST = 5  # occurrences of a word that is listed
BATCH = 64


@dataclass(frozen=True)
class Dissection:
    """Statistics over all tokens except the special ones."""

    mean: Tensor  # (layers,) cosine of layers k - 1 and k; layer 0 are the static embeddings
    spread: Tensor  # (layers,) its standard deviation over tokens
    words: list[str]  # pieces of the vocabulary
    variances: list[float]  # mean variance of a piece's cosines over the layers
    counts: list[int]


@torch.inference_mode()
def dissect(model: SentenceTransformer, texts: Sequence[str]) -> Dissection:
    """Run texts through the transformer of a model and compare neighbouring layers."""
    transformer: Any = model[0]
    tokenizer, ids, cosines = transformer.tokenizer, [], []
    for i in range(0, len(texts), BATCH):
        features = tokenizer(
            list(texts[i : i + BATCH]),
            padding=True,
            truncation=True,
            max_length=model.max_seq_length,
            return_tensors="pt",
        ).to(model.device)
        used = features["attention_mask"].bool()
        for special in tokenizer.all_special_ids:
            used &= features["input_ids"] != special
        hidden = transformer.model(**features, output_hidden_states=True, return_dict=True).hidden_states
        cosines.append(adjacent(layer_cosines([layer[used] for layer in hidden])).cpu())
        ids.append(features["input_ids"][used].cpu())
    steps, pieces = torch.cat(cosines), torch.cat(ids)  # (n, layers), (n,)

    by_piece: dict[int, list[float]] = defaultdict(list)
    for piece, variance in zip(pieces.tolist(), steps.var(1).tolist(), strict=True):
        by_piece[piece].append(variance)
    listed = {piece: v for piece, v in by_piece.items() if len(v) >= LEAST}
    return Dissection(
        mean=steps.mean(0),
        spread=steps.std(0),
        words=tokenizer.convert_ids_to_tokens(list(listed)),
        variances=[sum(v) / len(v) for v in listed.values()],
        counts=[len(v) for v in listed.values()],
    )
