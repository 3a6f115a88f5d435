"""Fit one linear map without pairs: match clusters, select among candidate maps, couple points.

If the source mixes several encoders, the map is fitted to the vectors of one (`core.mixture`).

1  Project both clouds on their leading principal directions. Run k-means on both many times. For each repeat,
   match the two sets of clusters by a quadratic assignment on the cosines between centred centroids. "Shared
   Geometry as a Rosetta Stone" (Schnaus et al. 2026, arXiv 2610.09411) uses Gram matrices instead of cosines.
   Gram matrices depend on the norms of centroids, which two encoders do not share.
2  Each repeat gives a candidate map between the projections. Refine all candidates there, and select the
   best by a competition and, if needed, an evolution (candidates.py).
3  Wasserstein Procrustes (Grave, Joulin, Berthet 2019): alternate between coupling random batches by entropic
   optimal transport and fitting the map to the coupled points (they take a gradient step instead). Batches
   start small, because their noise helps to escape poor optima. They grow, and the temperature falls. Let
   U S V' be the SVD of the cross-covariance. The `refinements`, on batches, use the map
   U S^REFINEMENT_POWER V', which gives more weight to directions in which couplings agree. The `passes` use
   the Procrustes solution U V' and all vectors, at most a random LAST_PASS a side. With few vectors their
   couplings are softer (`relative_size`).
   Sides without a common document need three settings:
   `groups`: each iteration divides the batches of both sides into random groups of whole clusters, couples
     each group with each group of the other side, and adds the cross-covariances. Documents that only one
     side has pull the map off. Each pair of groups pulls it in another direction, so these errors cancel.
     Then refine the map briefly without groups. If its mean cosine rises by 5 %, repeat step 3 without
     `groups` and `equalise`.
   `equalise`: the map is fitted to a cross-covariance in which the principal axes of both sides weigh more
     alike.
   `rotations`: search for a better map nearby by random rotations of leading axes (rotations.py). If one is
     found, repeat the second half of the refinements and all passes from there.
   Couplings of groups are noisy. So after them all vectors (at most LAST_PASS a side) are coupled once
   without groups, and the mean of both cross-covariances is kept. More couplings without groups would pull
   the map off again.
4  The orthogonal map gives the best retrieval ranks. The least-squares map of the couplings has the highest
   cosine. Return a map in between (`between`), with a correction for hubs (`core.hubness`).

`fit_jointly` couples a lone cloud with several paired clouds. Paired clouds embed the same texts with
different encoders; the lone cloud embeds other texts. A coupling must then be right in all paired spaces.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from pipelines.aligners.core.aligner import Pair
from pipelines.aligners.core.cloud import FEW, checked, checked_pairs, dimensions, spectral
from pipelines.aligners.core.hubness import InvertedSoftmax
from pipelines.aligners.core.matching import draw
from pipelines.aligners.core.mixture import one_encoder
from pipelines.aligners.core.translator import Linear, Translator
from pipelines.aligners.wasserstein_procrustes.candidates import best_candidate
from pipelines.aligners.wasserstein_procrustes.rotations import better_rotated
from pipelines.aligners.wasserstein_procrustes.settings import Settings
from pipelines.aligners.wasserstein_procrustes.sides import (
    LEAST,
    REFINEMENT_POWER,
    TUNED_AT,
    WARM,
    Sides,
    couple,
)
from pipelines.measures.vectors import centred_unit, kmeans, nearness, ridged
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import Log, progress

# What this aligner can do: see `core.aligner`
SUPERVISION = "unpaired"
THREAD_SAFE = True
USES_PAIRS = True
NEEDS_PAIRED_SPACES = True
CAN_EXTEND = False

MOST = 100_000  # largest number of vectors per side: more cost memory and change nothing
FIRST_BATCH, LAST_BATCH = 1500, 6000  # vectors per side of the first and the last refinement
LAST_PASS = 20_000  # largest number of vectors per side in the last passes
COLD = 50.0  # inverse temperature of the last coupling; that of the first is WARM
GROUP_CLUSTERS = 5  # clusters of a group
GROUP_LEAST = 300  # mean number of vectors of a group: smaller ones harm
UNGROUPED_BATCH = 3000  # vectors per side of a refinement without groups
# Leave groups out if a refinement without them raises the mean cosine by more; real texts gave at most 1.04
UNGROUPED_GAIN = 1.05
ANCHORS = 4000  # source vectors whose translations show where hubs are

logger = logging.getLogger(__name__)


def fit(
    source: Tensor,
    target: Tensor,
    settings: Settings,
    seed: int,
    pairs: Tensor | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> Linear:
    """Fit a map from source (n, d) to target (m, e).

    If the source mixes encoders, only known pairs of the most frequent encoder are used. Raises BadInput if
    none of the pairs remains, and for fewer distinct vectors than clusters, NaN, constant vectors, dimension
    1, and pairs out of range.
    """
    known = checked_pairs(pairs, len(source), len(target)).cpu()
    generator = torch.Generator().manual_seed(seed)
    if max(len(source), len(target)) > MOST:
        source = _sample_with(known[:, 0], source, generator)
        target = _sample_with(known[:, 1], target, generator)
        known = torch.arange(len(known))[:, None].expand(-1, 2)  # pair i is now row i on both sides
    clouds = _checked({"source": source, "target": target}, settings)
    rows = _of_one_encoder("source", clouds["source"])
    kept = _moved(known, rows.cpu())
    if len(known) and not len(kept):
        raise BadInput("pairs: the source mixes encoders, and no pair is of the one with most vectors")
    clouds |= _checked({"source": clouds["source"][rows]}, settings)
    crosses = cross_covariances(clouds, "source", kept.to(clouds["source"].device), settings, generator, log)
    return translator(clouds["source"], clouds["target"], crosses["target"], settings, generator)


def fit_jointly(
    clouds: Mapping[str, Tensor],
    settings: Settings,
    seed: int,
    paired: Sequence[str] = (),
    start: Mapping[Pair, Translator] | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> dict[Pair, Linear]:
    """Fit maps, in both directions, between one cloud (n, d) and each `paired` cloud (m, e).

    Paired clouds embed the same m texts. Raises BadInput as `fit` does, and unless all clouds but one are
    paired and have equally many vectors.
    """
    alone = [name for name in clouds if name not in paired]
    if unknown := [name for name in paired if name not in clouds]:
        raise BadInput(f"wasserstein_procrustes: paired: there is no space {unknown[0]!r}")
    if len(alone) != 1:
        left = ", ".join(alone) or "none"
        raise BadInput(f"wasserstein_procrustes: one space must be missing from `paired`, not {left}")
    if len({len(clouds[name]) for name in paired}) != 1:
        raise BadInput("wasserstein_procrustes: paired spaces must have equally many vectors")
    lone, generator = alone[0], torch.Generator().manual_seed(seed)
    if max(len(cloud) for cloud in clouds.values()) > MOST:
        # Reset the generator before each draw, so that all paired clouds keep the same rows.
        state = generator.get_state()
        clouds = {name: draw(cloud, MOST, generator.set_state(state)) for name, cloud in clouds.items()}
    clouds = _checked(clouds, settings)
    clouds |= _checked({lone: clouds[lone][_of_one_encoder(lone, clouds[lone])]}, settings)
    no_pairs = torch.empty(0, 2, dtype=torch.int64)
    maps = {}
    for name, cross in cross_covariances(clouds, lone, no_pairs, settings, generator, log).items():
        maps[lone, name] = translator(clouds[lone], clouds[name], cross, settings, generator)
        maps[name, lone] = translator(clouds[name], clouds[lone], cross.T, settings, generator)
    return maps


def _of_one_encoder(name: str, cloud: Tensor) -> Tensor:
    """Return what `one_encoder` does, and log a warning if these are not all rows."""
    rows = one_encoder(cloud)
    if len(rows) < len(cloud):
        said = "%s: these look like vectors of several encoders; the fit uses those of one, %s of %s"
        logger.warning(said, name, f"{len(rows):,}", f"{len(cloud):,}")
    return rows


def _moved(pairs: Tensor, rows: Tensor) -> Tensor:
    """Return the pairs (k, 2) whose source row is in sorted `rows`; its position there replaces it."""
    kept = pairs[torch.isin(pairs[:, 0], rows)]
    return torch.stack([torch.searchsorted(rows, kept[:, 0].contiguous()), kept[:, 1]], 1)


def _sample_with(first: Tensor, cloud: Tensor, generator: torch.Generator) -> Tensor:
    """Return all rows `first`, in their order, then other random rows up to MOST in all."""
    rows = torch.randperm(len(cloud), generator=generator)
    others = rows[~torch.isin(rows, first)][: max(0, MOST - len(first))]
    return cloud[torch.cat([first, others]).to(cloud.device)]


def _checked(clouds: Mapping[str, Tensor], settings: Settings) -> dict[str, Tensor]:
    return {name: checked(name, cloud, distinct=settings.clusters) for name, cloud in clouds.items()}


def cross_covariances(
    clouds: Mapping[str, Tensor],
    lone: str,
    known: Tensor,
    settings: Settings,
    generator: torch.Generator,
    log: Log | None,
) -> dict[str, Tensor]:
    """Return the cross-covariance (d, e) of the lone cloud's points with those of each other cloud.

    The c other clouds share their texts, so their vectors of a text are concatenated. The division by sqrt(c)
    makes a cosine of concatenated vectors the mean of the c cosines.
    """
    X = centred_unit(clouds[lone])
    others = {name: centred_unit(cloud) for name, cloud in clouds.items() if name != lone}
    Y = torch.cat([*others.values()], 1) / len(others) ** 0.5
    if settings.match_in == "smaller" and X.shape[1] < Y.shape[1]:
        # `search` takes cosines in the space of its second side: make that the smaller one
        cross = search(Sides.of(Y, X, known.flip(1), generator), settings, log).T
    else:
        cross = search(Sides.of(X, Y, known, generator), settings, log)
    widths = [cloud.shape[1] for cloud in others.values()]
    return dict(zip(others, cross.split(widths, 1), strict=True))


def search(sides: Sides, settings: Settings, log: Log | None) -> Tensor:
    """Steps 1 to 3: return the cross-covariance (d, e) of the last couplings."""
    small, P, Q = sides.leading()
    W = P @ best_candidate(small, settings, log) @ Q.T
    cross = refine(sides, W, settings, log)

    def projected(cross: Tensor) -> Tensor:
        return P.T @ spectral(cross) @ Q

    ungrouped = replace(settings, groups=1, equalise=0.0)
    if ungrouped != settings and groups_harm(small, projected(cross)):
        settings = ungrouped
        cross = refine(sides, spectral(cross), settings, log)
    better = better_rotated(small, projected(cross), settings.rotations)
    if better is not None:
        cross = refine(sides, P @ better @ Q.T, settings, log, skipped=settings.refinements // 2)
    return cross if settings.groups == 1 else with_all_coupled(sides, cross, settings)


def refine(sides: Sides, W: Tensor, settings: Settings, log: Log | None = None, skipped: int = 0) -> Tensor:
    """Step 3: couple and fit in turn, from the map W (d, e). Return the last cross-covariance (d, e).

    skipped: how many of the first refinements, which are on small batches, are left out.
    """
    cross, refinements = sides.known_cross, settings.refinements
    last_scale = relative_size(sides.X[:LAST_PASS], sides.Y[:LAST_PASS])
    steps = range(skipped, refinements + settings.passes)
    for step in progress(steps, what="wasserstein_procrustes: refine", unit="steps"):
        in_passes = step >= refinements
        done = 1.0 if in_passes else step / refinements
        grown = round(FIRST_BATCH * (LAST_BATCH / FIRST_BATCH) ** done)
        x, y = sides.batch(LAST_PASS if in_passes else sides.batch_size(grown))
        scale = last_scale if in_passes else 1.0
        inverse_temperature = scale * (WARM + (COLD - WARM) * done)
        xs, ys = (divided(cloud, settings.groups, sides.generator) for cloud in (x, y))
        coupled, cosine = couple(xs, ys, W, inverse_temperature)
        # A softer coupling gives each point the mean of more partners, which is shorter than one vector. So
        # known pairs are scaled down, too. The exponent 2 was found by experiment: see
        # docs/experiments/sizes.md.
        cross = coupled + scale**2 * sides.known_cross
        W = map_of(sides, cross, settings, 0.0 if in_passes else REFINEMENT_POWER)
        if log:
            log({"coupled_cosine": cosine}, step)
    return cross


def with_all_coupled(sides: Sides, cross: Tensor, settings: Settings) -> Tensor:
    """Couple once without groups, under the map of cross. Return the mean of cross and the new
    cross-covariance (d, e).
    """
    x, y = sides.batch(LAST_PASS)
    scale = relative_size(x, y)
    coupled, _ = couple([x], [y], map_of(sides, cross, settings), scale * COLD)
    return (cross + coupled + scale**2 * sides.known_cross) / 2


def map_of(sides: Sides, cross: Tensor, settings: Settings, power: float = 0.0) -> Tensor:
    """Equalise a cross-covariance (d, e) if the settings ask for it. Return its map U S^power V' (d, e)."""
    return spectral(equalised(cross, *sides.axes, settings.equalise) if settings.equalise else cross, power)


