"""vec2text's corrector (Morris et al. 2023, arXiv 2310.06816): a decoder that reads a vector, a guess and its
vector.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.inverters import EMPTY, Draft, Queries
from pipelines.inverters.decoder import Decoder, fit
from pipelines.inverters.vocabulary import PAD
from pipelines.inverters.writer import TEMPERATURE, Writer, padded


def inputs(
    inverter: Writer, vectors: Tensor, guesses: Sequence[Draft], queries: Queries
) -> tuple[Tensor, Tensor]:
    """Return what a corrector reads: vectors (n, 3e), and the guesses' sub-words (n, tokens).

    The vectors are the target (n, e), the embedded guess, and their difference.
    """
    embedded = queries([inverter.text(g) for g in guesses])
    shown = torch.cat([vectors, embedded, vectors - embedded], 1)
    return shown, padded([g.ids for g in guesses], inverter.tokens, PAD)


def train_corrector(
    base: Decoder, vectors: Tensor, texts: Sequence[str], queries: Queries, seed: int
) -> Decoder:
    """Train a second decoder to write the true texts from the guesses of `base` for their unit vectors (n,
    e).
    """
    generator = torch.Generator().manual_seed(seed)
    guesses = base.propose(vectors, [EMPTY] * len(vectors), base.tokens, TEMPERATURE, generator)
    shown, memory = inputs(base, vectors, guesses, queries)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Decoder(base.vocabulary, shown.shape[1], base.settings, memory=base.tokens).to(vectors.device)
        fit(model, shown, base.vocabulary.encode(texts, base.tokens), seed, memory=memory)
    return model
