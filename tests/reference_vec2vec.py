"""A second implementation of a training step of vec2vec in its released configuration, as plain as possible.

Real and fake rows pass a discriminator separately, nothing is fused, and optimisers and schedules are
torch's. As in the official code, each translation is also reconstructed, which no loss reads. Initial weights
are copied from a `Training`, so that both can be stepped side by side.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from pipelines.aligners.vec2vec.training import Training


class Block(nn.Module):
    """A residual MLP as the paper draws it."""

    def __init__(self, depth: int, inputs: int, width: int, outputs: int, norm: type[nn.Module]) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.middle = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.SiLU(), norm(width)) for _ in range(depth - 2)
        )
        self.last = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, outputs))

    def forward(self, x: Tensor) -> Tensor:
        x = fitted(x, self.first.out_features) + nn.functional.silu(self.first(x))
        for layer in self.middle:
            x = x + layer(x)
        out = self.last(x)
        return fitted(x, out.shape[1]) + out


def fitted(x: Tensor, size: int) -> Tensor:
    return nn.functional.pad(x, (0, size - x.shape[1]))  # a negative number cuts columns


def critic(depth: int, inputs: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Linear(inputs, width)]
    for _ in range(depth - 2):
        layers += [nn.SiLU(), nn.Linear(width, width), nn.LayerNorm(width)]
    return nn.Sequential(*layers, nn.SiLU(), nn.Linear(width, 1))


def gram_difference(x: Tensor, y: Tensor) -> Tensor:
    x, y = x / x.norm(dim=1, keepdim=True), y / y.norm(dim=1, keepdim=True)
    return (x @ x.T - y @ y.T).abs().mean() + (x @ x.T - y @ x.T).abs().mean()


class Reference:
    """Least-squares GAN with swapped labels, cosine errors, reflected VSP, detached cycle."""

    def __init__(self, training: Training, d: int, e: int) -> None:
        s = self.settings = training.settings
        norm = nn.BatchNorm1d if s.norm == "batch" else nn.LayerNorm
        self.A1 = Block(s.adapter_depth, d, s.width, s.width, norm)
        self.A2 = Block(s.adapter_depth, e, s.width, s.width, norm)
        self.B1 = Block(s.adapter_depth, s.width, s.width, d, norm)
        self.B2 = Block(s.adapter_depth, s.width, s.width, e, norm)
        self.T = Block(s.backbone_depth, s.width, s.width, s.width, norm)
        self.D1, self.D2, self.DL = (critic(s.disc_depth, size, s.disc_width) for size in (d, e, s.width))
        m, D = training.model, training.discriminators
        self.translator = nn.ModuleList([self.A1, self.A2, self.B1, self.B2, self.T]).double()
        self.critics = nn.ModuleList([self.D1, self.D2, self.DL]).double()
        theirs = [*m.inputs.values(), *m.outputs.values(), m.backbone, D["source"], D["target"], D["latent"]]
        for mine, other in zip([*self.translator, *self.critics], theirs, strict=True):
            for a, b in zip(mine.parameters(), other.parameters(), strict=True):
                a.data.copy_(b.data)
        self.optimiser = torch.optim.Adam(self.translator.parameters(), lr=s.lr, betas=(0.5, 0.999))
        adam = {"lr": s.disc_lr, "betas": (0.5, 0.999), "eps": 6.25e-10}
        self.critic_optimisers = [torch.optim.Adam(critic.parameters(), **adam) for critic in self.critics]
        optimisers = [self.optimiser, *self.critic_optimisers]
        self.schedules = [torch.optim.lr_scheduler.LambdaLR(each, self.growth) for each in optimisers]

    def growth(self, step: int) -> float:
        return min((step + self.settings.warmup_from) / self.settings.warmup, 1)

    def statistics(self) -> dict[str, Tensor]:
        """Running means and variances, and how many batches they are of, by part and layer."""
        names = ["inputs.source", "inputs.target", "outputs.source", "outputs.target", "backbone"]
        return {
            f"{name}.layers.{layer + 1}.2.{key}": value
            for name, part in zip(names, self.translator, strict=True)
            for layer, block in enumerate(part.middle)
            for key, value in block[2].named_buffers()
        }

    def step(self, x: Tensor, y: Tensor) -> dict[str, float]:
        s = self.settings
        unit = nn.functional.normalize
        zx = self.T(self.A1(x))
        rx, fx = unit(self.B1(zx)), unit(self.B2(zx))
        zy = self.T(self.A2(y))
        ry, fy = unit(self.B2(zy)), unit(self.B1(zy))
        zfx = self.T(self.A2(fx.detach()))
        cx = unit(self.B1(zfx))
        self.B2(zfx)  # changes the statistics of its batch norms
        zfy = self.T(self.A1(fy.detach()))
        cy = unit(self.B2(zfy))
        self.B1(zfy)
        found = {}
        contests = [("source", x, fy), ("target", y, fx), ("latent", zx, zy)]
        for (name, real, fake), critic, optimiser in zip(
            contests, self.critics, self.critic_optimisers, strict=True
        ):
            critic.requires_grad_(True)
            loss = ((critic(real.detach()) ** 2).mean() + ((critic(fake.detach()) - 1) ** 2).mean()) / 2
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(critic.parameters(), s.max_grad_norm)
            optimiser.step()
            critic.requires_grad_(False)
            found[f"loss/discriminator_{name}"] = loss
        for (name, _, fake), critic in zip(contests, self.critics, strict=True):
            found[f"loss/generator_{name}"] = (critic(fake) ** 2).mean() / 2
        found["loss/reconstruction"] = (
            1 - (cosine_similarity(x, rx).mean() + cosine_similarity(y, ry).mean()) / 2
        )
        found["loss/cycle"] = 1 - (cosine_similarity(x, cx).mean() + cosine_similarity(y, cy).mean()) / 2
        found["loss/vsp"] = (gram_difference(x, rx) + gram_difference(y, ry)) / 2
        found["loss/cycle_vsp"] = (gram_difference(x, cx) + gram_difference(y, cy)) / 2
        total = (
            s.rec_weight * found["loss/reconstruction"]
            + s.cycle_weight * found["loss/cycle"]
            + s.vsp_weight * found["loss/vsp"]
            + s.cycle_vsp_weight * found["loss/cycle_vsp"]
            + s.gan_weight * (found["loss/generator_source"] + found["loss/generator_target"])
            + s.latent_gan_weight * found["loss/generator_latent"]
        )
        self.optimiser.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(self.translator.parameters(), s.max_grad_norm)
        self.optimiser.step()
        for schedule in self.schedules:
            schedule.step()
        found["loss/translator"] = total
        return {name: float(loss.detach()) for name, loss in found.items()}
