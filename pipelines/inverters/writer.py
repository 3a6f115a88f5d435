"""What the two trained inverters share: they write a text sub-word by sub-word, and learn from noisy
vectors.
"""

import math
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.utils.rnn import pad_sequence

from pipelines.inverters import EMPTY, Draft
from pipelines.runtime.device import random_states, restore_random_states, to_device
from pipelines.runtime.files import load_state, save_state
from pipelines.runtime.progress import Log, progress

NOISE = 0.7  # longest noise added to a unit vector in training: translated vectors miss their targets, too
NUCLEUS = 0.9  # probability mass that sampling draws from
SWAPPED = 20  # likeliest sub-words at a position that `alternatives` draws from
SAMPLED = 64  # likeliest sub-words at a position that sampling draws from
TEMPERATURE = 0.7  # softmax temperature when sub-words are sampled
BATCH = 64
PADDED = -100  # id of a position after the end of a text in training


class Writer(nn.Module):
    """A network that writes texts of unit vectors (n, e).

    Called with vectors and ids (n, t), it returns logits (n, t, vocabulary): those of each id, given the ids
    before it.
    """

    settings: Any  # with `epochs`
    tokens: int  # longest text, in sub-words
    end: int  # id that ends a text
    pad: int  # id that fills a batch
    special: list[int]  # ids that stand for no text

    def rate(self, step: int, steps: int) -> float:
        """Return the factor of the learning rate in training."""
        return 1.0

    def text(self, draft: Draft) -> str:
        """Return the text of a draft."""
        raise NotImplementedError

    def draft(self, text: str) -> Draft:
        """Return a given text as a finished draft."""
        raise NotImplementedError

    def reader(self, vectors: Tensor, memory: Tensor | None) -> Callable[[Tensor], Tensor]:
        """Return a function that reads the next ids (n, t) and returns the logits (n, vocabulary) after
        them.
        """
        raise NotImplementedError

    @torch.inference_mode()
    def propose(
        self,
        vectors: Tensor,
        generator: torch.Generator | None = None,
        temperature: float = TEMPERATURE,
        drafts: Sequence[Draft] | None = None,
        length: int | None = None,
        memory: Tensor | None = None,
    ) -> list[Draft]:
        """Continue a draft for each vector (n, e). Without a generator, take the likeliest sub-words.

        drafts: unfinished ones of the same length; None: empty ones. length: most sub-words that are added;
        None: up to the longest text. memory: guesses to correct (n, t), for a corrector.
        """
        drafts = drafts or [EMPTY] * len(vectors)
        unread = torch.tensor([draft.ids for draft in drafts], dtype=torch.long).to(vectors.device)
        left = self.tokens - unread.shape[1]
        read, new = self.reader(vectors, memory), []
        live = torch.ones(len(drafts), dtype=torch.bool, device=vectors.device)
        for _ in progress(range(min(length or left, left)), what="write", unit="sub-words"):
            chosen = pick(read(unread), temperature, generator)
            unread = chosen[:, None]
            new.append(unread)
            live &= chosen != self.end
            if not live.any():
                break
        out = []
        for draft, row in zip(drafts, torch.cat(new, 1).tolist(), strict=True):
            added = row[: row.index(self.end)] if self.end in row else row
            ids = (*draft.ids, *added)
            out.append(Draft(ids, len(added) < len(row) or len(ids) == self.tokens))
        return out

    @torch.inference_mode()
    def alternatives(
        self, vectors: Tensor, drafts: Sequence[Draft], count: int, generator: torch.Generator
    ) -> list[list[Draft]]:
        """Return up to `count` variants of each draft; an empty draft has none.

        Each replaces one sub-word by another that is likely there.
        """
        longest = max([1, *(len(draft.ids) for draft in drafts)])
        ids = padded(drafts, longest, self.pad)
        variants: list[list[Draft]] = [[] for _ in drafts]
        for swaps, draft, logits in zip(variants, drafts, self(vectors, ids).float().cpu(), strict=True):
            if not draft.ids:
                continue
            logits = logits[: len(draft.ids)]
            logits[:, self.special] = -torch.inf
            logits.scatter_(1, torch.tensor(draft.ids)[:, None], -torch.inf)
            best = logits.log_softmax(1).topk(SWAPPED, dim=1)
            chances, others = best.values.exp().flatten() + 1e-9, best.indices.flatten()
            for place in torch.multinomial(chances, min(count, len(chances)), generator=generator).tolist():
                at = place // SWAPPED
                swaps.append(Draft((*draft.ids[:at], int(others[place]), *draft.ids[at + 1 :]), True))
        return variants


