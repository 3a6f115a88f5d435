"""One training step of vec2vec: passes through the networks, losses, and the two updates."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pipelines.aligners.core.aligner import Pair
from pipelines.aligners.vec2vec import losses
from pipelines.aligners.vec2vec.graph import Replayed
from pipelines.aligners.vec2vec.networks import Discriminator, Tied, Vec2Vec
from pipelines.aligners.vec2vec.settings import Settings
from pipelines.runtime.device import random_states, restore_random_states
from pipelines.runtime.errors import BadInput

LATENT = ("latent", "latent_back")  # discriminators of latents; the others have their encoder's name
ORTHONORMAL = 0.3  # last fraction of the steps in which damping also pulls towards orthonormal rows
INVERSE_TEMPERATURE = 30.0  # sharpness of couplings in the transport loss

Weighted = dict[str, tuple[Tensor, float]]  # a loss and its weight, by name


@dataclass
class Pass:
    """One batch through the networks, by encoder or by ordered pair of encoders. Letters: see networks.py."""

    x: dict[str, Tensor]  # (b, d)
    latents: dict[str, Tensor]  # T A x, (b, width)
    reconstructions: dict[str, Tensor]  # R x, in the encoder's own space
    translations: dict[Pair, Tensor]  # F x of the first encoder, in the space of the second
    cycles: dict[Pair, Tensor]  # F F x, back in the space of the first encoder


class Training:
    """Hold translator, discriminators and their optimisers. `step` trains on one batch.

    Every ordered pair of encoders is trained. With `learning`, only pairs with one of these encoders are
    trained, and all other encoders are frozen. For the discriminator `latent`, latents of the `real` encoders
    are real: those of the first encoder, or of all frozen ones.
    """

    def __init__(
        self, model: Vec2Vec, dims: dict[str, int], settings: Settings, learning: Sequence[str] = ()
    ) -> None:
        self.settings, self.model, self.dims = settings, model, dims
        self.of_paper = settings.objective == "paper"
        self.learning = tuple(learning) or tuple(dims)
        self.pairs = [pair for pair in permutations(dims, 2) if set(pair) & set(self.learning)]
        self.real = [name for name in dims if name not in self.learning] or list(dims)[:1]
        self.device = next(model.parameters()).device
        self.as_graph = settings.graph and self.device.type == "cuda"
        # One discriminator per encoder and one of latents. The paper has two of latents: for the second, real
        # and fake are exchanged
        latent = LATENT if self.of_paper else LATENT[:1]
        weights = dict.fromkeys(dims, settings.gan_weight) | dict.fromkeys(latent, settings.latent_gan_weight)
        self.gan_weights = {name: weight for name, weight in weights.items() if weight}
        sizes = {name: dims.get(name, settings.width) for name in self.gan_weights}
        depth, width = settings.disc_depth, settings.disc_width
        each = {name: Discriminator(depth, size, width) for name, size in sizes.items()}
        self.discriminators = nn.ModuleDict(each).to(self.device)
        self.optimiser, self.disc_optimiser = self._new_optimisers()
        self.done = 0  # steps
        self.names: list[str] = []  # names of the metrics of a step
        self.unread: list[Tensor] = []  # metrics (m,) of the steps since the last `check`
        self.seen: dict[str, float] = {}  # metrics of the last step that `check` has read
        self.limit_axes(None, INVERSE_TEMPERATURE)

    def step(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """Update the discriminators, then the translator. x: prepared rows (b, d) of each encoder.

        Returns losses, accuracies, spreads of logits and gradient norms before clipping, as scalars on the
        device. A step never synchronises with the host: `check` looks at the metrics later.
        """
        s = self.settings
        factor = s.warmed_up(self.done)
        self._set_rate(self.optimiser, s.lr * factor)
        self._set_rate(self.disc_optimiser, s.disc_lr * factor)
        metrics = self.replayed(self._update, x) if self.replayed else self._update(x)
        self._damp_singular_values()
        self.unread.append(metrics)  # to be read later
        self.done += 1
        return dict(zip(self.names, metrics, strict=True))

    def _update(self, x: dict[str, Tensor]) -> Tensor:
        """Compute a step's passes and losses, and update the networks. Returns the metrics `names` (m,)."""
        if self.as_graph:  # `capturable` only while recording: else torch warns
            for optimiser in (self.optimiser, self.disc_optimiser):
                optimiser.param_groups[0]["capturable"] = torch.cuda.is_current_stream_capturing()
        # 1. All passes through the networks
        with self._autocast():
            outputs = self.forward({name: first_columns(rows, self.model.axes) for name, rows in x.items()})
        # 2. The discriminators, on detached vectors
        metrics = self._update_discriminators(outputs)
        # 3. The translator
        metrics |= self._update_translator(outputs)
        self.names = list(metrics)
        return torch.stack(list(metrics.values()))

    def _set_rate(self, optimiser: torch.optim.Optimizer, rate: float) -> None:
        group = optimiser.param_groups[0]
        if not self.as_graph:
            group["lr"] = rate
        elif isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)  # a graph reads it from there
        else:
            group["lr"] = torch.tensor(rate, device=self.device)

    def forward(self, x: dict[str, Tensor]) -> Pass:
        """Compute everything that the losses need. Each input passes A and T once."""
        s, model = self.settings, self.model
        latents, reconstructions, translations, cycles = {}, {}, {}, {}
        for name, rows in x.items():
            latents[name] = model.encode(rows, name)
            if (s.rec_weight or s.vsp_weight) and name in self.learning:
                reconstructions[name] = model.decode(latents[name], name)
            for source, target in self.pairs:
                if source == name:
                    translations[source, target] = model.decode(latents[name], target)
        if s.cycle_weight or s.cycle_vsp_weight:
            for source, target in self.pairs:
                moved = translations[source, target]
                latent = model.encode(moved if self.of_paper else moved.detach(), target)
                cycles[source, target] = model.decode(latent, source)
                if not self.of_paper:
                    model.update_statistics(latent, target)
        return Pass(x, latents, reconstructions, translations, cycles)

    def discriminator_losses(self, outputs: Pass) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the total loss of all discriminators, and metrics of each."""
        gan, swapped = self.settings.gan, not self.of_paper
        total, metrics = torch.zeros((), device=self.device), {}
        for name, (real, fake) in self._real_and_fake(outputs).items():
            with self._autocast():
                logits = self.discriminators[name](torch.cat([real, fake]).detach())
            real, fake = logits.split([len(real), len(fake)])
            loss = losses.discriminator_loss(real, fake, gan, swapped)
            total = total + loss
            metrics[f"loss/discriminator_{name}"] = loss.detach()
            metrics[f"accuracy/{name}"] = losses.accuracy(real, fake, gan, swapped)
            metrics[f"spread/{name}"] = logits.detach().std()
        return total, metrics

    def translator_losses(self, outputs: Pass) -> Weighted:
        """Return all losses of the translator."""
        s, weighted = self.settings, self.geometry_losses(outputs)
        for name, (_, fake) in self._real_and_fake(outputs).items():
            with self._autocast():
                logits = self.discriminators[name](fake)
            loss = losses.generator_loss(logits, s.gan, swapped=not self.of_paper)
            weighted[f"generator_{name}"] = loss, self.gan_weights[name]
        if s.transport_weight:
            moves = [(moved, outputs.x[target]) for (_, target), moved in outputs.translations.items()]
            each = [losses.transport_loss(moved, y, self.inverse_temperature) for moved, y in moves]
            weighted["transport"] = torch.stack(each).mean(), s.transport_weight
        return weighted

    def geometry_losses(self, outputs: Pass) -> Weighted:
        """Return reconstruction, cycle consistency and vector space preservation (VSP)."""
        s, x = self.settings, outputs.x
        own = list(outputs.reconstructions.items())
        moved = [(source, y) for (source, _), y in outputs.translations.items()]
        cycled = [(source, y) for (source, _), y in outputs.cycles.items()]

        def total(loss: Callable[..., Tensor], couples: list[tuple[str, Tensor]]) -> Tensor:
            each = torch.stack([loss(x[name], y, s.objective) for name, y in couples])
            return each.sum() if self.of_paper else each.mean()

        weighted: Weighted = {}
        if s.rec_weight:
            weighted["reconstruction"] = total(losses.error, own), s.rec_weight
        if s.cycle_weight:
            weighted["cycle"] = total(losses.error, cycled), s.cycle_weight
        if s.vsp_weight:
            weighted["vsp"] = total(losses.preservation, moved if self.of_paper else own), s.vsp_weight
        if s.cycle_vsp_weight:
            weighted["cycle_vsp"] = total(losses.preservation, cycled), s.cycle_vsp_weight
        return weighted

    def limit_axes(self, axes: int | None, inverse_temperature: float) -> None:
        """Train on the first `axes` columns (None: all), with this inverse temperature of transport.

        A recorded step is discarded, because it holds the old values.
        """
        self.model.axes, self.inverse_temperature = axes, inverse_temperature
        self.replayed = Replayed(self.device) if self.as_graph else None

    def check(self) -> None:
        """Read the metrics of all steps since the last call, in one transfer from the device.

        Raises BadInput with the first step that has a number that is not finite.
        """
        read = torch.stack(self.unread).tolist() if self.unread else []
        self.unread = []
        for step, values in enumerate(read, self.done - len(read)):
            self.seen = dict(zip(self.names, values, strict=True))
            for name, value in self.seen.items():
                if not math.isfinite(value):
                    raise BadInput(
                        f"vec2vec: step {step}: {name} is {value}; a lower lr or max_grad_norm may help"
                    )

    def state(self) -> dict[str, Any]:
        """Return all that the next step depends on, with torch's random state. Raises BadInput as `check`."""
        self.check()
        states = {name: part.state_dict() for name, part in self._parts().items()}
        return states | {"random": random_states(self.device), "done": self.done}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` returned. Call it before the first step."""
        for name, part in self._parts().items():
            part.load_state_dict(state[name])
        self.done = state["done"]
        restore_random_states(state["random"], self.device)

    def _parts(self) -> dict[str, Any]:
        names = ("model", "discriminators", "optimiser", "disc_optimiser")
        return {name: getattr(self, name) for name in names}

    def _new_optimisers(self) -> tuple[torch.optim.Optimizer, torch.optim.Optimizer]:
        """Return the optimisers of translator and discriminators, with the official code's constants."""
        s, adam = self.settings, {"betas": (0.5, 0.999), "fused": True}
        if s.optimiser == "sgd":
            optimiser = torch.optim.SGD(self.model.parameters(), lr=s.lr, momentum=0.5)
        else:
            optimiser = torch.optim.Adam(self.model.parameters(), lr=s.lr, **adam)
        group = {"params": list(self.discriminators.parameters())}  # a group may be empty: transport alone
        return optimiser, torch.optim.Adam([group], lr=s.disc_lr, eps=6.25e-10, **adam)

    def _update_discriminators(self, outputs: Pass) -> dict[str, Tensor]:
        if not self.discriminators:
            return {}
        self.discriminators.requires_grad_(True)
        total, metrics = self.discriminator_losses(outputs)
        self.disc_optimiser.zero_grad()
        total.backward()
        for name, discriminator in self.discriminators.items():
            metrics[f"gradient/discriminator_{name}"] = self._clip(discriminator)
        self.disc_optimiser.step()
        self.discriminators.requires_grad_(False)  # the translator's gradients pass through them
        return metrics

    def _update_translator(self, outputs: Pass) -> dict[str, Tensor]:
        weighted = self.translator_losses(outputs)
        total = torch.stack([loss * weight for loss, weight in weighted.values()]).sum()
        self.optimiser.zero_grad()
        total.backward()
        metrics = {f"loss/{name}": loss.detach() for name, (loss, _) in weighted.items()}
        metrics |= {"loss/translator": total.detach(), "gradient/translator": self._clip(self.model)}
        self.optimiser.step()
        return metrics

    def _real_and_fake(self, outputs: Pass) -> dict[str, tuple[Tensor, Tensor]]:
        """Return real and fake rows of each discriminator; all translations into a space are fake rows."""
        sides_of = {}
        for name, rows in outputs.x.items():
            fake = [moved for (_, target), moved in outputs.translations.items() if target == name]
            sides_of[name] = rows, torch.cat(fake)
        real = torch.cat([latent for name, latent in outputs.latents.items() if name in self.real])
        fake = torch.cat([latent for name, latent in outputs.latents.items() if name not in self.real])
        sides_of |= {"latent": (real, fake), "latent_back": (fake, real)}
        return {name: sides for name, sides in sides_of.items() if name in self.discriminators}

    def _clip(self, module: nn.Module) -> Tensor:
        return nn.utils.clip_grad_norm_(module.parameters(), self.settings.max_grad_norm, foreach=True)

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16")

    def _damp_singular_values(self) -> None:
        rate, axes = self.settings.damping, self.model.axes
        late = self.done >= (1 - ORTHONORMAL) * (self.settings.steps or 0)
        for module in self.model.modules() if rate else ():
            if isinstance(module, Tied) and module.weight.requires_grad:
                module.damp_singular_values(rate, orthonormal=axes is None and late, axes=axes)


def first_columns(rows: Tensor, axes: int | None) -> Tensor:
    """Return the first `axes` columns of unit rows, made unit again; None: all columns."""
    return rows if axes is None else normalize(rows[:, :axes], dim=1)
