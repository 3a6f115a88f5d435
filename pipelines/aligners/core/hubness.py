"""A translator that avoids hubs: the inverted softmax, as part of the map instead of the comparison.

In many dimensions some vectors are the nearest neighbours of far more queries than others. They are called
hubs (Radovanovic et al., JMLR 2010). Translations by an orthogonal map lie slightly too near to the mean of
the target cloud, so they match hubs. The inverted softmax (Smith et al., ICLR 2017) lowers the score of a
candidate y that scores high for many other queries q_j:

    s q.y - log sum_j exp(s q_j.y)

To first order in y, about y = q, this is

    s (q - c(q)).y + const,    c(q) = sum_j softmax_j(s q.q_j) q_j

where s c(q) is the gradient at q of the log density of the translated cloud under a von Mises-Fisher kernel,
and c(q) - q is its mean shift. So the plain cosine to q - c(q) ranks candidates as the inverted softmax does.
To compute q - c(q), no candidates are needed.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import dimensions
from pipelines.aligners.core.translator import Linear

BLOCK = 4096  # vectors whose similarities to all anchors are in memory at once
SAME = 0.999  # the cosine from which an anchor counts as the vector itself


class InvertedSoftmax(Linear):
    """y = unit(q - c(q)) |l| + target_mean, q = unit(l), l = unit(x - source_mean) W scale.

    `anchors` (m, e): the q_j, which are translations of some vectors that the map was fitted to. `strength`:
    s / sqrt(D). D is the effective number of dimensions of the anchors, whose cosines have root mean square
    1 / sqrt(D). A higher strength gives better ranks, up to a point. A lower one gives higher cosines, and 0
    the linear map.
    """

    anchors: Tensor
    deviation: Tensor

    def __init__(self, source_dim: int, target_dim: int, anchors: int, strength: float) -> None:
        super().__init__(source_dim, target_dim)
        self.config |= {"anchors": anchors, "strength": strength}
        self.register_buffer("anchors", torch.zeros(anchors, target_dim))
        self.register_buffer("deviation", torch.ones(()))

    @classmethod
    def around(cls, linear: Linear, anchors: Tensor, strength: float) -> InvertedSoftmax:
        """Correct `linear` for hubs, which the translations of the source vectors `anchors` (m, d) show."""
        moved = linear(anchors) - linear.target_mean
        self = cls(*linear.map.shape, anchors=len(anchors), strength=strength).to(linear.map.device)
        q = normalize(moved, dim=1)
        added = {"anchors": q, "deviation": torch.tensor(dimensions(q) ** -0.5)}
        self.load_state_dict(linear.state_dict() | added)
        return self

    def set_hub_correction(self, strength: float) -> None:
        self.config["strength"] = strength

    def forward(self, vectors: Tensor) -> Tensor:
        translated = super().forward(vectors)  # (n, target_dim)
        if not self.config["strength"]:
            return translated
        return torch.cat([self._corrected(block) for block in translated.split(BLOCK)])

    def _corrected(self, translated: Tensor) -> Tensor:
        linear = translated - self.target_mean
        q = normalize(linear, dim=1)
        cosines = q @ self.anchors.T
        # Leave out the anchor q itself. Its term has the direction of q, so it only shortens q - c(q), and if
        # it outweighs the others only rounding errors are left.
        scores = (self.config["strength"] / self.deviation * cosines).masked_fill(cosines > SAME, -torch.inf)
        away = normalize(q - scores.softmax(1) @ self.anchors, dim=1)
        return away * linear.norm(dim=1, keepdim=True) + self.target_mean
