"""Steps 1 and 2: make candidate maps from clusters, and select the best one.

Clusters alone do not show which candidate is right: a wrong one may score higher. So all candidates are
refined on random batches, and scored by the mean cosine of coupled points.

Competition: each round keeps the better half of the maps. If the best two maps of the last round agree
(ALIKE), they are probably right, and the best one is kept.

Evolution: if the best two do not agree, more candidates are added. In each generation the best maps remain
as parents. The parents that agree most have children: the mean of two maps with different errors is nearer
to the right map than either. Of maps that are nearly the same (SAME_MAP) only the best one remains, so that
a wrong map cannot prevail by its many copies.
"""

from collections import Counter

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import spectral
from pipelines.aligners.core.matching import draw, quadratic_assignment
from pipelines.aligners.wasserstein_procrustes.settings import KMEANS_SAMPLE, Settings
from pipelines.aligners.wasserstein_procrustes.sides import REFINEMENT_POWER, Sides
from pipelines.measures.vectors import kmeans
from pipelines.runtime.progress import Log

EVOLUTION_BATCH = 1500  # vectors per side of a refinement in an evolution
GENERATIONS = (60, 40, 27, 18, 12, 8)  # number of parents of each generation; as many children at most
CHILD_STEPS = 20  # refinements of each child: with 10, a wrong map that was refined for longer can win
MATES = 3  # with how many others a parent has a child, at most
SAME_MAP = 0.7  # of two maps whose translations have a higher mean cosine, only the better one remains
AGREEMENT_ROWS = 500  # approximate number of vectors on which the agreement of maps is measured
FINALISTS = 4  # last maps of an evolution
FINAL_BATCH, RANKING_BATCH = 2500, 4000  # vectors per side to refine and to rank them
# Two maps are alike if the mean cosine of their translations is higher; two wrong maps had .13 at most
ALIKE = 0.5


def best_candidate(sides: Sides, settings: Settings, log: Log | None) -> Tensor:
    """Return the best map (d, e)."""
    first, *more = settings.repeats
    maps = compete(sides, candidates(sides, settings, first), settings.rounds, log)
    for repeats in more:
        if len(maps) > 1 and float(agreements(sides.X, [*map(spectral, maps[:2])])[0, 1]) > ALIKE:
            break
        maps = evolve(sides, maps + candidates(sides, settings, repeats), log)
    return maps[0]


def candidates(sides: Sides, settings: Settings, repeats: int) -> list[Tensor]:
    """Step 1: return an orthogonal map (d, e) from each repeat, and one from the known pairs if any."""
    X, Y, known, generator = sides.X, sides.Y, sides.known, sides.generator
    # (repeats, clusters, d), (repeats, clusters, e)
    a, b = (
        kmeans(draw(cloud, KMEANS_SAMPLE, generator), settings.clusters, repeats, generator)
        for cloud in (X, Y)
    )
    a, b = (normalize(c - c.mean(1, keepdim=True), dim=2) for c in (a, b))
    # Each known pair k is an extra cluster whose partner is fixed. In the quadratic objective its terms with
    # free clusters are linear: 2 sum_k <a_i, x_k> <b_j, y_k> if cluster i has partner j.
    linear = 2 * (a @ X[known[:, 0]].T) @ (b @ Y[known[:, 1]].T).mT if len(known) else None
    partner, _ = quadratic_assignment(a @ a.mT, b @ b.mT, generator, linear, settings.assignment_restarts)
    matched = a.mT @ b.gather(1, partner[:, :, None].expand(-1, -1, b.shape[2]))  # (repeats, d, e)
    crosses = list(matched + sides.known_cross)
    if len(known):
        crosses.append(sides.known_cross)
    return [spectral(cross) for cross in crosses]


def compete(sides: Sides, maps: list[Tensor], sizes: tuple[int, ...], log: Log | None) -> list[Tensor]:
    """Return the maps (d, e) of the last round, best first. sizes: of the batches of each round."""
    needed = (len(maps) - 1).bit_length()  # rounds until two maps are left; all but the first halve the maps
    sizes = sizes[-max(1, needed) :]
    for number, size in enumerate(sizes):
        if number:
            maps = maps[: (len(maps) + 1) // 2]
        maps = sides.refined(maps, size, f"compare candidates, round {number + 1} of {len(sizes)}")
        maps = ranked(sides, maps, size, log, "competition", number)
    return maps


def evolve(sides: Sides, maps: list[Tensor], log: Log | None) -> list[Tensor]:
    """Return the last maps (d, e), best first."""
    size, last = EVOLUTION_BATCH, len(GENERATIONS)
    maps = sides.refined(maps, size, "refine candidates")
    for number, most in enumerate(GENERATIONS):
        maps = ranked(sides, maps, size, log, "evolution", number)
        maps, orthogonal = distinct_maps(sides.X, maps, most)
        what = f"evolve candidates, generation {number + 1} of {last}"
        maps += sides.refined(children(sides.X, orthogonal), size, what, CHILD_STEPS)
    maps, _ = distinct_maps(sides.X, ranked(sides, maps, size, log, "evolution", last), FINALISTS)
    maps = sides.refined(maps, FINAL_BATCH, "refine finalists", CHILD_STEPS)
    return ranked(sides, maps, RANKING_BATCH, log, "evolution", last + 1)


def ranked(
    sides: Sides, maps: list[Tensor], size: int, log: Log | None, stage: str, number: int
) -> list[Tensor]:
    """Return maps (d, e) by their mean cosine on one batch, best first."""
    cosines = sides.cosines(maps, size)
    if log:
        log({f"{stage}/best": max(cosines), f"{stage}/worst": min(cosines)}, number)
    return [W for _, W in sorted(zip(cosines, maps, strict=True), key=lambda pair: -pair[0])]


def agreements(X: Tensor, orthogonal: list[Tensor]) -> Tensor:
    """Return how alike k orthogonal maps (d, e) translate X (n, d): mean cosines (k, k)."""
    x = X[:: max(1, len(X) // AGREEMENT_ROWS)]
    moved = torch.stack([normalize(x @ W, dim=1).flatten() for W in orthogonal])
    return moved @ moved.T / len(x)


def distinct_maps(X: Tensor, maps: list[Tensor], most: int) -> tuple[list[Tensor], list[Tensor]]:
    """Return at most `most` of the maps (d, e), which are sorted best first, and their orthogonal parts.

    A map that agrees with a better one that is kept is left out.
    """
    orthogonal, kept = [spectral(W) for W in maps], []
    agreement = agreements(X, orthogonal)
    for i in range(len(maps)):
        if not (agreement[i, kept] > SAME_MAP).any():
            kept.append(i)
    return [maps[i] for i in kept[:most]], [orthogonal[i] for i in kept[:most]]


def children(X: Tensor, parents: list[Tensor]) -> list[Tensor]:
    """Return means of two of k orthogonal parents (d, e), at most k, from the pairs that agree most."""
    a, b = torch.triu_indices(len(parents), len(parents), 1)
    order = agreements(X, parents)[a, b].argsort(descending=True).cpu()
    mates, means = Counter(), []
    for i, j in zip(a[order].tolist(), b[order].tolist(), strict=True):
        if max(mates[i], mates[j]) < MATES and len(means) < len(parents):
            means.append(spectral(parents[i] + parents[j], REFINEMENT_POWER))
            mates.update((i, j))
    return means
