"""ORACLE: a small network given the true pairs. It learns what bends between two spaces, and overfits few pairs.

The orthogonal map, and beside it one hidden layer that begins at zero, trained together by the symmetric InfoNCE of CLIP
(Radford et al. 2021, figure 3): each text's own translation among those of its batch, both ways.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, normalize

from pipelines.aligners.core.oracle import paired_orthogonal
from pipelines.aligners.core.translator import Translator
from pipelines.runtime.progress import progress
from pipelines.runtime.settings import check_settings

SUPERVISION = "oracle"
THREAD_SAFE = False


@dataclass(frozen=True)
class Settings:
    """AdamW, whose rate rises over the first tenth of the steps and falls to zero at the last."""

    width: int = 1024  # of the hidden layer
    steps: int = 200
    batch: int = 512  # pairs
    rate: float = 1e-3
    weight_decay: float = 0.01
    dropout: float = 0.2
    temperature: float = 0.05

    def __post_init__(self) -> None:
        bounds = {"rate": "(0, inf)", "temperature": "(0, inf)", "dropout": "[0, 1)"}
        check_settings(self, {"width": 1, "steps": 1, "batch": 2, "weight_decay": 0}, bounds)


class Network(Translator):
    """y = unit(z) * scale + target_mean with z = u W + B gelu(A u), u = unit(x - source_mean)."""

    source_mean: Tensor
    target_mean: Tensor
    scale: Tensor

    def __init__(self, source_dim: int, target_dim: int, width: int) -> None:
        super().__init__(source_dim=source_dim, target_dim=target_dim, width=width)
        self.register_buffer("source_mean", torch.zeros(source_dim))
        self.register_buffer("target_mean", torch.zeros(target_dim))
        self.register_buffer("scale", torch.ones(()))
        self.map = nn.Parameter(torch.zeros(source_dim, target_dim))
        self.hidden, self.out = nn.Linear(source_dim, width), nn.Linear(width, target_dim)

    def unit(self, vectors: Tensor, dropout: float = 0.0) -> Tensor:
        """Raw source vectors (n, d) -> centred unit vectors (n, e) of the target space."""
        centred = normalize(vectors - self.source_mean, dim=1)
        root = math.sqrt(centred.shape[1])  # the layers see coordinates about 1
        hidden = nn.functional.dropout(gelu(self.hidden(centred * root)), dropout, dropout > 0)
        return normalize(centred @ self.map + self.out(hidden) / root, dim=1)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.unit(vectors) * self.scale + self.target_mean


def fit_oracle(paired_source: Tensor, paired_target: Tensor, settings: Settings, seed: int) -> Network:
    """Row i of paired_source (n, d) and of paired_target (n, e) are one text. Raises BadInput where they cannot be."""
    linear = paired_orthogonal(paired_source, paired_target)
    torch.manual_seed(seed)
    network = Network(*linear.map.shape, width=settings.width).to(linear.map.device)
    with torch.no_grad():
        for name in ("source_mean", "target_mean", "map"):
            getattr(network, name).copy_(getattr(linear, name))
        for zero in network.out.parameters():
            zero.zero_()
        target = paired_target.float() - linear.target_mean
        network.scale.copy_(target.norm(dim=1).mean())
    source, target, generator = (
        paired_source.float(),
        normalize(target, dim=1),
        torch.Generator().manual_seed(seed),
    )
    optimizer = torch.optim.AdamW(network.parameters(), settings.rate, weight_decay=settings.weight_decay)
    warm = max(1, settings.steps // 10)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda n: min((n + 1) / warm, 1 - n / settings.steps)
    )
    for _ in progress(range(settings.steps), what="network", unit="steps"):
        rows = torch.randperm(len(source), generator=generator)[: settings.batch].to(source.device)
        logits = network.unit(source[rows], settings.dropout) @ target[rows].T / settings.temperature
        own = torch.arange(len(rows), device=logits.device)
        optimizer.zero_grad()
        ((cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2).backward()
        optimizer.step()
        schedule.step()
    return network.requires_grad_(False).eval()
