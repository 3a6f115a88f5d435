"""Wasserstein Procrustes with a geometric start: "Shared Geometry as a Rosetta Stone" (Schnaus et al. 2026,
arXiv 2610.09411).

Find a semi-orthogonal W and one-to-one matches T of the rows of X and Y that maximise Tr(X W Y' T').

start       (algorithm 2) many times: cluster a batch of each side by k-means; match the centres A and B so
            that their linear CKA is largest, a quadratic assignment on centred Gram matrices. M is the mean
            of all A' P B.
read-out    (algorithm 1, line 5) match all rows by the scores X M Y', in random blocks; Procrustes.
refinement  (algorithm 1, lines 7 to 9) many times: match a random batch of X W with one of Y; Procrustes.

Known pairs are centres whose partners are fixed. In each Procrustes they weigh as much as all matches.

Settings are the paper's. The authors solve the quadratic assignment with MPOpt, which is under the GPL. Here
a tabu search solves it. On ten real instances it found a better optimum nine times and the same once, more
than 50 times faster (benchmarks.assignment).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import checked, checked_pairs, spectral
from pipelines.aligners.core.matching import draw, nearest_mean, quadratic_assignment, two_opt
from pipelines.aligners.core.translator import Linear
from pipelines.measures.vectors import centred_unit
from pipelines.runtime.progress import Log, progress
from pipelines.runtime.settings import Bounds, Checked, Count, Natural

SUPERVISION = "unpaired"
THREAD_SAFE = True
USES_PAIRS = True

TABU_STARTS, TABU_STEPS = 30, 1000  # more find a better match in one of ten real instances
TWO_OPT_STARTS = 30  # random starts of each assignment by `two_opt`
NEIGHBOURS = 50  # targets that the read-out `relative` averages

Matches = tuple[Tensor, Tensor]  # rows of X, and their partners in Y: (k, d), (k, e)


@dataclass(frozen=True)
class Settings(Checked):
    """The paper's values. `two_opt` is in its table 1, `relative` and `direct` in table 3."""

    clusters: Annotated[int, Bounds(ge=2)] = 30  # C, of each k-means
    repeats: Count = 30  # S, of the start
    # How clusters are matched. `two_opt` ignores known pairs; the Procrustes steps still use them
    matching: Literal["tabu", "two_opt"] = "tabu"
    # How the first map is found. `relative`: partners have like products with the matched centres, which are
    # not normalised; `direct`: the polar factor of M
    read_out: Literal["assignment", "relative", "direct"] = "assignment"
    batch: Annotated[int, Bounds(ge=2)] = 10_000  # b, rows per side that are clustered or matched at once
    refine_steps: Natural = 100  # R

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < self.clusters:
            raise ValueError(f"batch: {self.batch} rows cannot have {self.clusters} clusters")


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

    Raises BadInput for bad vectors, fewer distinct ones than clusters, and pairs out of range.
    """
    known = checked_pairs(pairs, len(source), len(target)).to(source.device)
    source = checked("source", source, distinct=settings.clusters)
    target = checked("target", target, distinct=settings.clusters)
    x, y = centred_unit(source), centred_unit(target)
    paired = x[known[:, 0]], y[known[:, 1]]
    generator = torch.Generator().manual_seed(seed)
    W = first_map(x, y, start(x, y, paired, settings, generator), paired, settings, generator)
    for _ in progress(range(settings.refine_steps), what="rosetta: refine", unit="steps"):
        some_x, some_y = draw(x, settings.batch, generator), draw(y, settings.batch, generator)
        W = procrustes(assigned(some_x @ W, some_x, some_y, settings.batch), paired)
    return Linear.of(W, source, target)


def start(x: Tensor, y: Tensor, paired: Matches, s: Settings, generator: torch.Generator) -> Matches:
    """Algorithm 2: return all centres of x (n, d) and their partners among those of y (m, e)."""
    repeats = [
        [centres(draw(side, s.batch, generator), s.clusters, generator) for side in (x, y)]
        for _ in progress(range(s.repeats), what="rosetta: cluster", unit="repeats")
    ]
    a, b = (torch.stack(side) for side in zip(*repeats, strict=True))  # (S, C, d), (S, C, e)
    (A, to_known_x), (B, to_known_y) = kernels(a, paired[0]), kernels(b, paired[1])
    if s.matching == "two_opt":
        p = two_opt(A, B, TWO_OPT_STARTS, generator)
    else:  # 2: in the full matrix each product of a free and a known cluster stands twice
        p, _ = quadratic_assignment(A, B, generator, 2 * to_known_x @ to_known_y.mT, TABU_STARTS, TABU_STEPS)
    return a.flatten(0, 1), b.gather(1, p[..., None].expand_as(b)).flatten(0, 1)


def centres(rows: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return k-means centres (count, d) of rows (n, d), by scikit-learn's defaults."""
    from sklearn.cluster import KMeans

    seed = int(torch.randint(2**31, (), generator=generator))
    fitted = KMeans(count, random_state=seed).fit(rows.cpu().numpy())
    return torch.from_numpy(fitted.cluster_centers_).to(rows)


def kernels(centres: Tensor, known: Tensor) -> tuple[Tensor, Tensor]:
    """Return the products of centres (S, C, d) with each other, (S, C, C), and with known rows (k, d),
    (S, C, k), after the mean of both is subtracted (lemma 3).
    """
    known = known.expand(len(centres), -1, -1)
    mean = torch.cat([centres, known], 1).mean(1, keepdim=True)
    centred = centres - mean
    return centred @ centred.mT, centred @ (known - mean).mT


def first_map(
    x: Tensor, y: Tensor, anchors: Matches, paired: Matches, s: Settings, generator: torch.Generator
) -> Tensor:
    """Return the map (d, e) of the read-out. anchors: what `start` returns."""
    M = anchors[0].T @ anchors[1] / len(anchors[0])
    if s.read_out == "direct":
        return spectral(M)
    if s.read_out == "relative":
        like_x, like_y = (normalize(side @ of.T, dim=1) for side, of in zip((x, y), anchors, strict=True))
        return procrustes((x, nearest_mean(like_x, like_y, y, NEIGHBOURS)), paired)
    x, y = draw(x, len(x), generator), draw(y, len(y), generator)  # shuffled
    return procrustes(assigned(x @ M, x, y, s.batch), paired)


def assigned(moved: Tensor, x: Tensor, y: Tensor, block: int) -> Matches:
    """Match rows of x (n, d) one to one with rows of y (m, e), so that the sum of scores is largest.

    Scores are products of `moved` (n, e) and y. Block i of x is matched with block i of y.
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = [], []
    for first in range(0, min(len(x), len(y)), block):
        scores = moved[first : first + block] @ y[first : first + block].T
        i, j = linear_sum_assignment(scores.double().cpu().numpy(), maximize=True)
        rows.append(torch.from_numpy(i) + first)
        columns.append(torch.from_numpy(j) + first)
    return x[torch.cat(rows).to(x.device)], y[torch.cat(columns).to(y.device)]


def procrustes(matches: Matches, paired: Matches) -> Tensor:
    """Return the semi-orthogonal map of matches and known pairs, which weigh as much as the matches.

    It is 0 for directions in which none of them differ.
    """
    cross = matches[0].T @ matches[1]
    if len(paired[0]):
        cross = cross + len(matches[0]) / len(paired[0]) * paired[0].T @ paired[1]
    return spectral(cross)
