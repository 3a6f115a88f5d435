"""One linear map without pairs: match clusters, let the candidate maps compete, couple the points, map, couple again.

1  k-means on both sides, many times, and the clusters of each repeat matched by a quadratic assignment on the cosines between
   their centred centroids: "Shared Geometry as a Rosetta Stone" (Schnaus et al. 2026, arXiv 2610.09411), which has Gram
   matrices; those let the clusters' sizes of norm decide, which two encoders do not share, and fail on hard corpora.
2  Every repeat's map is a candidate. On random batches, along the clouds' principal directions, each is refined a little, and
   the worse half is dropped by an unpaired score, until one is left: a repeat's optimum may lie above that of the true map,
   but it does not survive the points.
3  Wasserstein Procrustes (Grave, Joulin, Berthet 2019): alternate a coupling of random batches, by entropic optimal transport
   on the cosines under the map, and the map of the coupled points. Small batches first, for their noise frees the map from
   poor optima, then larger ones and a sharper coupling; singular values to a small power let sure directions lead. At last
   some passes over all vectors, whose coupling is the softer the fewer they are (`density`).
4  On all points the map is orthogonal; least squares on the couplings is nearest: what is returned lies between (see
   `between`), and bends away from hubs (`hubness`), which ranks better than either.

`coupling: mutual` replaces the transport of 2 and 3 by mutual nearest neighbours under CSLS (Conneau et al. 2018).

`fit_jointly` couples one cloud with several others at once, which are of the same texts as each other: whoever owns two
encoders has the pairs between them, and a coupling must be right in both.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.aligner import Pair
from pipelines.aligners.core.cloud import FEW, checked, checked_pairs, dimensions, spectral
from pipelines.aligners.core.hubness import InvertedSoftmax
from pipelines.aligners.core.matching import csls, draw, mutual, quadratic_assignment, transport
from pipelines.aligners.core.translator import Linear, Translator
from pipelines.measures.vectors import centred_unit, kmeans
from pipelines.runtime.errors import BadInput
from pipelines.runtime.log import Log
from pipelines.runtime.progress import progress
from pipelines.runtime.settings import check_settings

MANY, LEAST = (
    13000,
    500,
)  # vectors a side for which the batch sizes below are meant; the smallest batch of fewer

SUPERVISION = "unpaired"
THREAD_SAFE = True
NEEDS_PAIRED = True  # of fit_jointly
EXTENDS = False


@dataclass(frozen=True)
class Settings:
    """One setting for every corpus and size that was tried: docs/experiments.md."""

    clusters: int = 30
    repeats: int = 30  # of k-means, each a candidate
    sample: int = 6000  # vectors a side that k-means sees
    restarts: int = 12  # of each quadratic assignment
    directions: int = (
        256  # principal ones, among which candidates compete: the others cost much and are mostly noise
    )
    rounds: tuple[int, ...] = (
        1500,
        1500,
        1500,
        2000,
        2500,
    )  # vectors a side in each round of the competition
    round_steps: int = 10
    refinements: int = 160
    batches: tuple[int, int] = (1500, 6000)  # vectors a side that a refinement sees, first and last
    # Where cosines are taken. smaller: in the space of fewer dimensions; a map into a larger one reaches a part of it only, and
    # what the other cloud has beyond that part lowers every cosine
    match_in: Literal["target", "smaller"] = "target"
    power: float = 0.25  # of the singular values while refining: sure directions lead
    passes: int = 8  # over all vectors (at most `most` a side), after that
    most: int = 20000
    seen: int = 100_000  # vectors a side, drawn before anything is computed: more add nothing but memory
    coupling: Literal["transport", "mutual"] = "transport"
    inverse_temperature: tuple[float, float] = (
        30.0,
        50.0,
    )  # of the transport, first and last; see `density` for fewer vectors
    neighbours: int = 10  # of CSLS
    fidelity: float = 0.6  # 0: the orthogonal map; 1: least squares
    ridge: float = 0.3  # of least squares, relative to the mean variance of a source direction
    hub_correction: float = 1.1  # its strength; 0, or vectors of few dimensions: the linear map as it is
    anchors: int = 4000  # source vectors whose translations tell where hubs are
    pair_weight: float = 10.0  # of a known pair, where a coupled point has 1; less at last, see `refine`

    def __post_init__(self) -> None:
        lowest = dict.fromkeys(("clusters", "sample", "most", "seen", "directions"), 2)
        lowest |= dict.fromkeys(("repeats", "restarts", "neighbours", "round_steps", "anchors"), 1)
        lowest |= dict.fromkeys(
            ("refinements", "passes", "ridge", "pair_weight", "hub_correction", "power"), 0
        )
        lowest |= dict.fromkeys(("rounds", "batches"), 2)
        check_settings(self, lowest, {"fidelity": "[0, 1]"})
        if self.refinements + self.passes < 1:
            raise ValueError("refinements and passes: at least one of them must be more than 0")
        if not self.rounds:
            raise ValueError("rounds: at least one batch size is needed")
        if not all(0 < inverse <= 80 for inverse in self.inverse_temperature):
            raise ValueError(
                f"inverse_temperature: {self.inverse_temperature} must be in (0, 80]: beyond, float32 underflows"
            )


def fit(
    source: Tensor,
    target: Tensor,
    settings: Settings,
    seed: int,
    pairs: Tensor | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> Linear:
    """source (n, d), target (m, e), no row of one need have a partner in the other. Same seed, same map.

    Raises BadInput for fewer distinct vectors than clusters, NaN, constant vectors, dimension 1, pairs out of range.
    """
    known = checked_pairs(pairs, len(source), len(target))
    generator = torch.Generator().manual_seed(seed)
    if max(len(source), len(target)) > settings.seen:
        source, target = (
            _seen(c, k, settings.seen, generator) for c, k in ((source, known[:, 0]), (target, known[:, 1]))
        )
        known = torch.arange(len(known))[:, None].expand(-1, 2)
    clouds, known = _checked({"source": source, "target": target}, settings), known.to(source.device)
    cross = coupled(clouds, "source", known, settings, generator, log)["target"]
    return read_out(clouds["source"], clouds["target"], cross, settings, generator)


def fit_jointly(
    clouds: Mapping[str, Tensor],
    settings: Settings,
    seed: int,
    paired: Sequence[str] = (),
    start: Mapping[Pair, Translator] | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> dict[Pair, Linear]:
    """Maps between one cloud (n, d) and each of several `paired` ones (m, e), whose rows are of the same m texts, both ways.

    Raises BadInput as `fit` does, and unless all clouds but one are paired, and of one length.
    """
    alone = [name for name in clouds if name not in paired]
    if len(alone) != 1 or len({len(clouds[name]) for name in paired}) != 1:
        raise BadInput(
            f"wasserstein_procrustes: one space and others of the same texts are needed, alone are: {alone}"
        )
    lone, generator = alone[0], torch.Generator().manual_seed(seed)
    if max(len(cloud) for cloud in clouds.values()) > settings.seen:
        state = generator.get_state()  # the same rows of all that are paired
        clouds = {
            name: draw(cloud, settings.seen, generator.set_state(state)) for name, cloud in clouds.items()
        }
    clouds = _checked(clouds, settings)
    no_pairs = torch.empty(0, 2, dtype=torch.int64)
    maps = {}
    for name, cross in coupled(clouds, lone, no_pairs, settings, generator, log).items():
        maps[lone, name] = read_out(clouds[lone], clouds[name], cross, settings, generator)
        maps[name, lone] = read_out(clouds[name], clouds[lone], cross.T, settings, generator)
    return maps


def _seen(cloud: Tensor, first: Tensor, most: int, generator: torch.Generator) -> Tensor:
    """The rows `first`, in their order, and others at random: `most` in all, where there are so many."""
    return torch.cat([cloud[first.to(cloud.device)], draw(cloud, max(0, most - len(first)), generator)])


def _checked(clouds: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
    clouds = {name: checked(name, cloud) for name, cloud in clouds.items()}
    for name, cloud in clouds.items():
        distinct = len(cloud[: 10 * settings.clusters].unique(dim=0))
        if distinct < settings.clusters:  # rare: then look at all
            distinct = len(cloud.unique(dim=0))
        if distinct < settings.clusters:
            raise BadInput(
                f"{name}: {distinct} distinct vectors, but clusters: {settings.clusters} asks for at least that many"
            )
    return clouds


def coupled(
    clouds: Mapping[str, Tensor],
    lone: str,
    known: Tensor,
    settings: Settings,
    generator: torch.Generator,
    log: Log | None,
) -> dict[str, Tensor]:
    """The cross-covariance (d, e) of the lone cloud's points with those of each other cloud that they are coupled with.

    The others lie side by side, row by row of one text: there a cosine is the mean of their cosines.
    """
    unit = {name: centred_unit(cloud) for name, cloud in clouds.items()}
    X = unit.pop(lone)
    Y = torch.cat([*unit.values()], 1) / len(unit) ** 0.5
    if settings.match_in == "smaller" and X.shape[1] < Y.shape[1]:
        cross = search(Y, X, known.flip(1), settings, generator, log).T
    else:
        cross = search(X, Y, known, settings, generator, log)
    return dict(zip(unit, cross.split([cloud.shape[1] for cloud in unit.values()], 1), strict=True))


def read_out(
    source: Tensor, target: Tensor, cross: Tensor, settings: Settings, generator: torch.Generator
) -> Linear:
    """The translator of two clouds (n, d), (m, e) that the cross-covariance (d, e) of coupled points asks for."""
    linear = Linear.of(between(centred_unit(source), cross, settings), source, target)
    anchors = draw(source, settings.anchors, generator)
    if not settings.hub_correction or dimensions(linear(anchors)) < FEW:
        return linear
    return InvertedSoftmax.around(linear, anchors, settings.hub_correction)


def search(
    X: Tensor, Y: Tensor, known: Tensor, settings: Settings, generator: torch.Generator, log: Log | None
) -> Tensor:
    """The cross-covariance (d, e) of the points that the best candidate's refinements couple, in the space of Y."""
    given = settings.pair_weight * X[known[:, 0]].T @ Y[known[:, 1]]  # (d, e), zero without pairs
    (x, P), (y, Q) = (leading(cloud, settings.directions) for cloud in (X, Y))
    among = P.T @ given @ Q
    maps = candidates(x, y, known, among, settings, generator)
    W = P @ compete(x, y, maps, among, settings, generator, log) @ Q.T
    return refine(X, Y, W, given, settings, generator, log)


