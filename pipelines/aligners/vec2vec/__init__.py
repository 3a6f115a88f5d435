"""vec2vec (Jha et al. 2025, arXiv 2505.12540): adversarial translation between two embedding spaces without a single pair.

networks: adapters, backbone, discriminators. losses: every loss, in the paper's form and in the code's. step: one training step.
graph: how steps run, on CUDA as one graph. selection: the unpaired score. recipes: settings by name. This module: the loop, with
selection, stopping and resuming.
`init: linear` is not of the paper: the adapters begin as an unpaired linear map, with residual branches at zero.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from pipelines.aligners import wasserstein_procrustes
from pipelines.aligners.core.cloud import checked
from pipelines.aligners.core.translator import Translator, save
from pipelines.aligners.vec2vec import released
from pipelines.aligners.vec2vec.graph import stepper
from pipelines.aligners.vec2vec.networks import Vec2Vec, Vec2VecTranslator
from pipelines.aligners.vec2vec.recipes import RECIPES
from pipelines.aligners.vec2vec.selection import Best, Round, compete, unpaired_score
from pipelines.aligners.vec2vec.step import LATENT, Pair, Recipe, Training
from pipelines.runtime import files
from pipelines.runtime.errors import BadInput
from pipelines.runtime.log import Log
from pipelines.runtime.progress import progress

SUPERVISION = "unpaired"
THREAD_SAFE = False
NEEDS_PAIRED = False  # of fit_jointly
EXTENDS = True
__all__ = [
    "RECIPES",
    "Settings",
    "fit",
    "fit_jointly",
]  # RECIPES: what `recipe` in a row of `align` stands for


@dataclass(frozen=True)
class Settings(Recipe):
    """A step's recipe, and what the loop around it does."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    init: Literal["random", "linear"] = "random"
    linear: wasserstein_procrustes.Settings = field(
        default_factory=wasserstein_procrustes.Settings
    )  # of init: linear
    # Folder of a translator that the official code saved, and what source and target are called there: training goes on from its
    # weights; with `steps: 0` they stay as they are
    weights: str | None = None
    weights_of: tuple[str, ...] | None = None
    centre: bool = False  # subtract the means before normalising; neither source does
    # principal: the networks see and give coordinates on each cloud's principal axes, by falling variance; ours
    axes: Literal["raw", "principal"] = "raw"
    # Starts from random weights that are trained in each round, of `start_steps` on the first `start_axes` columns: the best by
    # unpaired score go on to the next round, and the best of the last one is trained whole. (): one start, no rounds; ours
    starts: tuple[int, ...] = ()
    start_axes: tuple[int, ...] = ()
    start_steps: int = 60
    # L2-normalise what comes out (code). None: yes, but not with `init: linear`, whose map keeps its own norms
    unit_output: bool | None = None
    # selection and stopping, unpaired; the code looks at pairs
    held_out: int = 1024  # rows per side that are never trained on, at most a tenth
    neighbours: int = 10  # of CSLS in the score
    log_every: int = 100
    patience: int = 20  # looks without a better score before stopping
    min_steps: int | None = (
        None  # before that no stop; None: not before the last step, as the code's 80 epochs are its least
    )
    checkpoint_every: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        least = dict.fromkeys(("neighbours", "patience", "log_every", "checkpoint_every"), 1)
        self._at_least(least | {"held_out": 2, "min_steps": 0, "start_steps": 1})
        if len(self.starts) != len(self.start_axes):
            raise ValueError(
                f"starts {self.starts} and start_axes {self.start_axes} must be as many: one of each for a round"
            )
        if self.starts and (
            min(self.starts) < 1
            or min(self.start_axes) < 2
            or self.starts != tuple(sorted(self.starts)[::-1])
        ):
            raise ValueError(
                f"starts {self.starts} must not grow and be at least 1, start_axes {self.start_axes} at least 2"
            )
        if (self.weights is None) != (self.weights_of is None):
            raise ValueError(
                "weights, a folder, and weights_of, the names of source and target in it, go together"
            )
        if self.weights and (self.init == "linear" or self.starts or self.axes == "principal" or self.centre):
            raise ValueError(
                "weights of the official code take `init: random`, `axes: raw`, no `centre` and no `starts`"
            )
        if self.init == "linear" and (self.axes == "principal" or self.starts):
            raise ValueError(
                "init: linear has one start in raw axes: it takes neither `axes: principal` nor `starts`"
            )
        if self.init == "linear" and not self.centre:
            raise ValueError("init: linear starts from a map between centred clouds, it needs `centre: true`")

    @property
    def shape(self) -> dict[str, Any]:
        """What `Vec2Vec` is built from, beside the dimensions."""
        unit = self.init == "random" if self.unit_output is None else self.unit_output
        names = ("width", "adapter_depth", "backbone_depth", "norm", "dropout")
        return {name: getattr(self, name) for name in names} | {
            "unit_output": unit,
            "mapped": self.init == "linear",
        }

    @property
    def rounds(self) -> list[Round]:
        """The competition that `starts` describes; the transport's inverse temperature grows from round to round."""
        first, last = self.transport_inverse_temperature
        inverse_temperature = [
            first + (last - first) * number / len(self.starts) for number in range(len(self.starts))
        ]
        places = zip(self.starts, self.start_axes, inverse_temperature, strict=True)
        return [Round(starts, axes, self.start_steps, sharp) for starts, axes, sharp in places]


