"""Settings of vec2vec, and recipes: names for many settings at once."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pipelines.runtime.settings import Bounds, Checked, Count, Natural, NonNegative, Positive

Norm = Literal["batch", "layer"]
Gan = Literal["least_squares", "vanilla"]
Objective = Literal["code", "paper"]


@dataclass(frozen=True)
class Settings(Checked):
    """The defaults are the released configuration of the official code (configs/unsupervised.toml).

    The official code trains for 80 epochs or more. Here training ends after `epochs` (80). The code trains in
    float16 with a loss scaler. Here `precision: bf16` needs none.

    Comments give the paper's value where it differs; `recipe: paper` sets all of them. "Ours" is in neither
    source.
    """

    recipe: Literal["released", "paper", "multistart"] = "released"  # see RECIPES
    # data
    centre: bool = False  # subtract the mean before normalising; ours
    axes: Literal["raw", "principal"] = "raw"  # principal: coordinates on each cloud's principal axes; ours
    subspace: Count | None = None  # train on the span of so many principal axes; None: all; ours
    # networks
    width: Count = 1024  # of hidden layers
    adapter_depth: Natural = 3  # 0: one matrix per encoder, see `Tied`
    backbone_depth: Natural = 4  # 0: the identity
    norm: Norm = "batch"  # after each middle layer of an MLP; depths 1 and 2 have none; paper: layer
    dropout: Annotated[float, Bounds(ge=0, lt=1)] = 0.1  # not in the paper; `recipe: paper` has 0
    disc_width: Count = 1024  # of the discriminators' hidden layers
    disc_depth: Count = 5  # layers of a discriminator
    # losses
    gan: Gan = "least_squares"  # the adversarial loss; paper: vanilla, here with labels smoothed to .9 and .1
    # How the losses are computed: losses.py lists the differences; `gan` is apart. `recipe: paper` sets paper
    objective: Objective = "code"
    rec_weight: NonNegative = 1.0  # of the reconstruction
    vsp_weight: NonNegative = 1.0  # of vector-space preservation
    cycle_weight: NonNegative = 10.0  # of the cycle
    cycle_vsp_weight: NonNegative = 10.0  # VSP between a batch and its cycle; paper: 0
    gan_weight: NonNegative = 1.0  # of the discriminators of target vectors
    latent_gan_weight: NonNegative = 1.0  # of the discriminators of latent vectors
    transport_weight: NonNegative = 0.0  # entropic optimal transport from translations to the batch; ours
    # training
    steps: Natural | None = None  # largest number of steps; None: that of `epochs`
    epochs: Natural = 80  # most passes through the smaller side; the official code has at least 80
    batch: Annotated[int, Bounds(ge=2)] = 256  # vectors of each side
    lr: NonNegative = 2e-5  # learning rate of the translator
    disc_lr: NonNegative = 1e-5  # learning rate of the discriminators
    warmup: Natural = 2000  # steps of linear growth of both learning rates
    warmup_from: Natural = 0  # the growth starts at this step; 0: the first step has rate 0, as in the code
    max_grad_norm: Positive = 1000.0  # of the translator, and of each discriminator
    optimiser: Literal["adam", "sgd"] = "adam"  # of the translator; sgd has momentum 0.5; ours
    damping: NonNegative = 0.0  # of singular values, after each update of `Tied` adapters; ours
    precision: Literal["float32", "bf16"] = "float32"  # of the computation
    graph: bool = False  # CUDA repeats a recorded step: faster; no effect elsewhere. Not for `optimiser: sgd`
    # Successive halving of random starts: in each round so many are trained for `start_steps` on the first
    # `start_axes` columns, and the best by unpaired score go on. (): one start, no rounds; ours
    starts: tuple[Count, ...] = ()
    start_axes: tuple[Annotated[int, Bounds(ge=2)], ...] = ()  # columns of each round of starts
    start_steps: Count = 60  # steps of each round of starts
    # selection and stopping by the unpaired score; the code looks at pairs
    log_every: Count = 100
    # Stop after so many scores in a row without improvement. Without `min_steps` it has no effect
    patience: Count = 20
    min_steps: Natural | None = None  # patience may end training from this step on; None: no early stopping
    checkpoint_every: Count = 1000  # steps

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.gan_weight + self.latent_gan_weight + self.transport_weight > 0:
            raise ValueError("gan_weight, latent_gan_weight or transport_weight must be more than 0")
        if self.graph and self.optimiser != "adam":
            raise ValueError(f"graph: it needs the optimiser adam, not {self.optimiser}")
        if len(self.starts) != len(self.start_axes):
            raise ValueError(f"starts {self.starts} and start_axes {self.start_axes} must be equally long")
        if self.starts != tuple(sorted(self.starts, reverse=True)):
            raise ValueError(f"starts {self.starts} must not grow from round to round")

    @property
    def shape(self) -> dict[str, Any]:
        """Arguments of `Vec2Vec` besides the dimensions."""
        names = ("width", "adapter_depth", "backbone_depth", "norm", "dropout")
        return {name: getattr(self, name) for name in names}

    def warmed_up(self, step: int) -> float:
        """Return the factor in [0, 1] of both learning rates at a step, counted from 0."""
        return min(1.0, (step + self.warmup_from) / self.warmup) if self.warmup else 1.0


# The paper's networks and objective: sections 3.1 and 3.2 of arXiv 2505.12540
PAPER = {
    "norm": "layer",
    "dropout": 0.0,
    "gan": "vanilla",
    "objective": "paper",
    "cycle_vsp_weight": 0.0,
}
# Ours, for small machines: one matrix per encoder on principal axes, moved by transport, the best of many
# starts. A fit of 30,000 vectors a side takes some 4 minutes of one core
MULTISTART = {
    "centre": True,
    "axes": "principal",
    "starts": (192, 32, 8),
    "start_axes": (32, 64, 128),
    "start_steps": 100,
    "width": 512,
    "adapter_depth": 0,
    "backbone_depth": 0,
    "dropout": 0.0,
    "gan_weight": 0.0,  # the discriminators below are for rows that set one
    "disc_width": 128,
    "disc_depth": 2,
    "gan": "vanilla",
    "disc_lr": 1e-3,
    "latent_gan_weight": 0.0,
    "rec_weight": 0.0,
    "vsp_weight": 0.0,
    "cycle_weight": 0.0,
    "cycle_vsp_weight": 0.0,
    "transport_weight": 1.0,
    "steps": 900,
    "batch": 1024,
    "optimiser": "sgd",
    "lr": 10.0,
    "warmup": 20,
    "warmup_from": 1,
    "max_grad_norm": 1.0,
    "damping": 0.1,
    "precision": "bf16",
    "log_every": 50,
    "min_steps": 0,
    "patience": 1000,
}
# What `recipe` in a row stands for; other keys of the row override it
RECIPES = {"released": {}, "paper": PAPER, "multistart": MULTISTART}
