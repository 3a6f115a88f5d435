"""Fit all seeds of a row, judge each fit without pairs, and refit what is not aligned.

Of several processes each makes its share of the fits. The translators do not depend on the number of
processes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from pipelines import distributed
from pipelines.aligners.core.aligner import Pair
from pipelines.aligners.core.translator import Translator, load, save
from pipelines.aligners.core.verdict import REPLICATE, Verdict, judge
from pipelines.runtime import track
from pipelines.runtime.log import Log
from pipelines.runtime.threads import side_by_side
from pipelines.study import Align, AlignJointly, aligner_module

RESTART = 10_000_019  # added to a seed for each restart
LARGE = 2**30  # bytes of vectors: such a fit uses all cores by itself, and two need twice the memory
CURVES = ".curves.jsonl"
Fits = dict[Pair, Translator]
Result = TypeVar("Result")


class Draw(NamedTuple):
    """What decides the random numbers and the texts of a fit."""

    seed: int
    restart: int
    replicate: bool = False  # serves only to judge other fits

    @property
    def generator_seed(self) -> int:
        """The seed of the aligner. Restarts see the same vectors with other random numbers."""
        return (self.seed + self.restart * RESTART) % 2**32


@dataclass(frozen=True)
class Work:
    """A row's fits: how to make one, and how to judge it."""

    row: Align | AlignJointly
    run: track.Run
    folder: Path  # of this row's unfinished work
    device: torch.device
    pairs: list[Pair]  # of which each fit has a translator
    clouds: Sequence[Tensor]  # all vectors
    fit: Callable[[Draw, Log | None], Fits]
    vectors: Callable[[int], Mapping[str, Tensor]]  # what a seed's fit saw, by space
    judges: bool = True  # False for oracles and the naive baseline, which claim nothing


@dataclass
class Candidate:
    """A fit, and its verdicts so far."""

    fits: Fits
    verdicts: dict[Pair, Verdict] = field(default_factory=dict)

    def judge_by(self, replicates: Sequence[Fits], vectors: Mapping[str, Tensor]) -> None:
        """Judge each translator by further replicates, if there are any. The best replicate counts."""
        for pair, translator in self.fits.items() if replicates else ():
            verdict = judge(vectors[pair[0]], translator, [other[pair] for other in replicates])
            self.verdicts[pair] = max(self.verdicts.get(pair, verdict), verdict, key=lambda v: v.score)

    @property
    def worst(self) -> Verdict:
        return min(self.verdicts.values(), key=lambda verdict: verdict.score)


def fit_until_aligned(work: Work) -> tuple[dict[int, Candidate], dict[str, int]]:
    """Return the best fit of each seed, and the number of restarts as a metric if the row allows any.

    Judge each fit by its worst pair of spaces. Refit seeds that are not aligned, up to `restarts` times, and
    replicates with them, because a wrong replicate makes a right fit look wrong.
    """
    row, candidates = work.row, {seed: list[Candidate]() for seed in work.row.seeds}
    best: dict[int, Candidate] = {}
    replicates: list[Fits] = []
    doubtful = [*row.seeds]
    for restart in range(row.restarts + 1):
        draws = [Draw(seed, restart) for seed in doubtful]
        draws += [Draw(seed, restart, replicate=True) for seed in replicate_seeds(row) if work.judges]
        fits = fit_draws(work, draws)
        newest, new_replicates = dict(zip(doubtful, fits, strict=False)), fits[len(doubtful) :]
        replicates += new_replicates
        for seed, fit in newest.items():
            candidates[seed].append(Candidate(fit))
        if not work.judges:
            return {seed: only for seed, [only] in candidates.items()}, {}
        for seed in doubtful:
            *earlier, latest = candidates[seed]
            of_others = [c.fits for other, of_other in candidates.items() if other != seed for c in of_other]
            new_of_others = [fit for other, fit in newest.items() if other != seed]
            vectors = work.vectors(seed)
            latest.judge_by(replicates or of_others, vectors)
            for candidate in earlier:  # only new fits can change their verdicts
                candidate.judge_by(new_replicates or new_of_others, vectors)
        best = {seed: max(of_seed, key=lambda c: c.worst.score) for seed, of_seed in candidates.items()}
        found = [seed for seed, candidate in best.items() if candidate.worst.label != "aligned"]
        doubtful = distributed.broadcast(found)
        if not doubtful:
            break
    refits = sum(len(of_seed) - 1 for of_seed in candidates.values())
    return best, {"restarts": refits} if row.restarts else {}


