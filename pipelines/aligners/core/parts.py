"""Tell for which rows of a dump a map is right, without pairs.

A dump may mix two encoders, for example an index that was half moved to a new model. A map is then right for
one part of the rows. The mean agreement of two fits does not show this.

Rows are judged in k-means clusters, which rarely hold vectors of both encoders. A cluster is aligned if it
passes two tests:

strangeness  It is the mean of u' P u over the cluster's translations u, centred and scaled to length 1. P is
             the inverse of the targets' second moment, with a ridge. So translations are strange if they
             point where targets hardly vary. Translations of another encoder's rows point anywhere, like
             those of random directions. The strangeness must be nearer to that of the best tenth of rows
             than to that of random directions.
agreement    If many rows are of another encoder, a fit may match these to targets, too. Such matches are
             wrong, but not strange. Another fit makes other matches. So the translations must agree with
             those of a replicate, relative to the best tenth of rows.

Texts of other topics than the targets' stay aligned: topics change where in the target space rows lie, but
not much along which directions they vary (docs/experiments/verdict.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import FAR, floats
from pipelines.aligners.core.matching import draw
from pipelines.aligners.core.mixture import MIXTURE_SAMPLE, clustered
from pipelines.measures.vectors import centred_unit, finite, nearness, ridged
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import reading

RIDGE = 0.03  # of the targets' second moment, relative to its mean variance
BEST = 0.1  # share of rows, the least strange ones, whose translations count as right
AGREED = 0.6  # least mean cosine of a cluster's two translations, relative to that of the best tenth of rows
ISOTROPIC = 1.2  # if random directions are not stranger by this factor, targets vary alike in all directions
EVERYWHERE = torch.tensor(torch.inf)

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Parts:
    """Clusters of source vectors, and for which of them a map is right."""

    mean: Tensor  # (d,) of the source
    centroids: Tensor  # (clusters, d) of centred unit vectors
    aligned: Tensor  # (clusters,) bool
    radius: Tensor = EVERYWHERE  # () rows further from the mean are errors. Old files lack it

    def rows(self, source: Any) -> Tensor:
        """Mark the source vectors (n, d) for which the map is right. -> (n,) bool

        Rows of zeros and rows far off, which a fit leaves out, are not marked. Raises BadInput for another
        width, and for what are no numbers.
        """
        vectors = floats("Parts", source).to(self.mean)
        if vectors.ndim != 2 or vectors.shape[1] != len(self.mean):
            raise BadInput(f"Parts: vectors must be (n, {len(self.mean)}), got {tuple(vectors.shape)}")
        centred = finite("Parts", vectors) - self.mean
        cluster = nearness(normalize(centred, dim=1), self.centroids).argmax(1)
        return self.aligned[cluster] & vectors.any(1) & (centred.norm(dim=1) <= self.radius)

    def save(self, path: Path) -> None:
        from safetensors.torch import save_file

        save_file(vars(self), path)

    @classmethod
    def load(cls, path: Path) -> Parts:
        from safetensors.torch import load_file

        with reading(path):
            return cls(**load_file(path))


@torch.no_grad()
def judge_parts(source: Tensor, translator: Map, target: Tensor, replicates: Sequence[Map] = ()) -> Parts:
    """Judge the clusters of the source vectors (n, d) that a translator maps to the space of target (m, e).

    Of several replicates the one that agrees most counts. Without any, strangeness alone decides.
    If the targets vary alike in all directions, no direction is strange, and all clusters count as aligned.
    """
    generator = torch.Generator().manual_seed(0)
    source, target = draw(source, MIXTURE_SAMPLE, generator), draw(target, MIXTURE_SAMPLE, generator)
    # 1. Clusters of the source
    mean = source.mean(0)
    centroids, cluster = clustered(centred_unit(source), generator)
    # 2. Translations of the source and of random directions
    random = normalize(torch.randn(source.shape, generator=generator), dim=1).to(source)
    distances = (source - mean).norm(dim=1, keepdim=True)
    translated = translator(source)
    centre = translated.mean(0)
    of_random = translator(mean + random * distances)
    # 3. Strangeness
    targets = centred_unit(target).double()
    moment = targets.T @ targets / len(targets)
    precision = torch.linalg.inv(ridged(moment, RIDGE)).to(translated.dtype)
    strange = _means(_strangeness(translated - centre, precision), cluster)
    best, worst = strange[cluster].quantile(BEST), _strangeness(of_random - centre, precision).mean()
    aligned = (strange < (best + worst) / 2) | (worst < ISOTROPIC * best)
    # 4. Agreement
    if replicates:
        moved = centred_unit(translated)
        cosines = [(moved * centred_unit(other(source))).sum(1) for other in replicates]
        agreed = _means(max(cosines, key=lambda of_rows: float(of_rows.mean())), cluster)
        aligned &= agreed > AGREED * agreed[cluster].quantile(1 - BEST)
    return Parts(mean, centroids, aligned, FAR * distances.median())


def _means(values: Tensor, cluster: Tensor) -> Tensor:
    """Return the mean of the values (n,) in each cluster (n,). None is empty. -> (clusters,)"""
    rows = torch.bincount(cluster)
    return values.new_zeros(len(rows)).index_add(0, cluster, values) / rows


def _strangeness(centred: Tensor, precision: Tensor) -> Tensor:
    """Return u' P u for each row of (n, e), scaled to length 1. -> (n,)"""
    unit = normalize(centred, dim=1)
    return ((unit @ precision) * unit).sum(1)
