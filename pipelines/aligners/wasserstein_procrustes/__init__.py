"""Fit one linear map without pairs: match clusters, select among candidate maps, couple points.

If the source mixes several encoders, the map is fitted to the vectors of one (`core.mixture`).

1  Run k-means on both sides many times. For each repeat, match the two sets of clusters by a quadratic
   assignment on the cosines between centred centroids. "Shared Geometry as a Rosetta Stone" (Schnaus et al.
   2026, arXiv 2610.09411) uses Gram matrices instead of cosines. Gram matrices depend on the norms of
   centroids, which two encoders do not share.
2  Each repeat gives a candidate map. Clusters alone do not show which candidate is right: a wrong one may
   score higher. So project both clouds on their leading principal directions, refine all candidates there on
   random batches, and score each by the mean cosine of coupled points.
   Competition: each round keeps the better half of the maps. If the best two maps of the last round agree
   (ALIKE), they are probably right, and the best one is kept.
   Evolution: if the best two do not agree, more candidates are added. In each generation the best maps remain
   as parents. The parents that agree most have children: the mean of two maps with different errors is nearer
   to the right map than either. Of maps that are nearly the same (SAME) only the best one remains, so that a
   wrong map cannot prevail by its many copies.
3  Wasserstein Procrustes (Grave, Joulin, Berthet 2019): alternate between coupling random batches by entropic
   optimal transport and fitting the map to the coupled points (they take a gradient step instead). Batches
   start small, because their noise helps to escape poor optima. They grow, and the temperature falls. Let
   U S V' be the SVD of the cross-covariance. The `refinements`, on batches, use the map U S^POWER V', which
   gives more weight to directions in which couplings agree. The `passes` use the Procrustes solution U V' and
   all vectors, at most a random LAST_PASS a side. With few vectors their couplings are softer
   (`relative_size`).
   Sides without a common document need three settings:
   `groups`: each iteration divides the batches of both sides into random groups of whole clusters, couples
     each group with each group of the other side, and adds the cross-covariances. Documents that only one
     side has pull the map off. Each pair of groups pulls it in another direction, so these errors cancel.
     If a trial without groups couples clearly better, step 3 is repeated with `groups` and `equalise` off.
   `equalise`: the map is fitted to a cross-covariance in which the principal axes of both sides weigh more
     alike.
   `reflections`: copies of the map with one direction reflected (reflections.py) are refined beside it. The
     search goes on from a copy that couples better. If there was one, the second half of the refinements
     and all passes are repeated.
4  The orthogonal map gives the best retrieval ranks. The least-squares map of the couplings has the highest
   cosine. Return a map in between (`between`), with a correction for hubs (`core.hubness`).

`fit_jointly` couples a lone cloud with several paired clouds. Paired clouds embed the same texts with
different encoders; the lone cloud embeds other texts. A coupling must then be right in all paired spaces.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.aligner import Pair
from pipelines.aligners.core.cloud import (
    FEW,
    checked,
    checked_pairs,
    dimensions,
    leading,
    principal_axes,
    spectral,
)
from pipelines.aligners.core.hubness import InvertedSoftmax
from pipelines.aligners.core.matching import draw, partners, quadratic_assignment
from pipelines.aligners.core.mixture import one_encoder
from pipelines.aligners.core.translator import Linear, Translator
from pipelines.aligners.wasserstein_procrustes.reflections import reflected
from pipelines.measures.vectors import centred_unit, kmeans, nearness, ridged
from pipelines.runtime.errors import BadInput
from pipelines.runtime.log import Log
from pipelines.runtime.progress import progress
from pipelines.runtime.settings import Bounds, Checked, Count, Natural, NonNegative, Positive, Share

# What this aligner can do: see `core.aligner`
SUPERVISION = "unpaired"
THREAD_SAFE = True
USES_PAIRS = True
NEEDS_PAIRED_SPACES = True
CAN_EXTEND = False

MOST = 100_000  # largest number of vectors per side: more cost memory and change nothing
SAMPLE = 6000  # vectors per side for k-means
ROUND_STEPS = 10  # refinements of each candidate per round
GENERATIONS = (60, 40, 27, 18, 12, 8)  # number of parents of each generation; as many children at most
CHILD_STEPS = 20  # refinements of each child: with 10, a wrong map that was refined for longer can win
MATES = 3  # largest number of children of one parent
SAME = 0.7  # of two maps whose translations have a higher mean cosine, only the better one remains
AGREEMENT_ROWS = 500  # approximate number of vectors on which the agreement of maps is measured
FINALISTS = 4  # last maps of an evolution
FINAL_BATCH, RANKING_BATCH = 2500, 4000  # vectors per side to refine and to rank them
ALIKE = 0.5  # two maps are alike if the mean cosine of their translations is higher; wrong ones: at most .13
UNGROUPED_BATCH = 3000  # vectors per side of a refinement without groups
UNGROUPED_GAIN = 1.05  # leave groups out if this raises the mean cosine by this factor; on real texts < 1.04
REFLECTED_BATCH = 2000  # vectors per side of a refinement of reflected maps
REFLECTED_GAIN = 1.001  # a reflection must raise the mean cosine by this factor; useless ones rarely do
SEARCHES = 8  # largest number of searches for a direction to reflect
MISSES = 3  # stop after this many searches in a row without a gain
FIRST_BATCH, LAST_BATCH = 1500, 6000  # vectors per side of the first and the last refinement
LAST_PASS = 20_000  # largest number of vectors per side in the last passes
TUNED_AT = 13_000  # vectors per side for which batch sizes and temperatures are tuned
LEAST = 500  # smallest batch
POWER = 0.25  # power of the singular values during refinement
WARM, COLD = 30.0, 50.0  # inverse temperature of the first and the last coupling
GROUP_CLUSTERS = 5  # clusters of a group
GROUP_LEAST = 300  # mean number of vectors of a group: smaller ones harm
PAIR_WEIGHT = 10.0  # weight of a known pair; a coupled point has weight 1
ANCHORS = 4000  # source vectors whose translations show where hubs are


@dataclass(frozen=True)
class Settings(Checked):
    """The defaults suit sides without a common document. They were chosen on seeds below 10 of Wikipedia,
    Enron and docstrings; only POWER in reflections.py was chosen on seed 11:
    docs/experiments/documents-apart.md.
    """

    clusters: Annotated[int, Bounds(ge=2, le=SAMPLE)] = 30  # of k-means, matched across the clouds
    # Numbers of candidate maps, each from a run of k-means: the first for the competition, each further one
    # for an evolution. An evolution is skipped if the best two maps agree. If both sides have texts of the
    # same documents, the competition is mostly enough
    repeats: tuple[Count, ...] = (30, 240)
    assignment_restarts: Count = 6  # random starts of each quadratic assignment
    # Batch sizes of the rounds of the competition. If it needs fewer rounds, it uses the last ones
    rounds: tuple[Annotated[int, Bounds(ge=2)], ...] = (1500, 1500, 1500, 2000, 2500)
    refinements: Natural = 160  # steps on random batches
    passes: Natural = 12  # steps on all vectors, at most LAST_PASS per side
    groups: Count = 10  # random groups of clusters per side in step 3; 1: no groups. Small batches get fewer
    # How often directions may be reflected, and the second half of the refinements and all passes repeated
    reflections: Natural = 4
    # In step 3, in the principal axes of both sides, rows and columns of the cross-covariance are divided by
    # their norms to this power, so that axes weigh more alike. Helps with `groups`, can harm without
    equalise: Share = 0.35
    # The space in which cosines are taken. `smaller` is the space of fewer dimensions. The image of a map
    # into a larger space is a subspace. Components of target vectors outside of it lower the cosine.
    match_in: Literal["target", "smaller"] = "target"
    fidelity: Share = 0.4  # how near the map is to least squares (1); 0 is the orthogonal map
    ridge: Positive = 0.3  # penalty of least squares, relative to the mean variance of a source direction
    # Strength of the hub correction; 0 disables it. Translations of few effective dimensions get none.
    hub_correction: NonNegative = 1.3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.refinements + self.passes < 1:
            raise ValueError("refinements and passes: at least one of them must be more than 0")
        for name in ("repeats", "rounds"):
            if not getattr(self, name):
                raise ValueError(f"{name}: at least one number is needed")


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
    rows = one_encoder(clouds["source"])
    kept = _moved(known, rows.cpu())
    if len(known) and not len(kept):
        raise BadInput("pairs: the source mixes encoders, and no pair is of the one with most vectors")
    clouds |= _checked({"source": clouds["source"][rows]}, settings)
    fitting = Fitting(settings, generator, log)
    cross = fitting.cross_covariances(clouds, "source", kept.to(clouds["source"].device))["target"]
    return fitting.translator(clouds["source"], clouds["target"], cross)


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
    clouds |= _checked({lone: clouds[lone][one_encoder(clouds[lone])]}, settings)
    fitting = Fitting(settings, generator, log)
    no_pairs = torch.empty(0, 2, dtype=torch.int64)
    maps = {}
    for name, cross in fitting.cross_covariances(clouds, lone, no_pairs).items():
        maps[lone, name] = fitting.translator(clouds[lone], clouds[name], cross)
        maps[name, lone] = fitting.translator(clouds[name], clouds[lone], cross.T)
    return maps


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


@dataclass(frozen=True)
class Fitting:
    """The steps of one fit. X (n, d) and Y (m, e) are centred unit vectors, W (d, e) is a map.

    Methods take `given` (d, e), the weighted cross-covariance of the known pairs, zero without pairs.
    """

    settings: Settings
    generator: torch.Generator
    log: Log | None = None

    def cross_covariances(self, clouds: Mapping[str, Tensor], lone: str, known: Tensor) -> dict[str, Tensor]:
        """Return the cross-covariance (d, e) of the lone cloud's points with those of each other cloud.

        The c other clouds share their texts, so their vectors of a text are concatenated. The division by
        sqrt(c) makes a cosine of concatenated vectors the mean of the c cosines.
        """
        X = centred_unit(clouds[lone])
        others = {name: centred_unit(cloud) for name, cloud in clouds.items() if name != lone}
        Y = torch.cat([*others.values()], 1) / len(others) ** 0.5
        if self.settings.match_in == "smaller" and X.shape[1] < Y.shape[1]:
            cross = self.search(Y, X, known.flip(1)).T  # cosines are taken in the second argument's space
        else:
            cross = self.search(X, Y, known)
        widths = [cloud.shape[1] for cloud in others.values()]
        return dict(zip(others, cross.split(widths, 1), strict=True))

    def translator(self, source: Tensor, target: Tensor, cross: Tensor) -> Linear:
        """Return the translator of two clouds (n, d), (m, e) from the cross-covariance of coupled points."""
        map = between(centred_unit(source), cross, self.settings.fidelity, self.settings.ridge)
        linear = Linear.of(map, source, target)
        anchors = draw(source, ANCHORS, self.generator)
        if not self.settings.hub_correction or dimensions(linear(anchors)) < FEW:
            return linear
        return InvertedSoftmax.around(linear, anchors, self.settings.hub_correction)

    def search(self, X: Tensor, Y: Tensor, known: Tensor) -> Tensor:
        """Steps 1 to 3: return the best candidate's cross-covariance (d, e)."""
        given = PAIR_WEIGHT * X[known[:, 0]].T @ Y[known[:, 1]]  # (d, e)
        x, P = leading(X)
        y, Q = leading(Y)
        leading_given = P.T @ given @ Q
        axes = (principal_axes(X), principal_axes(Y))
        W = P @ self.best_candidate(x, y, known, leading_given) @ Q.T
        fitting, cross = self, self.refine(X, Y, W, given, axes)
        W = spectral(cross)
        ungrouped = replace(self.settings, groups=1, equalise=0.0)
        if ungrouped != self.settings and self.groups_harm(x, y, P.T @ W @ Q, leading_given):
            fitting = replace(self, settings=ungrouped)
            cross = fitting.refine(X, Y, W, given, axes)
        for _ in range(self.settings.reflections):
            small = self.better_reflected(x, y, P.T @ spectral(cross) @ Q, leading_given)
            if small is None:
                break
            cross = fitting.refine(X, Y, P @ small @ Q.T, given, axes, self.settings.refinements // 2)
        return cross

    def best_candidate(self, X: Tensor, Y: Tensor, known: Tensor, given: Tensor) -> Tensor:
        """Steps 1 and 2: return the best map (d, e)."""
        first, *more = self.settings.repeats
        maps = self.compete(X, Y, self.candidates(X, Y, known, given, first), given)
        for repeats in more:
            if len(maps) > 1 and float(agreements(X, maps[:2])[0, 1]) > ALIKE:
                break
            maps = self.evolve(X, Y, maps + self.candidates(X, Y, known, given, repeats), given)
        return maps[0]

    def candidates(self, X: Tensor, Y: Tensor, known: Tensor, given: Tensor, repeats: int) -> list[Tensor]:
        """Step 1: return an orthogonal map (d, e) from each repeat, and one from the known pairs if any."""
        # (repeats, clusters, d), (repeats, clusters, e)
        a, b = (
            kmeans(draw(cloud, SAMPLE, self.generator), self.settings.clusters, repeats, self.generator)
            for cloud in (X, Y)
        )
        a, b = (normalize(c - c.mean(1, keepdim=True), dim=2) for c in (a, b))
        # Each known pair k is an extra cluster whose partner is fixed. In the quadratic objective its terms
        # with free clusters are linear: 2 sum_k <a_i, x_k> <b_j, y_k> if cluster i has partner j.
        linear = 2 * (a @ X[known[:, 0]].T) @ (b @ Y[known[:, 1]].T).mT if len(known) else None
        restarts = self.settings.assignment_restarts
        partner, _ = quadratic_assignment(a @ a.mT, b @ b.mT, self.generator, linear, restarts)
        matched = a.mT @ b.gather(1, partner[:, :, None].expand(-1, -1, b.shape[2]))  # (repeats, d, e)
        crosses = [*(matched + given), *([given] if len(known) else [])]
        return [spectral(cross) for cross in crosses]

    def compete(self, X: Tensor, Y: Tensor, maps: list[Tensor], given: Tensor) -> list[Tensor]:
        """Step 2, the competition: return the maps of the last round, best first."""
        needed = (len(maps) - 1).bit_length()  # rounds from all maps down to two: each later one halves them
        rounds = self.settings.rounds[-max(1, needed) :]
        for number, size in enumerate(rounds):
            maps = maps[: (len(maps) + 1) // 2] if number else maps
            what = f"compare candidates, round {number + 1} of {len(rounds)}"
            maps = self.refine_together(X, Y, maps, size, given, what)
            maps = self.ranked(X, Y, maps, size, "competition", number)
        return maps

    def evolve(self, X: Tensor, Y: Tensor, maps: list[Tensor], given: Tensor) -> list[Tensor]:
        """Step 2, the evolution: return the last maps, best first."""
        size, last = FIRST_BATCH, len(GENERATIONS)
        maps = self.refine_together(X, Y, maps, size, given, "refine candidates")
        for number, parents in enumerate(GENERATIONS):
            maps = distinct(X, self.ranked(X, Y, maps, size, "evolution", number))[:parents]
            what = f"evolve candidates, generation {number + 1} of {last}"
            maps += self.refine_together(X, Y, children(X, maps), size, given, what, CHILD_STEPS)
        maps = distinct(X, self.ranked(X, Y, maps, size, "evolution", last))[:FINALISTS]
        maps = self.refine_together(X, Y, maps, FINAL_BATCH, given, "refine finalists", CHILD_STEPS)
        return self.ranked(X, Y, maps, RANKING_BATCH, "evolution", last + 1)

    def refine_together(
        self,
        X: Tensor,
        Y: Tensor,
        maps: list[Tensor],
        size: int,
        given: Tensor,
        what: str,
        steps: int = ROUND_STEPS,
    ) -> list[Tensor]:
        """Refine all maps (d, e) on the same batches, one for each step."""
        rows = batch_size(size, X, Y)
        batches = [(draw(X, rows, self.generator), draw(Y, rows, self.generator)) for _ in range(steps)]
        refined = []
        for W in progress(maps, what=f"wasserstein_procrustes: {what}", unit="maps"):
            for x, y in batches:
                coupled, _ = couple([x], [y], W, WARM)
                W = spectral(coupled + given, POWER)
            refined.append(W)
        return refined

    def ranked(
        self, X: Tensor, Y: Tensor, maps: list[Tensor], size: int, stage: str, number: int
    ) -> list[Tensor]:
        """Return maps (d, e) by their mean cosine on one batch, best first."""
        cosines = self.cosines(X, Y, maps, size)
        if self.log:
            self.log({f"{stage}/best": max(cosines), f"{stage}/worst": min(cosines)}, number)
        return [W for _, W in sorted(zip(cosines, maps, strict=True), key=lambda of: -of[0])]

    def cosines(self, X: Tensor, Y: Tensor, maps: list[Tensor], size: int) -> list[float]:
        """Return the mean cosine of each map (d, e) on one batch of `size` vectors.

        Small clouds get no smaller batches: noise helps to refine maps, not to rank them.
        """
        x, y = draw(X, size, self.generator), draw(Y, size, self.generator)
        return [couple([x], [y], W, WARM)[1] for W in maps]

    def groups(self, cloud: Tensor) -> list[Tensor]:
        """Divide a cloud (n, d) at random into `groups` of whole clusters. Small clouds get fewer groups."""
        groups = min(self.settings.groups, len(cloud) // GROUP_LEAST)
        if groups < 2:
            return [cloud]
        clusters = GROUP_CLUSTERS * groups
        [centroids] = kmeans(cloud, clusters, 1, self.generator, steps=5)
        group = torch.randperm(clusters, generator=self.generator).to(cloud.device) % groups
        of_row = group[nearness(cloud, centroids).argmax(1)]
        return [cloud[of_row == number] for number in of_row.unique()]

    def groups_harm(self, X: Tensor, Y: Tensor, W: Tensor, given: Tensor) -> bool:
        """Return whether refinement without groups raises the mean cosine by the factor UNGROUPED_GAIN."""
        [refined] = self.refine_together(X, Y, [W], UNGROUPED_BATCH, given, "leave out groups")
        before, after = self.cosines(X, Y, [W, spectral(refined)], UNGROUPED_BATCH)
        return after > UNGROUPED_GAIN * before

    def better_reflected(self, X: Tensor, Y: Tensor, W: Tensor, given: Tensor) -> Tensor | None:
        """Reflect directions one after the other. Return the map (d, e), or None if no reflection helps."""
        start, missed = W, 0
        for _ in range(SEARCHES):
            maps = [W, *reflected(X, Y, W, WARM, self.generator)]
            maps = self.refine_together(X, Y, maps, REFLECTED_BATCH, given, "reflect")
            cosines = self.cosines(X, Y, maps, LAST_BATCH)
            best = max(cosines)
            if best > REFLECTED_GAIN * cosines[0]:
                W, missed = maps[cosines.index(best)], 0
            else:
                missed += 1
            if missed == MISSES:
                break
        return None if W is start else W

    def refine(
        self, X: Tensor, Y: Tensor, W: Tensor, given: Tensor, axes: tuple[Tensor, Tensor], first: int = 0
    ) -> Tensor:
        """Step 3: couple and fit in turn. Return the last cross-covariance (d, e).

        first: the number of refinements that are left out. axes: the principal axes of X and Y.
        """
        cross, refinements = given, self.settings.refinements
        last_scale = relative_size(X[:LAST_PASS], Y[:LAST_PASS])
        steps = range(first, refinements + self.settings.passes)
        for step in progress(steps, what="wasserstein_procrustes: refine", unit="steps"):
            in_passes = step >= refinements
            done = 1.0 if in_passes else step / refinements
            grown = round(FIRST_BATCH * (LAST_BATCH / FIRST_BATCH) ** done)
            size = LAST_PASS if in_passes else batch_size(grown, X, Y)
            x, y = draw(X, size, self.generator), draw(Y, size, self.generator)
            scale = last_scale if in_passes else 1.0
            inverse_temperature = scale * (WARM + (COLD - WARM) * done)
            coupled, cosine = couple(self.groups(x), self.groups(y), W, inverse_temperature)
            # A softer coupling gives each point the mean of more partners, which is shorter than one vector.
            # So known pairs are scaled down, too. The exponent 2 was found by experiment: see
            # docs/experiments/sizes.md.
            cross = coupled + scale**2 * given
            fitted = equalised(cross, *axes, self.settings.equalise) if self.settings.equalise else cross
            W = spectral(fitted, 0.0 if in_passes else POWER)
            if self.log:
                self.log({"coupled_cosine": cosine}, step)
        return cross


def agreements(X: Tensor, maps: list[Tensor]) -> Tensor:
    """Return how alike the orthogonal parts of k maps (d, e) translate X (n, d): mean cosines (k, k)."""
    x = X[:: max(1, len(X) // AGREEMENT_ROWS)]
    moved = torch.stack([normalize(x @ spectral(W), dim=1).flatten() for W in maps])
    return moved @ moved.T / len(x)


def distinct(X: Tensor, maps: list[Tensor]) -> list[Tensor]:
    """Return those of the maps (d, e), best first, that do not agree with a better one."""
    agreement, kept = agreements(X, maps), []
    for i in range(len(maps)):
        if not (agreement[i, kept] > SAME).any():
            kept.append(i)
    return [maps[i] for i in kept]


def children(X: Tensor, parents: list[Tensor]) -> list[Tensor]:
    """Return means of two of k parents (d, e), at most k, from the pairs that agree most."""
    a, b = torch.triu_indices(len(parents), len(parents), 1)
    order = agreements(X, parents)[a, b].argsort(descending=True).cpu()
    orthogonal, mates, means = [spectral(W) for W in parents], Counter(), []
    for i, j in zip(a[order].tolist(), b[order].tolist(), strict=True):
        if max(mates[i], mates[j]) < MATES and len(means) < len(parents):
            means.append(spectral(orthogonal[i] + orthogonal[j], POWER))
            mates.update((i, j))
    return means


def couple(
    xs: Sequence[Tensor], ys: Sequence[Tensor], W: Tensor, inverse_temperature: float
) -> tuple[Tensor, float]:
    """Couple each group of xs (n_a, d) with each of ys (m_b, e) under the map W. Return the cross-covariance
    (d, e), in which each target vector has total weight 1, and the mean cosine of coupled points.
    """
    crosses, cosines = [], []
    for x in xs:
        moved = normalize(x @ W, dim=1)
        coupled = [partners(moved, y, inverse_temperature) for y in ys]
        crosses.append(x.T @ torch.stack(coupled).sum(0))
        cosines += [(moved * partner).sum() / len(y) for partner, y in zip(coupled, ys, strict=True)]
    return torch.stack(crosses).sum(0) / len(xs), float(torch.stack(cosines).mean())


def equalised(cross: Tensor, U: Tensor, V: Tensor, power: float) -> Tensor:
    """Divide rows and columns of cross (d, e), in the axes U (d, d) and V (e, e), by their norms to `power`.

    Rows and columns that are only rounding errors become zero.
    """
    inner = U.T @ cross @ V
    for norm in (inner.norm(dim=1, keepdim=True), inner.norm(dim=0, keepdim=True)):
        inner = inner * torch.where(norm > 1e-6 * norm.max(), norm**-power, 0)
    return U @ inner @ V.T


def between(X: Tensor, cross: Tensor, fidelity: float, ridge: float) -> Tensor:
    """Return the map (d, e) U S^fidelity V', where U S V' is the least-squares map of the coupled points.

    For fidelity 0 return the Procrustes map of the cross-covariance instead: it keeps all lengths and gives
    the best ranks. Fidelity 1 is least squares: it has the highest cosine, but loses directions of low
    variance, which couplings blur most. A fidelity in between is nearly as good in ranks and in cosine.
    """
    if not fidelity:
        return spectral(cross)
    return spectral(torch.linalg.solve(ridged(X.T @ X, ridge), cross), fidelity)


def batch_size(size: int, X: Tensor, Y: Tensor) -> int:
    """Scale `size` in proportion to the smaller cloud if it has fewer than TUNED_AT vectors, down to LEAST.

    A batch of nearly the whole cloud has no noise, and the map would stay in the poor optimum where it began.
    """
    return min(size, max(LEAST, round(size * min(len(X), len(Y)) / TUNED_AT)))


def relative_size(x: Tensor, y: Tensor) -> float:
    """Return the factor of the last inverse temperatures: sqrt(n m) / TUNED_AT, from LEAST / TUNED_AT to 1.

    With few vectors the true neighbour is missing, and a sharp coupling picks a wrong one. A softer coupling
    averages several candidates, and the resulting map is more accurate. Clouds of few effective dimensions
    need no softer coupling: return 1.
    """
    share = max(LEAST, math.sqrt(len(x) * len(y))) / TUNED_AT
    return share if share < 1 and min(dimensions(x), dimensions(y)) >= FEW else 1.0
