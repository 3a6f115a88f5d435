"""One linear map without pairs: cluster matching by quadratic assignment, then alternating matches and Procrustes.

The method of "Shared Geometry as a Rosetta Stone" (Schnaus et al. 2026, arXiv 2610.09411), with three changes. Candidate maps
are carried over to the clusters of ALL repeats and compete by an unpaired score of the points, for one repeat's optimum may
lie above that of the true map. Points are assigned by mutual nearest neighbours under CSLS. Matches are scored through the
spectrum of their cross-covariance, which trusts a direction as far as the matches agree on it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import normalize
from tqdm import tqdm

from pipelines.aligners.cloud import checked, checked_pairs, spectral, unit
from pipelines.aligners.matching import assignment, csls, kmeans, mutual, quadratic_assignment
from pipelines.aligners.translator import Linear
from pipelines.errors import BadInput

Log = Callable[[dict[str, float], int], None]


@dataclass(frozen=True)
class Settings:
    """The names C, S, b, R are those of the paper."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    clusters: int = 30  # C
    repeats: int = 30  # S: independent k-means on both sides
    sample: int = 6000  # vectors a side that k-means sees
    restarts: int = 12  # of each quadratic assignment
    candidates: int = 8  # repeats whose own map is tried on all repeats
    consensus: int = 4  # rounds of each candidate
    heat: int = 10  # refinements between two cuts of the candidates
    heat_batch: int = 2500  # vectors a side of each
    batch: int = 4000  # b: vectors a side that one refinement sees
    refinements: int = 100  # R
    passes: int = 6  # over all vectors (at most `most` a side), after that
    most: int = 20000
    neighbours: int = 10  # of CSLS
    momentum: float = 0.5  # what a refinement keeps of the cross-covariance before it
    power: float = 0.5  # of the singular values while matching
    output_power: float = 0.0  # and in the map that is returned; 0: (semi-)orthogonal
    pair_weight: float = 10.0  # of a known pair, where a found match has 1

    def __post_init__(self) -> None:
        for name in ("repeats", "restarts", "candidates", "heat", "neighbours"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} must be at least 1")
        for name in ("consensus", "refinements", "passes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} must be at least 0")
        for name in ("clusters", "sample", "heat_batch", "batch", "most"):
            if getattr(self, name) < 2:
                raise ValueError(f"{name}: {getattr(self, name)} must be at least 2")
        for name in ("momentum", "power", "output_power"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}: {getattr(self, name)} must be in [0, 1]")
        if not 0 <= self.pair_weight < float("inf"):
            raise ValueError(f"pair_weight: {self.pair_weight} must be at least 0")
        if self.momentum == 1:
            raise ValueError("momentum: 1 would never learn, it must be less")


def fit(
    source: Tensor, target: Tensor, settings: Settings, seed: int, pairs: Tensor | None = None, log: Log | None = None
) -> Linear:
    """source (n, d), target (m, e), no row of one need have a partner in the other. Same seed, same map.

    Raises BadInput for fewer distinct vectors than clusters, NaN, constant vectors, dimension 1, pairs out of range.
    """
    source, target = checked("source", source), checked("target", target)
    known = checked_pairs(pairs, len(source), len(target)).to(source.device)
    for name, cloud in (("source", source), ("target", target)):
        distinct = len(cloud[: 10 * settings.clusters].unique(dim=0))
        if distinct < settings.clusters:
            distinct = len(cloud.unique(dim=0))
        if distinct < settings.clusters:
            raise BadInput(f"{name}: {distinct} distinct vectors, but clusters: {settings.clusters} asks for at least so many")
    generator = torch.Generator().manual_seed(seed)
    X, Y = unit(source), unit(target)
    given = settings.pair_weight * X[known[:, 0]].T @ Y[known[:, 1]]  # (d, e), zero without pairs
    cross = start(X, Y, known, given, settings, generator, log)
    cross = refine(X, Y, cross, given, settings, generator, log)
    return Linear.of(spectral(cross, settings.output_power), source, target)


