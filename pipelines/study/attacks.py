"""Rows of attributes, inverters and invert: what vectors give away."""

from __future__ import annotations

import importlib
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from pipelines.runtime.settings import Count
from pipelines.study.row import (
    Computed,
    CorpusName,
    Ref,
    Seed,
    Several,
    SpaceName,
    Study,
    known,
    settings_from,
)
from pipelines.study.translation import Translated


def settings(module: str, given: Any) -> Any:
    """Return `Settings` of a module of pipelines/inverters, made from a mapping. Raise ValidationError."""
    return settings_from(importlib.import_module(f"pipelines.inverters.{module}").Settings, given)


def _inverter(given: Any) -> Any:
    said = given if isinstance(given, dict) else dir(given)
    return settings(next((module for key, module in INVERTERS.items() if key in said), "decoder"), given)


# The module that a key of `inverter` selects: released weights, or a language model. Without either key:
# a decoder from nothing
INVERTERS = {"pretrained": "vec2text", "model": "hub"}
InverterSettings = Annotated[Any, BeforeValidator(_inverter), Field(validate_default=True)]
SearchSettings = Annotated[Any, BeforeValidator(partial(settings, "search")), Field(validate_default=True)]
ConsensusSettings = Annotated[
    Any, BeforeValidator(partial(settings, "consensus")), Field(validate_default=True)
]
JudgeSettings = Annotated[Any, BeforeValidator(partial(settings, "judge"))]


class Attributes(Translated):
    """Infer attributes without training: the nearest labels of translated vectors of a labelled `corpus`."""

    corpus: CorpusName  # texts with labels
    source_encoder: str  # of the vectors that are attacked
    target_encoder: str  # of the labels
    labels: str = "labels"  # a column of lists, or of one string each (sender, company)
    least: Count = 1  # examples that a label must have
    # The text to embed for a label: its name, or a sentence with the name
    wordings: tuple[Literal["name", "template"], ...] = Field(("name",), min_length=1)
    k: tuple[Count, ...] = Field((1, 5), min_length=1)  # count a label as found among the first k
    neighbours: Count = 1  # average a vector's scores over this many nearest vectors, including itself

    def check(self, study: Study) -> None:
        """Raise ValueError if a side is an image-text space: labels need an encoder that is a row."""
        super().check(study)
        for side in ("source_encoder", "target_encoder"):
            known(f".{side}", getattr(self, side), study.encoders)


class Inverter(Computed):
    """Train an inverter on the attacker's own texts and their vectors."""

    space: SpaceName  # the attacker's texts by the attacker's encoder
    corpus: CorpusName  # the attacker's texts
    encoder: str  # the attacker's encoder
    split: str | None = "train"  # None: every row of the corpus
    known: Several | None = None  # at most this many texts
    seed: Seed = 0  # of weights and batches
    corrector: bool = False  # learn vec2text's corrector; one query per text
    inverter: InverterSettings = {}  # with `pretrained` nothing is learnt

    @property
    def released(self) -> bool:
        """Return whether these are vec2text's own weights."""
        return hasattr(self.inverter, "pretrained")

    def check(self, study: Study) -> None:
        """Raise ValueError for a missing encoder, or a corrector where the inverter is no decoder."""
        known(".encoder", self.encoder, study.encoders)
        if study.corpora[self.corpus].source == "vectors":
            raise ValueError(f".corpus: {self.corpus} has vectors and no texts")
        if self.corrector and not hasattr(self.inverter, "vocabulary"):
            raise ValueError(".corrector: only a decoder learns one; name vec2text's as `inverter.corrector`")


class Invert(Translated):
    """Write texts from translated vectors of a corpus. Its target vectors are used for the ceiling alone."""

    inverter: Annotated[str, Ref("inverters")]  # what writes the texts
    corpus: CorpusName  # the texts that are attacked
    encoder: str  # of the target
    # The seed of the best verdict, or the mean of all seeds that are aligned
    seeds: Literal["best", "aligned"] = "best"
    texts: Several = 100  # how many are attacked
    seed: Seed = 0  # of the draw of texts, and of the search
    search: SearchSettings = {}  # see `search` below
    consensus: ConsensusSettings = {}  # see `consensus` below
    judge: JudgeSettings | None = None  # see `judge` below; None: no language model judges

    def check(self, study: Study) -> None:
        """Raise ValueError if the inverter is of another encoder, or was trained on the attacked texts."""
        super().check(study)
        attacker = study.inverters[self.inverter]
        if attacker.encoder != self.encoder:
            inverter = f"inverter {self.inverter} was trained on {attacker.encoder}"
            raise ValueError(f": {inverter}, not {self.encoder}")
        corrector = attacker.inverter.corrector if attacker.released else attacker.corrector
        if self.search.corrections and not corrector:
            raise ValueError(": corrections need an inverter with a `corrector`")
        rest = replace(self.search, corrections=0, width=1)
        if attacker.released and rest != type(rest)(corrections=0, width=1):
            raise ValueError(".search: a released inverter takes `corrections` and `width` (beams) alone")
        splits = self.split, attacker.split
        if self.corpus == attacker.corpus and (None in splits or splits[0] == splits[1]):
            raise ValueError(": the attacker's texts are the attacked ones: take another split or corpus")
