"""vec2vec (Jha et al. 2025, arXiv 2505.12540): adversarial translation between embedding spaces, unpaired.

Adapters A and B of each encoder and a shared backbone T give reconstructions R = B1 T A1 and translations
F1 = B2 T A1, F2 = B1 T A2. They minimise weighted sums of reconstruction |x - R x|, cycle |x - F2 F1 x|, the
change of pairwise products (VSP), and the losses of discriminators of outputs and latents. Discriminators
learn to tell real rows from translated ones.

Read in this order: settings, networks, losses, training (one step), selection (the unpaired score), this file
(the loop over steps), translator (the result).
"""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import ModuleDict

from pipelines.aligners.core.aligner import Pair
from pipelines.aligners.core.cloud import checked
from pipelines.aligners.core.translator import Translator
from pipelines.aligners.vec2vec.networks import Vec2Vec
from pipelines.aligners.vec2vec.selection import Best, best_start, unpaired_score
from pipelines.aligners.vec2vec.settings import RECIPES, Settings
from pipelines.aligners.vec2vec.training import INVERSE_TEMPERATURE, LATENT, Training
from pipelines.aligners.vec2vec.translator import Vec2VecTranslator
from pipelines.runtime import files
from pipelines.runtime.device import forked, manual_seed, to_device
from pipelines.runtime.errors import BadInput
from pipelines.runtime.progress import Log, progress

SUPERVISION = "unpaired"
THREAD_SAFE = False
USES_PAIRS = False
NEEDS_PAIRED_SPACES = False
CAN_EXTEND = True
logger = logging.getLogger(__name__)
HELD_OUT = 1024  # rows per encoder that are never trained on; at most a tenth of all
__all__ = ["RECIPES", "Settings", "fit", "fit_jointly"]