def start(
    X: Tensor, Y: Tensor, known: Tensor, given: Tensor, settings: Settings, generator: torch.Generator, log: Log | None
) -> Tensor:
    """The cross-covariance (d, e) that wins among the candidates of the cluster matching."""
    clouds = [cloud[torch.randperm(len(cloud), generator=generator)[: settings.sample]] for cloud in (X, Y)]
    a, b = (kmeans(cloud, settings.clusters, settings.repeats, generator) for cloud in clouds)
    a, b = a - a.mean(1, keepdim=True), b - b.mean(1, keepdim=True)
    A, B = a @ a.mT, b @ b.mT
    # A known pair is a cluster whose partner is fixed: its products with the free ones are linear in the assignment.
    linear = 2 * (a @ X[known[:, 0]].T) @ (b @ Y[known[:, 1]].T).mT if len(known) else None
    p, value = quadratic_assignment(A, B, generator, linear, settings.restarts)
    relative = value / (A.flatten(1).norm(dim=1) * B.flatten(1).norm(dim=1)).clamp_min(1e-30)
    crosses = list(_cross(a, b, p)[relative.topk(min(settings.candidates, settings.repeats)).indices])
    if len(known):
        crosses.append(given)
    for number, cross in enumerate(crosses):
        for _ in range(settings.consensus):  # carry the map of one repeat over to the clusters of all
            scores = normalize(a @ spectral(cross), dim=2) @ normalize(b, dim=2).mT
            cross = _cross(a, b, assignment(scores)).sum(0) + given
        crosses[number] = cross
    return _tournament(X, Y, crosses, given, settings, generator, log)


def _tournament(
    X: Tensor, Y: Tensor, crosses: list[Tensor], given: Tensor, settings: Settings, generator: torch.Generator, log: Log | None
) -> Tensor:
    """Refine all a little, drop the worse half by the mean cosine of mutual neighbours (orthogonal map), until one is left.

    The unpaired score ranks maps of unlike quality rightly where the objective of the cluster matching does not: its optimum may
    lie above that of the true map.
    """
    crosses = [cross / cross.norm().clamp_min(1e-30) for cross in crosses]
    turn = 0
    while len(crosses) > 1:
        batches = [_batch(X, Y, settings.heat_batch, generator) for _ in range(settings.heat + 1)]
        scores = []
        for n, cross in enumerate(crosses):
            for x, y in batches[:-1]:
                found, _, _ = _match(x, y, spectral(cross, settings.power), settings.neighbours)
                cross = _blend(cross, found + given, settings.momentum)
            crosses[n] = cross
            scores.append(_match(*batches[-1], spectral(cross), settings.neighbours)[1])
        if log:
            log({"candidate_best": max(scores), "candidate_worst": min(scores)}, turn)
        order = sorted(range(len(crosses)), key=lambda n: -scores[n])
        crosses = [crosses[n] for n in order[: (len(order) + 1) // 2]]
        turn += 1
    return crosses[0]


def _batch(X: Tensor, Y: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x, y = (cloud[torch.randperm(len(cloud), generator=generator)[:size].to(cloud.device)] for cloud in (X, Y))
    return x, y


def _match(x: Tensor, y: Tensor, W: Tensor, neighbours: int) -> tuple[Tensor, float, float]:
    """Cross-covariance of the mutual neighbours of x W and y, their mean cosine, and their share of all."""
    moved = normalize(x @ W, dim=1)
    i, j = mutual(csls(moved, y, neighbours))
    return x[i].T @ y[j], float((moved[i] * y[j]).sum(1).mean()), len(i) / min(len(x), len(y))


def _blend(cross: Tensor, found: Tensor, keep: float) -> Tensor:
    return keep * cross + (1 - keep) * found / found.norm().clamp_min(1e-30)


def _cross(a: Tensor, b: Tensor, p: Tensor) -> Tensor:
    """Cross-covariance (repeats, d, e) of matched centroids a (repeats, C, d), b (repeats, C, e)."""
    return a.mT @ b.gather(1, p[:, :, None].expand(-1, -1, b.shape[2]))


def refine(
    X: Tensor, Y: Tensor, cross: Tensor, given: Tensor, settings: Settings, generator: torch.Generator, log: Log | None
) -> Tensor:
    """Alternate mutual neighbours and cross-covariance: on random batches, then on all vectors."""
    total = settings.refinements + settings.passes
    cross = cross / cross.norm().clamp_min(1e-30)
    for step in tqdm(range(total), desc="wasserstein_procrustes", disable=not sys.stderr.isatty(), leave=False):
        last = step >= settings.refinements
        x, y = _batch(X, Y, settings.most if last else settings.batch, generator)
        found, cosine, share = _match(x, y, spectral(cross, settings.power), settings.neighbours)
        cross = _blend(cross, found + given, 0.0 if last else settings.momentum)
        if log:
            log({"matched_cosine": cosine, "mutual_share": share}, step)
    return cross
