"""Rows of bulk: one function over a folder of shards, on this machine or on a Ray cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from pipelines.runtime.settings import NonNegative
from pipelines.study.row import Computed, HubCorrection, Text, Watched, known

if TYPE_CHECKING:
    from pipelines.study.params import Study

ENCODERS, TRANSLATORS = "data/encoders/", "data/translators/"


class Bulk(Computed):
    """Parquet shards through one function, to shards of the same names in data/bulk/<row>/.

    embed: texts -> vectors. Of vectors: translate; label: the nearest label of the translated vector, counted; audit: that, and
    the nearest of the texts that the translator's target was embedded from. The target's encoder embeds the labels.
    """

    apply: Literal["embed", "translate", "label", "audit"]
    path: Watched  # a folder of *.parquet, or one such file; data/bulk/<row>: what another row made
    model: Watched  # of embed data/encoders/<row>, else data/translators/<name of a translator>: its seed with the best verdict
    aligner: str = ""  # the translator's: dvc.yaml names its code
    column: Text | None = None  # None: `text` for embed, else `vector`
    hub_correction: HubCorrection = None
    labels: tuple[Text, ...] = ()
    batch: int = Field(65_536, ge=1)  # rows that a worker holds at once
    engine: Literal["local", "ray"] = "local"
    address: Text | None = (
        None  # of a Ray cluster: auto | ray://host:port; None: RAY_ADDRESS, else one on this machine
    )
    workers: int = Field(1, ge=1)
    cpus: int = Field(1, ge=1)  # cores of each worker of Ray
    gpus: NonNegative | None = None  # of each worker of Ray; None: one where the cluster has any

    @property
    def encoder(self) -> str:
        """The row of `encoders` that embeds."""
        return self.model.removeprefix(ENCODERS).rstrip("/")

    @property
    def translator(self) -> str:
        """The name of the translator, for all but embed."""
        return self.model.removeprefix(TRANSLATORS).rstrip("/")

    def check(self, where: str, study: Study) -> None:
        """Raise ValueError where `model` is not of the kind that the function needs, or labels or an engine are missing."""
        folder = ENCODERS if self.apply == "embed" else TRANSLATORS
        if not self.model.startswith(folder):
            raise ValueError(f"{where}.model: {self.apply} takes {folder}<name>")
        if self.apply != "embed":
            known(f"{where}.model", self.translator, study.translators())
        elif study.encoders[self.encoder].source == "given":
            raise ValueError(f"{where}.model: {self.encoder} is only given: it cannot embed")
        if self.apply in ("label", "audit"):
            if len(set(self.labels)) < 2:
                raise ValueError(f"{where}.labels: {self.apply} needs two or more")
            encoder = study.spaces()[study.translators()[self.translator].target].encoder
            if encoder not in study.encoders or study.encoders[encoder].source == "given":
                raise ValueError(f"{where}.model: {encoder}, the encoder of its target, cannot embed labels")
        if self.engine == "local" and self.workers > 1:
            raise ValueError(f"{where}.workers: more than one needs `engine: ray`")