class Batches:
    """Rows of one cloud in shuffled epochs, as a function of the step: nothing to save, nothing to restore."""

    def __init__(self, rows: Tensor, size: int, seed: int) -> None:
        self.rows, self.size, self.seed = rows, min(size, len(rows)), seed
        self.epoch, self.order = -1, torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        """Batches of an epoch."""
        return len(self.rows) // self.size

    def __call__(self, step: int) -> Tensor:
        """(size, d)"""
        return self.rows[self.indices(step)]

    def indices(self, step: int) -> Tensor:
        """(size,) int64, on the device of the rows."""
        epoch, place = divmod(step, len(self))
        if epoch != self.epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            self.epoch, self.order = (
                epoch,
                torch.randperm(len(self.rows), generator=generator).to(self.rows.device),
            )
        return self.order[place * self.size : (place + 1) * self.size]


def fit(
    source: Tensor,
    target: Tensor,
    settings: Settings,
    seed: int,
    pairs: Tensor | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> Vec2VecTranslator:
    """source (n, d), target (m, e), unpaired. Same seed, same machine, same weights.

    `folder`: where a checkpoint is written; a killed run continues from it, bit for bit, and removes it at the end.
    Raises BadInput for bad vectors, and when training fails; the best translator until then is kept in `folder`, and the message
    names it. The state returned is the one with the best unpaired score.
    """
    if pairs is not None and len(pairs) and settings.init == "random":
        raise BadInput(
            "vec2vec: known pairs are of use to `init: linear` only, from random weights it takes none"
        )
    return _fit({"source": source, "target": target}, settings, seed, None, pairs, log, folder)


def fit_jointly(
    clouds: Mapping[str, Tensor],
    settings: Settings,
    seed: int,
    paired: Sequence[str] = (),
    start: Mapping[Pair, Translator] | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> dict[Pair, Vec2VecTranslator]:
    """Adapters of any number of encoders around one backbone. clouds: (n, d) of each, no two of which need share a text.

    `start`: translators that this gave before; the backbone and their adapters are held as they are, and only the encoders
    that are new are learnt. The rest is as in `fit`. Returns the translator of every ordered pair. Raises BadInput, too, for
    fewer than two encoders, or where nothing is new.
    """
    trained = _whole(start or {})
    whole = _fit(clouds, settings, seed, trained, None, log, folder)
    return {pair: whole.between(*pair) for pair in permutations(clouds, 2)}


def _whole(translators: Mapping[Pair, Translator]) -> Vec2VecTranslator | None:
    """All encoders of translators of one training in one, or None of none."""
    whole = None
    for (source, target), translator in translators.items():
        if not isinstance(translator, Vec2VecTranslator):
            raise BadInput(f"vec2vec: what should be extended, {source} -> {target}, is no vec2vec")
        whole = translator if whole is None else whole.extended(translator)
    return whole


def _fit(
    clouds: Mapping[str, Tensor],
    settings: Settings,
    seed: int,
    trained: Vec2VecTranslator | None,
    pairs: Tensor | None,
    log: Log | None,
    folder: Path | None,
) -> Vec2VecTranslator:
    clouds = {name: checked(name, cloud, 20) for name, cloud in clouds.items()}
    dims = {name: cloud.shape[1] for name, cloud in clouds.items()}
    _fits(dims, settings, trained)
    *others, last = clouds
    with torch.random.fork_rng(devices=[clouds[last].device] if clouds[last].is_cuda else []):
        torch.manual_seed(seed)
        if trained is None:
            new = list(clouds)
            whole = Vec2VecTranslator(
                dims, others[0], last, principal=settings.axes == "principal", **settings.shape
            )
        else:
            new = [name for name in clouds if name not in trained.config["dims"]]
            whole = trained
            for name in new:
                whole.add_encoder(name, dims[name])
        whole = whole.to(clouds[last].device)
        for name in new:
            whole.describe(name, clouds[name], settings.centre)
        if settings.weights and settings.weights_of:
            begin_with(whole, Path(settings.weights), dict(zip(clouds, settings.weights_of, strict=True)))
        if settings.init == "linear":
            linear = replace(settings.linear, hub_correction=0)  # adapters begin as a matrix
            for name in others:
                whole.start(
                    wasserstein_procrustes.fit(clouds[name], clouds[last], linear, seed, pairs), name, last
                )
        rows = {name: whole.prepared(cloud, name) for name, cloud in clouds.items()}
        path = folder / f"vec2vec-{seed}.pt" if folder else None
        best = Best()
        try:
            _train(whole.model, rows, settings, seed, log, path, best, () if trained is None else tuple(new))
        except BadInput as error:
            raise BadInput(f"{error}; {_rescue(whole, best, folder, seed)}") from None
    assert best.state is not None
    whole.model.load_state_dict(best.state)
    return whole.eval()


def _fits(dims: dict[str, int], settings: Settings, trained: Vec2VecTranslator | None) -> None:
    if settings.weights_of and len(settings.weights_of) != len(dims):
        raise BadInput(
            f"vec2vec: weights_of names {len(settings.weights_of)} encoders, and there are {len(dims)}"
        )
    if settings.init == "linear" and settings.width < max(dims.values()):
        raise BadInput(
            f"vec2vec: width {settings.width} is less than the vectors' dimension, `init: linear` needs as much"
        )
    if len(dims) < 2:
        raise BadInput(f"vec2vec: {len(dims)} encoder; at least two are needed")
    if reserved := sorted(set(dims) & set(LATENT)):
        raise BadInput(f"vec2vec: an encoder cannot be called {reserved[0]}: a discriminator is")
    if trained is None:
        return
    known = trained.config["dims"]
    if not set(known) < set(dims):
        raise BadInput(
            f"vec2vec: given {', '.join(dims)}; needed are {', '.join(known)}, which are extended, and more"
        )
    if wrong := [name for name in known if known[name] != dims[name]]:
        raise BadInput(
            f"vec2vec: {wrong[0]} has {dims[wrong[0]]} dimensions, and had {known[wrong[0]]} in training"
        )
    if settings.init == "linear":
        raise BadInput(
            "vec2vec: a trained backbone is extended from random adapters, not with `init: linear`"
        )
    if any(trained.config[name] != value for name, value in settings.shape.items()):
        raise BadInput(
            "vec2vec: the networks to be extended have another shape than this row: take its width, depths and norm"
        )


def _rescue(translator: Vec2VecTranslator, best: Best, folder: Path | None, seed: int) -> str:
    """Keep the best state of a training that has failed, as a translator that `load` reads; where it is, in words."""
    if best.state is None or folder is None:
        return "no state of it is kept" + ("" if folder else ", as no folder was named")
    translator.model.load_state_dict(best.state)
    save(translator, folder / f"vec2vec-{seed}-best")
    return f"its best state, of step {best.step} with unpaired score {best.score:.3f}, is {folder / f'vec2vec-{seed}-best'}.*"


def begin_with(translator: Vec2VecTranslator, folder: Path, names: dict[str, str]) -> None:
    """Take over the weights that the official code saved. Raises BadInput where the networks are of another shape."""
    saved = released.read(folder, names)
    wanted = {k: v for k, v in translator.config.items() if k != "dropout"}
    differs = [k for k, v in wanted.items() if saved.config[k] != v]
    if differs:
        name = differs[0]
        raise BadInput(
            f"vec2vec: {folder}: {name} is {saved.config[name]} there, {translator.config[name]} in the row"
        )
    translator.model.load_state_dict(saved.model.state_dict())


def _train(
    model: Vec2Vec,
    clouds: dict[str, Tensor],
    settings: Settings,
    seed: int,
    log: Log | None,
    path: Path | None,
    best: Best,
    learning: tuple[str, ...] = (),
) -> None:
    """Train until the last step or out of patience; `best`, empty as given, holds the best state by unpaired score."""
    held_out, batches = {}, {}
    for number, (name, cloud) in enumerate(clouds.items()):
        order = torch.randperm(len(cloud)).to(cloud.device)
        most = min(settings.held_out, len(cloud) // 10)
        held_out[name] = cloud[order[:most]]
        batches[name] = Batches(cloud[order[most:]], settings.batch, len(clouds) * seed + number)
    steps = settings.epochs * min(map(len, batches.values())) if settings.steps is None else settings.steps
    least = steps if settings.min_steps is None else settings.min_steps
    settings = replace(settings, steps=steps, min_steps=least)
    dims = {name: cloud.shape[1] for name, cloud in clouds.items()}
    training = Training(model.train(), dims, settings, learning)
    if not _resume(path, training, best, settings) and settings.rounds:
        device = next(model.parameters()).device

        def start() -> Training:
            if not learning:
                return Training(Vec2Vec(dims, **settings.shape).to(device).train(), dims, settings)
            copied = copy.deepcopy(model)
            for name in learning:
                copied.redraw(name)
            return Training(copied.train(), dims, settings, learning)

        training = compete(start, settings.rounds, batches, held_out, settings.neighbours, log)
        training.narrow(None, settings.transport_inverse_temperature[1])
        training.check()
        training.done = 0
    advance = stepper(training, batches, settings.log_every)
    bar = progress(what="vec2vec", unit="steps", total=steps)
    while True:
        step = training.done
        if path and step and step % settings.checkpoint_every == 0:
            _checkpoint(path, training, best)  # before the look, which a resumed run then takes again
        if step % settings.log_every == 0 or step == steps:
            training.check()
            score = unpaired_score(training.average, held_out, settings.neighbours)
            best.look(score["unpaired/score"], step, training.average)
            if log:
                log(training.seen | score | {"unpaired/best_step": best.step}, step)
        if step >= steps or (best.stale >= settings.patience and step >= least):
            break
        advance()
        bar.update(training.done - step)
    bar.close()
    if path:
        path.unlink(missing_ok=True)


def _checkpoint(path: Path, training: Training, best: Best) -> None:
    files.save_state(
        path, {"training": training.state(), "best": vars(best), "settings": repr(training.settings)}
    )


def _resume(path: Path | None, training: Training, best: Best, settings: Settings) -> bool:
    """Continue from the checkpoint, if there is one of these settings."""
    if path is None or not path.exists():
        return False
    saved = files.load_state(path, next(training.model.parameters()).device)
    if saved["settings"] != repr(settings):
        return False
    training.restore(saved["training"])
    vars(best).update(saved["best"])
    return True
