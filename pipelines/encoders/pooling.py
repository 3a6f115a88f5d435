"""From token vectors to one vector: the poolers that SimCSE compares, its MLP head, and any of them put on any encoder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Self

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense, Module, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling
from sentence_transformers.util import import_from_string
from torch import Tensor, nn

from pipelines.encoders.sbert_wk import SbertWk
from pipelines.encoders.use import UniversalSentenceEncoder
from pipelines.runtime.errors import BadInput
from pipelines.study import Pooler


class FirstLast(Module):
    """Mean over tokens of (first + last layer) / 2 (SimCSE, section 6.3).

    first: 1 is the first transformer layer; 0 are the static embeddings, which the SimCSE paper's own baseline used by mistake
    (56.70 instead of 60.73 average STS for BERT-base, as its authors later corrected).
    """

    pooling_mode = "first-last"  # what embeddings say of their maker
    config_keys: list[str] = ["embedding_dimension", "first"]

    def __init__(self, embedding_dimension: int, first: int = 1) -> None:
        super().__init__()
        self.embedding_dimension, self.first = embedding_dimension, first

    def on_model_ready(self, model: Any) -> None:
        """Ask the transformer for all of its layers."""
        model[0].model.config.output_hidden_states = True

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Adds `sentence_embedding` (batch, dim)."""
        layers, mask = features["all_layer_embeddings"], features["attention_mask"]
        mask = mask.to(layers[-1].dtype).unsqueeze(-1)  # (batch, tokens, 1)
        features["sentence_embedding"] = (self._tokens(layers) * mask).sum(1) / mask.sum(1).clamp(min=1)
        return features

    def _tokens(self, layers: tuple[Tensor, ...]) -> Tensor:
        return (layers[self.first] + layers[-1]) / 2

    def get_embedding_dimension(self) -> int:
        return self.embedding_dimension

    def save(self, output_path: str, *args: Any, **kwargs: Any) -> None:
        self.save_config(output_path)

    @classmethod
    def load(cls, model_name_or_path: str, subfolder: str = "", **kwargs: Any) -> Self:
        return cls(**cls.load_config(model_name_or_path, subfolder=subfolder))


class TopTwo(FirstLast):
    """Mean over tokens of the two last layers' mean (SimCSE's `avg_top2`)."""

    pooling_mode = "top2"

    def _tokens(self, layers: tuple[Tensor, ...]) -> Tensor:
        return (layers[-2] + layers[-1]) / 2


class LayerMean(FirstLast):
    """Mean over tokens of the layer `first`: 1 is the first transformer layer, 0 are the static embeddings."""

    pooling_mode = "layer-mean"

    def _tokens(self, layers: tuple[Tensor, ...]) -> Tensor:
        return layers[self.first]