def relative_size(x: Tensor, y: Tensor) -> float:
    """Return the factor of the last inverse temperatures: sqrt(n m) / TUNED_AT, from LEAST / TUNED_AT to 1.

    With few vectors the true neighbour is missing, and a sharp coupling picks a wrong one. A softer coupling
    averages several candidates, and the resulting map is more accurate. Clouds of few effective dimensions
    need no softer coupling: return 1.
    """
    share = max(LEAST, math.sqrt(len(x) * len(y))) / TUNED_AT
    return share if share < 1 and min(dimensions(x), dimensions(y)) >= FEW else 1.0


def divided(cloud: Tensor, groups: int, generator: torch.Generator) -> list[Tensor]:
    """Divide a cloud (n, d) at random into `groups` of whole clusters. Small clouds get fewer groups."""
    groups = min(groups, len(cloud) // GROUP_LEAST)
    if groups < 2:
        return [cloud]
    clusters = GROUP_CLUSTERS * groups
    [centroids] = kmeans(cloud, clusters, 1, generator, steps=5)
    group = torch.randperm(clusters, generator=generator).to(cloud.device) % groups
    of_row = group[nearness(cloud, centroids).argmax(1)]
    return [cloud[of_row == number] for number in of_row.unique()]


def equalised(cross: Tensor, U: Tensor, V: Tensor, power: float) -> Tensor:
    """Divide rows and columns of cross (d, e), in the axes U (d, d) and V (e, e), by their norms to `power`.

    Rows and columns that are only rounding errors become zero.
    """
    inner = U.T @ cross @ V
    for norm in (inner.norm(dim=1, keepdim=True), inner.norm(dim=0, keepdim=True)):
        inner = inner * torch.where(norm > 1e-6 * norm.max(), norm**-power, 0)
    return U @ inner @ V.T


def groups_harm(sides: Sides, W: Tensor) -> bool:
    """Return whether refinement of W (d, e) without groups raises the mean cosine by UNGROUPED_GAIN."""
    [refined] = sides.refined([W], UNGROUPED_BATCH, "leave out groups")
    before, after = sides.cosines([W, spectral(refined)], UNGROUPED_BATCH)
    return after > UNGROUPED_GAIN * before


def translator(
    source: Tensor, target: Tensor, cross: Tensor, settings: Settings, generator: torch.Generator
) -> Linear:
    """Step 4: return the translator of clouds (n, d), (m, e) from the cross-covariance of coupled points."""
    map = between(centred_unit(source), cross, settings.fidelity, settings.ridge)
    linear = Linear.of(map, source, target)
    anchors = draw(source, ANCHORS, generator)
    if not settings.hub_correction or dimensions(linear(anchors)) < FEW:
        return linear
    return InvertedSoftmax.around(linear, anchors, settings.hub_correction)


def between(X: Tensor, cross: Tensor, fidelity: float, ridge: float) -> Tensor:
    """Return the map (d, e) U S^fidelity V', where U S V' is the least-squares map of the coupled points.

    For fidelity 0 return the Procrustes map of the cross-covariance instead: it keeps all lengths and gives
    the best ranks. Fidelity 1 is least squares: it has the highest cosine, but loses directions of low
    variance, which couplings blur most. A fidelity in between is nearly as good in ranks and in cosine.
    """
    if not fidelity:
        return spectral(cross)
    return spectral(torch.linalg.solve(ridged(X.T @ X, ridge), cross), fidelity)
