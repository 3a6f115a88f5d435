"""One training step of vec2vec: its settings, the passes through the networks, the losses, the two updates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pipelines.aligners.vec2vec import losses
from pipelines.aligners.vec2vec.networks import Discriminator, Norm, Tied, Vec2Vec
from pipelines.runtime.errors import BadInput
from pipelines.runtime.settings import check_settings


@dataclass(frozen=True)
class Recipe:
    """What a step does. The defaults are the released configuration of the official code, which made the published numbers.

    Where the paper says otherwise the comment names its value; `recipe: paper` sets them all. The code trains in float16 with a
    loss scaler; bf16 takes its place here, which needs none.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    recipe: Literal["released", "paper", "multistart"] = "released"  # see recipes.py
    # networks
    width: int = 1024
    adapter_depth: int = 3
    backbone_depth: int = 4
    norm: Norm = "batch"
    dropout: float = 0.1  # paper: none is mentioned
    disc_width: int = 1024
    disc_depth: int = 5
    spectral: bool = False  # spectral norm in discriminators: earlier versions of the code
    # losses
    gan: losses.Gan = "least_squares"
    swapped_labels: bool = True  # code: real is 0, fake is 1; paper: False. The game is symmetric, its start is not
    label_smoothing: float = 0.9  # vanilla only
    latent_discriminators: Literal["one", "both"] = "one"  # code: source latents are real, target latents fake; paper: both ways
    error: losses.Error = "cosine"  # reconstruction and cycle; paper: squared
    vsp: losses.Vsp = "absolute"  # paper: squared
    vsp_of: Literal["reconstructions", "translations"] = "reconstructions"  # paper: translations
    vsp_reflected: bool = True  # code; paper: no such term. Never on translations, which lie in another space
    detach_cycle: bool = True  # code: only the second translation learns from the cycle; paper: both
    reduction: Literal["mean", "sum"] = "mean"  # of reconstruction, cycle and VSP over the two encoders; paper: sum
    rec_weight: float = 1.0
    vsp_weight: float = 1.0
    cycle_weight: float = 10.0
    cycle_vsp_weight: float = 10.0  # VSP between a batch and its cycle: code; paper: 0
    gan_weight: float = 1.0
    latent_gan_weight: float = 1.0
    gradient_penalty: float = 0.0  # R1 + R2 on discriminators: in the code, as sums over the batch, but 0 in its configuration
    transport_weight: float = 0.0  # entropic optimal transport from translations to the batch, beside the generator; ours
    # inverse temperature of the transport: in the first round of `starts`, after the last (and without `starts`)
    transport_inverse_temperature: tuple[float, float] = (12.0, 30.0)
    noise: float = 0.0  # standard deviation of what discriminators see added, falling to 0 at the last step; ours
    # training
    steps: int | None = None  # None: as many as `epochs` are
    epochs: int = 80  # passes through the smaller side, about 312,000 steps of 1,000,000 vectors
    batch: int = 256
    lr: float = 2e-5
    disc_lr: float = 1e-5
    warmup: int = 2000  # steps of linear growth of both rates
    warmup_from: int = 0  # the first step's place in that growth; code: 0, a first step at rate 0
    max_grad_norm: float = 1000.0  # of the translator, and of each discriminator; earlier configurations of the code: 10
    # output adapters' batch norms see the reconstruction of each translation too: the code makes it, for a loss of weight 0
    cycle_statistics: bool = True  # paper: no such pass
    optimiser: Literal["adam", "sgd"] = "adam"  # of the translator; sgd, with momentum 0.5: sure directions move first; ours
    damping: float = 0.0  # of `adapter_depth: 0`, after each update: see `Tied.damp`; ours
    straight: float = 0.3  # share of the steps, the last, in which damping is towards orthonormal rows; MUSE: 1, at 0.01
    ema: float = 0.0  # weights' moving average, which is then what is judged and returned; ours
    precision: Literal["float32", "bf16"] = "float32"
    collapse_steps: int = 500  # steps that a discriminator may be constant or beyond doubt

    def __post_init__(self) -> None:
        ones = ("width", "disc_width", "disc_depth", "collapse_steps")
        weights = [name for name in asdict(self) if name.endswith("_weight")]
        least = dict.fromkeys(ones, 1) | {"batch": 2}
        least |= dict.fromkeys((*weights, "adapter_depth", "backbone_depth", "damping"), 0)
        least |= dict.fromkeys(("steps", "epochs", "lr", "disc_lr", "warmup", "warmup_from", "gradient_penalty", "noise"), 0)
        self._at_least(least)
        if not 0 < min(self.transport_inverse_temperature) <= max(self.transport_inverse_temperature) <= 80:
            raise ValueError(f"transport_inverse_temperature: {self.transport_inverse_temperature} must be in (0, 80]")
        if not self.gan_weight + self.latent_gan_weight + self.transport_weight > 0:
            raise ValueError("gan_weight, latent_gan_weight and transport_weight: at least one of them must be more than 0")
        if not self.max_grad_norm > 0:
            raise ValueError(f"max_grad_norm: {self.max_grad_norm} must be positive")
        if not 0 <= self.straight <= 1:
            raise ValueError(f"straight: {self.straight} must be in [0, 1]")
        for name in ("dropout", "ema"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}: {getattr(self, name)} must be in [0, 1)")
        if not 0.5 < self.label_smoothing <= 1:
            raise ValueError(f"label_smoothing: {self.label_smoothing} must be in (0.5, 1]")

    def growth(self, step: int) -> float:
        """The share of both learning rates that step number `step`, the first is 0, is taken at."""
        return min(1.0, (step + self.warmup_from) / self.warmup) if self.warmup else 1.0

    def _at_least(self, least: Mapping[str, float]) -> None:
        check_settings(self, least)


