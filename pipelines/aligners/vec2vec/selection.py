"""Choose starts and checkpoints, and stop, by a score of unpaired vectors. Nothing here sees a pair."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from pipelines.aligners.core.matching import csls, mutual
from pipelines.aligners.vec2vec.networks import Vec2Vec
from pipelines.aligners.vec2vec.settings import Settings
from pipelines.aligners.vec2vec.training import INVERSE_TEMPERATURE, Training, first_columns
from pipelines.measures.vectors import centred_unit
from pipelines.runtime.progress import Log, progress

NEIGHBOURS = 10  # nearest neighbours that CSLS looks at
WARM = 12.0  # inverse temperature of the transport in the first round of starts


@dataclass
class Best:
    """The best state so far, and the number of scores since then."""

    score: float = -float("inf")
    step: int = 0
    stale: int = 0
    state: dict[str, Tensor] | None = None

    def update(self, score: float, step: int, model: Vec2Vec) -> None:
        """Keep a copy of `model` if it scores higher than all before it."""
        self.stale += 1
        if score > self.score or self.state is None:
            self.score, self.step, self.stale = score, step, 0
            self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}


@torch.no_grad()
def unpaired_score(model: Vec2Vec, held_out: Mapping[str, Tensor]) -> dict[str, float]:
    """Score a model on held-out rows (n, d) of encoders that need not share a text.

    score = (mean over ordered pairs of share x cosine) x cycle, with

    share: fraction of rows with a mutual nearest neighbour. It falls when translations collapse.
    cosine: mean cosine to that neighbour. It falls when translations miss the target's vectors.
    cycle: mean cosine between rows and their cycles. It falls when a translation loses information.

    Returns the score and its parts. Each part alone can be high for a bad model.
    """
    training = model.training
    model.eval()
    pairs = list(permutations(held_out, 2))
    parts = {"share": 0.0, "cosine": 0.0, "cycle": 0.0, "score": 0.0}
    for source, target in pairs:
        translated = model.translate(held_out[source], source, target)
        share, cosine = neighbour_agreement(translated, held_out[target])
        cycled = model.translate(translated, target, source)
        cycle = float(cosine_similarity(cycled, held_out[source], dim=1).mean())
        values = {"share": share, "cosine": cosine, "cycle": cycle, "score": share * cosine}
        for part, value in values.items():
            parts[part] += value / len(pairs)
    model.train(training)
    parts["score"] *= max(parts["cycle"], 0.0)
    return {f"unpaired/{part}": value for part, value in parts.items()}


def neighbour_agreement(translated: Tensor, cloud: Tensor) -> tuple[float, float]:
    """Return share and cosine of `unpaired_score`, of translated rows (n, e) among real rows (m, e).

    Both sides are centred, and neighbours are found under CSLS. Without any neighbour the cosine is 0.
    """
    a, b = centred_unit(translated), centred_unit(cloud)
    i, j = mutual(csls(a, b, NEIGHBOURS))
    cosine = (a[i] * b[j]).sum(1).mean() if len(i) else torch.zeros(())
    return len(i) / min(len(a), len(b)), float(cosine)


def best_start(
    start: Callable[[], Training],
    settings: Settings,
    batches: Mapping[str, Callable[[int], Tensor]],
    held_out: Mapping[str, Tensor],
    log: Log | None,
) -> Training:
    """Return the best of many short trainings from random weights, by the unpaired score.

    This is successive halving (Jamieson and Talwalkar 2016): most bad starts of a GAN have low scores early.
    All starts see the same batches. Later rounds have fewer starts, more columns and a sharper transport.
    """
    trainings: Iterable[Training] = (start() for _ in range(settings.starts[0]))
    rounds = list(zip(settings.starts, settings.start_axes, strict=True))
    for number, (starts, axes) in enumerate(rounds):
        inverse_temperature = WARM + (INVERSE_TEMPERATURE - WARM) * number / len(rounds)
        kept = settings.starts[number + 1] if number + 1 < len(rounds) else 1
        columns = {name: first_columns(rows, axes) for name, rows in held_out.items()}
        steps = range(number * settings.start_steps, (number + 1) * settings.start_steps)
        scores, best = [], []
        what = f"vec2vec: compare random starts, round {number + 1} of {len(rounds)}"
        for training in progress(trainings, what=what, unit="starts", total=starts):
            training.limit_axes(axes, inverse_temperature)
            for step in steps:
                training.step({name: draw(step) for name, draw in batches.items()})
            score = unpaired_score(training.model, columns)["unpaired/score"]
            scores.append(score if math.isfinite(score) else -math.inf)  # a start that diverged
            # Trainings are made one by one, and only the best are held
            best = sorted([*best, (scores[-1], training)], key=lambda pair: -pair[0])[:kept]
        trainings = [training for _, training in best]
        if log:
            log({"starts/best": max(scores), "starts/median": sorted(scores)[len(scores) // 2]}, number)
    return best[0][1]
