"""A small decoder, from scratch, that writes the text of a vector.

The vector enters twice: as a prefix of `prefix` positions that every later position attends to (the "soft prompt" of
GEIA, Li et al. 2023), and as a vote, added to the last hidden state, for the sub-words that the text has at all; the
vote is what a few thousand texts suffice to learn. Trained with noise on the vector, so that a translated vector,
which misses its target, is nothing new to it, and now and then without the vector, so that the same weights also are a
text-only prior.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, scaled_dot_product_attention

from pipelines.inverters import Draft
from pipelines.inverters.vocabulary import SPECIAL, Vocabulary, learn
from pipelines.runtime import files
from pipelines.runtime.errors import BadInput
from pipelines.runtime.log import Log
from pipelines.runtime.progress import progress
from pipelines.runtime.settings import check_settings


@dataclass(frozen=True)
class Settings:
    """Of the decoder from scratch, and of its training."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    vocabulary: int = 6000
    subwords: Literal["bpe", "wordpiece"] = "bpe"
    lowercase: bool = True
    tokens: int = 64  # longest text
    width: int = 256
    layers: int = 3
    heads: int = 4
    prefix: int = 8
    dropout: float = 0.1
    epochs: int = 8
    batch: int = 64
    lr: float = 2e-3
    noise: float = 0.7  # longest noise on a unit vector
    blind: float = 0.1  # share of the examples trained without their vector

    def __post_init__(self) -> None:
        ones = ("vocabulary", "tokens", "width", "layers", "heads", "prefix", "epochs", "batch")
        ranges = {"lr": "(0, inf)", "dropout": "[0, 1)", "blind": "[0, 1]"}
        check_settings(self, dict.fromkeys(ones, 1) | {"noise": 0}, ranges)
        if self.width % self.heads:
            raise ValueError(f"width: {self.width} must be a multiple of heads: {self.heads}")