@dataclass
class Pass:
    """One batch through the translator; x and all the rest by encoder: {"source": (b, d), "target": (b, e)}."""

    x: dict[str, Tensor]
    latents: dict[str, Tensor]  # T A x, (b, width)
    reconstructions: dict[str, Tensor]  # R x, in the encoder's own space
    translations: dict[str, Tensor]  # F x, in the space of the encoder that names it, made from the other
    cycles: dict[str, Tensor]  # F F x, back in the encoder's own space


def leading(rows: Tensor, axes: int | None) -> Tensor:
    """The first `axes` columns of unit rows, made unit again; None: as they are."""
    return rows if axes is None else normalize(rows[:, :axes], dim=1)


OTHER = {"source": "target", "target": "source"}


class Training:
    """The state of a run: translator, discriminators, their optimisers, moving average; `step` moves it on by one batch."""

    def __init__(self, model: Vec2Vec, dims: dict[str, int], settings: Recipe) -> None:
        self.settings, self.model = settings, model
        device = next(model.parameters()).device
        sizes = dims | {"latent": settings.width}
        if settings.latent_discriminators == "both":
            sizes["latent_back"] = settings.width
        depth, width, spectral = settings.disc_depth, settings.disc_width, settings.spectral
        weighed = {name: size for name, size in sizes.items() if self._weight(name)}
        discriminators = {name: Discriminator(depth, size, width, spectral) for name, size in weighed.items()}
        self.discriminators = nn.ModuleDict(discriminators).to(device)
        adam: dict[str, Any] = {"betas": (0.5, 0.999), "fused": True}  # both rates and both epsilons: code
        self.optimiser: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr, **adam)
        if settings.optimiser == "sgd":
            self.optimiser = torch.optim.SGD(model.parameters(), lr=settings.lr, momentum=0.5)
        group = {"params": list(self.discriminators.parameters())}  # may be empty: transport alone
        self.disc_optimiser = torch.optim.Adam([group], lr=settings.disc_lr, eps=6.25e-10, **adam)
        self.average = copy.deepcopy(model).requires_grad_(False) if settings.ema else model
        self.inverse_temperature = settings.transport_inverse_temperature[1]
        self.done = 0  # steps
        self.doubtful = dict.fromkeys(discriminators, 0)  # steps in a row that a discriminator looked collapsed
        self.unread: list[dict[str, Tensor]] = []  # metrics of the last steps, which `check` has not seen

    def step(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """One update of the discriminators, then one of the translator. x: {"source": (b, d), "target": (b, e)}, prepared.

        Returns scalars: each loss, each discriminator's accuracy and spread of logits, gradient norms before clipping. Nothing
        has waited for them: whether they are good, `check` says.
        """
        growth = self.settings.growth(self.done)
        self.optimiser.param_groups[0]["lr"] = self.settings.lr * growth
        self.disc_optimiser.param_groups[0]["lr"] = self.settings.disc_lr * growth
        with self._autocast():
            outputs = self.forward({name: leading(rows, self.model.axes) for name, rows in x.items()})
        metrics = self.discriminate(outputs)
        metrics |= self.translate(outputs)
        self.optimiser.step()
        if self.settings.damping:
            for module in self.model.modules():
                if isinstance(module, Tied) and module.weight.requires_grad:
                    module.damp(self.settings.damping, self._straight, self.model.axes)
        self._update_ema()
        self.done += 1
        self.unread.append(metrics)
        return metrics

    def forward(self, x: dict[str, Tensor]) -> Pass:
        """Everything the losses need; each input goes through A and T once."""
        model, s, latents, same, moved, cycles = self.model, self.settings, {}, {}, {}, {}
        for name in x:
            latents[name] = model.encode(x[name], name)
            if s.rec_weight or s.vsp_weight:
                same[name] = model.decode(latents[name], name)
            moved[OTHER[name]] = model.decode(latents[name], OTHER[name])
        held = {n: v.detach() for n, v in moved.items()} if s.detach_cycle else moved
        if s.cycle_weight or s.cycle_vsp_weight:
            for name, other in OTHER.items():
                latent = model.encode(held[other], other)
                cycles[name] = model.decode(latent, name)
                if s.cycle_statistics:
                    model.observe(latent, other)
        return Pass(x, latents, same, moved, cycles)

    def discriminate(self, outputs: Pass) -> dict[str, Tensor]:
        """Update every discriminator on detached vectors."""
        s, total, metrics = self.settings, torch.zeros((), device=outputs.x["source"].device), {}
        if not self.discriminators:
            return metrics
        self.discriminators.requires_grad_(True)
        for name, (real, fake) in self._contests(outputs).items():
            both = self._noised(torch.cat([real, fake]).detach()).requires_grad_(s.gradient_penalty > 0)
            with self._autocast():
                logits = self.discriminators[name](both)  # real and fake in one product: rows are independent
            real, fake = logits.chunk(2)
            loss = losses.discriminator_loss(real, fake, s.gan, s.swapped_labels, s.label_smoothing)
            total = total + loss
            metrics[f"loss/discriminator_{name}"] = loss.detach()
            if s.gradient_penalty > 0:
                total = total + s.gradient_penalty * losses.gradient_penalty(logits, both)
            metrics[f"accuracy/{name}"] = losses.accuracy(real, fake, s.gan, s.swapped_labels)
            metrics[f"spread/{name}"] = logits.detach().std()
        self.disc_optimiser.zero_grad()
        total.backward()
        for name, discriminator in self.discriminators.items():
            metrics[f"gradient/discriminator_{name}"] = self._clip(discriminator)
        self.disc_optimiser.step()
        self.discriminators.requires_grad_(False)  # the translator's losses pass through them
        return metrics

    def translate(self, outputs: Pass) -> dict[str, Tensor]:
        """The translator's losses and their gradients, clipped."""
        s = self.settings
        weighted = self.geometry(outputs)
        for name, (real, fake) in self._contests(outputs).items():
            rows = torch.cat([real, fake]) if s.gan == "relativistic" else fake
            with self._autocast():
                logits = self.discriminators[name](self._noised(rows))
            real, fake = logits.chunk(2) if s.gan == "relativistic" else (logits, logits)
            loss = losses.generator_loss(real, fake, s.gan, s.swapped_labels)
            weighted[f"generator_{name}"] = (loss, self._weight(name))
        if s.transport_weight:
            each = [
                losses.transport(outputs.translations[name], rows, self.inverse_temperature) for name, rows in outputs.x.items()
            ]
            weighted["transport"] = (torch.stack(each).mean(), s.transport_weight)
        total = torch.stack([loss * weight for loss, weight in weighted.values()]).sum()
        self.optimiser.zero_grad()
        total.backward()
        metrics = {f"loss/{name}": loss.detach() for name, (loss, _) in weighted.items()}
        return metrics | {"loss/translator": total.detach(), "gradient/translator": self._clip(self.model)}

    def geometry(self, outputs: Pass) -> dict[str, tuple[Tensor, float]]:
        """Reconstruction, cycle consistency and vector space preservation: (loss, weight) by name."""
        s, x = self.settings, outputs.x
        same = s.vsp_of == "reconstructions"
        kept = outputs.reconstructions if same else {name: outputs.translations[OTHER[name]] for name in x}

        def over_encoders(loss: Callable[[str], Tensor]) -> Tensor:
            each = torch.stack([loss(name) for name in x])
            return each.mean() if s.reduction == "mean" else each.sum()

        def vsp(y: dict[str, Tensor], reflected: bool) -> Tensor:
            return over_encoders(lambda name: losses.preservation(x[name], y[name], s.vsp, reflected))

        def error(y: dict[str, Tensor]) -> Tensor:
            return over_encoders(lambda name: losses.error(x[name], y[name], s.error))

        terms = {
            "reconstruction": (lambda: error(outputs.reconstructions), s.rec_weight),
            "cycle": (lambda: error(outputs.cycles), s.cycle_weight),
            "vsp": (lambda: vsp(kept, s.vsp_reflected and same), s.vsp_weight),
            "cycle_vsp": (lambda: vsp(outputs.cycles, s.vsp_reflected), s.cycle_vsp_weight),
        }
        return {name: (loss(), weight) for name, (loss, weight) in terms.items() if weight}

    def _contests(self, outputs: Pass) -> dict[str, tuple[Tensor, Tensor]]:
        """(real, fake) of each discriminator."""
        contests = {name: (outputs.x[name], outputs.translations[name]) for name in outputs.x}
        contests["latent"] = (outputs.latents["source"], outputs.latents["target"])
        if "latent_back" in self.discriminators:
            contests["latent_back"] = (outputs.latents["target"], outputs.latents["source"])
        return {name: sides for name, sides in contests.items() if self._weight(name)}

    def _weight(self, discriminator: str) -> float:
        return self.settings.latent_gan_weight if discriminator.startswith("latent") else self.settings.gan_weight

    @property
    def _straight(self) -> bool:
        return self.model.axes is None and self.done >= (1 - self.settings.straight) * (self.settings.steps or 0)

    def narrow(self, axes: int | None, inverse_temperature: float) -> None:
        """From now on only the first `axes` columns count (None: all), and transport has this inverse temperature."""
        self.model.axes = self.average.axes = axes
        self.inverse_temperature = inverse_temperature

    def _autocast(self) -> torch.autocast:
        device = next(self.model.parameters()).device.type
        return torch.autocast(device, torch.bfloat16, enabled=self.settings.precision == "bf16")

    def _noised(self, x: Tensor) -> Tensor:
        left = self.settings.noise * max(0.0, 1 - self.done / max(self.settings.steps or 0, 1))
        return x + left * torch.randn_like(x) if left else x

    def _clip(self, module: nn.Module) -> Tensor:
        return nn.utils.clip_grad_norm_(module.parameters(), self.settings.max_grad_norm, foreach=True)

    @torch.no_grad()
    def _update_ema(self) -> None:
        if self.average is self.model:
            return
        keep = min(self.settings.ema, (1 + self.done) / (10 + self.done))  # a short memory while there is little to remember
        for old, new in zip(self.average.parameters(), self.model.parameters(), strict=True):
            old.lerp_(new, 1 - keep)
        for old, new in zip(self.average.buffers(), self.model.buffers(), strict=True):
            old.copy_(new)

    def check(self) -> None:
        """Read the metrics of all steps since the last check, in one transfer: at every step it would stop the device.

        Raises BadInput, naming the first bad step and its loss, for what is not finite or a discriminator that collapsed.
        """
        if not self.unread:
            return
        read = torch.stack([torch.stack(list(metrics.values())) for metrics in self.unread]).tolist()
        for step, values in enumerate(read, self.done - len(read)):
            self._check(step, dict(zip(self.unread[0], values, strict=True)))
        self.unread = []

    def _check(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            if not abs(value) < float("inf"):
                raise BadInput(f"vec2vec: step {step}: {name} is {value}; a lower lr or max_grad_norm may help")
        for name in self.doubtful:
            spread, loss = values[f"spread/{name}"], values[f"loss/discriminator_{name}"]
            self.doubtful[name] = self.doubtful[name] + 1 if min(spread, loss) < 1e-6 else 0
            if self.doubtful[name] >= self.settings.collapse_steps:
                raise BadInput(
                    f"vec2vec: step {step}: discriminator {name} has collapsed: for {self.doubtful[name]} steps "
                    f"loss/discriminator_{name} {loss:.3g}, spread of logits {spread:.3g}"
                )

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, the global random state included. Raises BadInput as `check` does."""
        self.check()
        parts = ("model", "discriminators", "optimiser", "disc_optimiser", "average")
        states: dict[str, Any] = {name: getattr(self, name).state_dict() for name in parts}
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
        return states | {"done": self.done, "doubtful": self.doubtful, "random": torch.get_rng_state(), "cuda": cuda}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` gave."""
        for name in ("model", "discriminators", "optimiser", "disc_optimiser", "average"):
            getattr(self, name).load_state_dict(state[name])
        self.done, self.doubtful = state["done"], dict(state["doubtful"])
        torch.set_rng_state(state["random"].cpu())
        if state["cuda"]:
            torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])
