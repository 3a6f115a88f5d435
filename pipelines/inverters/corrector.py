"""vec2text's corrector (Morris et al. 2023, arXiv 2310.06816): a decoder that is shown a vector, a guess and its vector."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pipelines.inverters import EMPTY, Queries
from pipelines.inverters.decoder import Decoder, Settings, fit


def shown_to(target: Tensor, guess: Tensor) -> Tensor:
    """What a corrector is conditioned on: (n, e), (n, e) -> (n, 3e)."""
    return torch.cat([target, guess, target - guess], 1)


def memory_of(ids: Sequence[Sequence[int]], size: int, pad: int) -> Tensor:
    """Guesses as a corrector reads them: sub-words, padded. -> (n, size)"""
    return torch.tensor([[*i[:size], *[pad] * (size - len(i))] for i in ids])


def train_corrector(
    base: Decoder, vectors: Tensor, texts: Sequence[str], queries: Queries, settings: Settings, seed: int
) -> Decoder:
    """A second decoder, taught on the first one's guesses for the attacker's own vectors (n, e) to write the true texts."""
    generator = torch.Generator().manual_seed(seed)
    guesses = base.propose(vectors, [EMPTY] * len(vectors), base.tokens, 0.7, generator)
    shown = shown_to(vectors, queries([base.text(g) for g in guesses]))
    memory = memory_of([g.ids for g in guesses], base.tokens, base.vocabulary.pad)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Decoder(base.vocabulary, shown.shape[1], settings, memory=base.tokens).to(vectors.device)
        fit(model, shown, base.vocabulary.encode(texts, base.tokens), settings, seed, memory=memory)
    return model
