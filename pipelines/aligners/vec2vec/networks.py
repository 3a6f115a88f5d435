"""The networks of vec2vec (Jha et al. 2025, arXiv 2505.12540): adapters, shared backbone, discriminators, and the translator.

    F1 = B2 T A1    F2 = B1 T A2    R1 = B1 T A1    R2 = B2 T A2

A: input adapters, one per encoder; T: backbone, shared by all; B: output adapters, one per encoder.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize, pad

from pipelines.aligners.core.translator import Linear, Translator
from pipelines.runtime.errors import BadInput

Norm = Literal["batch", "layer"]


def fitted(x: Tensor, size: int) -> Tensor:
    """(n, d) -> (n, size): zeros added or columns cut, which is the shortcut between layers of unequal size."""
    if x.shape[1] == size:
        return x
    return pad(x, (0, size - x.shape[1])) if x.shape[1] < size else x[:, :size]


def at_least_float(x: Tensor) -> Tensor:
    """float32 in the place of a 16-bit type."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class ResidualMLP(nn.Module):
    """(n, inputs) -> (n, outputs): `depth` residual layers with SiLU.

    The layers are those of the official code: the first without norm, the last with two matrices and without norm. `mapped`:
    the first shortcut is a learned matrix instead of zeros added, so that the whole can be a given linear map.
    """

    def __init__(
        self, depth: int, inputs: int, width: int, outputs: int, norm: Norm, dropout: float, mapped: bool
    ) -> None:
        super().__init__()
        self.inputs, self.norm = inputs, norm
        normed: Callable[[int], nn.Module] = nn.BatchNorm1d if norm == "batch" else nn.LayerNorm
        self.sizes = [*[width] * (depth - 1), outputs]
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(inputs, self.sizes[0]), nn.SiLU())])
        for _ in range(depth - 2):
            self.layers.append(
                nn.Sequential(nn.Linear(width, width), nn.SiLU(), normed(width), nn.Dropout(dropout))
            )
        if depth > 1:
            last = [nn.Linear(width, width), nn.Dropout(dropout), nn.SiLU(), nn.Linear(width, outputs)]
            self.layers.append(nn.Sequential(*last))
        self.shortcut = nn.Linear(inputs, self.sizes[0], bias=False) if mapped else None
        initialise(self)

    def forward(self, x: Tensor, outputs: int | None = None) -> Tensor:
        """Fewer columns in: the others are zero. `outputs`: how many columns are wanted, the first ones; None: all."""
        x = fitted(x, self.inputs)
        for number, (layer, size) in enumerate(zip(self.layers, self.sizes, strict=True)):
            short = self.shortcut(x) if self.shortcut is not None and number == 0 else fitted(x, size)
            x = short + layer(x)
        return x[:, :outputs]

    @torch.no_grad()
    def observe(self, x: Tensor) -> None:
        """Move the running statistics of the batch norms as `forward` of x (n, inputs) would, and compute nothing beyond them."""
        last = len(self.layers) - 2  # the last layer with a norm
        if self.norm != "batch" or last < 1:
            return
        x = fitted(x, self.inputs)
        for number, (layer, size) in enumerate(zip(self.layers[:last], self.sizes, strict=False)):
            short = self.shortcut(x) if self.shortcut is not None and number == 0 else fitted(x, size)
            x = short + layer(x)
        for part in list(self.layers[last].children())[:3]:
            x = part(x)

    @torch.no_grad()
    def init_as_map(self, map: Tensor | None) -> None:
        """Make every residual branch zero, and the whole x -> x map (None: the identity), but leave gradients to learn from."""
        for layer in self.layers:
            assert isinstance(layer, nn.Sequential)
            gate = next(
                m for m in reversed(layer) if isinstance(m, (nn.Linear, nn.BatchNorm1d, nn.LayerNorm))
            )
            for parameter in gate.parameters():
                parameter.zero_()
        if self.shortcut is not None:
            weight = self.shortcut.weight  # (width, inputs)
            weight.copy_(torch.eye(*weight.shape))
            if map is not None:
                weight.zero_()[: map.shape[1], : map.shape[0]] = map.T


