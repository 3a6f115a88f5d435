"""vec2text's released weights (Morris et al. 2023, arXiv 2310.06816): an inversion model writes a first
hypothesis, and a corrector improves it.

Both are a T5. The inversion model reads 16 pseudo-tokens, made of the vector by an MLP. The corrector reads
</s>, 16 pseudo-tokens of the target vector, </s>, 16 of the hypothesis' vector, </s>, 16 of their difference,
</s>, and the hypothesis. One LayerNorm is applied to all of these.

Layout, names, masks and search follow the authors' public code (vec2text: models/inversion.py,
models/corrector_encoder.py, trainers/corrector.py, api.py). There are two differences. Texts are as long as
the config's `max_seq_length` (api.py: 128 for every model). The nearest hypothesis of all rounds is returned,
not the last round's. This project has never read the released weights: that they have these names, and are in
safetensors, is not checked.

Vectors are raw, with their lengths, as the corrector was trained. Those of jxm/gtr__nq__32 are the mean over
the tokens of GTR's T5 encoder, without its dense layer and its normalisation (`pooling: mean` in the
encoder's row).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pipelines.inverters import Encode, in_lists, weights
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading
from pipelines.runtime.progress import progress

Ids = tuple[int, ...]  # sub-words as the T5 wrote them, with its start token
WEIGHTS = "model.safetensors"
BATCH = 16  # vectors at a time; the corrector writes BATCH * beams ** 2 texts at once


@dataclass(frozen=True)
class Settings:
    """Which weights. The number of corrections is a setting of the search."""

    pretrained: str  # the inversion model: hub id (jxm/gtr__nq__32), or a local folder
    corrector: str | None = None  # its corrector: hub id (jxm/gtr__nq__32__correct), or a local folder


@dataclass(frozen=True)
class Hypothesis:
    """A text written for one vector."""

    ids: Ids
    vector: Tensor  # (d,) raw, of the text
    cosine: float  # to the attacked vector


class Network(nn.Module):
    """A T5 that reads pseudo-tokens of vectors. Parameters have the names of the released state.

    blocks: names of its MLPs: one in the inversion model, three in the corrector, which also has a LayerNorm.
    shapes: dimension, bottleneck, and total width of the pseudo-tokens.
    """

    def __init__(self, config: Any, blocks: Sequence[str], shapes: tuple[int, int, int]) -> None:
        from transformers import T5ForConditionalGeneration

        super().__init__()
        self.encoder_decoder: Any = T5ForConditionalGeneration(config)
        self.config, self.blocks = config, tuple(blocks)
        self.dimension, bottleneck, width = shapes
        for block in blocks:
            first, last = nn.Linear(self.dimension, bottleneck), nn.Linear(bottleneck, width)
            self.add_module(block, nn.Sequential(first, nn.Dropout(config.dropout_rate), nn.GELU(), last))
        if len(blocks) > 1:
            self.layernorm = nn.LayerNorm(config.d_model)

    def read(self, block: str, vectors: Tensor) -> Tensor:
        """(n, d) -> (n, pseudo-tokens, width)"""
        return self.get_submodule(block)(vectors).view(len(vectors), -1, self.config.d_model)

    def inputs(self, vectors: Tensor) -> dict[str, Tensor]:
        """Return what the inversion model's T5 reads of vectors (n, d)."""
        read = self.read(self.blocks[0], vectors)
        return {"inputs_embeds": read, "attention_mask": read.new_ones(read.shape[:2], dtype=torch.long)}

    def correction_inputs(self, vectors: Tensor, hypotheses: Tensor, ids: Tensor) -> dict[str, Tensor]:
        """Return what the corrector's T5 reads of vectors (n, d), the hypotheses' vectors (n, d) and ids (n,
        t), padded.
        """
        embed = self.encoder_decoder.get_input_embeddings()
        end = embed(torch.full((len(ids), 1), self.config.eos_token_id, device=ids.device))
        sides = zip(self.blocks, (vectors, vectors - hypotheses, hypotheses), strict=True)
        target, difference, guess = (self.read(block, x) for block, x in sides)
        read = self.layernorm(torch.cat([end, target, end, guess, end, difference, end, embed(ids)], 1))
        # A T5's start token is its padding. The authors' code does not attend to it, either.
        mask = (ids != self.config.pad_token_id).long()
        mask = nn.functional.pad(mask, (read.shape[1] - ids.shape[1], 0), value=1)
        return {"inputs_embeds": read, "attention_mask": mask}


