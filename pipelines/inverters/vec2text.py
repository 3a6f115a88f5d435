"""vec2text's released weights (Morris et al. 2023, arXiv 2310.06816): an inversion model writes a first hypothesis, its corrector
better ones.

Both are a T5. The inversion model reads 16 pseudo-tokens, an MLP's of the vector; the corrector reads, after one LayerNorm,
(</s>, 16 of the target vector, </s>, 16 of the hypothesis' vector, </s>, 16 of target - hypothesis, </s>, the hypothesis).

Layout, key names, masks and the search are those of the authors' public code (vec2text: models/inversion.py,
models/corrector_encoder.py, trainers/corrector.py, api.py). The released weights themselves have never been read by this project:
that they have these names, and lie in safetensors, is not checked. Two differences: texts are as long as the config's
`max_seq_length` (api.py: 128, whatever the model), and the nearest hypothesis of all rounds is returned, not the last round's.

Vectors are raw, with their lengths, as the corrector was trained: those of jxm/gtr__nq__32 are the mean over the tokens of GTR's
T5 encoder, without its dense layer and its normalisation (`pooling: mean` in the encoder's row).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pipelines.runtime import files
from pipelines.runtime.errors import BadInput
from pipelines.runtime.settings import check_settings

Encode = Callable[[Sequence[str]], Tensor]  # texts -> raw vectors (n, d)
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Settings:
    """Which weights; how often they correct is a matter of the search."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    pretrained: str  # the inversion model: hub id (jxm/gtr__nq__32), or a local folder
    corrector: str | None = None  # its corrector: hub id (jxm/gtr__nq__32__correct), or a local folder
    backbone: str | None = (
        None  # the T5's config and tokenizer: hub id or local folder; None: what config.json names
    )
    batch: int = 16  # vectors at a time; the corrector writes batch * width * width texts at once

    def __post_init__(self) -> None:
        check_settings(self, {"batch": 1})


@dataclass(frozen=True)
class Hypothesis:
    """What was written for one vector, and where it lies."""

    ids: tuple[int, ...]  # sub-words as the T5 wrote them, its start token among them
    vector: Tensor  # (d,) raw, of its text
    cosine: float  # to the vector


def pseudo_tokens(dimension: int, bottleneck: int, width: int, dropout: float) -> nn.Sequential:
    """(n, dimension) -> (n, width), the pseudo-tokens side by side."""
    return nn.Sequential(
        nn.Linear(dimension, bottleneck), nn.Dropout(dropout), nn.GELU(), nn.Linear(bottleneck, width)
    )


class Network(nn.Module):
    """A T5 that reads pseudo-tokens of vectors; names are those of the released state. `blocks`: its MLPs'."""

    def __init__(self, config: Any, blocks: Sequence[str], shapes: tuple[int, int, int], norm: bool) -> None:
        from transformers import T5ForConditionalGeneration

        super().__init__()
        self.encoder_decoder: Any = T5ForConditionalGeneration(config)
        self.blocks = tuple(blocks)
        for block in blocks:
            self.add_module(block, pseudo_tokens(*shapes, config.dropout_rate))
        if norm:
            self.layernorm = nn.LayerNorm(config.d_model)

    def read(self, block: str, vectors: Tensor) -> Tensor:
        """(n, d) -> (n, pseudo-tokens, width)"""
        return self.get_submodule(block)(vectors).view(len(vectors), -1, self.encoder_decoder.config.d_model)

    def inputs(self, vectors: Tensor) -> dict[str, Tensor]:
        """What the inversion model's T5 reads of vectors (n, d)."""
        read = self.read(self.blocks[0], vectors)
        return {"inputs_embeds": read, "attention_mask": read.new_ones(read.shape[:2], dtype=torch.long)}

    def correction_inputs(self, vectors: Tensor, hypotheses: Tensor, ids: Tensor) -> dict[str, Tensor]:
        """What the corrector's T5 reads of vectors (n, d), the hypotheses' vectors (n, d), and their sub-words (n, t), padded."""
        config, embed = self.encoder_decoder.config, self.encoder_decoder.get_input_embeddings()
        end = embed(torch.full((len(ids), 1), config.eos_token_id, device=ids.device))
        target, difference, guess = (
            self.read(block, x)
            for block, x in zip(self.blocks, (vectors, vectors - hypotheses, hypotheses), strict=True)
        )
        read = self.layernorm(torch.cat([end, target, end, guess, end, difference, end, embed(ids)], 1))
        mask = (
            ids != config.pad_token_id
        ).long()  # the start token of a T5 is its padding: not attended to, as there
        return {
            "inputs_embeds": read,
            "attention_mask": nn.functional.pad(mask, (read.shape[1] - ids.shape[1], 0), value=1),
        }