class Tied(nn.Module):
    """Adapters of depth 0: A is x -> x W, one matrix (inputs, width) without bias, and B is its transpose (tied weights).

    Fewer columns in: the others are zero.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(inputs, width)))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight[: x.shape[1]]

    def back(self, latent: Tensor, outputs: int | None = None) -> Tensor:
        """(n, width) -> (n, inputs), or only the first `outputs` columns."""
        return latent @ self.weight[:outputs].T

    @torch.no_grad()
    def init_as_map(self, map: Tensor | None) -> None:
        """A: x -> x map, map (inputs, width) or smaller; None: the identity."""
        self.weight.copy_(torch.eye(*self.weight.shape))
        if map is not None:
            self.weight.zero_()[: map.shape[0], : map.shape[1]] = map

    @torch.no_grad()
    def damp(self, rate: float, straight: float | Tensor, axes: int | None = None) -> None:
        """W <- W - rate W W' W, of the first `axes` rows alone if given; `straight`, 0 or 1: plus rate W.

        Straight, it is a step towards orthonormal rows (Conneau et al. 2018, equation 7, with 0.01). Else it is a gradient step
        on |W W'|^2 / 4: against a steady pull U S V' singular values come to rest at (S / rate)^(1/3), so that directions count
        by how sure they are, and one with the wrong sign can pass through zero, which no orthogonal matrix lets it.
        """
        W = self.weight[:axes]
        cubic = W @ W.T @ W if len(W) <= W.shape[1] else W @ (W.T @ W)
        W.mul_(1 + rate * straight).sub_(cubic, alpha=rate)


def initialise(module: nn.Module) -> None:
    """Kaiming-normal matrices, zero biases, batch-norm parameters N(1, 0.02) and N(0, 0.02): as the official code."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.BatchNorm1d):
            nn.init.normal_(part.weight, 1.0, 0.02)
            nn.init.normal_(part.bias, 0.0, 0.02)


class Discriminator(nn.Module):
    """(n, inputs) -> (n, 1) logits: `depth` matrices, SiLU and layer norm between, no residuals; rows stay independent."""

    def __init__(self, depth: int, inputs: int, width: int, spectral: bool = False) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Linear(inputs, width if depth > 1 else 1)]
        for _ in range(depth - 2):
            layers += [nn.SiLU(), nn.Linear(width, width), nn.LayerNorm(width)]
        if depth > 1:
            layers += [nn.SiLU(), nn.Linear(width, 1)]
        self.layers = nn.Sequential(*layers)
        initialise(self)
        if spectral:
            for part in self.layers:
                if isinstance(part, nn.Linear):
                    nn.utils.parametrizations.spectral_norm(part)

    def forward(self, x: Tensor) -> Tensor:
        first = self.layers[0]
        assert isinstance(first, nn.Linear)
        return at_least_float(self.layers[1:](linear(x, first.weight[:, : x.shape[1]], first.bias)))


