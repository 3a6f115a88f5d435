"""An inverter from an encoder-decoder language model of the hub, such as T5.

As in vec2text's first step (Morris et al. 2023), a small MLP turns the vector into `PREFIX` input embeddings,
which the encoder reads. The model comes from the local cache, else from the hub. Code in a checkpoint is
never run.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.inverters import Draft, weights
from pipelines.inverters.writer import Writer, minimise, noisy
from pipelines.runtime.device import forked, manual_seed
from pipelines.runtime.files import reading
from pipelines.runtime.settings import Checked, Count

PREFIX = 16  # input embeddings made of the vector
LR = 2e-4


@dataclass(frozen=True)
class Settings(Checked):
    """Which hub model, and how it is fine-tuned."""

    model: str  # a T5: hub id, or a local folder
    tokens: Count = 64  # longest text, in sub-words
    epochs: Count = 3  # passes through the known texts


class HubInverter(Writer):
    """Write texts of unit vectors (n, dimension) with a language model."""

    def __init__(self, model: Any, tokenizer: Any, dimension: int, settings: Settings) -> None:
        super().__init__()
        self.model, self.tokenizer, self.settings, self.tokens = model, tokenizer, settings, settings.tokens
        width = model.config.d_model
        self.prefix = nn.Sequential(nn.Linear(dimension, width), nn.GELU(), nn.Linear(width, PREFIX * width))
        self.end, self.pad = tokenizer.eos_token_id, tokenizer.pad_token_id
        self.special = [self.end, self.pad]

    def forward(self, vectors: Tensor, ids: Tensor) -> Tensor:
        before = self.prefix(vectors).view(len(vectors), PREFIX, -1)
        shifted = self.model.prepare_decoder_input_ids_from_labels(ids.to(vectors.device))
        return self.model(inputs_embeds=before, decoder_input_ids=shifted).logits

    def text(self, draft: Draft) -> str:
        return self.tokenizer.decode(list(draft.ids), skip_special_tokens=True).strip()

    def draft(self, text: str) -> Draft:
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return Draft(tuple(ids[: self.tokens]), True)

    def reader(self, vectors: Tensor, memory: Tensor | None) -> Callable[[Tensor], Tensor]:
        # Nothing is cached: each call reads everything again.
        seen = torch.empty(len(vectors), 0, dtype=torch.long, device=vectors.device)

        def read(ids: Tensor) -> Tensor:
            nonlocal seen
            seen = torch.cat([seen, ids], 1)
            # `forward` shifts ids right, so the blank's logits are of the token after `seen`
            blank = nn.functional.pad(seen, (0, 1), value=self.pad)
            return self(vectors, blank)[:, -1].float()

        return read

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
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    with reading(settings.model, "no encoder-decoder language model"):
        model = AutoModelForSeq2SeqLM.from_pretrained(
            settings.model,
            trust_remote_code=False,
            attn_implementation=None,  # config.json may name a kernel of the hub, which is code
            dtype=torch.float32,
        )
        tokenizer = AutoTokenizer.from_pretrained(settings.model, trust_remote_code=False)
        return HubInverter(model, tokenizer, dimension, settings)


def train(
    vectors: Tensor, texts: Sequence[str], settings: Settings, seed: int, **options: Any
) -> HubInverter:
    """Fine-tune on texts and their unit vectors (n, e), on the device of the vectors.

    options: `log` and `checkpoint` of `minimise`. Raises BadInput as `load` does.
    """
    generator = torch.Generator().manual_seed(seed)
    with forked(vectors.device):
        manual_seed(seed, vectors.device)
        inverter = load(settings, vectors.shape[1]).to(vectors.device)
        encoded = inverter.tokenizer(list(texts), add_special_tokens=False)["input_ids"]
        ids = [[*row, inverter.end][: inverter.tokens] for row in encoded]
        optimiser = torch.optim.AdamW(inverter.parameters(), lr=LR, weight_decay=0.01)

        def logits(rows: Tensor, target: Tensor) -> Tensor:
            return inverter(noisy(vectors[rows], generator), target)

        minimise(inverter, optimiser, ids, logits, generator, **options)
    return inverter
