"""The losses of vec2vec, section 4 of the paper and the official code, which differ: every form of either has a name here.

x: (n, d) a batch of one encoder; y: (n, d or e) what the model made of it. logits: (n, 1). All return a scalar.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity, normalize

from pipelines.aligners.core.matching import partners

Gan = Literal["least_squares", "vanilla", "relativistic"]
Error = Literal["cosine", "squared"]
Vsp = Literal["absolute", "squared"]


def error(x: Tensor, y: Tensor, form: Error) -> Tensor:
    """Reconstruction and cycle consistency. squared: E |x - y|^2 (paper); cosine: 1 - E cos(x, y) (code)."""
    if form == "squared":
        return (x - y).square().sum(1).mean()
    return 1 - cosine_similarity(x, y, dim=1).mean()


def products(x: Tensor, form: Vsp) -> tuple[Tensor, Tensor]:
    """What `preservation` needs of a batch, constants: its rows (n, d), unit if absolute, and their pairwise products (n, n)."""
    x = normalize(x.detach(), dim=1) if form == "absolute" else x.detach()
    return x, x @ x.T


def preservation(x: Tensor, before: Tensor, y: Tensor, form: Vsp, reflected: bool) -> Tensor:
    """Vector space preservation: a batch's pairwise products before and after. x, before: what `products` gives.

    squared: mean_ij (x_i.x_j - y_i.y_j)^2 (paper). absolute: mean_ij |cos(x_i, x_j) - cos(y_i, y_j)| (code). reflected: plus
    the same difference with cos(y_i, x_j) (code), which is there only where y lies in the space of x.
    """
    y = normalize(y, dim=1) if form == "absolute" else y
    differences = [before - y @ y.T] + ([before - y @ x.T] if reflected else [])
    return torch.stack([(d.abs() if form == "absolute" else d.square()).mean() for d in differences]).sum()


def _labels(swapped: bool) -> tuple[float, float]:
    """Of real and fake. Swapped (code), real is 0: the same game seen from the other side of 1/2."""
    return (0.0, 1.0) if swapped else (1.0, 0.0)


def discriminator_loss(real: Tensor, fake: Tensor, gan: Gan, swapped: bool, smoothing: float) -> Tensor:
    """What a discriminator minimises.

    least_squares (Mao et al. 2017): mean of both squared distances to the labels. vanilla (Goodfellow et al. 2014): mean of
    both cross entropies; a label 1 becomes `smoothing`, 0 becomes 1 - smoothing. relativistic (Jolicoeur-Martineau 2019):
    cross entropy of "this real one looks more real than this fake one", row by row.
    """
    is_real, is_fake = _labels(swapped)
    if gan == "least_squares":
        return ((real - is_real).square().mean() + (fake - is_fake).square().mean()) / 2
    if gan == "vanilla":
        smooth = [label * smoothing + (1 - label) * (1 - smoothing) for label in (is_real, is_fake)]
        return (_entropy(real, smooth[0]) + _entropy(fake, smooth[1])) / 2
    return _entropy(fake - real if swapped else real - fake, 1.0)


def generator_loss(real: Tensor, fake: Tensor, gan: Gan, swapped: bool) -> Tensor:
    """What the translator minimises: that its output is taken for real. No smoothing. `real` is read by relativistic only."""
    is_real, _ = _labels(swapped)
    if gan == "least_squares":
        return (fake - is_real).square().mean() / 2
    if gan == "vanilla":
        return _entropy(fake, is_real)
    return _entropy(real - fake if swapped else fake - real, 1.0)


def accuracy(real: Tensor, fake: Tensor, gan: Gan, swapped: bool) -> Tensor:
    """Share of rows that a discriminator tells right, half of them real; relativistic: share of pairs ordered right."""
    if swapped:
        real, fake = -real, -fake
    if gan == "relativistic":
        return (real > fake).float().mean()
    middle = 0.0 if gan == "vanilla" else (-0.5 if swapped else 0.5)
    return ((real > middle).float().mean() + (fake < middle).float().mean()) / 2


def transport(moved: Tensor, y: Tensor, inverse_temperature: float) -> Tensor:
    """1 - E cos(moved, y) under the entropic optimal transport P of the two batches, (n, e) and (n, e), unit rows.

    P is a constant here: it is the gradient of the optimal entropic cost (Feydy et al. 2019, of the Sinkhorn divergence). Grave,
    Joulin, Berthet (2019) minimise this over orthogonal maps, batch by batch.
    """
    return 1 - (moved * partners(moved.detach(), y.detach(), inverse_temperature)).sum(1).mean()


def gradient_penalty(logits: Tensor, inputs: Tensor) -> Tensor:
    """R1 + R2 (Mescheder et al. 2018): E |d logit / d input|^2 over real rows, plus the same over fake ones.

    inputs: (2n, d), n real rows and n fake ones. The code sums where this is an expectation: its weight w is n w here.
    """
    (gradient,) = torch.autograd.grad(logits.sum(), inputs, create_graph=True)
    real, fake = gradient.square().sum(1).chunk(2)
    return real.mean() + fake.mean()


def _entropy(logits: Tensor, label: float) -> Tensor:
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))
