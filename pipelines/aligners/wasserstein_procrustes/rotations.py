"""Search for a better map nearby by random rotations, as in basin hopping (Wales and Doye 1997).

A fit can end with a map that is right but for a plane or a direction, whose images are rotated or have the
wrong sign. Refinement does not leave such a map. If some axes of the source, the wrong ones among them, are
rotated at random, refinement finds their images anew: mostly as before, sometimes rightly.

Each round rotates up to 24 neighbouring leading axes, ROTATED_MAPS times, and refines these maps beside the
map itself. The search goes on from the best of them if it couples better, and ends after MISSES rounds in a
row without a gain.
"""

import math

import torch
from torch import Tensor

from pipelines.aligners.core.cloud import spectral
from pipelines.aligners.wasserstein_procrustes.sides import Sides

LEADING_AXES = 32  # principal axes of the source of which some neighbours are rotated
# Two kinds are drawn equally often, because they repair different maps
FEWEST_AXES, MOST_AXES = 6, 24  # of the first kind, any orthogonal matrix
# The second kind is a rotation of so many axes. The root mean square of its angles, in radians, is between
TURNED_AXES, LEAST_ANGLE, MOST_ANGLE = 16, 1.2, 2.2
ROTATED_MAPS = 32  # of a round
ROTATED_BATCH, ROTATED_STEPS = 2000, 20  # vectors per side of a refinement of rotated maps, and its steps
# A rotated map must raise the mean cosine by more than this factor. On large sides, a map that refinement
# brings back to where it began rarely reaches it: docs/experiments/documents-apart.md
ROTATED_GAIN = 1.001
COMPARED_BATCH = 6000  # vectors per side on which maps are compared
MISSES = 4  # stop after this many rounds in a row without a gain


def better_rotated(sides: Sides, W: Tensor, rounds: int) -> Tensor | None:
    """Search in at most `rounds` rounds. Return a better map than W (d, e), or None."""
    better, missed, axes = None, 0, leading_axes(sides)
    for number in range(rounds):
        maps = [W, *(rotated(W, axes, sides.generator) for _ in range(ROTATED_MAPS))]
        maps = sides.refined(maps, ROTATED_BATCH, f"rotate axes, round {number + 1}", ROTATED_STEPS)
        before, *after = sides.cosines(maps, COMPARED_BATCH)
        if max(after) > ROTATED_GAIN * before:
            W = better = maps[1 + after.index(max(after))]
            missed = 0
        else:
            missed += 1
        if missed == MISSES:
            break
    return better


def leading_axes(sides: Sides) -> Tensor:
    """Return at most LEADING_AXES principal axes of the source (d, k), that of most variance first.

    Axes without variance are left out: the map has no images of them.
    """
    axes = sides.axes[0].flip(1)[:, :LEADING_AXES]
    spread = (sides.X @ axes).norm(dim=0)
    return axes[:, spread > 1e-3 * spread[0]]


def rotated(W: Tensor, axes: Tensor, generator: torch.Generator) -> Tensor:
    """Return R W (d, e). R is a random orthogonal matrix on some consecutive axes (d, k), and the identity on
    all other directions.
    """
    R = random_rotation(axes.shape[1], generator).to(W)
    first = int(torch.randint(axes.shape[1] - len(R) + 1, (1,), generator=generator))
    window = axes[:, first : first + len(R)]
    images = window.T @ W
    return W + window @ (R @ images - images)


def random_rotation(most: int, generator: torch.Generator) -> Tensor:
    """Return a random orthogonal matrix (w, w) of at most `most` axes, of one of two kinds: any (by Haar
    measure, so half of them reflect), or exp of a skew-symmetric matrix, which is a rotation.
    """
    if torch.randint(2, (1,), generator=generator):
        width = min(most, int(torch.randint(FEWEST_AXES, MOST_AXES + 1, (1,), generator=generator)))
        return spectral(torch.randn(width, width, generator=generator))
    width = min(most, TURNED_AXES)
    noise = torch.randn(width, width, generator=generator)
    skew = (noise - noise.T) / math.sqrt(2 * width)  # its eigenvalues are +-ia, the mean of a^2 is about 1
    angle = LEAST_ANGLE + (MOST_ANGLE - LEAST_ANGLE) * float(torch.rand(1, generator=generator))
    return torch.matrix_exp(angle * skew)
