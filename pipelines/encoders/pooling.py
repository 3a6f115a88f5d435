"""From token vectors to one vector: poolings as modules of sentence-transformers.

>>> from sentence_transformers import SentenceTransformer
>>> transformer = SentenceTransformer("folder/of/a/model")[0]
>>> model = SentenceTransformer(modules=[transformer, FirstLast(384)])
>>> model.encode(["A sentence."]).shape
(1, 384)
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Module, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import import_from_string
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import dynamic_module_utils

from pipelines.encoders import sbert_wk
from pipelines.encoders.use import UniversalSentenceEncoder
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading
from pipelines.study import Encoder

# The outputs of the embedding layer (layer 0) and of each layer, (batch, tokens, dim)
Layers = Sequence[Tensor]


class LayerPooling(Module):
    """A pooling that needs the token vectors of all layers, not only of the last one.

    pool: from layers and attention mask (batch, tokens) to sentence vectors (batch, dim).
    """

    config_keys: list[str] = ["embedding_dimension"]

    def __init__(
        self, embedding_dimension: int, pooling_mode: str, pool: Callable[[Layers, Tensor], Tensor]
    ) -> None:
        super().__init__()
        self.embedding_dimension, self.pooling_mode, self.pool = embedding_dimension, pooling_mode, pool

    def on_model_ready(self, model: Any) -> None:
        """Ask the transformer for all of its layers.

        sentence-transformers calls this once the modules are together.
        """
        model[0].model.config.output_hidden_states = True

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Add `sentence_embedding` (batch, dim)."""
        vectors = self.pool(features["all_layer_embeddings"], features["attention_mask"])
        return {**features, "sentence_embedding": vectors}

    def get_embedding_dimension(self) -> int:
        return self.embedding_dimension

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        self.save_config(output_path)


class FirstLast(LayerPooling):
    """Mean over tokens of (first + last transformer layer) / 2 (SimCSE, section 6.3)."""

    def __init__(self, embedding_dimension: int) -> None:
        super().__init__(embedding_dimension, "first-last", first_last)


def first_last(layers: Layers, mask: Tensor) -> Tensor:
    """Return the mean of the first and the last transformer layer, averaged over each text's tokens."""
    return token_mean((layers[1] + layers[-1]) / 2, mask)


def side_by_side(layers: Layers, mask: Tensor, chosen: Sequence[int]) -> Tensor:
    """Return the mean over tokens of each chosen layer; of several, as unit vectors side by side."""
    means = [token_mean(layers[i], mask) for i in chosen]
    return torch.cat([normalize(mean, dim=1) for mean in means], 1) if len(means) > 1 else means[0]