def replicate_seeds(row: Align | AlignJointly) -> list[int]:
    """Return the seed of an extra fit to judge by, for one seed or if all seeds see the same texts."""
    if len(row.seeds) > 1 and not row.splits:
        return []
    seeds = list(row.seeds)
    return [next(seed for seed in count(seeds[0] + REPLICATE) if seed not in seeds)]


def fit_draws(work: Work, draws: Sequence[Draw]) -> list[Fits]:
    """Return the fit of each draw. Each process makes its share and reads the others' from disk."""
    mine = distributed.assign_round_robin(draws)
    run_fits([partial(stored_fit, work, draw) for draw in mine], work.row.aligner, work.clouds)
    distributed.barrier()
    return [stored_fit(work, draw) for draw in draws]


def run_fits(fits: Sequence[Callable[[], Result]], aligner: str, clouds: Sequence[Tensor]) -> list[Result]:
    """Run fits to these clouds and return their results.

    On a CPU run them in parallel threads: a fit is many small products, which gain little from a second core.
    Run them one after the other if the aligner is not thread-safe or the clouds are LARGE.
    """
    on_cpu = all(cloud.device.type == "cpu" for cloud in clouds)
    small = sum(cloud.nbytes for cloud in clouds) <= LARGE
    if aligner_module(aligner).THREAD_SAFE and on_cpu and small:
        return side_by_side(fits)
    return [fit() for fit in fits]


def stored_fit(work: Work, draw: Draw) -> Fits:
    """Return a fit from disk, after making it if it is not there: a killed run continues at its last seed."""
    folder = work.folder / "fits" / f"{draw.seed}-{draw.restart}"
    paths = {pair: folder.joinpath(*pair) for pair in work.pairs}
    if not all(path.with_suffix(".json").exists() for path in paths.values()):  # `save` writes them last
        curves = draw.seed in work.row.seeds and not draw.restart
        for pair, translator in work.fit(draw, _log(work, draw.seed) if curves else None).items():
            paths[pair].parent.mkdir(parents=True, exist_ok=True)
            save(translator, paths[pair])
    return {pair: load(path).to(work.device) for pair, path in paths.items()}


def _log(work: Work, seed: int) -> Log:
    """Return where a seed's curves go: to the run on rank 0, else to a file for `log_other_ranks`."""
    prefix = "" if len(work.row.seeds) == 1 else f"seed-{seed}/"

    def log(metrics: dict[str, float], step: int) -> None:
        named = {prefix + name: value for name, value in metrics.items()}
        if distributed.rank() == 0:
            return work.run.log(named, step)
        with open(work.folder / f"{seed}{CURVES}", "a", encoding="utf-8") as file:
            print(json.dumps([named, step]), file=file)

    return log


def log_other_ranks(work: Work) -> None:
    """Log the curves of other processes' fits to the run."""
    for file in sorted(work.folder.glob(f"*{CURVES}")):
        for line in file.read_text(encoding="utf-8").splitlines():
            work.run.log(*json.loads(line))
        file.unlink()


def write_translators(folder: Path, best: Mapping[int, Candidate], pair: Pair) -> None:
    """Write a pair's translators by seed, and their verdicts, by which to choose one without pairs."""
    folder.mkdir(parents=True, exist_ok=True)
    for seed, candidate in best.items():
        save(candidate.fits[pair], folder / f"seed-{seed}")
    write_verdicts(folder, verdicts_of(best, pair))


def write_verdicts(folder: Path, verdicts: Mapping[int, Verdict]) -> None:
    """Write verdicts.json: a verdict for each seed."""
    by_seed = {seed: asdict(verdict) for seed, verdict in verdicts.items()}
    (folder / "verdicts.json").write_text(json.dumps(by_seed, indent=2) + "\n", encoding="utf-8")


def verdicts_of(best: Mapping[int, Candidate], pair: Pair) -> dict[int, Verdict]:
    """Return the verdicts on a pair by seed; none if nothing was judged."""
    return {seed: candidate.verdicts[pair] for seed, candidate in best.items() if candidate.verdicts}


def summary(best: Mapping[int, Candidate], pair: Pair) -> dict[str, Any]:
    """Return the mean score, the share of seeds that are aligned, and the verdict of each seed."""
    verdicts = verdicts_of(best, pair)
    if not verdicts:
        return {"seeds": len(best)}
    return {
        "seeds": len(best),
        "verdict": sum(verdict.score for verdict in verdicts.values()) / len(verdicts),
        "aligned": sum(verdict.label == "aligned" for verdict in verdicts.values()) / len(verdicts),
        "by seed": {str(seed): asdict(verdict) for seed, verdict in verdicts.items()},
    }
