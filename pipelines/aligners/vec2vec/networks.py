"""Networks of vec2vec (Jha et al. 2025, arXiv 2505.12540): adapters, shared backbone, discriminators.

    F1 = B2 T A1    F2 = B1 T A2    R1 = B1 T A1    R2 = B2 T A2

F: translation. R: reconstruction. A: input adapter. T: backbone, shared by all encoders. B: output adapter.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize, pad

from pipelines.aligners.vec2vec.settings import Norm


class Vec2Vec(nn.Module):
    """Connect any number of encoders by one backbone. Vectors in and out are unit vectors.

    `adapter_depth: 0`: adapters are `Tied`. All encoders start from the same random orthonormal rows, each
    with random signs, so F starts as sign changes of the columns. F depends only on products of two adapters,
    so the last encoder's adapter is not trained.
    `backbone_depth: 0`: T is the identity.
    `axes`: number of leading columns that a decoder returns; None: all.
    """

    axes: int | None = None

    def __init__(
        self,
        dims: dict[str, int],
        width: int,
        adapter_depth: int,
        backbone_depth: int,
        norm: Norm,
        dropout: float,
    ) -> None:
        super().__init__()
        self.frozen: list[nn.Module] = []
        self.width, self.adapter_depth, self.dropout = width, adapter_depth, dropout
        self.norm: Norm = norm
        self.inputs, self.outputs = nn.ModuleDict(), nn.ModuleDict()  # A and B by encoder
        self.backbone: nn.Module = nn.Identity()  # T
        if backbone_depth:
            self.backbone = ResidualMLP(backbone_depth, width, width, width, norm, dropout)
        for name, dim in dims.items():
            self.add_encoder(name, dim)
        if adapter_depth == 0:
            self._draw_tied(dims)

    def encode(self, x: Tensor, name: str) -> Tensor:
        """Return latents (n, width) of an encoder's vectors (n, d): T A."""
        return self.backbone(self.inputs[name](x))

    def decode(self, latent: Tensor, name: str) -> Tensor:
        """Return unit vectors (n, d) of an encoder from latents (n, width), at least float32: B."""
        adapter = self.inputs[name]
        if isinstance(adapter, Tied):
            out = adapter.transposed(latent, self.axes)
        else:
            out = self.outputs[name](latent, self.axes)
        return normalize(at_least_float(out), dim=1)

    def translate(self, x: Tensor, source: str, target: str) -> Tensor:
        """Return F x (n, e) of vectors x (n, d); with source == target the reconstruction R x."""
        return self.decode(self.encode(x, source), target)

    def update_statistics(self, latent: Tensor, name: str) -> None:
        """Update the running statistics of the batch norms of B as `decode` of latents (n, width) would."""
        adapter = self.outputs[name] if self.adapter_depth else None
        if isinstance(adapter, ResidualMLP):
            adapter.update_statistics(latent)

    def add_encoder(self, name: str, dim: int) -> None:
        """Add new adapters for one more encoder."""
        device = next(self.parameters(), torch.empty(0)).device
        if self.adapter_depth == 0:
            self.inputs[name] = Tied(dim, self.width).to(device)
            if self.frozen:
                self.redraw(name)
            return
        depth, width, norm, dropout = self.adapter_depth, self.width, self.norm, self.dropout
        self.inputs[name] = ResidualMLP(depth, dim, width, width, norm, dropout).to(device)
        self.outputs[name] = ResidualMLP(depth, width, width, dim, norm, dropout).to(device)

    def freeze(self) -> None:
        """Freeze all that exists: no gradients, and batch norms keep their statistics in training."""
        self.requires_grad_(False)
        self.frozen = [*self.inputs.values(), *self.outputs.values(), self.backbone]
        self.train(self.training)

    def train(self, mode: bool = True) -> Vec2Vec:
        super().train(mode)
        for module in self.frozen:
            module.eval()
        return self

    @torch.no_grad()
    def redraw(self, name: str) -> None:
        """Draw new weights for one encoder. A tied adapter gets the orthonormalised rows of the longest other
        one, with random signs.
        """
        adapter = self.inputs[name]
        if not isinstance(adapter, Tied):
            for part in (adapter, self.outputs[name]):
                initialise(part)
            return
        others = [a.weight for n, a in self.inputs.items() if n != name and isinstance(a, Tied)]
        longest = max(others, key=len)
        random = torch.randn(self.width, self.width, device=longest.device)
        basis = torch.linalg.qr(torch.cat([longest, random]).T).Q.T
        adapter.draw_signs(basis)

    @torch.no_grad()
    def _draw_tied(self, dims: dict[str, int]) -> None:
        basis = nn.init.orthogonal_(torch.empty(max(dims.values()), self.width))
        adapters = [adapter for adapter in self.inputs.values() if isinstance(adapter, Tied)]
        for adapter in adapters:
            adapter.draw_signs(basis)
        adapters[-1].requires_grad_(False)