class Vec2Text(nn.Module):
    """Write texts of raw vectors (n, d).

    tokens: the longest text, in T5's sub-words. embedder: the encoder's name in config.json. backbone: where
    the T5's tokenizer is.
    """

    def __init__(
        self, inversion: Network, corrector: Network | None, tokenizer: Any, about: dict[str, Any]
    ) -> None:
        super().__init__()
        self.inversion, self.corrector, self.tokenizer, self.about = inversion, corrector, tokenizer, about
        self.tokens: int = about["tokens"]

    @torch.inference_mode()
    def invert(self, vectors: Tensor, encode: Encode, steps: int, beams: int) -> list[str]:
        """Return for each raw vector (n, d) the nearest text by cosine: of the first hypothesis and of all
        those that `steps` rounds of correction wrote.

        The nearest `beams` hypotheses enter the next round, and each is corrected in `beams` ways. 0 steps:
        return the first hypotheses, without a query.
        """
        device = next(self.parameters()).device
        parts = progress(vectors.to(device).float().split(BATCH), what="vec2text", unit=f"x {BATCH} vectors")
        return [text for part in parts for text in self._inverted(part, encode, steps, beams)]

    def _inverted(self, vectors: Tensor, encode: Encode, steps: int, beams: int) -> list[str]:
        first = self._written(self.inversion, self.inversion.inputs(vectors), 1)
        if not steps:
            return self.texts(first)
        live = self._ranked(vectors, [[ids] for ids in first], encode)
        best = [hypotheses[0] for hypotheses in live]
        for _ in range(steps):
            pools = self._corrected(vectors, live, beams)
            before, live = live, [ranked[:beams] for ranked in self._ranked(vectors, pools, encode)]
            best = [max(old, new[0], key=lambda h: h.cosine) for old, new in zip(best, live, strict=True)]
            if [[h.ids for h in row] for row in live] == [[h.ids for h in row] for row in before]:
                break  # correction is deterministic: further rounds would write the same
        return self.texts([h.ids for h in best])

    def _corrected(self, vectors: Tensor, live: list[list[Hypothesis]], beams: int) -> list[list[Ids]]:
        """Return `beams` corrections of each hypothesis, pooled by vector."""
        assert self.corrector is not None  # a study with corrections names it
        rows = [i for i, hypotheses in enumerate(live) for _ in hypotheses]
        flat = list(chain(*live))
        pad = self.corrector.config.pad_token_id
        ids = nn.utils.rnn.pad_sequence([torch.tensor(h.ids, device=vectors.device) for h in flat], True, pad)
        inputs = self.corrector.correction_inputs(vectors[rows], torch.stack([h.vector for h in flat]), ids)
        written = self._written(self.corrector, inputs, beams)
        return in_lists(written, [beams * len(hypotheses) for hypotheses in live])

    def _written(self, network: Network, inputs: dict[str, Tensor], beams: int) -> list[Ids]:
        """Write `beams` texts of each input by beam search, without the padding at their ends."""
        sizes = {"num_beams": beams, "num_return_sequences": beams, "max_length": self.tokens}
        ids = network.encoder_decoder.generate(**inputs, **sizes, min_length=1, do_sample=False)
        # A text ends with its last id that is no padding. The first id is always kept.
        lengths = (ids != network.config.pad_token_id).cumsum(1).argmax(1) + 1
        return [tuple(row[:length]) for row, length in zip(ids.tolist(), lengths.tolist(), strict=True)]

    def _ranked(
        self, vectors: Tensor, pools: Sequence[Sequence[Ids]], encode: Encode
    ) -> list[list[Hypothesis]]:
        """Return each pool's distinct sequences of ids as hypotheses, nearest first."""
        pools = [list(dict.fromkeys(pool)) for pool in pools]
        rows = [i for i, pool in enumerate(pools) for _ in pool]
        ids = list(chain(*pools))
        embedded = encode(self.texts(ids)).to(vectors.device).float()
        cosines = torch.cosine_similarity(embedded, vectors[rows]).tolist()
        hypotheses = in_lists(map(Hypothesis, ids, embedded, cosines), map(len, pools))
        return [sorted(each, key=lambda h: -h.cosine) for each in hypotheses]

    def texts(self, ids: Sequence[Ids]) -> list[str]:
        """Decode sub-words."""
        decoded = self.tokenizer.batch_decode([list(i) for i in ids], skip_special_tokens=True)
        return [text.strip() for text in decoded]

    def check(self, vectors: Tensor) -> None:
        """Raise BadInput if raw vectors (m, d) differ in kind from the training vectors: the texts would be
        fluent nonsense.
        """
        for network in (self.inversion, self.corrector):
            if network is not None and network.dimension != vectors.shape[1]:
                raise BadInput(
                    f"inverter: it reads {network.dimension} dimensions, "
                    f"and the vectors have {vectors.shape[1]}"
                )
        unit = (vectors.float().norm(dim=1) - 1).abs().max() < 1e-2
        if self.about["embedder"] == "gtr_base" and unit:
            raise BadInput(
                "inverter: it reads GTR's token means, which are not normalised: "
                "set the encoder's `pooling: mean`"
            )

    def state(self) -> dict[str, Any]:
        """Return what `restored` needs. The tokenizer stays with the T5."""
        return {
            "config": self.inversion.config.to_dict(),
            "inversion": weights(self.inversion),
            "corrector": self.corrector and weights(self.corrector),
            "about": self.about,
        }