class Block(nn.Module):
    """Pre-norm self-attention and MLP; `cache` holds keys and values of the positions before."""

    def __init__(self, s: Settings) -> None:
        super().__init__()
        self.heads, self.dropout = s.heads, s.dropout
        self.before, self.between = nn.LayerNorm(s.width), nn.LayerNorm(s.width)
        self.qkv, self.out = nn.Linear(s.width, 3 * s.width), nn.Linear(s.width, s.width)
        self.mlp = nn.Sequential(nn.Linear(s.width, 4 * s.width), nn.GELU(), nn.Linear(4 * s.width, s.width))

    def forward(self, x: Tensor, cache: list[Tensor] | None) -> Tensor:
        b, t, w = x.shape
        q, k, v = (
            self.qkv(self.before(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )  # (b, heads, t, w / heads)
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        p = self.dropout if self.training else 0.0
        y = scaled_dot_product_attention(
            q, k, v, is_causal=t > 1, dropout_p=p
        )  # a cached call has t = 1: it sees all
        x = x + nn.functional.dropout(self.out(y.transpose(1, 2).reshape(b, t, w)), p)
        return x + nn.functional.dropout(self.mlp(self.between(x)), p)


class Decoder(nn.Module):
    """Unit vectors (n, dimension) -> texts.

    `memory` > 0 makes it a corrector, which also reads a text of so many sub-words.
    """

    def __init__(self, vocabulary: Vocabulary, dimension: int, settings: Settings, memory: int = 0) -> None:
        super().__init__()
        s = self.settings = settings
        self.vocabulary, self.tokens, self.memory = vocabulary, s.tokens, memory
        self.embed = nn.Embedding(len(vocabulary), s.width)
        self.position = nn.Embedding(s.prefix + memory + 1 + s.tokens, s.width)
        self.prefix = nn.Linear(dimension, s.prefix * s.width)
        self.vote = nn.Linear(dimension, s.width)
        self.blind = nn.Parameter(torch.zeros(dimension))  # stands for "no vector"
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.layers))
        self.norm = nn.LayerNorm(s.width)
        for p in (self.embed.weight, self.position.weight):
            nn.init.normal_(p, std=0.02)

    def start(self, vectors: Tensor, memory: Tensor | None = None) -> Tensor:
        """What comes before the text: (n, prefix [+ memory], width)."""
        x = self.prefix(vectors).view(len(vectors), self.settings.prefix, -1)
        return x if memory is None else torch.cat([x, self.embed(memory.to(x.device))], 1)

    def run(
        self, x: Tensor, vectors: Tensor, at: int = 0, caches: list[list[Tensor]] | None = None
    ) -> Tensor:
        """Embedded positions (n, t, width), the first of them position `at` -> logits (n, t, vocabulary)."""
        x = x + self.position.weight[at : at + x.shape[1]]
        for i, block in enumerate(self.blocks):
            x = block(x, caches[i] if caches is not None else None)
        return (self.norm(x) + self.vote(vectors)[:, None]) @ self.embed.weight.T

    def forward(self, vectors: Tensor, ids: Tensor, memory: Tensor | None = None) -> Tensor:
        """Logits (n, t, vocabulary) of ids (n, t), each from what is before it."""
        ids = ids.to(vectors.device)
        first = torch.full((len(ids), 1), self.vocabulary.start, device=ids.device)
        before = self.start(vectors, memory)
        x = torch.cat([before, self.embed(torch.cat([first, ids[:, :-1]], 1))], 1)
        return self.run(x, vectors)[:, before.shape[1] :]

    def text(self, draft: Draft) -> str:
        """What a draft says."""
        return self.vocabulary.decode(draft.ids)

    def draft(self, text: str) -> Draft:
        """A text that somebody wrote, as a finished draft."""
        ids = self.vocabulary.encode([text], self.tokens)[0]
        return Draft(tuple(i for i in ids if i != self.vocabulary.end), 0.0, True)

    @torch.inference_mode()
    def propose(
        self, vectors: Tensor, drafts: Sequence[Draft], length: int, temperature: float, generator: torch.Generator,
        memory: Tensor | None = None,
    ) -> list[Draft]:  # fmt: skip
        """Continue drafts by at most `length` sub-words, with keys and values cached.

        Rows of one length run together.
        """
        out: list[Draft] = list(drafts)
        groups: dict[int, list[int]] = {}
        for i, draft in enumerate(drafts):
            if not draft.done:
                groups.setdefault(len(draft.ids), []).append(i)
        for size, rows in groups.items():
            steps = min(length, self.tokens - size)
            ids = (
                torch.tensor([drafts[i].ids for i in rows], dtype=torch.long)
                .view(len(rows), size)
                .to(vectors.device)
            )
            new, logprob = self._continue(
                vectors[rows], ids, steps, temperature, generator, memory if memory is None else memory[rows]
            )
            new, logprob = new.cpu(), logprob.cpu()  # once, not row by row
            for row, i in enumerate(rows):
                tail = new[row].tolist()
                ended = self.vocabulary.end in tail
                tail = tail[: tail.index(self.vocabulary.end)] if ended else tail
                whole = (*drafts[i].ids, *tail)
                out[i] = Draft(
                    whole, drafts[i].logprob + float(logprob[row]), ended or len(whole) >= self.tokens
                )
        return out

    def _continue(
        self,
        vectors: Tensor,
        ids: Tensor,
        steps: int,
        temperature: float,
        generator: torch.Generator,
        memory: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        """New ids (n, steps) and their log-probability (n,), counted up to the end."""
        caches: list[list[Tensor]] = [[] for _ in self.blocks]
        first = torch.full((len(ids), 1), self.vocabulary.start, device=ids.device)
        x = torch.cat([self.start(vectors, memory), self.embed(torch.cat([first, ids], 1))], 1)
        at, new, total = 0, [], torch.zeros(len(ids), device=ids.device)
        live = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
        for _ in range(steps):
            logits = self.run(x, vectors, at, caches)[:, -1]
            at += x.shape[1]
            logits[:, [self.vocabulary.pad, self.vocabulary.start]] = -torch.inf
            chosen = pick(logits, temperature, generator)
            total += torch.where(live, logits.log_softmax(1).gather(1, chosen[:, None])[:, 0], 0.0)
            new.append(chosen)
            live &= chosen != self.vocabulary.end
            if not live.any():
                break
            x = self.embed(chosen)[:, None]
        return torch.stack(new, 1) if new else ids[:, :0], total

    @torch.inference_mode()
    def alternatives(
        self, vectors: Tensor, drafts: Sequence[Draft], count: int, generator: torch.Generator, kept: int = 20
    ) -> list[list[Draft]]:
        """`count` drafts each, with one sub-word replaced by another of the `kept` likeliest there."""
        longest = max((len(d.ids) for d in drafts), default=0)
        if not longest:
            return [[] for _ in drafts]
        ids = torch.tensor([[*d.ids, *[self.vocabulary.pad] * (longest - len(d.ids))] for d in drafts])
        logits = self.forward(vectors, ids).cpu()  # draws are of the CPU's generator
        logits[:, :, : len(SPECIAL)] = -torch.inf
        logits.scatter_(2, ids[:, :, None], -torch.inf)
        best = logits.log_softmax(2).topk(kept, dim=2)
        out = []
        for row, draft in enumerate(drafts):
            if not draft.ids:
                out.append([])
                continue
            chances = best.values[row, : len(draft.ids)].exp().flatten() + 1e-9
            picked = torch.multinomial(chances, min(count, len(chances)), generator=generator)
            swaps = [(int(p) // kept, int(best.indices[row].flatten()[p])) for p in picked]
            out.append(
                [Draft((*draft.ids[:i], new, *draft.ids[i + 1 :]), draft.logprob, True) for i, new in swaps]
            )
        return out


def pick(logits: Tensor, temperature: float, generator: torch.Generator, top: float = 0.9) -> Tensor:
    """One id per row of logits (n, vocabulary): the best, or sampled from the likeliest that make up `top` (nucleus sampling)."""
    if temperature <= 0:
        return logits.argmax(1)
    values, ids = logits.topk(min(64, logits.shape[1]), dim=1)
    chances = (values / temperature).softmax(1)
    chances = chances * (chances.cumsum(1) - chances < top)
    drawn = torch.multinomial(chances.cpu(), 1, generator=generator)  # one seed, one text, on every device
    return ids.gather(1, drawn.to(ids.device))[:, 0]


def blurred(vectors: Tensor, noise: float, generator: torch.Generator) -> Tensor:
    """Unit vectors moved by noise of random length in [0, noise], unit again."""
    step = normalize(torch.randn(vectors.shape, generator=generator), dim=1)
    step = noise * torch.rand(len(vectors), 1, generator=generator) * step
    return normalize(vectors + step.to(vectors.device), dim=1)


def batches(lengths: Sequence[int], size: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Shuffled rows, batched with others of like length."""
    order = torch.randperm(len(lengths), generator=generator).tolist()
    near = [
        sorted(order[i : i + 16 * size], key=lambda r: lengths[r]) for i in range(0, len(order), 16 * size)
    ]
    out = [pool[i : i + size] for pool in near for i in range(0, len(pool), size)]
    for i in torch.randperm(len(out), generator=generator).tolist():
        yield out[i]


def train(
    vectors: Tensor, texts: Sequence[str], settings: Settings, seed: int, log: Log | None = None
) -> Decoder:
    """Fit a decoder to the attacker's texts and their unit vectors (n, e).

    Same seed, same weights. It learns where the vectors are. Raises BadInput for < 2 texts.
    """
    if len(texts) < 2 or len(texts) != len(vectors):
        raise BadInput(
            f"inverter: {len(texts)} texts and {len(vectors)} vectors to learn from; as many of both are needed, at least 2"
        )
    vocabulary = learn(texts, settings.vocabulary, settings.subwords, settings.lowercase)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Decoder(vocabulary, vectors.shape[1], settings).to(vectors.device)
        fit(model, vectors, vocabulary.encode(texts, settings.tokens), settings, seed, log)
    return model


def save(model: Decoder, path: Path) -> None:
    """One file: weights, vocabulary, settings."""
    config = {
        "vocabulary": model.vocabulary.dumps(),
        "dimension": model.prefix.in_features,
        "memory": model.memory,
    }
    files.save_state(path, {"weights": model.state_dict(), "settings": asdict(model.settings), **config})


def load(kept: dict[str, Any]) -> Decoder:
    """From what `save` wrote, as `files.load_state` reads it."""
    vocabulary = Vocabulary.loads(kept["vocabulary"])
    model = Decoder(vocabulary, kept["dimension"], Settings(**kept["settings"]), kept["memory"])
    model.load_state_dict(kept["weights"])
    return model.eval()


def fit(
    model: Decoder,
    vectors: Tensor,
    ids: list[list[int]],
    settings: Settings,
    seed: int,
    log: Log | None = None,
    memory: Tensor | None = None,
) -> None:
    """AdamW, warm-up and cosine decay, on the log-likelihood of `ids`; `memory` (n, m) are texts to correct."""
    generator = torch.Generator().manual_seed(seed)
    total = settings.epochs * math.ceil(len(ids) / settings.batch)
    decay = [p for p in model.parameters() if p.ndim > 1]
    rest = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": decay, "weight_decay": 0.05}, {"params": rest, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=settings.lr, betas=(0.9, 0.98))
    warm = min(100, total // 10 + 1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser,
        lambda i: min((i + 1) / warm, 0.02 + 0.98 * (1 + math.cos(math.pi * min(i / total, 1))) / 2),
    )
    lengths, step = [len(i) for i in ids], 0
    model.train()
    with progress(what="inverter", unit="steps", total=total) as bar:
        for _ in range(settings.epochs):
            for rows in batches(lengths, settings.batch, generator):
                target = nn.utils.rnn.pad_sequence([torch.tensor(ids[r]) for r in rows], True, -100).to(
                    vectors.device
                )
                given = (
                    vectors[rows] if memory is not None else blurred(vectors[rows], settings.noise, generator)
                )
                unseen = torch.rand(len(rows), 1, generator=generator) < settings.blind
                given = torch.where(unseen.to(vectors.device), model.blind, given)
                logits = model(given, target.clamp_min(0), None if memory is None else memory[rows])
                loss = cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-100)
                optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimiser.step()
                schedule.step()
                step += 1
                bar.update()
                if log and (step % 20 == 0 or step == total):
                    log({"inverter_loss": loss.item()}, step)
    model.eval()
