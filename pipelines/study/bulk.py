"""Rows of bulk: one function over a folder of shards, on this machine or on a Ray cluster."""

from __future__ import annotations

from typing import Literal

from pipelines.runtime.settings import Count
from pipelines.study.row import Computed, Study, Text, Watched, known, maker


class Bulk(Computed):
    """Apply one function to Parquet shards, and write shards of the same names to data/bulk/<row>/.

    embed: texts to vectors. translate: vectors to translated vectors.
    """

    apply: Literal["embed", "translate"]  # what is done to every row
    path: Watched  # a folder of *.parquet, or one such file; data/bulk/<row>: what another row made
    model: Watched  # embed: data/encoders/<row>; else data/translators/<name>, with its best seed
    aligner: str = ""  # the one that fitted the translator; dvc.yaml lists its code
    column: Text | None = None  # None: `text` for embed, else `vector`
    batch: Count = 65_536  # rows in a worker's memory at once
    engine: Literal["local", "ray"] = "local"  # this machine, or a Ray cluster
    # Of a Ray cluster: auto | ray://host:port; None: RAY_ADDRESS, else this machine
    address: Text | None = None
    workers: Count = 1  # each with one core, and one GPU if the cluster has any

    @property
    def made_by(self) -> str:
        """Return the row of `encoders` that embeds, or the name of the translator."""
        return maker(self.model)[1]

    def check(self, study: Study) -> None:
        """Raise ValueError if `model`, `workers` or `address` does not fit the other keys."""
        table, name = maker(self.model)
        needed = "encoders" if self.apply == "embed" else "translators"
        if table != needed:
            raise ValueError(f".model: {self.apply} takes data/{needed}/<name>")
        if table == "translators":
            known(".model", name, study.translators())
        elif study.encoders[name].source == "given":
            raise ValueError(f".model: {name} has `source: given`: it cannot embed")
        if self.engine == "local" and self.workers > 1:
            raise ValueError(".workers: more than one needs `engine: ray`")
        if self.engine == "local" and self.address:
            raise ValueError(".address: needs `engine: ray`")
