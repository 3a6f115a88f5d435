"""Losses of vec2vec. Where the paper (section 3.2) and the official code differ, both forms are here.

The setting `objective` selects one of them:

| | code | paper |
|---|---|---|
| error of reconstruction and cycle | cosine | squared distance |
| vector space preservation (VSP) | of reconstructions | of translations |
| its form | absolute differences of cosines, also of x and y | squared differences of products |
| over encoders and pairs, these are | averaged | summed |
| the cycle trains | its second translation | both translations |
| batch norms also see a reconstruction of each translation | yes | no |
| discriminators of latents | one | two: for the second, real and fake are exchanged |
| labels of real and fake vectors | 0 and 1 | 1 and 0 |

Adversarial losses are always summed, transport is averaged.

x: (n, d), a batch of one encoder. y: (n, d or e), the same texts after the networks.
real (n, 1), fake (m, 1): logits of a discriminator. All losses are scalars.
"""

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cosine_similarity, normalize

from pipelines.aligners.core.matching import partners
from pipelines.aligners.vec2vec.settings import Gan, Objective

SMOOTHED = 0.9  # discriminators of the vanilla GAN have labels .9 and .1 in place of 1 and 0


def error(x: Tensor, y: Tensor, objective: Objective) -> Tensor:
    """Return the loss of reconstruction (y = R x) or of cycle consistency (y = F2 F1 x).

    paper: E |x - y|^2.
    code: 1 - E cos(x, y).
    """
    if objective == "paper":
        return (x - y).square().sum(1).mean()
    return 1 - cosine_similarity(x, y, dim=1).mean()


def preservation(x: Tensor, y: Tensor, objective: Objective) -> Tensor:
    """Return the loss of vector space preservation (VSP): the change of a batch's pairwise products.

    paper: mean_ij (x_i.x_j - y_i.y_j)^2 (the paper's text. Its formula compares batches of other texts,
    whose products differ even under the true map).
    code: mean_ij |cos(x_i, x_j) - cos(y_i, y_j)| + mean_ij |cos(x_i, x_j) - cos(y_i, x_j)|. So y must lie in
    the space of x.
    No gradient flows into x.
    """
    x = x.detach()
    if objective == "paper":
        return (x @ x.T - y @ y.T).square().mean()
    x, y = normalize(x, dim=1), normalize(y, dim=1)
    before = x @ x.T
    return (before - y @ y.T).abs().mean() + (before - y @ x.T).abs().mean()


def discriminator_loss(real: Tensor, fake: Tensor, gan: Gan, swapped: bool) -> Tensor:
    """Return the loss of a discriminator. Real rows have label 1 and fake rows 0; `swapped` exchanges them.

    least_squares (Mao et al. 2017): mean squared distance to the labels.
    vanilla (Goodfellow et al. 2014): mean cross entropy with smoothed labels.
    """
    high = 1.0 if gan == "least_squares" else SMOOTHED
    is_real, is_fake = (1 - high, high) if swapped else (high, 1 - high)
    loss = _squared if gan == "least_squares" else _entropy
    return (loss(real, is_real) + loss(fake, is_fake)) / 2


def generator_loss(fake: Tensor, gan: Gan, swapped: bool) -> Tensor:
    """Return the translator's adversarial loss: its output should be classified as real.

    least_squares has the factor 1/2 of Mao et al.
    """
    is_real = 0.0 if swapped else 1.0
    return _squared(fake, is_real) / 2 if gan == "least_squares" else _entropy(fake, is_real)


def accuracy(real: Tensor, fake: Tensor, gan: Gan, swapped: bool) -> Tensor:
    """Return the fraction of rows that a discriminator classifies correctly; both kinds weigh the same."""
    middle = 0.5 if gan == "least_squares" else 0.0  # between the logits of the two labels
    low, high = (real, fake) if swapped else (fake, real)
    return ((low < middle).float().mean() + (high > middle).float().mean()) / 2


def transport_loss(moved: Tensor, y: Tensor, inverse_temperature: float) -> Tensor:
    """Return 1 - E cos(moved, y) under the entropic optimal transport of two batches of unit rows (n, e).

    The plan is a constant, so the gradient is that of the optimal entropic cost (Feydy et al. 2019). Grave,
    Joulin and Berthet (2019) minimise the same over orthogonal maps.
    """
    return 1 - (moved * partners(moved.detach(), y.detach(), inverse_temperature)).sum() / len(y)


def _squared(logits: Tensor, label: float) -> Tensor:
    return (logits - label).square().mean()


def _entropy(logits: Tensor, label: float) -> Tensor:
    return binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))