class Rotation(nn.Module):
    """Every vector times one random orthogonal matrix (Haar), which nobody is told: the same space, its axes lost."""

    def __init__(self, dimension: int, seed: int) -> None:
        super().__init__()
        self.dimension = dimension
        normal = torch.randn(
            dimension, dimension, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
        )
        Q, R = torch.linalg.qr(normal)
        self.register_buffer(
            "matrix", (Q * R.diagonal().sign()).float()
        )  # signs: QR alone is not uniform (Mezzadri 2007)

    def forward(self, features: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """`sentence_embedding` (batch, dim), rotated."""
        features["sentence_embedding"] = features["sentence_embedding"] @ self.matrix
        return features

    def get_embedding_dimension(self) -> int:
        return self.dimension


def pooler(kind: Pooler, width: int, **settings: Any) -> Module:
    """The pooling module of that name for layers of `width`."""
    match kind:
        case "cls" | "mean":
            return Pooling(width, pooling_mode=kind)
        case "first-last":
            return FirstLast(width)
        case "top2":
            return TopTwo(width)
        case "sbert-wk":
            return SbertWk(width, **settings)
    raise BadInput(f"pooling {kind!r} is none of cls, mean, first-last, top2, sbert-wk")


def trained_pooler(transformer: Any) -> list[Module]:
    """The first token, then the layer that the transformer brings for it, with tanh: where SimCSE's checkpoints keep their head.

    Of a checkpoint without it, transformers draws one at random, and warns. Raises BadInput where the network has none.
    """
    own: Any = getattr(transformer.model, "pooler", None)
    if not isinstance(getattr(own, "dense", None), nn.Linear) or not isinstance(
        getattr(own, "activation", None), nn.Tanh
    ):
        raise BadInput(
            f"pooling pooler: {type(transformer.model).__name__} has no pooler, one layer with tanh"
        )
    module = head(width(transformer))
    module.linear.load_state_dict(own.dense.state_dict())
    return [pooler("cls", width(transformer)), module]


def head(width: int) -> Dense:
    """SimCSE's MLP on top of the pooled vector: one layer with tanh."""
    return Dense(width, width, activation_function=nn.Tanh())


def compose(model: SentenceTransformer, row: Any) -> SentenceTransformer:
    """`model` with the pooling that a row of `encoders` asks for in the place of all that followed its transformer, and rotated.

    Reads `pooling`, `layer`, `rotation` and, for sbert-wk, `window`, `omega`, `first_layer`, `factorisation` and `edges`. None of
    the first three: the model as it is.
    Raises BadInput where there is no transformer to pool, or too few layers.
    """
    if row.pooling is not None or row.layer is not None:
        model = _pooled(model, row)
    if row.rotation is None:
        return model
    modules = [*model, Rotation(model.get_embedding_dimension() or 0, row.rotation)]
    prompts: Any = model.prompts
    return SentenceTransformer(modules=modules, device=str(model.device), prompts=prompts)


def _pooled(model: SentenceTransformer, row: Any) -> SentenceTransformer:
    transformer: Any = model[0]
    wish = f"layer {row.layer}" if row.pooling is None else f"pooling {row.pooling}"
    if not isinstance(transformer, Transformer):
        raise BadInput(
            f"{wish}: {type(transformer).__name__} is no transformer, so there are no tokens to pool"
        )
    if row.pooling is None:
        count: int = transformer.model.config.num_hidden_layers
        if row.layer > count:
            raise BadInput(f"{wish}: this transformer has {count} layers")
        modules = [transformer, LayerMean(width(transformer), row.layer)]
        return SentenceTransformer(modules=modules, device=str(model.device))
    if row.pooling == "pooler":
        return SentenceTransformer(
            modules=[transformer, *trained_pooler(transformer)], device=str(model.device)
        )
    wk = {k: getattr(row, k) for k in ("window", "omega", "factorisation", "edges")} | {
        "start": row.first_layer
    }
    module = pooler(row.pooling, width(transformer), **(wk if row.pooling == "sbert-wk" else {}))
    composed = SentenceTransformer(modules=[transformer, module], device=str(model.device))
    if isinstance(module, SbertWk):
        module.chosen(
            [torch.empty(0)] * (transformer.model.config.num_hidden_layers + 1)
        )  # too few layers: said now
    return composed


OURS = {
    f"{kind.__module__}.{kind.__name__}": kind
    for kind in (FirstLast, TopTwo, SbertWk, UniversalSentenceEncoder)
}


def opened(folder: Path, **options: Any) -> SentenceTransformer:
    """A saved model, with this package's modules in it or without.

    sentence-transformers runs no class but its own without `trust_remote_code`, and these folders need no such trust: of the
    classes that modules.json names, ours are taken from here, and everything else must be its own.
    """
    listed = folder / "modules.json"
    entries = json.loads(listed.read_text()) if listed.is_file() else []
    if not any(entry["type"] in OURS for entry in entries):
        return SentenceTransformer(str(folder), **options)
    modules = []
    for entry in entries:
        kind = OURS.get(entry["type"])
        if kind is None and not entry["type"].startswith("sentence_transformers."):
            raise BadInput(f"{listed}: it needs {entry['type']}, which is not run here")
        load = (kind or import_from_string(entry["type"])).load
        inner = {k: v for k, v in options.items() if k != "device"}
        modules.append(load(str(folder), subfolder=entry["path"], **(inner if entry["path"] == "" else {})))
    return SentenceTransformer(modules=modules, device=options.get("device"))


def width(transformer: Transformer) -> int:
    """Width of a transformer's layers."""
    dimension = transformer.get_embedding_dimension()
    assert dimension is not None
    return dimension


def token_layers(model: SentenceTransformer, features: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Every layer's token vectors, the static embeddings first: (layers + 1) x (batch, tokens, dim)."""
    transformer: Any = model[0]
    output = transformer.model(**features, output_hidden_states=True, return_dict=True)
    return output.hidden_states
