"""One training step of vec2vec: its settings, the passes through the networks, the losses, the two updates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import permutations
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
    swapped_labels: bool = (
        True  # code: real is 0, fake is 1; paper: False. The game is symmetric, its start is not
    )
    label_smoothing: float = 0.9  # vanilla only
    latent_discriminators: Literal["one", "both"] = (
        "one"  # code: source latents are real, target latents fake; paper: both ways
    )
    error: losses.Error = "cosine"  # reconstruction and cycle; paper: squared
    vsp: losses.Vsp = "absolute"  # paper: squared
    vsp_of: Literal["reconstructions", "translations"] = "reconstructions"  # paper: translations
    vsp_reflected: bool = True  # code; paper: no such term. Never on translations, which lie in another space
    detach_cycle: bool = True  # code: only the second translation learns from the cycle; paper: both
    reduction: Literal["mean", "sum"] = (
        "mean"  # of reconstruction, cycle and VSP over the encoders or pairs; paper: sum
    )
    rec_weight: float = 1.0
    vsp_weight: float = 1.0
    cycle_weight: float = 10.0
    cycle_vsp_weight: float = 10.0  # VSP between a batch and its cycle: code; paper: 0
    gan_weight: float = 1.0
    latent_gan_weight: float = 1.0
    gradient_penalty: float = (
        0.0  # R1 + R2 on discriminators: in the code, as sums over the batch, but 0 in its configuration
    )
    transport_weight: float = (
        0.0  # entropic optimal transport from translations to the batch, beside the generator; ours
    )
    # inverse temperature of the transport: in the first round of `starts`, after the last (and without `starts`)
    transport_inverse_temperature: tuple[float, float] = (12.0, 30.0)
    noise: float = (
        0.0  # standard deviation of what discriminators see added, falling to 0 at the last step; ours
    )
    # training
    steps: int | None = None  # None: as many as `epochs` are
    epochs: int = 80  # passes through the smaller side, about 312,000 steps of 1,000,000 vectors
    batch: int = 256
    lr: float = 2e-5
    disc_lr: float = 1e-5
    warmup: int = 2000  # steps of linear growth of both rates
    warmup_from: int = 0  # the first step's place in that growth; code: 0, a first step at rate 0
    max_grad_norm: float = (
        1000.0  # of the translator, and of each discriminator; earlier configurations of the code: 10
    )
    # output adapters' batch norms see the reconstruction of each translation too: the code makes it, for a loss of weight 0
    cycle_statistics: bool = True  # paper: no such pass
    optimiser: Literal["adam", "sgd"] = (
        "adam"  # of the translator; sgd, with momentum 0.5: sure directions move first; ours
    )
    damping: float = 0.0  # of `adapter_depth: 0`, after each update: see `Tied.damp`; ours
    straight: float = (
        0.3  # share of the steps, the last, in which damping is towards orthonormal rows; MUSE: 1, at 0.01
    )
    ema: float = 0.0  # weights' moving average, which is then what is judged and returned; ours
    precision: Literal["float32", "bf16"] = "float32"
    tf32: bool = (
        True  # on CUDA, of float32: factors of products are rounded to 11 bits, which is what float16 has
    )
    step: Literal["auto", "plain", "graph", "compiled"] = (
        "auto"  # how a step runs, see graph.py: its losses are the same
    )
    collapse_steps: int = 500  # steps that a discriminator may be constant or beyond doubt

    def __post_init__(self) -> None:
        ones = ("width", "disc_width", "disc_depth", "collapse_steps")
        weights = [name for name in asdict(self) if name.endswith("_weight")]
        least = dict.fromkeys(ones, 1) | {"batch": 2}
        least |= dict.fromkeys((*weights, "adapter_depth", "backbone_depth", "damping"), 0)
        least |= dict.fromkeys(
            ("steps", "epochs", "lr", "disc_lr", "warmup", "warmup_from", "gradient_penalty", "noise"), 0
        )
        self._at_least(least)
        if not 0 < min(self.transport_inverse_temperature) <= max(self.transport_inverse_temperature) <= 80:
            raise ValueError(
                f"transport_inverse_temperature: {self.transport_inverse_temperature} must be in (0, 80]"
            )
        if not self.gan_weight + self.latent_gan_weight + self.transport_weight > 0:
            raise ValueError(
                "gan_weight, latent_gan_weight and transport_weight: at least one of them must be more than 0"
            )
        if not self.max_grad_norm > 0:
            raise ValueError(f"max_grad_norm: {self.max_grad_norm} must be positive")
        if not 0 <= self.straight <= 1:
            raise ValueError(f"straight: {self.straight} must be in [0, 1]")
        if self.step == "compiled" and self.gradient_penalty:
            raise ValueError(
                "step: compiled has no derivative of a derivative: take step: graph with gradient_penalty"
            )
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


Pair = tuple[str, str]


@dataclass
class Pass:
    """One batch through the networks: by encoder, {"source": (b, d), "target": (b, e)}, or by ordered pair of encoders."""

    x: dict[str, Tensor]
    latents: dict[str, Tensor]  # T A x, (b, width)
    reconstructions: dict[str, Tensor]  # R x, in the encoder's own space
    translations: dict[Pair, Tensor]  # F x of the pair's first encoder, in the space of its second
    cycles: dict[Pair, Tensor]  # F F x, back in the space of the pair's first encoder


@dataclass(frozen=True)
class Scheduled:
    """What changes from step to step: numbers, or tensors without dimensions where a graph must read them from the device."""

    lr: float | Tensor
    disc_lr: float | Tensor
    noise: float | Tensor  # standard deviation
    new: float | Tensor  # weight of the new weights in the moving average
    straight: float | Tensor  # 1 where damping is towards orthonormal rows, else 0


def stacked(parts: list[Tensor]) -> Tensor:
    """Rows below rows; of one part itself, not a copy."""
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def leading(rows: Tensor, axes: int | None) -> Tensor:
    """The first `axes` columns of unit rows, made unit again; None: as they are."""
    return rows if axes is None else normalize(rows[:, :axes], dim=1)


LATENT = ("latent", "latent_back")


@contextmanager
def tf32(on: bool) -> Iterator[None]:
    """Products of float32 matrices on CUDA in TF32 within the block."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if on else before)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Training:
    """The state of a run: translator, discriminators, their optimisers, moving average; `step` moves it on by one batch.

    Every ordered pair of encoders is trained, or with `learning` those that one of these encoders is part of: the others are
    held as they are. Latents of `real` encoders are what the others' are to look like: the first one, or all that are held.
    """

    def __init__(
        self, model: Vec2Vec, dims: dict[str, int], settings: Recipe, learning: Sequence[str] = ()
    ) -> None:
        self.settings, self.model = settings, model
        self.learning = tuple(learning) or tuple(dims)
        self.pairs: list[Pair] = [pair for pair in permutations(dims, 2) if set(pair) & set(self.learning)]
        self.real = [name for name in dims if name not in self.learning] or list(dims)[:1]
        self.device = device = next(model.parameters()).device
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
        self.doubtful = dict.fromkeys(
            discriminators, 0
        )  # steps in a row that a discriminator looked collapsed
        self.now = self.scheduled(0)
        self.names: list[str] = []  # of a step's metrics
        self.unread: list[Tensor] = []  # metrics (m,) of the last steps, which `check` has not seen
        self.seen: dict[str, float] = {}  # metrics of the last step that it has seen
        self.version = 0  # how often something changed that a captured step would not know of

    def scheduled(self, step: int) -> Scheduled:
        """Learning rates, noise, weight of the moving average and kind of damping at a step."""
        s, steps = self.settings, self.settings.steps or 0
        growth = s.growth(step)
        noise = s.noise * max(0.0, 1 - step / max(steps, 1))
        keep = min(s.ema, (1 + step) / (10 + step))  # a short memory while there is little to remember
        straight = float(self.model.axes is None and step >= (1 - s.straight) * steps)
        return Scheduled(s.lr * growth, s.disc_lr * growth, noise, 1 - keep, straight)

    def step(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """One update of the discriminators, then one of the translator. x: rows (b, d) of each encoder, prepared.

        Returns scalars: each loss, each discriminator's accuracy and spread of logits, gradient norms before clipping. Nothing
        has waited for them: whether they are good, `check` says.
        """
        self.now = self.scheduled(self.done)
        metrics = self.update(x)
        self.unread.append(torch.stack(list(metrics.values())))
        self.done += 1
        return metrics

    def update(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """What `step` does at the schedule `now`. It changes tensors in place and no number of Python's: graphs repeat it."""
        self.optimiser.param_groups[0]["lr"], self.disc_optimiser.param_groups[0]["lr"] = (
            self.now.lr,
            self.now.disc_lr,
        )
        with tf32(self.settings.tf32 and self.settings.precision == "float32" and self.device.type == "cuda"):
            with self._autocast():
                outputs = self.forward({name: leading(rows, self.model.axes) for name, rows in x.items()})
            metrics = self.discriminate(outputs)
            metrics |= self.translate(outputs)
            self.optimiser.step()
            if self.settings.damping:
                for module in self.model.modules():
                    if isinstance(module, Tied) and module.weight.requires_grad:
                        module.damp(self.settings.damping, self.now.straight, self.model.axes)
            self._update_ema()
        self.names = list(metrics)
        return metrics

    def forward(self, x: dict[str, Tensor]) -> Pass:
        """Everything the losses need; each input goes through A and T once."""
        model, s, latents, same, moved, cycles = self.model, self.settings, {}, {}, {}, {}
        for name in x:
            latents[name] = model.encode(x[name], name)
            if (s.rec_weight or s.vsp_weight) and name in self.learning:
                same[name] = model.decode(latents[name], name)
            moved |= {pair: model.decode(latents[name], pair[1]) for pair in self.pairs if pair[0] == name}
        held = {pair: v.detach() for pair, v in moved.items()} if s.detach_cycle else moved
        if s.cycle_weight or s.cycle_vsp_weight:
            for a, b in self.pairs:
                latent = model.encode(held[a, b], b)
                cycles[a, b] = model.decode(latent, a)
                if s.cycle_statistics:
                    model.observe(latent, b)
        return Pass(x, latents, same, moved, cycles)

    def discriminate(self, outputs: Pass) -> dict[str, Tensor]:
        """Update every discriminator on detached vectors."""
        if not self.discriminators:
            return {}
        self.discriminators.requires_grad_(True)
        total, metrics = self.discriminator_losses(outputs)
        self.disc_optimiser.zero_grad()
        total.backward()
        for name, discriminator in self.discriminators.items():
            metrics[f"gradient/discriminator_{name}"] = self._clip(discriminator)
        self.disc_optimiser.step()
        self.discriminators.requires_grad_(False)  # the translator's losses pass through them
        return metrics

    def discriminator_losses(self, outputs: Pass) -> tuple[Tensor, dict[str, Tensor]]:
        """The sum that all discriminators minimise, and each one's loss, accuracy and spread of logits."""
        s, total, metrics = self.settings, torch.zeros((), device=self.device), {}
        for name, (real, fake) in self._contests(outputs).items():
            both = self._noised(torch.cat([real, fake]).detach()).requires_grad_(s.gradient_penalty > 0)
            with self._autocast():
                logits = self.discriminators[name](both)  # real and fake in one product: rows are independent
            real, fake = logits.split([len(real), len(fake)])
            loss = losses.discriminator_loss(real, fake, s.gan, s.swapped_labels, s.label_smoothing)
            total = total + loss
            metrics[f"loss/discriminator_{name}"] = loss.detach()
            if s.gradient_penalty > 0:
                total = total + s.gradient_penalty * losses.gradient_penalty(logits, both)
            metrics[f"accuracy/{name}"] = losses.accuracy(real, fake, s.gan, s.swapped_labels)
            metrics[f"spread/{name}"] = logits.detach().std()
        return total, metrics

    def translate(self, outputs: Pass) -> dict[str, Tensor]:
        """The translator's losses and their gradients, clipped."""
        weighted = self.translator_losses(outputs)
        total = torch.stack([loss * weight for loss, weight in weighted.values()]).sum()
        self.optimiser.zero_grad()
        total.backward()
        metrics = {f"loss/{name}": loss.detach() for name, (loss, _) in weighted.items()}
        return metrics | {"loss/translator": total.detach(), "gradient/translator": self._clip(self.model)}

    def translator_losses(self, outputs: Pass) -> dict[str, tuple[Tensor, float]]:
        """All that the translator minimises: (loss, weight) by name."""
        s, weighted = self.settings, self.geometry(outputs)
        for name, (real, fake) in self._contests(outputs).items():
            rows = torch.cat([real, fake]) if s.gan == "relativistic" else fake
            with self._autocast():
                logits = self.discriminators[name](self._noised(rows))
            real, fake = logits.chunk(2) if s.gan == "relativistic" else (logits, logits)
            loss = losses.generator_loss(real, fake, s.gan, s.swapped_labels)
            weighted[f"generator_{name}"] = (loss, self._weight(name))
        if s.transport_weight:
            moved = outputs.translations.items()
            each = [
                losses.transport(rows, outputs.x[target], self.inverse_temperature)
                for (_, target), rows in moved
            ]
            weighted["transport"] = (torch.stack(each).mean(), s.transport_weight)
        return weighted

    def geometry(self, outputs: Pass) -> dict[str, tuple[Tensor, float]]:
        """Reconstruction, cycle consistency and vector space preservation: (loss, weight) by name."""
        s, x = self.settings, outputs.x
        same = list(outputs.reconstructions.items())
        moved = [(source, y) for (source, _), y in outputs.translations.items()]
        back = [(source, y) for (source, _), y in outputs.cycles.items()]
        products = {
            name: losses.products(rows, s.vsp)
            for name, rows in x.items()
            if s.vsp_weight or s.cycle_vsp_weight
        }

        def over(couples: list[tuple[str, Tensor]], loss: Callable[[str, Tensor], Tensor]) -> Tensor:
            each = torch.stack([loss(*couple) for couple in couples])
            return each.mean() if s.reduction == "mean" else each.sum()

        def vsp(couples: list[tuple[str, Tensor]], reflected: bool) -> Tensor:
            return over(couples, lambda name, y: losses.preservation(*products[name], y, s.vsp, reflected))

        def error(couples: list[tuple[str, Tensor]]) -> Tensor:
            return over(couples, lambda name, y: losses.error(x[name], y, s.error))

        of_same = s.vsp_of == "reconstructions"
        terms = {
            "reconstruction": (lambda: error(same), s.rec_weight),
            "cycle": (lambda: error(back), s.cycle_weight),
            "vsp": (lambda: vsp(same if of_same else moved, s.vsp_reflected and of_same), s.vsp_weight),
            "cycle_vsp": (lambda: vsp(back, s.vsp_reflected), s.cycle_vsp_weight),
        }
        return {name: (loss(), weight) for name, (loss, weight) in terms.items() if weight}

    def _contests(self, outputs: Pass) -> dict[str, tuple[Tensor, Tensor]]:
        """(real, fake) rows of each discriminator; what is translated into one space from several is one set of fakes."""
        moved, latents = outputs.translations, outputs.latents
        contests = {}
        for name, rows in outputs.x.items():
            contests[name] = rows, stacked([fake for (_, target), fake in moved.items() if target == name])
        real, fake = (
            [v for n, v in latents.items() if (n in self.real) == wanted] for wanted in (True, False)
        )
        contests["latent"] = stacked(real), stacked(fake)
        if "latent_back" in self.discriminators:
            contests["latent_back"] = contests["latent"][::-1]
        contests = {name: sides for name, sides in contests.items() if self._weight(name)}
        if self.settings.gan == "relativistic":  # it compares row by row
            for name, (real, fake) in contests.items():
                most = max(len(real), len(fake))
                contests[name] = tuple(side.repeat(most // len(side) + 1, 1)[:most] for side in (real, fake))
        return contests

    def _weight(self, discriminator: str) -> float:
        return self.settings.latent_gan_weight if discriminator in LATENT else self.settings.gan_weight

    def narrow(self, axes: int | None, inverse_temperature: float) -> None:
        """From now on only the first `axes` columns count (None: all), and transport has this inverse temperature."""
        self.model.axes = self.average.axes = axes
        self.inverse_temperature = inverse_temperature
        self.version += 1

    def _autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.settings.precision == "bf16")

    def _noised(self, x: Tensor) -> Tensor:
        return x + self.now.noise * torch.randn_like(x) if self.settings.noise else x

    def _clip(self, module: nn.Module) -> Tensor:
        return nn.utils.clip_grad_norm_(module.parameters(), self.settings.max_grad_norm, foreach=True)

    @torch.no_grad()
    def _update_ema(self) -> None:
        if self.average is self.model:
            return
        for old, new in zip(self.average.parameters(), self.model.parameters(), strict=True):
            old.lerp_(new, self.now.new)
        for old, new in zip(self.average.buffers(), self.model.buffers(), strict=True):
            old.copy_(new)

    def check(self) -> None:
        """Read the metrics of all steps since the last check, in one transfer: at every step it would stop the device.

        Raises BadInput, naming the first bad step and its loss, for what is not finite or a discriminator that collapsed.
        """
        if not self.unread:
            return
        read = torch.stack(self.unread).tolist()
        self.unread = []
        for step, values in enumerate(read, self.done - len(read)):
            self.seen = dict(zip(self.names, values, strict=True))
            self._check(step, self.seen)

    def _check(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            if not abs(value) < float("inf"):
                raise BadInput(
                    f"vec2vec: step {step}: {name} is {value}; a lower lr or max_grad_norm may help"
                )
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
        return states | {
            "done": self.done,
            "doubtful": self.doubtful,
            "random": torch.get_rng_state(),
            "cuda": cuda,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` gave."""
        for name in ("model", "discriminators", "optimiser", "disc_optimiser", "average"):
            getattr(self, name).load_state_dict(state[name])
        self.done, self.doubtful = state["done"], dict(state["doubtful"])
        self.version += 1
        torch.set_rng_state(state["random"].cpu())
        if state["cuda"]:
            torch.cuda.set_rng_state_all([s.cpu() for s in state["cuda"]])