class ResidualMLP(nn.Module):
    """Map (n, inputs) to (n, outputs) by `depth` residual layers with SiLU, as in the official code.

    The first layer has no norm; the last has two matrices and no norm. Missing columns of the input are zero.
    """

    def __init__(self, depth: int, inputs: int, width: int, outputs: int, norm: Norm, dropout: float) -> None:
        super().__init__()
        self.inputs, self.norm = inputs, norm
        self.sizes = [*[width] * (depth - 1), outputs]
        normed = nn.BatchNorm1d if norm == "batch" else nn.LayerNorm
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(inputs, self.sizes[0]), nn.SiLU())])
        for _ in range(depth - 2):
            middle = [nn.Linear(width, width), nn.SiLU(), normed(width), nn.Dropout(dropout)]
            self.layers.append(nn.Sequential(*middle))
        if depth > 1:
            last = [nn.Linear(width, width), nn.Dropout(dropout), nn.SiLU(), nn.Linear(width, outputs)]
            self.layers.append(nn.Sequential(*last))
        initialise(self)

    def forward(self, x: Tensor, outputs: int | None = None) -> Tensor:
        """Return (n, outputs), or only the first `outputs` columns."""
        return self._residual(x, len(self.layers))[:, :outputs]

    @torch.no_grad()
    def update_statistics(self, x: Tensor) -> None:
        """Update the running statistics of batch norms as `forward` of x (n, inputs) would.

        In training mode a norm updates them when it runs, so run the layers up to the last one with a norm.
        """
        last_normed = len(self.layers) - 2
        if self.norm != "batch" or last_normed < 1:
            return
        matrix, activation, norm, _ = self.layers[last_normed].children()
        norm(activation(matrix(self._residual(x, last_normed))))

    def _residual(self, x: Tensor, layers: int) -> Tensor:
        x = fitted(x, self.inputs)
        for layer, size in zip(self.layers, self.sizes[:layers], strict=False):
            x = fitted(x, size) + layer(x)
        return x


class Tied(nn.Module):
    """Both adapters of an encoder as one matrix W (inputs, width): A is x -> x W, B is its transpose.

    Missing columns of the input are zero.
    """

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(inputs, width)))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight[: x.shape[1]]

    def transposed(self, latent: Tensor, outputs: int | None = None) -> Tensor:
        """Return (n, inputs) from latents (n, width), or only the first `outputs` columns."""
        return latent @ self.weight[:outputs].T

    @torch.no_grad()
    def draw_signs(self, basis: Tensor) -> None:
        """Set W to the first rows of an orthonormal basis (inputs or more, width) with random signs."""
        signs = torch.randint(2, (len(self.weight), 1)).to(basis) * 2 - 1
        self.weight.copy_(basis[: len(self.weight)] * signs)

    @torch.no_grad()
    def damp_singular_values(self, rate: float, orthonormal: bool, axes: int | None = None) -> None:
        """W <- W - rate W W' W, plus rate W with `orthonormal`. `axes`: only for the first so many rows.

        With `orthonormal` it is a step towards orthonormal rows (Conneau et al. 2018, equation 7, with rate
        0.01). Without, it is a gradient step on |W W'|^2 / 4. If the loss has a constant gradient U S V', the
        singular values converge to (S / rate)^(1/3). So directions with a constant gradient get large values.
        A direction of the wrong sign can shrink to zero and change its sign.
        """
        W = self.weight[:axes]
        cubic = W @ W.T @ W if len(W) <= W.shape[1] else W @ (W.T @ W)
        W.mul_(1 + rate * orthonormal).sub_(cubic, alpha=rate)


class Discriminator(nn.Module):
    """Map (n, inputs) to logits (n, 1) by `depth` matrices, with SiLU and layer norm between them.

    There are no residuals. Missing columns of the input are zero.
    """

    def __init__(self, depth: int, inputs: int, width: int) -> None:
        super().__init__()
        layers = [nn.Linear(inputs, width if depth > 1 else 1)]
        for _ in range(depth - 2):
            layers += [nn.SiLU(), nn.Linear(width, width), nn.LayerNorm(width)]
        if depth > 1:
            layers += [nn.SiLU(), nn.Linear(width, 1)]
        self.layers = nn.Sequential(*layers)
        initialise(self)

    def forward(self, x: Tensor) -> Tensor:
        first = self.layers[0]
        assert isinstance(first, nn.Linear)
        return at_least_float(self.layers[1:](linear(x, first.weight[:, : x.shape[1]], first.bias)))


def initialise(module: nn.Module) -> None:
    """Initialise as the official code: Kaiming-normal matrices, batch norms near 1 and 0."""
    for part in module.modules():
        if isinstance(part, nn.Linear):
            nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
            nn.init.zeros_(part.bias)
        elif isinstance(part, nn.BatchNorm1d):
            nn.init.normal_(part.weight, 1.0, 0.02)
            nn.init.normal_(part.bias, 0.0, 0.02)


def fitted(x: Tensor, size: int) -> Tensor:
    """Return (n, size) from (n, d): append zeros or cut columns, the shortcut between unequal layers."""
    return x if x.shape[1] == size else pad(x, (0, size - x.shape[1]))


def at_least_float(x: Tensor) -> Tensor:
    """Return float32 for 16-bit types, others as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
