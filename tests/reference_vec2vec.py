"""A second implementation of a training step of vec2vec in its released configuration, as plain as possible.

Real and fake rows pass a discriminator separately, nothing is fused, and optimisers and schedules are
torch's. As in the official code, each translation is also reconstructed, which no loss reads. Initial weights
are copied from a `Training`, so that both can be stepped side by side.
"""

import torch
from torch import nn
from torch.nn.functional import cosine_similarity


class Block(nn.Module):
    """A residual MLP as the paper draws it."""

    def __init__(self, depth, inputs, width, outputs, norm):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.middle = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.SiLU(), norm(width)) for _ in range(depth - 2)
        )
        self.last = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, outputs))

    def forward(self, x):
        x = fitted(x, self.first.out_features) + nn.functional.silu(self.first(x))
        for layer in self.middle:
            x = x + layer(x)
        out = self.last(x)
        return fitted(x, out.shape[1]) + out


def fitted(x, size):
    return nn.functional.pad(x, (0, size - x.shape[1]))  # a negative number cuts columns


def critic(depth, inputs, width):
    layers = [nn.Linear(inputs, width)]
    for _ in range(depth - 2):
        layers += [nn.SiLU(), nn.Linear(width, width), nn.LayerNorm(width)]
    return nn.Sequential(*layers, nn.SiLU(), nn.Linear(width, 1))


def gram_difference(x, y):
    x, y = x / x.norm(dim=1, keepdim=True), y / y.norm(dim=1, keepdim=True)
    return (x @ x.T - y @ y.T).abs().mean() + (x @ x.T - y @ x.T).abs().mean()


class Reference:
    """Least-squares GAN with swapped labels, cosine errors, reflected VSP, detached cycle."""

    def __init__(self, training, d, e):
        s = self.settings = training.settings
        norm = nn.BatchNorm1d if s.norm == "batch" else nn.LayerNorm
        self.A1, self.A2 = (Block(s.adapter_depth, size, s.width, s.width, norm) for size in (d, e))
        self.B1, self.B2 = (Block(s.adapter_depth, s.width, s.width, size, norm) for size in (d, e))
        self.T = Block(s.backbone_depth, s.width, s.width, s.width, norm)
        m, D = training.model, training.discriminators
        like = next(m.parameters())  # of what dtype, on which device
        self.translator = nn.ModuleList([self.A1, self.A2, self.B1, self.B2, self.T]).to(like)
        critics = [critic(s.disc_depth, size, s.disc_width) for size in (d, e, s.width)]
        self.critics = nn.ModuleList(critics).to(like)
        theirs = [*m.inputs.values(), *m.outputs.values(), m.backbone, D["source"], D["target"], D["latent"]]
        for mine, other in zip([*self.translator, *self.critics], theirs, strict=True):
            for a, b in zip(mine.parameters(), other.parameters(), strict=True):
                a.data.copy_(b.data)
        self.optimiser = torch.optim.Adam(self.translator.parameters(), lr=s.lr, betas=(0.5, 0.999))
        self.critic_optimiser = torch.optim.Adam(
            self.critics.parameters(), lr=s.disc_lr, betas=(0.5, 0.999), eps=6.25e-10
        )

        def growth(step):
            return min((step + s.warmup_from) / s.warmup, 1)

        optimisers = self.optimiser, self.critic_optimiser
        self.schedules = [torch.optim.lr_scheduler.LambdaLR(each, growth) for each in optimisers]

    def step(self, x, y):
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
        for (name, real, fake), critic in zip(contests, self.critics, strict=True):
            errors = (critic(real.detach()) ** 2).mean() + ((critic(fake.detach()) - 1) ** 2).mean()
            found[f"discriminator_{name}"] = errors / 2
        self.critic_optimiser.zero_grad()
        sum(found.values()).backward()
        for critic in self.critics:
            nn.utils.clip_grad_norm_(critic.parameters(), s.max_grad_norm)
        self.critic_optimiser.step()
        for (name, _, fake), critic in zip(contests, self.critics, strict=True):
            found[f"generator_{name}"] = (critic(fake) ** 2).mean() / 2
        for error, vsp, back_x, back_y in (("reconstruction", "vsp", rx, ry), ("cycle", "cycle_vsp", cx, cy)):
            found[error] = 1 - (cosine_similarity(x, back_x).mean() + cosine_similarity(y, back_y).mean()) / 2
            found[vsp] = (gram_difference(x, back_x) + gram_difference(y, back_y)) / 2
        weights = {"reconstruction": s.rec_weight, "cycle": s.cycle_weight, "vsp": s.vsp_weight}
        weights |= {"cycle_vsp": s.cycle_vsp_weight, "generator_latent": s.latent_gan_weight}
        weights |= {"generator_source": s.gan_weight, "generator_target": s.gan_weight}
        total = sum(weight * found[name] for name, weight in weights.items())
        self.optimiser.zero_grad()
        total.backward()
        nn.utils.clip_grad_norm_(self.translator.parameters(), s.max_grad_norm)
        self.optimiser.step()
        for schedule in self.schedules:
            schedule.step()
        found["translator"] = total
        return {f"loss/{name}": loss.item() for name, loss in found.items()}