class Vec2Text(nn.Module):
    """Raw vectors (n, d) -> texts. tokens: the longest text, in T5's sub-words; embedder: what config.json calls the encoder."""

    def __init__(
        self,
        inversion: Network,
        corrector: Network | None,
        tokenizer: Any,
        tokens: int,
        embedder: str,
        settings: Settings,
    ) -> None:
        super().__init__()
        self.inversion, self.corrector, self.tokenizer = inversion, corrector, tokenizer
        self.tokens, self.embedder, self.settings = tokens, embedder, settings

    @property
    def dimension(self) -> int:
        return int(self.inversion.get_submodule("embedding_transform.0").in_features)  # pyright: ignore[reportArgumentType]

    @torch.inference_mode()
    def invert(self, vectors: Tensor, encode: Encode, steps: int, beams: int) -> list[str]:
        """Texts of raw vectors (n, d): the nearest by cosine of all that `steps` rounds of correction wrote; `beams` hypotheses
        go on into the next round, and each is corrected in `beams` ways. 0 steps: the first hypotheses, without a query.

        Raises BadInput for steps without a corrector.
        """
        if steps and self.corrector is None:
            raise BadInput(
                f"inverter {self.settings.pretrained}: {steps} corrections, but no `corrector` is named"
            )
        device = next(self.parameters()).device
        parts = vectors.to(device).float().split(self.settings.batch)
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
                break  # correction is a function of these: every further round would write the same
        return self.texts([h.ids for h in best])

    def _corrected(
        self, vectors: Tensor, live: list[list[Hypothesis]], beams: int
    ) -> list[list[tuple[int, ...]]]:
        assert self.corrector is not None
        rows = [i for i, hypotheses in enumerate(live) for _ in hypotheses]
        flat = [h for hypotheses in live for h in hypotheses]
        pad = self.corrector.encoder_decoder.config.pad_token_id
        ids = nn.utils.rnn.pad_sequence([torch.tensor(h.ids, device=vectors.device) for h in flat], True, pad)
        inputs = self.corrector.correction_inputs(vectors[rows], torch.stack([h.vector for h in flat]), ids)
        pools: list[list[tuple[int, ...]]] = [[] for _ in live]
        for k, written in enumerate(self._written(self.corrector, inputs, beams)):
            pools[rows[k // beams]].append(written)
        return pools

    def _written(self, network: Network, inputs: dict[str, Tensor], beams: int) -> list[tuple[int, ...]]:
        """`beams` texts of each input by beam search, without the padding behind them."""
        ids = network.encoder_decoder.generate(
            **inputs,
            num_beams=beams,
            num_return_sequences=beams,
            do_sample=False,
            max_length=self.tokens,
            min_length=1,
        )
        pad, rows = network.encoder_decoder.config.pad_token_id, []
        for row in ids.tolist():
            while len(row) > 1 and row[-1] == pad:
                row.pop()
            rows.append(tuple(row))
        return rows

    def _ranked(
        self, vectors: Tensor, pools: Sequence[Sequence[tuple[int, ...]]], encode: Encode
    ) -> list[list[Hypothesis]]:
        """Each pool's distinct texts in sub-words, nearest first."""
        pools = [list(dict.fromkeys(pool)) for pool in pools]
        rows = [i for i, pool in enumerate(pools) for _ in pool]
        flat = [ids for pool in pools for ids in pool]
        embedded = encode(self.texts(flat)).to(vectors.device).float()
        cosines = torch.cosine_similarity(embedded, vectors[rows]).tolist()
        out: list[list[Hypothesis]] = [[] for _ in pools]
        for i, ids, vector, cosine in zip(rows, flat, embedded, cosines, strict=True):
            out[i].append(Hypothesis(ids, vector, cosine))
        return [sorted(hypotheses, key=lambda h: -h.cosine) for hypotheses in out]

    def texts(self, ids: Sequence[Sequence[int]]) -> list[str]:
        """What sub-words say."""
        return [
            text.strip()
            for text in self.tokenizer.batch_decode([list(i) for i in ids], skip_special_tokens=True)
        ]


# ---------------------------------------------------------------- files


def opened(settings: Settings) -> Vec2Text:
    """From local folders, else the hub. Raises BadInput: neither there nor reachable, weights that are pickled or of another
    layout."""
    config, inversion = _read(settings.pretrained)
    correction = _read(settings.corrector)[1] if settings.corrector else None
    backbone, tokens = settings.backbone or config.get("model_name_or_path"), config.get("max_seq_length")
    if not backbone or not tokens:
        raise BadInput(
            f"inverter {settings.pretrained}: config.json names no model_name_or_path or no max_seq_length"
        )
    from transformers import AutoConfig

    try:
        t5 = AutoConfig.from_pretrained(backbone)
    except (OSError, ValueError) as error:
        raise BadInput(f"inverter {settings.pretrained}: no T5 {backbone!r}: {_line(error)}") from None
    settings = replace(settings, backbone=str(backbone))
    return _built(
        settings, t5, inversion, correction, int(tokens), str(config.get("embedder_model_name") or "")
    )


def suited(self: Vec2Text, vectors: Tensor) -> Vec2Text:
    """Itself, if raw vectors (m, d) can be what it was trained on; else BadInput, as it would write fluent nonsense."""
    name = self.settings.pretrained
    if vectors.shape[1] != self.dimension:
        raise BadInput(
            f"inverter {name}: it reads {self.dimension} dimensions, and the vectors have {vectors.shape[1]}"
        )
    if self.embedder == "gtr_base" and (vectors.float().norm(dim=1) - 1).abs().max() < 1e-2:
        raise BadInput(
            f"inverter {name}: it reads GTR's token means, which are not normalised: set the encoder's `pooling: mean`"
        )
    return self


def save(self: Vec2Text, path: Path) -> None:
    """One file: both networks and the T5's config; the tokenizer stays where the T5 came from."""
    files.save_state(path, {
        "settings": asdict(self.settings), "config": self.inversion.encoder_decoder.config.to_dict(),
        "inversion": _once(self.inversion), "corrector": None if self.corrector is None else _once(self.corrector),
        "tokens": self.tokens, "embedder": self.embedder,
    })  # fmt: skip


def load(kept: dict[str, Any]) -> Vec2Text:
    """From what `save` wrote, as `files.load_state` reads it."""
    from transformers import T5Config

    t5, settings = T5Config.from_dict(kept["config"]), Settings(**kept["settings"])
    return _built(settings, t5, kept["inversion"], kept["corrector"], kept["tokens"], kept["embedder"])


def _built(
    settings: Settings,
    t5: Any,
    inversion: dict[str, Tensor],
    correction: dict[str, Tensor] | None,
    tokens: int,
    embedder: str,
) -> Vec2Text:
    from transformers import AutoTokenizer

    three = [f"embedding_transform_{i}" for i in (1, 2, 3)]
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(settings.backbone))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"inverter {settings.pretrained}: no tokenizer of {settings.backbone!r}: {_line(error)}"
        ) from None
    first = _filled(settings.pretrained, t5, ["embedding_transform"], inversion)
    second = None if correction is None else _filled(str(settings.corrector), t5, three, correction)
    self = Vec2Text(first, second, tokenizer, tokens, embedder, settings)
    if correction is not None and (reads := correction[f"{three[0]}.0.weight"].shape[1]) != self.dimension:
        raise BadInput(
            f"inverter {settings.corrector}: it reads {reads} dimensions, its inversion model {self.dimension}"
        )
    return self.eval()


