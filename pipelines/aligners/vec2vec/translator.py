"""The trained networks as a translator of raw vectors."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.aligners.core.translator import Translator
from pipelines.aligners.vec2vec.networks import Vec2Vec


class Vec2VecTranslator(Translator):
    """Translate raw vectors (n, d) to (n, e): y = F(unit(x - source_mean)) * target_scale + target_mean.

    `source` and `target` are two of the encoders of `dims`. Means are zero where the training data was not
    centred. `principal`: F takes and returns coordinates on the principal axes of the training data.
    `subspace` k: F sees the span of the first k axes alone. Without `principal` the basis of this span is
    rotated towards the first k raw coordinates, so that F does not see the axes.
    """

    def __init__(
        self,
        dims: dict[str, int],
        source: str,
        target: str,
        principal: bool = False,
        subspace: int | None = None,
        **shape,
    ) -> None:
        config = {"principal": principal, "subspace": subspace, **shape}
        super().__init__(dims=dims, source=source, target=target, **config)
        self.model = Vec2Vec(self.sizes, **shape)
        for name, dim in dims.items():
            self._add_statistics(name, dim)

    @property
    def source_dim(self) -> int:
        return self.config["dims"][self.config["source"]]

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of coordinates that the networks take and return, by encoder."""
        most = self.config["subspace"]
        return {name: min(dim, most or dim) for name, dim in self.config["dims"].items()}

    def forward(self, vectors: Tensor) -> Tensor:
        source, target = self.config["source"], self.config["target"]
        out = self.model.translate(self.prepared(vectors, source), source, target)
        if self._has_axes:
            out = out @ self.get_buffer(f"{target}_axes").T
        return out * self.get_buffer(f"{target}_scale") + self.get_buffer(f"{target}_mean")

    def prepared(self, vectors: Tensor, name: str) -> Tensor:
        """Return an encoder's raw vectors (n, d) as the networks take them: as unit rows."""
        rows = normalize(vectors - self.get_buffer(f"{name}_mean"), dim=1)
        if self._has_axes:
            rows = rows @ self.get_buffer(f"{name}_axes")
        return normalize(rows, dim=1) if self.config["subspace"] else rows

    @torch.no_grad()
    def fit_statistics(self, name: str, cloud: Tensor, centre: bool) -> None:
        """Set mean, scale and principal axes of an encoder from its vectors (n, d)."""
        mean = cloud.mean(0) if centre else torch.zeros_like(cloud[0])
        self.get_buffer(f"{name}_mean").copy_(mean)
        self.get_buffer(f"{name}_scale").copy_((cloud - mean).norm(dim=1).mean())
        if self._has_axes:
            rows = normalize(cloud - mean, dim=1).double()
            axes = torch.linalg.eigh(rows.T @ rows).eigenvectors.flip(1)  # columns, by falling variance
            axes = axes[:, : self.sizes[name]]
            if not self.config["principal"]:  # Procrustes: the first k rows become nearest to the identity
                left, _, right = torch.linalg.svd(axes[: axes.shape[1]])
                axes = axes @ (left @ right).T
            self.get_buffer(f"{name}_axes").copy_(axes)

    def add_encoder(self, name: str, dim: int) -> None:
        """Add one more encoder, with new adapters."""
        self.config["dims"] = self.config["dims"] | {name: dim}
        self.model.add_encoder(name, self.sizes[name])
        self._add_statistics(name, dim)

    def between(self, source: str, target: str) -> Vec2VecTranslator:
        """Return a copy for another pair of encoders, with only their adapters and the backbone."""
        dims = {name: dim for name, dim in self.config["dims"].items() if name in (source, target)}
        other = Vec2VecTranslator(**{**self.config, "dims": dims, "source": source, "target": target})
        mine = self.state_dict()
        other.load_state_dict({key: mine[key] for key in other.state_dict()})
        return other.to(next(self.buffers()).device).train(self.training)

    def _add_statistics(self, name: str, dim: int) -> None:
        self.register_buffer(f"{name}_mean", torch.zeros(dim))
        self.register_buffer(f"{name}_scale", torch.ones(()))
        if self._has_axes:
            self.register_buffer(f"{name}_axes", torch.eye(dim, self.sizes[name]))  # columns

    @property
    def _has_axes(self) -> bool:
        return bool(self.config["principal"] or self.config["subspace"])