def token_mean(tokens: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of each text's tokens. (batch, tokens, dim), (batch, tokens) -> (batch, dim)"""
    mask = mask.float().unsqueeze(-1)  # (batch, tokens, 1)
    return ((tokens * mask).sum(1) / mask.sum(1).clamp(min=1)).to(tokens.dtype)


class SeveralPoolings(nn.Module):
    """Several poolings of the same pass: the vectors of each, side by side."""

    def __init__(self, ways: Iterable[SentenceTransformer]) -> None:
        super().__init__()
        self.ways = nn.ModuleList(nn.Sequential(*[*way][1:]) for way in ways)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        vectors = [way(dict(features))["sentence_embedding"] for way in self.ways]
        return {**features, "sentence_embedding": torch.cat(vectors, 1)}  # (batch, sum of the dimensions)


def rotation(dimension: int, seed: int) -> Dense:
    """Return a layer that multiplies by a secret random orthogonal matrix, drawn from the Haar measure."""
    empty = torch.empty(dimension, dimension, dtype=torch.float64)
    matrix = nn.init.orthogonal_(empty, generator=torch.Generator().manual_seed(seed)).float()
    return Dense(dimension, dimension, bias=False, activation_function=nn.Identity(), init_weight=matrix.T)


def compose(model: SentenceTransformer, row: Encoder) -> SentenceTransformer:
    """Return a model with the row's rotation, and its pooling in place of all after the transformer, if any.

    Both models share modules. The model's prompts may be lost. Raises BadInput if there is no transformer to
    pool, or if it has too few layers.
    """
    pooled = row.pooling is not None or row.layers
    later = _pooling_modules(model[0], row) if pooled else [*model][1:]
    if pooled or row.rotation is not None:
        model = SentenceTransformer(modules=[model[0], *later], device=str(model.device))
    if row.rotation is not None:  # appended, because a new model would have it in the transformer's 16 bits
        model.append(rotation(width(model), row.rotation).to(model.device))
    return model


def _pooling_modules(transformer: Any, row: Encoder) -> list[Module]:
    asked = f"layers {[*row.layers]}" if row.layers else f"pooling {row.pooling}"
    if not isinstance(transformer, Transformer):
        raise BadInput(
            f"{asked}: {type(transformer).__name__} has no tokens to pool: it is not a transformer"
        )
    layers = transformer.model.config.num_hidden_layers
    if row.layers:
        if max(row.layers) > layers:
            raise BadInput(f"{asked}: this transformer has {layers} layers")
        wide = width(transformer) * len(row.layers)
        return [LayerPooling(wide, "layer-mean", partial(side_by_side, chosen=row.layers))]
    if row.pooling == "sbert-wk":
        start = layers // 3 if row.first_layer is None else row.first_layer  # 4 of 12, as in the paper
        if layers - start < 2:  # three layers give the two differences of a variance
            raise BadInput(f"{asked}: {layers} layers from layer {start} on are too few: three are needed")
        ends = _ends_with_separator(transformer.tokenizer)
        pool = partial(sbert_wk.pool, start=start, window=row.window, omega=row.omega, separator=ends)
        return [LayerPooling(width(transformer), row.pooling, pool)]
    if row.pooling == "pooler":
        return trained_pooler(transformer)
    assert row.pooling is not None
    return [pooler(row.pooling, width(transformer))]


def pooler(kind: Literal["cls", "mean", "max", "first-last"], width: int) -> Module:
    """Return the pooling of that name for tokens of `width`: cls, mean, max or first-last."""
    return FirstLast(width) if kind == "first-last" else Pooling(width, pooling_mode=kind)


def trained_pooler(transformer: Any) -> list[Module]:
    """Return BERT's own pooler, a layer with tanh on the first token.

    SimCSE's checkpoints store their MLP head there. Raises BadInput if the architecture has no pooler, or the
    checkpoint has no weights for it, which transformers would draw at random.
    """
    own: Any = getattr(transformer.model, "pooler", None)
    name = type(transformer.model).__name__
    if not isinstance(getattr(own, "dense", None), nn.Linear) or not isinstance(own.activation, nn.Tanh):
        raise BadInput(f"pooling pooler: {name} has no pooler of one layer with tanh")
    # transformers marks weights that it read. e5.py stores a pooler of zeros, which counts as missing
    if not getattr(own.dense.weight, "_is_hf_initialized", False) or not own.dense.weight.any():
        raise BadInput(f"pooling pooler: the checkpoint of this {name} has no weights of the pooler")
    module = head(width(transformer))
    module.linear.load_state_dict(own.dense.state_dict())
    return [pooler("cls", width(transformer)), module]


def head(width: int) -> Dense:
    """Return SimCSE's MLP on top of the pooled vector: one layer with tanh."""
    return Dense(width, width, activation_function=nn.Tanh())


def width(model: Transformer | SentenceTransformer) -> int:
    """Return the dimension of a model's vectors; of a transformer, the width of its layers."""
    return int(model.get_embedding_dimension() or 0)


def document_prompt(model: SentenceTransformer) -> str:
    """Return the prefix that a model puts before each document."""
    names = model.default_prompt_name or "", "document", "passage"
    return next(filter(None, map(model.prompts.get, names)), "")


def positions(transformer: Any) -> int | None:
    """Return how many tokens a transformer can read; None: any number."""
    model = getattr(transformer, "model", None)
    if model is None:
        return None
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    table = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    if not most or most < 0:  # XLNet says -1 for any number
        return None
    return most if padding is None else most - padding - 1  # RoBERTa begins after padding_idx


def words_of(tokenizer: Any, features: Mapping[str, Tensor]) -> Tensor:
    """Mark the tokens that are neither padding nor special. -> (batch, tokens) bool"""
    special = torch.tensor(tokenizer.all_special_ids, device=features["input_ids"].device)
    return features["attention_mask"].bool() & ~torch.isin(features["input_ids"], special)


# A config may name a kernel on the hub, which is code. These options take precedence; None: what transformers
# chooses.
SAFE = {
    "attn_implementation": None,
    "experts_implementation": None,
    "use_kernels": False,
    "kernel_config": None,
}
NO_MODEL = "no sentence-transformers model; code that comes with a model is not run"
# transformers asks on the terminal whether to run the code of an image processor. With 0 it refuses at once.
dynamic_module_utils.TIME_OUT_REMOTE_CODE = 0
OWN = {f"{c.__module__}.{c.__name__}": c for c in (FirstLast, UniversalSentenceEncoder)}


def open_model(folder: Path, dtype: torch.dtype | str | None = None) -> SentenceTransformer:
    """Open a folder of sentence-transformers or transformers on the CPU, without the network.

    dtype: of its weights.

    sentence-transformers runs foreign classes only with `trust_remote_code`. Of the classes in modules.json,
    take this package's from here. All others must be sentence-transformers' own. Raises BadInput for damaged
    or hostile files, and for a folder that is no model or needs code of its own.
    """
    options = {
        "local_files_only": True,
        "trust_remote_code": False,
        "model_kwargs": SAFE if dtype is None else {**SAFE, "dtype": dtype},
    }
    with reading(folder, NO_MODEL):
        listed = folder / "modules.json"
        entries = json.loads(listed.read_bytes()) if listed.is_file() else []
        if not any(entry["type"] in OWN for entry in entries):
            return _prepared(SentenceTransformer(str(folder), device="cpu", **options))
        modules = []
        for entry in entries:
            kind = OWN.get(entry["type"])
            if kind is None and not entry["type"].startswith("sentence_transformers."):
                raise BadInput(f"{listed}: it needs {entry['type']}, which is not run here")
            kind = kind or import_from_string(entry["type"])
            modules.append(kind.load(str(folder), subfolder=entry["path"], **options))
        config = folder / "config_sentence_transformers.json"
        saved = json.loads(config.read_bytes()) if config.is_file() else {}
        prompts = {key: saved[key] for key in ("prompts", "default_prompt_name") if key in saved}
        return _prepared(SentenceTransformer(modules=modules, device="cpu", **prompts))


def _ends_with_separator(tokenizer: Any) -> bool:
    """Return whether the last token of each text is the tokenizer's own, such as [SEP]."""
    plain, whole = (tokenizer("a", add_special_tokens=added)["input_ids"] for added in (False, True))
    return plain[-1:] != whole[-1:]


def _prepared(model: SentenceTransformer) -> SentenceTransformer:
    """Truncate where the positions end, and pad, also if the tokenizer has no length or no pad token."""
    _drop_image_tower(model[0])
    most, tokenizer = positions(model[0]), getattr(model[0], "tokenizer", None)
    if most and (model.max_seq_length or most + 1) > most:
        model.max_seq_length = most
    if tokenizer and getattr(tokenizer, "pad_token", "") is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token  # what pads is masked
    return model


def _drop_image_tower(transformer: Any) -> None:
    """Remove CLIP's image tower, which texts do not need.

    A text's vector is the state at the end-of-text token, projected (Radford et al. 2021, section 2.4).
    """
    network: Any = getattr(transformer, "model", None)
    if network is not None and network.config.model_type == "clip":
        del network.vision_model, network.visual_projection
        transformer.pooling = "eos"
