"""Settings of Wasserstein Procrustes."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pipelines.runtime.settings import Bounds, Checked, Count, Natural, NonNegative, Positive, Share

KMEANS_SAMPLE = 6000  # vectors per side for k-means


@dataclass(frozen=True)
class Settings(Checked):
    """The defaults suit sides without a common document. They were chosen on seeds below 10 of Wikipedia,
    Enron and docstrings, but `rotations` was developed on seeds below 20 of Wikipedia with one encoder:
    docs/experiments/documents-apart.md.
    """

    clusters: Annotated[int, Bounds(ge=2, le=KMEANS_SAMPLE)] = 30  # of k-means, matched across the clouds
    # Numbers of candidate maps, each from a run of k-means: the first for the competition, each further one
    # for an evolution. An evolution is skipped if the best two maps agree. If both sides have texts of the
    # same documents, the competition is mostly enough
    repeats: tuple[Count, ...] = (30, 240)
    assignment_restarts: Count = 6  # random starts of each quadratic assignment
    # Batch sizes of the rounds of the competition. If it needs fewer rounds, it uses the last ones
    rounds: tuple[Annotated[int, Bounds(ge=2)], ...] = (1500, 1500, 1500, 2000, 2500)
    refinements: Natural = 160  # steps on random batches, without those of `rotations`
    passes: Natural = 12  # steps on all vectors, at most LAST_PASS per side
    groups: Count = 10  # random groups of clusters per side in step 3; 1: no groups. Small batches get fewer
    # Largest number of rounds in which leading axes are rotated at random, in search of a better map
    rotations: Natural = 12
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