def fit(
    source: Tensor,
    target: Tensor,
    settings: Settings,
    seed: int,
    pairs: Tensor | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> Vec2VecTranslator:
    """Fit a translator of source vectors (n, d) to the space of target vectors (m, e), unpaired.

    Returns the state with the best unpaired score. The same seed on the same machine gives the same weights.
    `folder`: for a checkpoint. A killed run continues from it bit for bit, and the end of a run removes it.
    Raises BadInput for bad vectors, for known pairs, and for a loss that is not finite.
    """
    if pairs is not None and len(pairs):
        raise BadInput("vec2vec: it starts from random weights and cannot use known pairs")
    clouds = {"source": source, "target": target}
    return fit_jointly(clouds, settings, seed, log=log, folder=folder)["source", "target"]


def fit_jointly(
    clouds: Mapping[str, Tensor],
    settings: Settings,
    seed: int,
    paired: Sequence[str] = (),
    start: Mapping[Pair, Translator] | None = None,
    log: Log | None = None,
    folder: Path | None = None,
) -> dict[Pair, Vec2VecTranslator]:
    """Fit translators between any number of encoders, whose vectors (n, d) are `clouds`, with one backbone.

    `paired` is not used. `start`: translators of an earlier call. Their backbone and adapters are frozen, and
    only new encoders are trained. Returns the translator of every ordered pair. The rest is as in `fit`.
    Also raises BadInput if `start` is of another aligner or shape.
    """
    # Of 20 vectors two are held out, as many as `unpaired_score` needs
    clouds = {name: checked(name, cloud, least=20) for name, cloud in clouds.items()}
    dims = {name: cloud.shape[1] for name, cloud in clouds.items()}
    if reserved := sorted(name for name in dims if name in LATENT or hasattr(ModuleDict(), name)):
        raise BadInput(f"vec2vec: the name {reserved[0]} is reserved: rename the encoder")
    most = max(min(dim, settings.subspace or dim) for dim in dims.values())
    if not settings.adapter_depth and most > settings.width:
        raise BadInput(f"vec2vec: width {settings.width} is less than the {most} dimensions of the vectors")
    device = next(iter(clouds.values())).device
    with forked(device):
        trained = _merged(start or {})
        old = trained.config["dims"] if trained else {}
        if not old.items() <= dims.items() or len(dims) < max(len(old) + 1, 2):
            raise BadInput("vec2vec: at least two encoders; with `start`, its own unchanged and a new one")
        manual_seed(seed, device)
        # 1. Networks: new ones, or trained ones with adapters for the new encoders
        new = [name for name in dims if name not in old]
        translator = _networks(dims, settings, trained, new).to(device)
        for name in new:
            translator.fit_statistics(name, clouds[name], settings.centre)
        # 2. Data
        rows = {name: translator.prepared(cloud, name) for name, cloud in clouds.items()}
        data = _split(rows, settings.batch, seed)
        if settings.steps is None:
            steps = settings.epochs * min(map(len, data.batches.values()))
            settings = replace(settings, steps=steps)
        # 3. Training, which ends with the best state
        training = Training(translator.model.train(), translator.sizes, settings, new if trained else ())
        checkpoint = Checkpoint(folder / f"vec2vec-{seed}.pt" if folder else None, _digests(clouds))
        best = Best()
        _train(training, data, best, checkpoint, log)
        assert best.state is not None
        translator.model.load_state_dict(best.state)
        translator.eval()
        return {pair: translator.between(*pair) for pair in permutations(clouds, 2)}


def _train(training: Training, data: Data, best: Best, checkpoint: Checkpoint, log: Log | None) -> None:
    """Train until the last step or until patience runs out. `best` gets the state with the best unpaired
    score.
    """
    s = training.settings
    assert s.steps is not None
    least = s.steps if s.min_steps is None else s.min_steps
    # 1. Begin: at a checkpoint, at the best of many starts, or at the weights as they were drawn
    if not checkpoint.restore(training, best) and s.starts:
        training = best_start(_restarts(training), s, data.batches, data.held_out, log)
        training.limit_axes(None, INVERSE_TEMPERATURE)
        training.check()
        training.done = 0
    bar = progress(what="vec2vec: train", unit="steps", total=s.steps - training.done)
    while True:
        step = training.done
        # 2. Save a checkpoint: before the score, which a resumed run computes again
        if step and step % s.checkpoint_every == 0:
            checkpoint.save(training, best)
        # 3. Compute the unpaired score
        if step % s.log_every == 0 or step == s.steps:
            training.check()
            score = unpaired_score(training.model, data.held_out)
            best.update(score["unpaired/score"], step, training.model)
            if log:
                log(training.seen | score | {"unpaired/best_step": best.step}, step)
        # 4. Stop, or take one step
        if step >= s.steps or (best.stale >= s.patience and step >= least):
            break
        training.step({name: draw(step) for name, draw in data.batches.items()})
        bar.update(1)
    bar.close()
    checkpoint.remove()


def _restarts(training: Training) -> Callable[[], Training]:
    """Return a function that makes a training with new random weights. Frozen parts keep their weights."""
    model, dims, settings = training.model, training.dims, training.settings

    def start() -> Training:
        if model.frozen:
            fresh = copy.deepcopy(model)
            for name in training.learning:
                fresh.redraw(name)
        else:
            fresh = Vec2Vec(dims, **settings.shape).to(training.device)
        return Training(fresh.train(), dims, settings, training.learning)

    return start


def _networks(
    dims: dict[str, int], settings: Settings, trained: Vec2VecTranslator | None, new: list[str]
) -> Vec2VecTranslator:
    """Return new networks, or freeze the trained ones and add adapters of the new encoders.

    Raises BadInput if the trained ones have another shape than the settings.
    """
    inputs = {"principal": settings.axes == "principal", "subspace": settings.subspace}
    if trained is None:
        first, *_, last = dims
        return Vec2VecTranslator(dims, first, last, **inputs, **settings.shape)
    if any(trained.config[key] != value for key, value in (settings.shape | inputs).items()):
        raise BadInput(
            "vec2vec: the networks to be extended have another shape than this row: "
            "use their width, depths, norm, dropout, axes and subspace"
        )
    trained.model.freeze()
    for name in new:
        trained.add_encoder(name, dims[name])
    return trained


def _merged(translators: Mapping[Pair, Translator]) -> Vec2VecTranslator | None:
    """Merge the translators of one training into one, with all of their encoders; None if there is none."""
    if not translators:
        return None
    dims, state, config = {}, {}, {}
    for (source, target), translator in translators.items():
        if not isinstance(translator, Vec2VecTranslator):
            raise BadInput(f"vec2vec: {source} -> {target} cannot be extended: it is not of vec2vec")
        config = translator.config
        dims |= config["dims"]
        state |= translator.state_dict()
    merged = Vec2VecTranslator(**{**config, "dims": dims})
    merged.load_state_dict(state)
    return merged


class Batches:
    """Draw batches of rows in shuffled epochs. Given the seed, a batch depends only on the step."""

    def __init__(self, rows: Tensor, size: int, seed: int) -> None:
        self.rows, self.size, self.seed = rows, min(size, len(rows)), seed
        self.epoch, self.order = -1, torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return len(self.rows) // self.size

    def __call__(self, step: int) -> Tensor:
        """Return the batch (size, d) of a step."""
        epoch, place = divmod(step, len(self))
        if epoch != self.epoch:
            generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
            order = torch.randperm(len(self.rows), generator=generator)
            self.epoch, self.order = epoch, to_device(order, self.rows.device)
        return self.rows[self.order[place * self.size : (place + 1) * self.size]]


@dataclass
class Data:
    """Prepared rows by encoder: held out for the unpaired score, and in batches for training."""

    held_out: dict[str, Tensor]
    batches: dict[str, Batches]


def _digests(clouds: Mapping[str, Tensor]) -> str:
    """Return shapes and digests. A sum of floats would depend on the number of threads."""
    held = {name: cloud.cpu().contiguous().numpy() for name, cloud in clouds.items()}
    return repr({name: (rows.shape, hashlib.sha256(rows.data).hexdigest()) for name, rows in held.items()})


def _split(rows: Mapping[str, Tensor], batch: int, seed: int) -> Data:
    """Hold out random rows of each encoder, by torch's global random state. `seed` shuffles the batches."""
    data = Data({}, {})
    for number, (name, cloud) in enumerate(rows.items()):
        order = torch.randperm(len(cloud)).to(cloud.device)
        most = min(HELD_OUT, len(cloud) // 10)
        data.held_out[name] = cloud[order[:most]]
        data.batches[name] = Batches(cloud[order[most:]], batch, len(rows) * seed + number)
    return data


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run, which continues after a kill. Without a path nothing is written or read."""

    path: Path | None
    vectors: str  # their shapes and digests

    def save(self, training: Training, best: Best) -> None:
        if self.path:
            of = repr(training.settings) + self.vectors
            files.save_state(self.path, {"training": training.state(), "best": vars(best), "of": of})

    def restore(self, training: Training, best: Best) -> bool:
        """Continue from the file, if it is of the same settings and vectors. Return whether it is."""
        if self.path is None or not self.path.exists():
            return False
        saved = files.load_state(self.path)
        if saved["of"] != repr(training.settings) + self.vectors:
            logger.warning("%s: of other settings or vectors; the fit starts over", self.path)
            return False
        training.restore(saved["training"])
        vars(best).update(saved["best"])
        return True

    def remove(self) -> None:
        if self.path:
            self.path.unlink(missing_ok=True)