def restored(state: dict[str, Any]) -> Vec2Text:
    """Rebuild an inverter from its `state`. Raises BadInput if its tokenizer cannot be loaded."""
    from transformers import T5Config

    t5 = T5Config.from_dict(state["config"], attn_implementation=None)
    return _built(t5, state["inversion"], state["corrector"], state["about"])


# ---------------------------------------------------------------- released files


def load(settings: Settings) -> Vec2Text:
    """Load weights from local folders, else from the hub.

    Raises BadInput if they are not there, are pickled, or have another layout.
    """
    from transformers import AutoConfig

    config, inversion = _read(settings.pretrained)
    corrector = _read(settings.corrector)[1] if settings.corrector else None
    with reading(settings.pretrained, "config.json is not that of a vec2text model"):
        about = asdict(settings) | {
            "backbone": str(config["model_name_or_path"]),
            "tokens": int(config["max_seq_length"]),
            "embedder": config.get("embedder_model_name"),
        }
        # config.json may name a kernel of the hub for the attention, which is code
        safe = {"trust_remote_code": False, "attn_implementation": None}
        t5 = AutoConfig.from_pretrained(about["backbone"], **safe)
    return _built(t5, inversion, corrector, about)


def _read(name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read config.json and weights, without the target encoder (`embedder.`) that an inversion model carries
    along.
    """
    from safetensors.torch import load_file
    from transformers.utils.hub import cached_file

    with reading(name, "no vec2text model"):
        config = json.loads(Path(str(cached_file(name, "config.json"))).read_bytes())
        file = cached_file(name, WEIGHTS, _raise_exceptions_for_missing_entries=False)
        if file is None:
            raise BadInput(f"inverter {name}: no {WEIGHTS}; pickled weights are programs, and are not read")
        state = load_file(file)
    return config, {key: x.float() for key, x in state.items() if not key.startswith("embedder.")}


def _built(
    t5: Any, inversion: dict[str, Tensor], corrector: dict[str, Tensor] | None, about: dict[str, Any]
) -> Vec2Text:
    """Build both networks, and load the tokenizer."""
    from transformers import AutoTokenizer

    first, second = _filled(about["pretrained"], t5, ["embedding_transform"], inversion), None
    if corrector is not None:
        second = _filled(about["corrector"], t5, [f"embedding_transform_{i}" for i in (1, 2, 3)], corrector)
    with reading(about["backbone"], "no tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(about["backbone"], trust_remote_code=False)
    return Vec2Text(first, second, tokenizer, about).eval()


def _filled(name: str, t5: Any, blocks: Sequence[str], state: dict[str, Tensor]) -> Network:
    """Build a network with this state. Names that share one tensor (a T5's embeddings) may be stored once."""
    with reading(name, "not vec2text's weights"), torch.random.fork_rng(devices=[]):
        first, last = (state[f"{blocks[0]}.{i}.weight"] for i in (0, 3))
        network = Network(t5, blocks, (first.shape[1], first.shape[0], last.shape[0]))
        result = network.load_state_dict(state, strict=False)
        wanted = network.state_dict()
        stored = {wanted[key].data_ptr() for key in wanted.keys() & state.keys()}
        missing = [key for key in result.missing_keys if wanted[key].data_ptr() not in stored]
        if missing or result.unexpected_keys:
            raise ValueError(f"missing: {missing[:1]}, not known: {result.unexpected_keys[:1]}")
    return network