def leading(X: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """X (n, d) along its principal directions (d, k), at most `most` of them, in unit rows; and these directions."""
    if X.shape[1] <= most:
        return X, torch.eye(X.shape[1], device=X.device)
    directions = torch.linalg.eigh((X.T @ X).double())[1][:, -most:].to(X.dtype)
    return normalize(X @ directions, dim=1), directions


def candidates(
    X: Tensor, Y: Tensor, known: Tensor, given: Tensor, settings: Settings, generator: torch.Generator
) -> list[Tensor]:
    """A (semi-)orthogonal map (d, e) from each repeat of the cluster matching, and one from the known pairs if there are any."""
    a, b = (
        kmeans(draw(cloud, settings.sample, generator), settings.clusters, settings.repeats, generator)
        for cloud in (X, Y)
    )
    a, b = (
        normalize(c - c.mean(1, keepdim=True), dim=2) for c in (a, b)
    )  # (repeats, clusters, d), (repeats, clusters, e)
    # A known pair is a cluster whose partner is fixed: its products with the free ones are linear in the assignment.
    linear = 2 * (a @ X[known[:, 0]].T) @ (b @ Y[known[:, 1]].T).mT if len(known) else None
    partner, _ = quadratic_assignment(a @ a.mT, b @ b.mT, generator, linear, settings.restarts)
    return [spectral(cross) for cross in (*_matched(a, b, partner) + given, *([given] if len(known) else []))]


def _matched(a: Tensor, b: Tensor, partner: Tensor) -> Tensor:
    """Cross-covariance (repeats, d, e) of matched centroids a (repeats, C, d), b (repeats, C, e)."""
    return a.mT @ b.gather(1, partner[:, :, None].expand(-1, -1, b.shape[2]))


def compete(
    X: Tensor,
    Y: Tensor,
    maps: list[Tensor],
    given: Tensor,
    settings: Settings,
    generator: torch.Generator,
    log: Log | None,
) -> Tensor:
    """Refine all maps on the same batches, drop the worse half by the coupled cosine on a fresh one; again, until one is left."""
    for round_number, size in enumerate(settings.rounds):
        size = batch(size, X, Y)
        batches = [
            (draw(X, size, generator), draw(Y, size, generator)) for _ in range(settings.round_steps + 1)
        ]
        scores = []
        for number, W in enumerate(
            progress(maps, what=f"round {round_number + 1} of {len(settings.rounds)}", unit="maps")
        ):
            for x, y in batches[:-1]:
                W = spectral(
                    couple(x, y, W, settings, settings.inverse_temperature[0])[0] + given, settings.power
                )
            maps[number] = W
            scores.append(couple(*batches[-1], W, settings, settings.inverse_temperature[0])[1])
        order = sorted(range(len(maps)), key=lambda number: -scores[number])
        if log:
            log({"competition/best": scores[order[0]], "competition/worst": scores[order[-1]]}, round_number)
        maps = [maps[number] for number in order[: (len(order) + 1) // 2]]
    return maps[0]


def refine(
    X: Tensor,
    Y: Tensor,
    W: Tensor,
    given: Tensor,
    settings: Settings,
    generator: torch.Generator,
    log: Log | None,
) -> Tensor:
    """Alternate coupling and orthogonal Procrustes, on random batches, then on all vectors: the last cross-covariance (d, e)."""
    cross, total = given, settings.refinements + settings.passes
    warm, cold = settings.inverse_temperature
    # mutual neighbours have no temperature, and known pairs their full weight beside them
    dense = density(X[: settings.most], Y[: settings.most]) if settings.coupling == "transport" else 1.0
    for step in progress(range(total), what="refine", unit="steps"):
        share = step / max(settings.refinements, 1)
        first, last = settings.batches
        size = batch(round(first * (last / first) ** share), X, Y) if share < 1 else settings.most
        x, y = draw(X, size, generator), draw(Y, size, generator)
        soft = dense if share >= 1 else 1.0
        coupled, cosine = couple(x, y, W, settings, soft * (warm + (cold - warm) * min(1.0, share)))
        cross = (
            coupled + soft**2 * given
        )  # a mean of many partners is short, and surer than one: known ones weigh less
        W = spectral(cross, settings.power if share < 1 else 0.0)
        if log:
            log({"coupled_cosine": cosine}, step)
    return cross


def couple(
    x: Tensor, y: Tensor, W: Tensor, settings: Settings, inverse_temperature: float
) -> tuple[Tensor, float]:
    """Cross-covariance (d, e) of the points of x (n, d) and y (m, e) coupled under W, and the mean cosine of the coupled."""
    moved = normalize(x @ W, dim=1)
    if settings.coupling == "transport":
        return transport(moved, x, y, inverse_temperature)
    i, j = mutual(csls(moved, y, settings.neighbours))
    return x[i].T @ y[j], float((moved[i] * y[j]).sum(1).mean())


def between(X: Tensor, cross: Tensor, settings: Settings) -> Tensor:
    """The map (d, e) from the coupled points: U S^fidelity V' of the least-squares map U S V'.

    Fidelity 0 is orthogonal: every direction keeps its length, and ranks are best. Fidelity 1 is least squares: nearest in
    cosine, but directions of low variance, which couplings blur most, are lost. A small power has nearly both.
    """
    gram = X.T @ X
    least_squares = torch.linalg.solve(
        gram + settings.ridge * gram.diagonal().mean() * torch.eye(len(gram)).to(gram), cross
    )
    return spectral(least_squares, settings.fidelity) if settings.fidelity else spectral(cross)


def batch(size: int, X: Tensor, Y: Tensor) -> int:
    """`size` where there are MANY vectors, the same share of fewer: a batch that is nearly the whole cloud has no noise, and
    the map stays in the poor optimum where it began. Never below LEAST."""
    return min(size, max(LEAST, round(size * min(len(X), len(Y)) / MANY)))


def density(x: Tensor, y: Tensor) -> float:
    """How dense two clouds are, by the geometric mean of their sizes: 1 where there are MANY vectors a side or more, or few
    dimensions.

    The inverse temperature of the last couplings is in proportion to it. Where vectors are few no true neighbour is near, and a
    sharp coupling takes the nearest of the wrong ones for it; the map of a soft one is the mean over many, and much nearer.
    """
    share = max(LEAST, math.sqrt(len(x) * len(y))) / MANY
    return share if share < 1 and min(dimensions(x), dimensions(y)) >= FEW else 1.0
