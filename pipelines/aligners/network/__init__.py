"""ORACLE: a small network given the true pairs. It learns what a linear map cannot.

The network is the orthogonal map plus one hidden layer, whose output starts at zero. Both are trained with
the symmetric InfoNCE loss of CLIP (Radford et al. 2021, figure 3): find each text's own translation in the
batch, in both directions.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, gelu, normalize

from pipelines.aligners.core.oracle import paired_orthogonal
from pipelines.aligners.core.translator import Linear
from pipelines.runtime.device import forked, manual_seed, to_device
from pipelines.runtime.progress import progress
from pipelines.runtime.settings import Checked, Count

SUPERVISION = "oracle"
THREAD_SAFE = False

BATCH = 512  # pairs
RATE = 1e-3  # of AdamW, before the schedule in `train`
WEIGHT_DECAY = 0.01
DROPOUT = 0.2
TEMPERATURE = 0.05


@dataclass(frozen=True)
class Settings(Checked):
    """Size and length of training."""

    width: Count = 1024  # of the hidden layer
    steps: Count = 200  # of training


class Network(Linear):
    """y = unit(z) * scale + target_mean with z = u W + B gelu(A u), u = unit(x - source_mean)."""

    def __init__(self, source_dim: int, target_dim: int, width: int) -> None:
        super().__init__(source_dim, target_dim)
        self.config["width"] = width
        self.hidden, self.out = nn.Linear(source_dim, width), nn.Linear(width, target_dim)

    def unit(self, vectors: Tensor, dropout: float = 0.0) -> Tensor:
        """Map raw source vectors (n, d) to centred unit vectors (n, e) of the target space."""
        centred = normalize(vectors - self.source_mean, dim=1)
        root = math.sqrt(centred.shape[1])  # scales the coordinates that the layers see to about 1
        hidden = nn.functional.dropout(gelu(self.hidden(centred * root)), dropout, dropout > 0)
        return normalize(centred @ self.map + self.out(hidden) / root, dim=1)

    def forward(self, vectors: Tensor) -> Tensor:
        return self.unit(vectors) * self.scale + self.target_mean


def fit_oracle(paired_source: Tensor, paired_target: Tensor, settings: Settings, seed: int) -> Network:
    """Train a network. Row i of (n, d) and of (n, e) belong to one text. Raises BadInput for bad vectors."""
    linear = paired_orthogonal(paired_source, paired_target)
    device = linear.map.device
    with forked(device):
        manual_seed(seed, device)  # of weights and dropout
        network = Network(*linear.map.shape, width=settings.width).to(device)
        network.load_state_dict(linear.state_dict(), strict=False)
        source, target = paired_source.float(), paired_target.float() - linear.target_mean
        network.scale.copy_(target.norm(dim=1).mean())
        for zero in network.out.parameters():
            nn.init.zeros_(zero)
        network.map.requires_grad_()
        train(network, source, normalize(target, dim=1), settings.steps, torch.Generator().manual_seed(seed))
    network.map.requires_grad_(False)
    return network.requires_grad_(False).eval()


def train(network: Network, source: Tensor, target: Tensor, steps: int, generator: torch.Generator) -> None:
    """Train on raw source vectors (n, d) and centred unit target vectors (n, e), in place."""
    weights = [network.map, *network.parameters()]  # the map is a buffer
    optimiser = torch.optim.AdamW(weights, RATE, weight_decay=WEIGHT_DECAY)
    warm = max(1, steps // 10)
    # Rises over the first tenth of the steps, and falls linearly
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda n: min((n + 1) / warm, 1 - n / steps))
    for _ in progress(range(steps), what="network: train", unit="steps"):
        rows = to_device(torch.randperm(len(source), generator=generator)[:BATCH], source.device)
        logits = network.unit(source[rows], DROPOUT) @ target[rows].T / TEMPERATURE
        own = torch.arange(len(rows), device=logits.device)
        optimiser.zero_grad()
        ((cross_entropy(logits, own) + cross_entropy(logits.T, own)) / 2).backward()
        optimiser.step()
        schedule.step()
