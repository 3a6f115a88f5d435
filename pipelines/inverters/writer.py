"""What the two trained inverters share: they write a text sub-word by sub-word, and learn from noisy
vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils.rnn import pad_sequence

from pipelines.inverters import Draft
from pipelines.runtime.errors import BadInput
from pipelines.runtime.log import Log
from pipelines.runtime.progress import progress

NOISE = 0.7  # longest noise added to a unit vector in training: translated vectors miss their targets, too
NUCLEUS = 0.9  # probability mass that sampling draws from
KEPT = 20  # likeliest sub-words at a position that `alternatives` draws from
TEMPERATURE = 0.7  # softmax temperature when sub-words are sampled
BATCH = 64
PADDED = -100  # id of a position after the end of a text in training


class Writer(nn.Module):
    """A network that writes texts of unit vectors (n, e).

    Called with vectors and ids (n, t), it returns logits (n, t, vocabulary): those of each id, given the ids
    before it.
    """

    settings: Any  # with `epochs`
    tokens: int  # longest text
    end: int  # id that ends a text
    special: list[int]  # ids that stand for no text

    def text(self, draft: Draft) -> str:
        """Return the text of a draft."""
        raise NotImplementedError

    def draft(self, text: str) -> Draft:
        """Return a given text as a finished draft."""
        raise NotImplementedError

    def reader(self, vectors: Tensor, memory: Tensor | None = None) -> Callable[[Tensor], Tensor]:
        """Return a function that reads the next ids (n, t) and returns the logits (n, vocabulary) after
        them.
        """
        raise NotImplementedError

    def positions(self, vectors: Tensor, drafts: Sequence[Draft]) -> Iterable[Tensor]:
        """Yield for each draft the logits (t, vocabulary) of its t sub-words, on the CPU. t = 0: an empty
        tensor.
        """
        raise NotImplementedError

    @torch.inference_mode()
    def propose(
        self,
        vectors: Tensor,
        drafts: Sequence[Draft],
        length: int,
        temperature: float,
        generator: torch.Generator,
    ) -> list[Draft]:
        """Continue each draft by at most `length` sub-words. Temperature 0 is greedy."""
        out = list(drafts)
        by_length: dict[int, list[int]] = {}
        for i, draft in enumerate(drafts):
            if not draft.done:
                by_length.setdefault(len(draft.ids), []).append(i)
        for size, rows in by_length.items():
            ids = torch.tensor([drafts[i].ids for i in rows], dtype=torch.long).view(len(rows), size)
            steps = min(length, self.tokens - size)
            new = self.continuations(
                self.reader(vectors[rows]), ids.to(vectors.device), steps, temperature, generator
            )
            for i, row in zip(rows, new, strict=True):
                tail = row[: row.index(self.end)] if self.end in row else row
                whole = (*drafts[i].ids, *tail)
                out[i] = Draft(whole, len(tail) < len(row) or len(whole) >= self.tokens)
        return out

    def continuations(
        self,
        read: Callable[[Tensor], Tensor],
        ids: Tensor,
        steps: int,
        temperature: float,
        generator: torch.Generator,
    ) -> list[list[int]]:
        """Return at most `steps` new ids for each row of ids (n, t). What follows an end has no meaning."""
        new, unread = [ids[:, :0]], ids
        live = torch.ones(len(ids), dtype=torch.bool, device=ids.device)
        for _ in progress(range(steps), what="write", unit="sub-words"):
            chosen = pick(read(unread), temperature, generator)
            unread = chosen[:, None]
            new.append(unread)
            live &= chosen != self.end
            if not live.any():
                break
        return torch.cat(new, 1).tolist()

    @torch.inference_mode()
    def alternatives(
        self, vectors: Tensor, drafts: Sequence[Draft], count: int, generator: torch.Generator
    ) -> list[list[Draft]]:
        """Return `count` variants of each draft. Each replaces one sub-word by another that is likely
        there.
        """
        out: list[list[Draft]] = []
        for draft, logits in zip(drafts, self.positions(vectors, drafts), strict=True):
            if not draft.ids:
                out.append([])
                continue
            logits[:, self.special] = -torch.inf
            logits.scatter_(1, torch.tensor(draft.ids)[:, None], -torch.inf)
            best = logits.log_softmax(1).topk(KEPT, dim=1)
            chances, others = best.values.exp().flatten() + 1e-9, best.indices.flatten()
            swaps = []
            for place in torch.multinomial(chances, min(count, len(chances)), generator=generator).tolist():
                at = place // KEPT
                swaps.append(Draft((*draft.ids[:at], int(others[place]), *draft.ids[at + 1 :]), True))
            out.append(swaps)
        return out


def pick(logits: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """Choose one id per row of logits (n, vocabulary): the likeliest, or one by nucleus sampling (Holtzman et
    al. 2020).
    """
    if temperature <= 0:
        return logits.argmax(1)
    values, ids = logits.topk(min(64, logits.shape[1]), dim=1)
    chances = (values / temperature).softmax(1)
    chances = chances * (chances.cumsum(1) - chances < NUCLEUS)
    drawn = torch.multinomial(chances.cpu(), 1, generator=generator)  # the same draw on every device
    return ids.gather(1, drawn.to(ids.device))[:, 0]


def padded(ids: Sequence[Sequence[int]], size: int, pad: int) -> Tensor:
    """Return ids as one tensor (n, size), cut and padded."""
    return torch.tensor([[*i[:size], *[pad] * (size - len(i))] for i in ids])


def noisy(vectors: Tensor, generator: torch.Generator) -> Tensor:
    """Add noise of random length in [0, NOISE] to unit vectors, and normalise again."""
    step = normalize(torch.randn(vectors.shape, generator=generator), dim=1)
    step = NOISE * torch.rand(len(vectors), 1, generator=generator) * step
    return normalize(vectors + step.to(vectors.device), dim=1)


def minimise(
    model: Writer,
    optimiser: torch.optim.Optimizer,
    rate: Callable[[int, int], float],
    ids: list[list[int]],
    logits: Callable[[list[int], Tensor], Tensor],
    generator: torch.Generator,
    log: Log | None,
) -> None:
    """Minimise the cross-entropy of the texts `ids` for `model.settings.epochs` epochs.

    logits: of the texts in some rows, given their padded ids (n, t). rate: factor of the learning rate at a
    step of how many.
    """
    device, lengths = next(model.parameters()).device, [len(i) for i in ids]
    step, total = 0, model.settings.epochs * math.ceil(len(ids) / BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate(step, total))
    model.train()
    with progress(what="inverter", unit="steps", total=total) as bar:
        for _ in range(model.settings.epochs):
            for rows in batches(lengths, BATCH, generator):
                target = pad_sequence([torch.tensor(ids[r]) for r in rows], True, PADDED).to(device)
                found = logits(rows, target).flatten(0, 1).float()
                loss = cross_entropy(found, target.flatten(), ignore_index=PADDED)
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


def batches(lengths: Sequence[int], size: int, generator: torch.Generator) -> Iterator[list[int]]:
    """Yield shuffled batches of rows. Texts of similar length share a batch."""
    order = torch.randperm(len(lengths), generator=generator).tolist()
    out = []
    for start in range(0, len(order), 16 * size):
        pool = sorted(order[start : start + 16 * size], key=lambda r: lengths[r])
        out += [pool[i : i + size] for i in range(0, len(pool), size)]
    for i in torch.randperm(len(out), generator=generator).tolist():
        yield out[i]


def check_pairs(vectors: Tensor, texts: Sequence[str]) -> None:
    """Raise BadInput unless there are at least two texts, and a vector of each."""
    if len(texts) < 2 or len(texts) != len(vectors):
        raise BadInput(
            f"inverter: {len(texts)} texts and {len(vectors)} vectors to learn from; "
            "as many of both are needed, at least 2"
        )
