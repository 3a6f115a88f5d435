"""The inverter from a hub language model: GPT-2 and Qwen (decoder only) or T5 (encoder-decoder), conditioned on a
vector.

As in GEIA (Li et al. 2023) and vec2text's first step (Morris et al. 2023): a small MLP turns the vector into `prefix`
input embeddings; a decoder-only model continues them, T5's encoder reads them. Local cache first, then the hub; code
that a checkpoint brings along is never run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pipelines.inverters import Draft
from pipelines.inverters.decoder import Log, batches, blurred, pick
from pipelines.runtime import files
from pipelines.runtime.errors import BadInput
from pipelines.runtime.settings import check_settings


@dataclass(frozen=True)
class Settings:
    """Of the hub model, and of its training."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    model: str  # hub id, or a local folder
    tokens: int = 64
    prefix: int = 16
    epochs: int = 3
    batch: int = 64
    lr: float = 2e-4
    noise: float = 0.7
    train_model: bool = True  # False: only the MLP learns

    def __post_init__(self) -> None:
        check_settings(
            self, dict.fromkeys(("tokens", "prefix", "epochs", "batch"), 1) | {"noise": 0}, {"lr": "(0, inf)"}
        )


class HubInverter(nn.Module):
    """Unit vectors (n, dimension) -> texts, by a language model."""

    def __init__(self, model: Any, tokenizer: Any, dimension: int, settings: Settings) -> None:
        super().__init__()
        self.model, self.tokenizer, self.settings, self.tokens = model, tokenizer, settings, settings.tokens
        self.pair = bool(model.config.is_encoder_decoder)
        width = model.get_input_embeddings().weight.shape[1]
        self.prefix = nn.Sequential(
            nn.Linear(dimension, width), nn.GELU(), nn.Linear(width, settings.prefix * width)
        )
        self.end = int(
            tokenizer.eos_token_id if tokenizer.eos_token_id is not None else model.config.eos_token_id
        )
        self.pad = int(tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.end)

    @property
    def device(self) -> torch.device:
        return self.prefix[0].weight.device  # pyright: ignore[reportReturnType]

    def forward(self, vectors: Tensor, ids: Tensor) -> Tensor:
        """Logits (n, t, vocabulary) of ids (n, t), each from the vector and what is before it."""
        before = self.prefix(vectors.to(self.device)).view(len(vectors), self.settings.prefix, -1)
        ids = ids.to(self.device)
        if self.pair:
            first = torch.full(
                (len(ids), 1), int(self.model.config.decoder_start_token_id or 0), device=self.device
            )
            return self.model(
                inputs_embeds=before, decoder_input_ids=torch.cat([first, ids[:, :-1]], 1)
            ).logits
        x = torch.cat([before, self.model.get_input_embeddings()(ids[:, :-1])], 1)
        return self.model(inputs_embeds=x).logits[:, self.settings.prefix - 1 :]

    def text(self, draft: Draft) -> str:
        """What a draft says."""
        return self.tokenizer.decode(list(draft.ids), skip_special_tokens=True).strip()

    def draft(self, text: str) -> Draft:
        """A text that somebody wrote, as a finished draft."""
        return Draft(
            tuple(self.tokenizer(text, add_special_tokens=False)["input_ids"][: self.tokens]), 0.0, True
        )

    @torch.inference_mode()
    def propose(
        self,
        vectors: Tensor,
        drafts: Sequence[Draft],
        length: int,
        temperature: float,
        generator: torch.Generator,
    ) -> list[Draft]:
        """Continue drafts by at most `length` sub-words; what was read before is read again (no cache)."""
        out = list(drafts)
        groups: dict[int, list[int]] = {}
        for i, draft in enumerate(drafts):
            if not draft.done:
                groups.setdefault(len(draft.ids), []).append(i)
        for size, rows in groups.items():
            ids = torch.tensor([drafts[i].ids for i in rows], dtype=torch.long).view(len(rows), size)
            total, live = torch.zeros(len(rows)), torch.ones(len(rows), dtype=torch.bool)
            for _ in range(min(length, self.tokens - size)):
                blank = torch.full((len(ids), 1), self.pad)  # forward() never reads the last id
                logits = self(vectors[rows], torch.cat([ids, blank], 1))[:, -1].float().cpu()
                chosen = pick(logits, temperature, generator)
                total += torch.where(live, logits.log_softmax(1).gather(1, chosen[:, None])[:, 0], 0.0)
                chosen = torch.where(live, chosen, self.end)
                ids = torch.cat([ids, chosen[:, None]], 1)
                live &= chosen != self.end
                if not live.any():
                    break
            for row, i in enumerate(rows):
                whole = ids[row].tolist()
                ended = self.end in whole[size:]
                whole = whole[: whole.index(self.end, size)] if ended else whole
                out[i] = Draft(
                    tuple(whole), drafts[i].logprob + float(total[row]), ended or len(whole) >= self.tokens
                )
        return out

    @torch.inference_mode()
    def alternatives(
        self, vectors: Tensor, drafts: Sequence[Draft], count: int, generator: torch.Generator, kept: int = 20
    ) -> list[list[Draft]]:
        """`count` drafts each, with one sub-word replaced by another of the `kept` likeliest there."""
        out = []
        for vector, draft in zip(vectors, drafts, strict=True):
            if not draft.ids:
                out.append([])
                continue
            logits = self(vector[None], torch.tensor([draft.ids]))[0].float().cpu()
            logits[torch.arange(len(draft.ids)), list(draft.ids)] = -torch.inf
            logits[:, [self.end, self.pad]] = -torch.inf
            best = logits.log_softmax(1).topk(kept, dim=1)
            picked = torch.multinomial(
                best.values.exp().flatten() + 1e-9, count, generator=generator
            ).tolist()
            swaps = [(p // kept, int(best.indices.flatten()[p])) for p in picked]
            out.append(
                [Draft((*draft.ids[:i], new, *draft.ids[i + 1 :]), draft.logprob, True) for i, new in swaps]
            )
        return out


def save(self: HubInverter, path: Path) -> None:
    """One file: weights and settings; the tokenizer stays where the model came from."""
    kept = {
        "weights": self.state_dict(),
        "settings": asdict(self.settings),
        "dimension": self.prefix[0].in_features,
    }
    files.save_state(path, kept)


def load(kept: dict[str, Any]) -> HubInverter:
    """From what `save` wrote, as `files.load_state` reads it."""
    self = opened(Settings(**kept["settings"]), kept["dimension"])
    self.load_state_dict(kept["weights"])
    return self.eval()


def opened(settings: Settings, dimension: int) -> HubInverter:
    """The language model, on the CPU.

    Raises BadInput when it is neither cached nor reachable.
    """
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    try:
        config = AutoConfig.from_pretrained(settings.model)
        kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        model, tokenizer = kind.from_pretrained(settings.model), AutoTokenizer.from_pretrained(settings.model)
    except (OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise BadInput(f"inverter: no language model {settings.model!r}: {reason}") from None
    return HubInverter(model, tokenizer, dimension, settings)


def train(
    vectors: Tensor, texts: Sequence[str], settings: Settings, seed: int, log: Log | None = None
) -> HubInverter:
    """Fine-tune on the attacker's texts and their unit vectors (n, e), where the vectors are.

    Raises BadInput for < 2 texts or no such model.
    """
    if len(texts) < 2 or len(texts) != len(vectors):
        raise BadInput(
            f"inverter: {len(texts)} texts and {len(vectors)} vectors to learn from; as many of both are needed, at least 2"
        )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        self = opened(settings, vectors.shape[1]).to(vectors.device)
        _fit(self, vectors, texts, settings, torch.Generator().manual_seed(seed), log)
    return self.eval()


def _fit(
    self: HubInverter,
    vectors: Tensor,
    texts: Sequence[str],
    s: Settings,
    generator: torch.Generator,
    log: Log | None,
) -> None:
    encoded = self.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    ids = [[*i, self.end][: s.tokens] for i in encoded]
    self.model.requires_grad_(s.train_model)
    optimiser = torch.optim.AdamW(
        [p for p in self.parameters() if p.requires_grad], lr=s.lr, weight_decay=0.01
    )
    self.train()
    step = 0
    for _ in range(s.epochs):
        for rows in batches([len(i) for i in ids], s.batch, generator):
            target = nn.utils.rnn.pad_sequence([torch.tensor(ids[r]) for r in rows], True, -100)
            shown = target.masked_fill(target < 0, self.pad)
            logits = self(blurred(vectors[rows], s.noise, generator), shown)
            loss = cross_entropy(
                logits.flatten(0, 1).float(), target.flatten().to(self.device), ignore_index=-100
            )
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.parameters(), 1.0)
            optimiser.step()
            step += 1
            if log and step % 20 == 1:
                log({"inverter_loss": loss.item()}, step)