def _filled(name: str, t5: Any, blocks: Sequence[str], state: dict[str, Tensor]) -> Network:
    """A network with this state. Names that share one tensor (a T5's embeddings) may be stored once."""
    first, last = (state.get(f"{blocks[0]}.{i}.weight") for i in (0, 3))
    if first is None or last is None or t5.model_type != "t5":
        what = (
            f"no {blocks[0]}.0.weight and .3.weight"
            if t5.model_type == "t5"
            else f"its backbone is a {t5.model_type}"
        )
        raise BadInput(f"inverter {name}: not vec2text's weights of this kind: {what}")
    with torch.random.fork_rng(devices=[]):
        network = Network(t5, blocks, (first.shape[1], first.shape[0], last.shape[0]), norm=len(blocks) > 1)
    mine = network.state_dict()
    present = {mine[key].data_ptr() for key in mine.keys() & state.keys()}
    wrong = [f"no {key}" for key in mine if mine[key].data_ptr() not in present]
    wrong += [f"{key}, which is not known" for key in sorted(state.keys() - mine.keys())]
    wrong += [f"{key} is {tuple(state[key].shape)}, not {tuple(mine[key].shape)}" for key in sorted(mine.keys() & state.keys())
              if state[key].shape != mine[key].shape]  # fmt: skip
    if wrong or last.shape[0] % t5.d_model:
        raise BadInput(
            f"inverter {name}: not vec2text's weights: {[*wrong, 'pseudo-tokens of another width than the T5'][0]}"
        )
    network.load_state_dict(state, strict=False)
    return network


def _once(network: Network) -> dict[str, Tensor]:
    """The state, each tensor under the first of its names."""
    kept: dict[int, str] = {}
    state = network.state_dict()
    return {key: x for key, x in state.items() if kept.setdefault(x.data_ptr(), key) == key}


def _read(name: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and weights, without the copy of the target encoder (`embedder.`) that an inversion model carries."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from transformers.utils.hub import cached_file

    def file(part: str) -> Path | None:
        whole = part == "config.json"  # of all others, what an offline cache does not have is not there
        path = cached_file(
            name,
            part,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=whole,
        )
        return Path(path) if path else None

    try:
        config, index = file("config.json"), file(f"{WEIGHTS}.index.json")
        names = sorted(set(json.loads(index.read_text())["weight_map"].values())) if index else [WEIGHTS]
        parts = [file(part) for part in names]
        if config is None or None in parts:
            missing = "config.json" if config is None else names[parts.index(None)]
            raise BadInput(
                f"inverter {name}: no {missing}; pickled weights (pytorch_model.bin) are programs, and are not read"
            )
        state = {
            key: x.float()
            for part in parts
            for key, x in load_file(str(part)).items()
            if not key.startswith("embedder.")
        }
        return json.loads(config.read_text()), state
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise BadInput(f"inverter {name}: no vec2text model: {_line(error)}") from None


def _line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
