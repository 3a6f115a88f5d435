"""Rows of attributes, inverters, invert and audit: what vectors give away."""

from __future__ import annotations

import importlib
from typing import Annotated, Any, Literal

from pydantic import Field, TypeAdapter, model_validator

from pipelines.study.row import HubCorrection, Row
from pipelines.study.translation import settings_of


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
    hub_correction: HubCorrection = None
    centre: bool = False  # subtract each side's own mean before the cosine
    neighbours: int = Field(1, ge=1)  # a vector's scores are averaged over so many nearest in the dump, itself one


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
    hub_correction: HubCorrection = None
    split: str | None = "test"
    texts: int = Field(100, ge=2)  # how many are attacked
    facts: tuple[str, ...] = ()  # columns of planted facts; none: every column of lists but `labels`, else by pattern
    seed: int = 0
    search: Any = None  # inverters.search.Settings
    consensus: Any = None  # inverters.consensus.Settings
    judge: Any = None  # inverters.judge.Settings; None: no judge

    @model_validator(mode="before")
    @classmethod
    def _settings(cls, row: Any) -> Any:
        return _inverter_settings(row, ("search", "consensus", "judge"))


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
    consensus: Any = None
    defences: tuple[str, ...] = ("noise 0.1", "noise 0.3", "noise 1", "int8", "round 1", "drop 0.5", "drop 0.25", "rotate")
    defended: int = Field(6000, ge=100)  # vectors that each defence is tried on
    seed: int = 0

    @model_validator(mode="before")
    @classmethod
    def _settings(cls, row: Any) -> Any:
        row = _inverter_settings(row, ("inverter", "search", "consensus"))
        if isinstance(row, dict) and isinstance(row.get("settings", {}), dict):
            aligner = str(row.get("aligner", "wasserstein_procrustes"))
            row = {**row, "settings": settings_of(aligner, row.get("settings", {}))}
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
