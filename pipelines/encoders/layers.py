"""How token vectors change from layer to layer, and the words that change most (SBERT-WK, section III)."""

from collections.abc import Sequence
from typing import Any

import polars as pl
import torch
from sentence_transformers import SentenceTransformer
from torch import Tensor

from pipelines.encoders.pooling import words_of
from pipelines.encoders.sbert_wk import adjacent, layer_cosines

LEAST = 5  # occurrences of a word that is listed
BATCH = 64
ENDS = 25  # words at either end of the table


@torch.inference_mode()
def compare(
    model: SentenceTransformer, texts: Sequence[str], prompt: str = ""
) -> tuple[Tensor, pl.DataFrame]:
    """Return the mean cosine of a token's vectors in every two layers, (L, L), and a table of words.

    `prompt` stands before every text.

    Layer 0 is the output of the embedding layer. Special tokens are left out. A word is a piece of the
    vocabulary. Its variance, SBERT-WK's importance, is that of the cosines of neighbouring layers, mean over
    its occurrences. The table holds the ENDS words of the largest variance, and then those of the smallest.
    It is empty for a single layer, whose one cosine has no variance.
    """
    transformer: Any = model[0]
    tokenizer, cosines, pieces = transformer.tokenizer, [], []
    options = {"padding": True, "truncation": True, "return_tensors": "pt"}
    for i in range(0, len(texts), BATCH):
        batch = [prompt + text for text in texts[i : i + BATCH]]
        features = tokenizer(batch, **options).to(model.device)
        used = words_of(tokenizer, features)
        hidden = transformer.model(**features, output_hidden_states=True, return_dict=True).hidden_states
        cosines.append(layer_cosines([layer[used] for layer in hidden]).cpu())
        pieces += tokenizer.convert_ids_to_tokens(features["input_ids"][used].tolist())
    every = torch.cat(cosines)  # (n, L, L)
    if every.shape[1] < 3:
        return every.mean(0), pl.DataFrame(schema=["word", "count", "variance"])
    tokens = pl.DataFrame({"word": pieces, "variance": adjacent(every).var(1).numpy()})
    words = tokens.group_by("word").agg(pl.len().alias("count"), pl.col("variance").mean())
    words = words.filter(pl.col("count") >= LEAST).sort("variance", "word", descending=[True, False])
    return every.mean(0), pl.concat([words.head(ENDS), words.tail(ENDS)]).unique(maintain_order=True)