class Vec2Vec(nn.Module):
    """Any number of encoders around one backbone. Vectors in and out are centred or not, and unit, as the training data was.

    `adapter_depth: 0`: see `Tied`; all encoders draw the same random orthonormal rows but for a random sign of each, so that F
    begins as sign changes of the columns. As only products of two matter, the last encoder's stays as drawn.
    `backbone_depth: 0`: T is the identity.
    `axes`: how many columns come out of a decoder, the first ones; None: all.
    """

    axes: int | None = None

    def __init__(
        self,
        dims: dict[str, int],
        width: int = 1024,
        adapter_depth: int = 3,
        backbone_depth: int = 4,
        norm: Norm = "batch",
        dropout: float = 0.1,
        unit_output: bool = True,
        mapped: bool = False,
    ) -> None:
        super().__init__()
        self.frozen: list[nn.Module] = []
        self.width, self.adapter_depth, self.dropout = width, adapter_depth, dropout
        self.norm: Norm = norm
        self.unit_output, self.mapped = unit_output, mapped
        self.inputs, self.outputs = nn.ModuleDict(), nn.ModuleDict()  # A and B, by encoder
        layers = (
            ResidualMLP(backbone_depth, width, width, width, norm, dropout, mapped=False)
            if backbone_depth
            else None
        )
        self.backbone = layers or nn.Identity()  # T
        for name, dim in dims.items():
            self.add_encoder(name, dim)
        if adapter_depth == 0:
            self._draw_alike(dims)

    def freeze(self) -> None:
        """Hold what is there as it is: no gradients, and the statistics of batch norms stand still, in training too."""
        self.requires_grad_(False)
        self.frozen = [*self.inputs.values(), *self.outputs.values(), self.backbone]
        self.train(self.training)

    def train(self, mode: bool = True) -> Vec2Vec:
        super().train(mode)
        for module in self.frozen:
            module.eval()
        return self

    def add_encoder(self, name: str, dim: int) -> None:
        """One more encoder: two new adapters; what is there stays as it is. Raises BadInput if the name is taken."""
        if name in self.inputs:
            raise BadInput(f"vec2vec: there is already an encoder {name!r}")
        device = next(self.parameters(), torch.empty(0)).device
        if self.adapter_depth == 0:
            self.inputs[name] = Tied(dim, self.width).to(device)
            if self.frozen:
                self.redraw(name)
            return
        for adapters, inputs, outputs in ((self.inputs, dim, self.width), (self.outputs, self.width, dim)):
            adapter = ResidualMLP(
                self.adapter_depth, inputs, self.width, outputs, self.norm, self.dropout, self.mapped
            )
            adapters[name] = adapter.to(device)

    @torch.no_grad()
    def redraw(self, name: str) -> None:
        """New random weights of one encoder's adapters. Tied ones, beside others: the others' rows but for random signs."""
        adapter = self.inputs[name]
        if not isinstance(adapter, Tied):
            for part in (adapter, self.outputs[name]):
                initialise(part)
            return
        beside = [a.weight for n, a in self.inputs.items() if n != name and isinstance(a, Tied)]
        random = torch.randn(self.width, self.width, device=adapter.weight.device)
        if beside:
            basis = torch.linalg.qr(
                torch.cat([max(beside, key=len), random]).T
            ).Q.T  # their rows come first, up to sign
            signs = torch.randint(2, (len(adapter.weight), 1)).to(basis) * 2 - 1
            adapter.init_as_map(basis[: len(adapter.weight)] * signs)

    @torch.no_grad()
    def _draw_alike(self, dims: dict[str, int]) -> None:
        basis = nn.init.orthogonal_(torch.empty(max(dims.values()), self.width))
        for name, dim in dims.items():
            signs = torch.randint(2, (dim, 1)) * 2 - 1
            self.inputs[name].init_as_map(basis[:dim] * signs)  # pyright: ignore[reportCallIssue]
            self.inputs[name].requires_grad_(name != list(dims)[-1])

    def encode(self, x: Tensor, name: str) -> Tensor:
        """(n, dimension of the encoder) -> (n, width): T A."""
        return self.backbone(self.inputs[name](x))

    def decode(self, latent: Tensor, name: str) -> Tensor:
        """(n, width) -> (n, dimension of the encoder), float32 at least: B."""
        adapter = self.inputs[name]
        out = (
            adapter.back(latent, self.axes)
            if isinstance(adapter, Tied)
            else self.outputs[name](latent, self.axes)
        )
        out = at_least_float(out)
        return normalize(out, dim=1) if self.unit_output else out

    def observe(self, latent: Tensor, name: str) -> None:
        """Let the batch norms of B see a batch (n, width) as in `decode`: their running statistics change, nothing else."""
        adapter = self.outputs[name] if self.adapter_depth else None
        if isinstance(adapter, ResidualMLP):
            adapter.observe(latent)

    def translate(self, x: Tensor, source: str, target: str) -> Tensor:
        """(n, d) -> (n, e): F; with source == target the reconstruction R."""
        return self.decode(self.encode(x, source), target)

    @torch.no_grad()
    def start_linear(self, map: Tensor, source: str, target: str) -> None:
        """Make F the given linear map (d, e) of `source` into the space of `target`, and the way back its transpose."""
        if not self.mapped or self.width < max(map.shape):
            raise ValueError(f"vec2vec: width {self.width} cannot start as a map {tuple(map.shape)}")
        for adapters, matrix in (
            (self.inputs, map),
            *(((self.outputs, map.T),) if self.adapter_depth else ()),
        ):
            adapters[source].init_as_map(matrix)  # pyright: ignore[reportCallIssue]
            adapters[target].init_as_map(None)  # pyright: ignore[reportCallIssue]
        if isinstance(self.backbone, ResidualMLP):
            self.backbone.init_as_map(None)


