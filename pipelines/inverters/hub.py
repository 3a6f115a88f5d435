"""An inverter from a hub language model: GPT-2 and Qwen (decoder only) or T5 (encoder-decoder).

As in GEIA (Li et al. 2023) and vec2text's first step (Morris et al. 2023), a small MLP turns the vector into
`PREFIX` input embeddings. A decoder-only model continues them; T5's encoder reads them. The model comes from
the local cache, else from the hub. Code in a checkpoint is never run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.inverters import Draft, weights
from pipelines.inverters.writer import Writer, check_pairs, minimise, noisy
from pipelines.runtime.files import reading
from pipelines.runtime.log import Log
from pipelines.runtime.settings import Checked, Count

PREFIX = 16  # input embeddings made of the vector
LR = 2e-4


@dataclass(frozen=True)
class Settings(Checked):
    """Which hub model, and how it is fine-tuned."""

    model: str  # hub id, or a local folder
    tokens: Count = 64  # longest text
    epochs: Count = 3  # passes through the known texts


class HubInverter(Writer):
    """Write texts of unit vectors (n, dimension) with a language model."""

    def __init__(self, model: Any, tokenizer: Any, dimension: int, settings: Settings) -> None:
        super().__init__()
        self.model, self.tokenizer, self.settings, self.tokens = model, tokenizer, settings, settings.tokens
        width = model.get_input_embeddings().weight.shape[1]
        self.prefix = nn.Sequential(nn.Linear(dimension, width), nn.GELU(), nn.Linear(width, PREFIX * width))
        end, pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        self.end = int(model.config.eos_token_id if end is None else end)
        self.pad = self.end if pad is None else int(pad)
        self.special = [self.end, self.pad]

    def forward(self, vectors: Tensor, ids: Tensor) -> Tensor:
        before = self.prefix(vectors).view(len(vectors), PREFIX, -1)
        ids = ids.to(vectors.device)
        if self.model.config.is_encoder_decoder:
            first = torch.full_like(ids[:, :1], int(self.model.config.decoder_start_token_id or 0))
            ids = torch.cat([first, ids[:, :-1]], 1)
            return self.model(inputs_embeds=before, decoder_input_ids=ids).logits
        x = torch.cat([before, self.model.get_input_embeddings()(ids[:, :-1])], 1)
        return self.model(inputs_embeds=x).logits[:, PREFIX - 1 :]

    def text(self, draft: Draft) -> str:
        return self.tokenizer.decode(list(draft.ids), skip_special_tokens=True).strip()

    def draft(self, text: str) -> Draft:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return Draft(tuple(ids[: self.tokens]), True)

    def reader(self, vectors: Tensor, memory: Tensor | None = None) -> Callable[[Tensor], Tensor]:
        # Nothing is cached: each call reads everything again.
        seen = torch.empty(len(vectors), 0, dtype=torch.long, device=vectors.device)

        def read(ids: Tensor) -> Tensor:
            nonlocal seen
            seen = torch.cat([seen, ids], 1)
            blank = nn.functional.pad(seen, (0, 1), value=self.pad)  # logits are those of the blank
            return self(vectors, blank)[:, -1].float()

        return read

    def positions(self, vectors: Tensor, drafts: Sequence[Draft]) -> Iterator[Tensor]:
        for vector, draft in zip(vectors, drafts, strict=True):
            ids = torch.tensor([draft.ids])
            yield self(vector[None], ids)[0].float().cpu() if draft.ids else torch.empty(0)

    def state(self) -> dict[str, Any]:
        """Return what `restored` needs. The tokenizer stays with the hub model."""
        return {
            "weights": weights(self),
            "settings": asdict(self.settings),
            "dimension": self.prefix[0].in_features,
        }


def restored(state: dict[str, Any]) -> HubInverter:
    """Rebuild an inverter from its `state`. Raises BadInput as `load` does."""
    model = load(Settings(**state["settings"]), state["dimension"])
    model.load_state_dict(state["weights"])
    return model.eval()


def load(settings: Settings, dimension: int) -> HubInverter:
    """Load the language model, on the CPU. Raises BadInput if it is neither cached nor reachable."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM, AutoTokenizer

    with reading(Path(settings.model), "no language model"):
        config = AutoConfig.from_pretrained(settings.model)
        kind = AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM
        model, tokenizer = kind.from_pretrained(settings.model), AutoTokenizer.from_pretrained(settings.model)
    return HubInverter(model, tokenizer, dimension, settings)


def train(
    vectors: Tensor, texts: Sequence[str], settings: Settings, seed: int, log: Log | None = None
) -> HubInverter:
    """Fine-tune on texts and their unit vectors (n, e), on the device of the vectors.

    Raises BadInput for fewer than two texts, or if there is no such model.
    """
    check_pairs(vectors, texts)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        inverter = load(settings, vectors.shape[1]).to(vectors.device)
        _fit(inverter, vectors, texts, torch.Generator().manual_seed(seed), log)
    return inverter


def _fit(
    inverter: HubInverter, vectors: Tensor, texts: Sequence[str], generator: torch.Generator, log: Log | None
) -> None:
    encoded = inverter.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    ids = [[*i, inverter.end][: inverter.tokens] for i in encoded]
    optimiser = torch.optim.AdamW(inverter.parameters(), lr=LR, weight_decay=0.01)

    def logits(rows: list[int], target: Tensor) -> Tensor:
        return inverter(noisy(vectors[rows], generator), target.masked_fill(target < 0, inverter.pad))

    minimise(inverter, optimiser, lambda *_: 1.0, ids, logits, generator, log)
