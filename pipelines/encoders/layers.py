"""How token vectors change from layer to layer (SBERT-WK, section III)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from sentence_transformers import SentenceTransformer

from pipelines.encoders.sbert_wk import adjacent, layer_cosines

BATCH = 64


@torch.inference_mode()
def cosines(model: SentenceTransformer, texts: Sequence[str]) -> list[float]:
    """Return the cosine of layers k - 1 and k, for k from 1. Layer 0 are the static embeddings.

    It is the mean over all tokens of the texts except the special ones.
    """
    transformer: Any = model[0]
    tokenizer, steps = transformer.tokenizer, []
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
        steps.append(adjacent(layer_cosines([layer[used] for layer in hidden])).cpu())
    return torch.cat(steps).mean(0).tolist()  # of (n, layers)
