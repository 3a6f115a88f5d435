"""vec2text's corrector (Morris et al. 2023, arXiv 2310.06816) improves a guessed text.

It is a decoder that reads the vector of the unknown text, the guess, and the vector of the guess.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pipelines.inverters import Draft, Queries
from pipelines.inverters.decoder import Decoder, fitted
from pipelines.inverters.vocabulary import PAD
from pipelines.inverters.writer import Writer, padded

AT_ONCE = 1024  # guesses that are written at once


def inputs(
    base: Writer, vectors: Tensor, guesses: Sequence[Draft], queries: Queries
) -> tuple[Tensor, Tensor]:
    """Return what a corrector reads: vectors (n, 3e), and the sub-words of the guesses (n, base.tokens).

    A row of the first is a target vector v, the embedding g of its guess, and v - g. `queries` embeds texts.
    """
    embedded = queries([base.text(g) for g in guesses])
    shown = torch.cat([vectors, embedded, vectors - embedded], 1)
    return shown, padded(guesses, base.tokens, PAD).to(vectors.device)


def train_corrector(
    base: Decoder, vectors: Tensor, texts: Sequence[str], queries: Queries, seed: int, **options: Any
) -> Decoder:
    """Train a second decoder, which writes the text of a unit vector (n, e) from a guess of `base` for it.

    `base` was trained on these texts, too. Guesses are single samples of `base`; the search shows the
    corrector the best of many. options: `log` and `checkpoint` of `minimise`.
    """
    generator = torch.Generator().manual_seed(seed)
    guesses = [draft for part in vectors.split(AT_ONCE) for draft in base.propose(part, generator)]
    shown, memory = inputs(base, vectors, guesses, queries)  # memory: guesses, to which the decoder attends
    ids = base.vocabulary.encode(texts, base.tokens)
    return fitted(base.vocabulary, base.settings, shown, ids, seed, memory, **options)