class Vec2VecTranslator(Translator):
    """y = F(unit(x - source_mean)) * target_scale + target_mean: raw source vectors (n, d) to raw target vectors (n, e).

    `source` and `target` are two of the encoders of `dims`. The means are zero where the training data was not
    centred. `principal`: F takes and gives coordinates on the principal axes of the training data, by falling variance.
    """

    def __init__(
        self, dims: dict[str, int], source: str, target: str, principal: bool = False, **shape
    ) -> None:
        super().__init__(dims=dims, source=source, target=target, principal=principal, **shape)
        self.model = Vec2Vec(dims, **shape)
        for name, dim in dims.items():
            self._describe(name, dim)

    def _describe(self, name: str, dim: int) -> None:
        self.register_buffer(f"{name}_mean", torch.zeros(dim))
        self.register_buffer(f"{name}_scale", torch.ones(()))
        if self.config["principal"]:
            self.register_buffer(f"{name}_axes", torch.eye(dim))  # columns

    @torch.no_grad()
    def describe(self, name: str, cloud: Tensor, centre: bool) -> None:
        """Take over mean, scale and axes of a cloud (n, d)."""
        mean = cloud.mean(0) if centre else torch.zeros_like(cloud[0])
        getattr(self, f"{name}_mean").copy_(mean)
        getattr(self, f"{name}_scale").copy_((cloud - mean).norm(dim=1).mean())
        if self.config["principal"]:
            rows = normalize(cloud - mean, dim=1).double()
            getattr(self, f"{name}_axes").copy_(torch.linalg.eigh(rows.T @ rows).eigenvectors.flip(1))

    def prepared(self, vectors: Tensor, name: str) -> Tensor:
        """Raw vectors of one encoder -> what the model takes."""
        rows = normalize(vectors - getattr(self, f"{name}_mean"), dim=1)
        return rows @ getattr(self, f"{name}_axes") if self.config["principal"] else rows

    def forward(self, vectors: Tensor) -> Tensor:
        source, target = self.config["source"], self.config["target"]
        out = self.model.translate(self.prepared(vectors, source), source, target)
        out = out @ getattr(self, f"{target}_axes").T if self.config["principal"] else out
        return out * getattr(self, f"{target}_scale") + getattr(self, f"{target}_mean")

    def between(self, source: str, target: str) -> Vec2VecTranslator:
        """The translator of another pair of the encoders: a copy, of their adapters and the backbone alone."""
        dims = {name: dim for name, dim in self.config["dims"].items() if name in (source, target)}
        other = Vec2VecTranslator(**{**self.config, "dims": dims, "source": source, "target": target})
        other.load_state_dict(
            {key: value for key, value in self.state_dict().items() if key in other.state_dict()}
        )
        return other.to(next(self.buffers()).device).train(self.training)

    @property
    def reverse(self) -> Vec2VecTranslator:
        """The other direction, a copy."""
        return self.between(self.config["target"], self.config["source"])

    def extended(self, other: Vec2VecTranslator) -> Vec2VecTranslator:
        """A copy that has the encoders of `other`, too: a translator of the same training, so that both have one backbone.

        Raises BadInput where they are of another shape or have another backbone.
        """
        dims = {**self.config["dims"], **other.config["dims"]}
        mine, theirs = self.state_dict(), other.state_dict()
        kept = [
            {k: v for k, v in each.config.items() if k not in ("dims", "source", "target")}
            for each in (self, other)
        ]
        if kept[0] != kept[1] or not all(
            torch.equal(mine[k], theirs[k]) for k in mine if k.startswith("model.backbone.")
        ):
            raise BadInput("vec2vec: translators of two trainings: their backbones differ")
        whole = Vec2VecTranslator(dims, self.config["source"], self.config["target"], **kept[0])
        whole.load_state_dict(mine | theirs)
        return whole.to(next(self.buffers()).device)

    def add_encoder(self, name: str, dim: int) -> None:
        """One more encoder. All that is there is held as it is, whatever training follows: only the new adapters learn."""
        self.model.freeze()
        self.model.add_encoder(name, dim)
        self.config["dims"] = self.config["dims"] | {name: dim}
        self._describe(name, dim)

    def start(self, linear: Linear, source: str, target: str) -> None:
        """Translate exactly as `linear` does, a translator found on the same centred clouds."""
        getattr(self, f"{target}_scale").copy_(linear.scale)
        self.model.start_linear(linear.map, source, target)