def pick(logits: Tensor, temperature: float, generator: torch.Generator | None) -> Tensor:
    """Choose one id per row of logits (n, vocabulary), by nucleus sampling (Holtzman et al. 2020). Without a
    generator, take the likeliest.
    """
    if generator is None:
        return logits.argmax(1)
    values, ids = logits.topk(min(SAMPLED, logits.shape[1]), dim=1)
    chances = (values / temperature).softmax(1)
    chances = chances * (chances.cumsum(1) - chances < NUCLEUS)
    drawn = torch.multinomial(chances.cpu(), 1, generator=generator)  # the same draw on every device
    return ids.gather(1, to_device(drawn, ids.device))[:, 0]


def padded(drafts: Sequence[Draft], size: int, pad: int) -> Tensor:
    """Return the ids of drafts as one tensor (n, size)."""
    return torch.tensor([[*draft.ids, *[pad] * (size - len(draft.ids))] for draft in drafts])


def noisy(vectors: Tensor, generator: torch.Generator) -> Tensor:
    """Add noise of random length in [0, NOISE] to unit vectors, and normalise again."""
    step = normalize(torch.randn(vectors.shape, generator=generator), dim=1)
    step = NOISE * torch.rand(len(vectors), 1, generator=generator) * step
    return normalize(vectors + to_device(step, vectors.device), dim=1)


def minimise(
    model: Writer,
    optimiser: torch.optim.Optimizer,
    ids: list[list[int]],
    logits: Callable[[Tensor, Tensor], Tensor],
    generator: torch.Generator,
    log: Log | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Minimise the cross-entropy of the texts `ids` for `model.settings.epochs` epochs.

    logits(rows, ids): the logits of these texts, given their padded ids (n, t). checkpoint: a file that is
    written after each epoch. A killed run continues from it bit for bit.
    """
    device, epochs = next(model.parameters()).device, model.settings.epochs
    steps = math.ceil(len(ids) / BATCH)  # of an epoch
    total = epochs * steps
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: model.rate(step, total))
    parts = {"model": model, "optimiser": optimiser, "schedule": schedule}
    start = _restored(parts, generator, checkpoint, device) if checkpoint and checkpoint.exists() else 0
    drawn = chain.from_iterable(
        batches([len(row) for row in ids], generator) for _ in range(start, total, steps)
    )
    model.train()
    bar = progress(drawn, what="inverter", unit="steps", total=total - start)
    for step, rows in enumerate(bar, start + 1):
        target = to_device(pad_sequence([torch.tensor(ids[r]) for r in rows], True, PADDED), device)
        found = logits(to_device(torch.tensor(rows), device), target).flatten(0, 1).float()
        loss = cross_entropy(found, target.flatten(), ignore_index=PADDED)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        if log and (step % 20 == 0 or step == total):
            log({"inverter_loss": loss.item()}, step)
        if checkpoint and step % steps == 0:
            states = {name: part.state_dict() for name, part in parts.items()}
            random = {"random": random_states(device), "generator": generator.get_state()}
            save_state(checkpoint, states | random | {"step": step})
    model.eval()


def _restored(parts: dict[str, Any], generator: torch.Generator, file: Path, device: torch.device) -> int:
    """Restore the parts and the random states from a checkpoint. Return its step."""
    state = load_state(file)
    for name, part in parts.items():
        part.load_state_dict(state[name])
    generator.set_state(state["generator"])
    restore_random_states(state["random"], device)
    return state["step"]


def batches(lengths: Sequence[int], generator: torch.Generator) -> list[list[int]]:
    """Return the rows of each batch, shuffled. Texts of similar length share a batch."""
    order = torch.randperm(len(lengths), generator=generator)
    out = []
    for pool in order.split(16 * BATCH):
        alike = sorted(pool.tolist(), key=lambda row: lengths[row])
        out += [alike[i : i + BATCH] for i in range(0, len(alike), BATCH)]
    return [out[i] for i in torch.randperm(len(out), generator=generator).tolist()]
