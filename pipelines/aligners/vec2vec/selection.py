"""Which start and which checkpoint to keep, and when to stop, from unpaired rows alone: nothing here may ever see a pair."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import permutations

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize

from pipelines.aligners.core.matching import csls, mutual
from pipelines.aligners.vec2vec.networks import Vec2Vec
from pipelines.aligners.vec2vec.step import Training, leading


@torch.no_grad()
def agreement(moved: Tensor, cloud: Tensor, neighbours: int) -> tuple[float, float]:
    """How well translated rows (n, e) mingle with real rows (m, e), both centred first.

    Share of rows that have a mutual nearest neighbour under CSLS, and mean cosine to it (0 where there is none).
    """
    a, b = (normalize(z - z.mean(0), dim=1) for z in (moved, cloud))
    i, j = mutual(csls(a, b, neighbours))
    cosine = (a[i] * b[j]).sum(1).mean() if len(i) else torch.zeros(())
    return len(i) / min(len(a), len(b)), float(cosine)


@torch.no_grad()
def unpaired_score(model: Vec2Vec, held_out: dict[str, Tensor], neighbours: int) -> dict[str, float]:
    """`score` and what it is made of, on held-out rows of encoders that need not share a text.

    score = mean over all ordered pairs of (mutual share x mutual cosine), times the mean cosine after a whole cycle. Mutual
    neighbours fall when a translator collapses onto few points, their cosine when it misses the cloud, the cycle when it
    forgets what it was given: each alone can be had cheaply, the product cannot.
    """
    training = model.training
    model.eval()
    pairs, parts = list(permutations(held_out, 2)), {"share": 0.0, "cosine": 0.0, "cycle": 0.0, "score": 0.0}
    for source, target in pairs:
        moved = model.translate(held_out[source], source, target)
        share, cosine = agreement(moved, held_out[target], neighbours)
        back = cosine_similarity(model.translate(moved, target, source), held_out[source], dim=1).mean()
        for part, value in (
            ("share", share),
            ("cosine", cosine),
            ("cycle", float(back)),
            ("score", share * cosine),
        ):
            parts[part] += value / len(pairs)
    model.train(training)
    parts["score"] *= max(parts["cycle"], 0.0)
    return {f"unpaired/{part}": value for part, value in parts.items()}


@dataclass
class Best:
    """The best state so far, and how many looks ago that was."""

    score: float = -float("inf")
    step: int = 0
    stale: int = 0
    state: dict[str, Tensor] | None = None

    def look(self, score: float, step: int, model: Vec2Vec) -> None:
        """Keep a copy of `model` if it scores higher than all before it."""
        self.stale += 1
        if score > self.score or self.state is None:
            self.score, self.step, self.stale = score, step, 0
            self.state = {k: v.detach().clone() for k, v in model.state_dict().items()}


@dataclass(frozen=True)
class Round:
    """One round of a competition: so many starts are trained for so many steps on the first axes; the best go on."""

    starts: int
    axes: int
    steps: int
    inverse_temperature: float


def compete(
    start: Callable[[], Training],
    rounds: list[Round],
    batches: Mapping[str, Callable[[int], Tensor]],
    held_out: dict[str, Tensor],
    neighbours: int,
    log: Callable[[dict[str, float], int], None] | None,
) -> Training:
    """The best of many short trainings from their own random weights, by the unpaired score: successive halving (Jamieson and
    Talwalkar 2016), as GANs want many seeds and most of them show early that they fail. All see the same batches.
    """
    alive, done = [start] * rounds[0].starts, 0
    for number, this_round in enumerate(rounds):
        places = rounds[number + 1].starts if number + 1 < len(rounds) else 1
        narrow = {name: leading(rows, this_round.axes) for name, rows in held_out.items()}
        scores, kept = [], []
        for begin in alive:
            training = begin()
            training.narrow(this_round.axes, this_round.inverse_temperature)
            for step in range(done, done + this_round.steps):
                training.step({name: draw(step) for name, draw in batches.items()})
            scores.append(unpaired_score(training.average, narrow, neighbours)["unpaired/score"])
            kept = sorted([*kept, (scores[-1], training)], key=lambda pair: -pair[0])[:places]
        alive, done = [(lambda training=training: training) for _, training in kept], done + this_round.steps
        if log:
            log({"starts/best": max(scores), "starts/median": sorted(scores)[len(scores) // 2]}, number)
    return alive[0]()
