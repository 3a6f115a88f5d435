"""A translator that keeps away from hubs: the inverted softmax, brought over from the comparison into the map.

In many dimensions some vectors are the nearest of far more queries than others (hubs: Radovanovic et al., JMLR 2010), and what an
orthogonal map sends a little too near to the centre all ends there. The inverted softmax (Smith et al., ICLR 2017) takes from the
score of a candidate y what other queries q_j give it:  s q.y - log sum_j exp(s q_j.y).  To first order in y, about y = q, that is

    s (q - c(q)).y + const,    c(q) = sum_j softmax_j(s q.q_j) q_j,

the gradient of the log density of the translated cloud at q under a von Mises-Fisher kernel (c(q) - q is its mean shift). So the
translator q - c(q) ranks as the inverted softmax does, by plain cosine and with no look at the candidates, on which nearest
neighbours, CSLS and the inverted softmax all wait.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.cloud import dimensions
from pipelines.aligners.core.translator import Linear
from pipelines.runtime.errors import BadInput

BLOCK = 4096  # vectors whose similarities to all anchors are held at once


class InvertedSoftmax(Linear):
    """y = unit(q - c(q)) |l| + target_mean, q = unit(l), l = unit(x - source_mean) W scale: a linear translator, bent.

    `anchors` (m, e): the q_j, some of the cloud that the map was found on. `strength`: s in units of one over the standard
    deviation of cosines between them, which is the root of their effective dimension. It may be set to another value at any
    time: higher ranks better up to a point (hubs are local), lower is nearer in cosine, and at 0 nothing is bent.
    """

    anchors: Tensor
    deviation: Tensor

    def __init__(self, source_dim: int, target_dim: int, anchors: int, strength: float) -> None:
        super().__init__(source_dim, target_dim)
        self.config |= {"anchors": anchors, "strength": strength}
        self.strength = strength
        self.register_buffer("anchors", torch.zeros(anchors, target_dim))
        self.register_buffer("deviation", torch.ones(()))

    @classmethod
    def around(cls, linear: Linear, anchors: Tensor, strength: float) -> InvertedSoftmax:
        """Bend `linear` away from the hubs of the source vectors `anchors` (m, d)."""
        moved = linear(anchors) - linear.target_mean
        self = cls(linear.map.shape[0], linear.map.shape[1], len(anchors), strength).to(linear.map.device)
        q = normalize(moved, dim=1)
        self.load_state_dict(
            linear.state_dict() | {"anchors": q, "deviation": torch.tensor(dimensions(q) ** -0.5)}
        )
        return self

    def set_hub_correction(self, strength: float) -> None:
        """Any finite strength >= 0; raises BadInput for another."""
        if not 0 <= strength < float("inf"):
            raise BadInput(f"hub_correction: {strength} must be finite and at least 0")
        self.strength = strength

    def forward(self, vectors: Tensor) -> Tensor:
        translated = super().forward(vectors)  # (n, target_dim)
        return (
            torch.cat([self._bent(block) for block in translated.split(BLOCK)])
            if self.strength
            else translated
        )

    def _bent(self, translated: Tensor) -> Tensor:
        linear = translated - self.target_mean
        q = normalize(linear, dim=1)
        weights = (self.strength / self.deviation * q @ self.anchors.T).softmax(1)
        return (
            normalize(q - weights @ self.anchors, dim=1) * linear.norm(dim=1, keepdim=True) + self.target_mean
        )
