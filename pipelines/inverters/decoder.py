"""A small decoder, trained from scratch, that writes the text of a vector.

The vector enters twice. As a prefix of `PREFIX` positions, it is attended to by every later position (the
"soft prompt" of GEIA, Li et al. 2023). As a vote, it is added to the last hidden state, and raises the
sub-words that the text contains; a few thousand texts are enough to learn the vote. Some training examples
come without their vector, so that the same weights also model text alone.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from pipelines.inverters import Draft, weights
from pipelines.inverters.vocabulary import END, PAD, SPECIAL, START, Vocabulary, learn
from pipelines.inverters.writer import Writer, minimise, noisy
from pipelines.runtime.device import forked, manual_seed, to_device
from pipelines.runtime.settings import Checked, Count

PREFIX = 8  # positions made of the vector
DROPOUT = 0.1
LR = 2e-3
BLIND = 0.1  # share of the training examples without their vector


@dataclass(frozen=True)
class Settings(Checked):
    """Size of the decoder, and how long it is trained."""

    vocabulary: Count = 6000  # sub-words
    tokens: Count = 64  # longest text, in sub-words
    width: Count = 256  # dimensions of a token's vector
    layers: Count = 3  # of the transformer
    heads: Count = 4  # attention heads of a layer
    epochs: Count = 8  # passes through the known texts

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} must be a multiple of heads: {self.heads}")


class Block(nn.Module):
    """Pre-norm self-attention and MLP. `cache`: keys and values of earlier positions, extended in place."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.heads = s.heads
        self.before, self.between = nn.LayerNorm(s.width), nn.LayerNorm(s.width)
        self.qkv, self.out = nn.Linear(s.width, 3 * s.width), nn.Linear(s.width, s.width)
        self.mlp = nn.Sequential(nn.Linear(s.width, 4 * s.width), nn.GELU(), nn.Linear(4 * s.width, s.width))

    def forward(self, x: Tensor, cache: list[Tensor] | None) -> Tensor:
        b, t, w = x.shape
        qkv = self.qkv(self.before(x)).view(b, t, 3, self.heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (b, heads, t, w / heads) each
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        p = DROPOUT if self.training else 0.0
        # A call with a filled cache has t = 1, and sees every position.
        y = scaled_dot_product_attention(q, k, v, is_causal=t > 1, dropout_p=p)
        x = x + nn.functional.dropout(self.out(y.transpose(1, 2).reshape(b, t, w)), p)
        return x + nn.functional.dropout(self.mlp(self.between(x)), p)


class Decoder(Writer):
    """Write texts of unit vectors (n, dimension). With `memory` > 0, read a guess of that many sub-words,
    too.
    """

    end, pad, special = END, PAD, list(range(len(SPECIAL)))

    def __init__(self, vocabulary: Vocabulary, dimension: int, settings: Settings, memory: int = 0) -> None:
        super().__init__()
        s = self.settings = settings
        self.vocabulary, self.tokens, self.memory = vocabulary, s.tokens, memory
        self.embed = nn.Embedding(len(vocabulary), s.width)
        self.position = nn.Embedding(PREFIX + memory + 1 + s.tokens, s.width)
        self.prefix = nn.Linear(dimension, PREFIX * s.width)
        self.vote = nn.Linear(dimension, s.width)
        self.blind = nn.Parameter(torch.zeros(dimension))  # stands for "no vector"
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = nn.LayerNorm(s.width)
        for p in (self.embed.weight, self.position.weight):
            nn.init.normal_(p, std=0.02)

    def start(self, vectors: Tensor, memory: Tensor | None) -> Tensor:
        """Return the positions before the text: prefix, memory if any, START. -> (n, positions, width)"""
        x = [self.prefix(vectors).view(len(vectors), PREFIX, -1)]
        if memory is not None:
            x.append(self.embed(memory))
        x.append(self.embed(torch.full((len(vectors), 1), START, device=vectors.device)))
        return torch.cat(x, 1)

    def run(
        self, x: Tensor, vectors: Tensor, at: int = 0, caches: list[list[Tensor]] | None = None
    ) -> Tensor:
        """Return logits (n, t, vocabulary) of embedded positions (n, t, width).

        at: the place of the first of them in the sequence. With caches only the last position's logits are
        returned, (n, 1, vocabulary).
        """
        x = x + self.position.weight[at : at + x.shape[1]]
        for i, block in enumerate(self.blocks):
            x = block(x, caches[i] if caches is not None else None)
        x = x if caches is None else x[:, -1:]
        return (self.norm(x) + self.vote(vectors)[:, None]) @ self.embed.weight.T

    def forward(self, vectors: Tensor, ids: Tensor, memory: Tensor | None = None) -> Tensor:
        before = self.start(vectors, memory)
        x = torch.cat([before, self.embed(ids.to(vectors.device)[:, :-1])], 1)
        return self.run(x, vectors)[:, before.shape[1] - 1 :]

    def rate(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate: a warm-up, then a cosine decay."""
        cosine = 0.02 + 0.98 * (1 + math.cos(math.pi * step / steps)) / 2
        return min((step + 1) / min(100, steps // 10 + 1), cosine)

    def text(self, draft: Draft) -> str:
        return self.vocabulary.decode(draft.ids)

    def draft(self, text: str) -> Draft:
        ids = self.vocabulary.encode([text], self.tokens)[0]
        return Draft(tuple(i for i in ids if i != END), True)

    def reader(self, vectors: Tensor, memory: Tensor | None) -> Callable[[Tensor], Tensor]:
        caches: list[list[Tensor]] = [[] for _ in self.blocks]  # keys and values of what was read
        at = 0

        def read(ids: Tensor) -> Tensor:
            nonlocal at
            x = self.embed(ids)
            if not at:
                x = torch.cat([self.start(vectors, memory), x], 1)
            logits = self.run(x, vectors, at, caches)[:, -1]
            at += x.shape[1]
            logits[:, [PAD, START]] = -torch.inf
            return logits

        return read

    def state(self) -> dict[str, Any]:
        """Return what `restored` needs."""
        return {
            "weights": weights(self),
            "settings": asdict(self.settings),
            "vocabulary": self.vocabulary.tokenizer.to_str(),
            "dimension": self.prefix.in_features,
            "memory": self.memory,
        }


def restored(state: dict[str, Any]) -> Decoder:
    """Rebuild a decoder from its `state`."""
    vocabulary = Vocabulary(Tokenizer.from_str(state["vocabulary"]))
    model = Decoder(vocabulary, state["dimension"], Settings(**state["settings"]), state["memory"])
    model.load_state_dict(state["weights"])
    return model.eval()


def train(vectors: Tensor, texts: Sequence[str], settings: Settings, seed: int, **options: Any) -> Decoder:
    """Train a decoder on texts and their unit vectors (n, e), on the device of the vectors.

    The same seed gives the same weights. options: `log` and `checkpoint` of `minimise`.
    """
    vocabulary = learn(texts, settings.vocabulary)
    ids = vocabulary.encode(texts, settings.tokens)
    return fitted(vocabulary, settings, vectors, ids, seed, **options)


def fitted(
    vocabulary: Vocabulary,
    settings: Settings,
    vectors: Tensor,
    ids: list[list[int]],
    seed: int,
    memory: Tensor | None = None,
    **options: Any,
) -> Decoder:
    """Minimise the cross-entropy of `ids` with AdamW, a warm-up and a cosine decay.

    vectors: (n, dimension). memory: guesses (n, m) to correct. options: those of `minimise`.
    """
    generator = torch.Generator().manual_seed(seed)
    with forked(vectors.device):
        manual_seed(seed, vectors.device)  # of the first weights, and of dropout
        guessed = 0 if memory is None else memory.shape[1]
        model = Decoder(vocabulary, vectors.shape[1], settings, guessed).to(vectors.device)
        decay = [p for p in model.parameters() if p.ndim > 1]
        rest = [p for p in model.parameters() if p.ndim <= 1]  # biases and norms
        groups = [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]
        optimiser = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.98))

        def logits(rows: Tensor, target: Tensor) -> Tensor:
            given = vectors[rows] if memory is not None else noisy(vectors[rows], generator)
            blind = torch.rand(len(rows), 1, generator=generator) < BLIND
            given = torch.where(to_device(blind, vectors.device), model.blind, given)
            return model(given, target.clamp_min(0), None if memory is None else memory[rows])

        minimise(model, optimiser, ids, logits, generator, **options)
    return model
