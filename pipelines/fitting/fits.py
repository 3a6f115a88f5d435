"""Fit all seeds of a row, judge each fit without pairs, and refit what is not aligned.

With several processes, each process makes its share of the fits. The translators do not depend on the number
of processes.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from pipelines import distributed
from pipelines.aligners.core.aligner import Pair
from pipelines.aligners.core.translator import Translator, load, save
from pipelines.aligners.core.verdict import REPLICATE_SEED, Verdict, judge, part_for_replicate
from pipelines.runtime import store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import write_text
from pipelines.runtime.progress import Log, about
from pipelines.runtime.threads import side_by_side
from pipelines.study import Align, AlignJointly, aligner_module

RESTART = 10_000_019  # added to a seed for each restart; far from REPLICATE_SEED and from usual seeds
LARGE = 2**30  # bytes of vectors above which fits run one after the other, each on all cores
MADE = "translators"  # subfolder of unfinished work
CURVES = ".curves.jsonl"  # ending of files with the logged metrics of fits in other processes
Translators = dict[Pair, Translator]  # of one fit, by source and target space


class FitId(NamedTuple):
    """Which fit of a row. All three decide its random numbers.

    A replicate is fitted only to judge the fits of its seed. Each restart gives it other texts.
    """

    seed: int
    restart: int
    replicate: bool = False

    @property
    def generator_seed(self) -> int:
        """The seed of the aligner's random numbers. Each restart has other ones."""
        return (self.seed + self.replicate * REPLICATE_SEED + self.restart * RESTART) % 2**32

    @property
    def name(self) -> str:
        """`seed 1`, `seed 1, replicate`, `seed 1, restart 2` or `seed 1, replicate, restart 2`"""
        replicate = ", replicate" if self.replicate else ""
        return f"seed {self.seed}{replicate}" + (f", restart {self.restart}" if self.restart else "")

    def seed_of_texts(self, row: Align | AlignJointly) -> int:
        """Return the seed that draws the texts. A row with `splits` has no other texts for a replicate."""
        return self.generator_seed if self.replicate and not row.splits else self.seed

    def seen(self, row: Align | AlignJointly, clouds: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return what the fit sees of these texts: all, but in a row with `splits` a replicate lacks some."""
        return part_for_replicate(clouds, self.restart) if self.replicate and row.splits else clouds


@dataclass(frozen=True)
class Work:
    """A row's fits: how to make one, and how to judge it."""

    row: Align | AlignJointly
    run: track.Run
    folder: Path  # unfinished work of this row
    device: torch.device
    subfolders: Mapping[Pair, str]  # of each translator, by (source, target); "" if there is one pair
    clouds: Sequence[Tensor]  # all vectors of each space: `run_fits` asks for their size
    fit: Callable[[FitId, Log | None], Translators]  # chooses the texts, and fits
    vectors_of_seed: Callable[[int], Mapping[str, Tensor]]  # by space, what the fits of a seed see
    judged: bool = True  # whether the fits get a verdict


@dataclass(frozen=True)
class Candidate:
    """A fit, its verdicts, and the translators that it was compared with."""

    translators: Translators
    verdicts: dict[Pair, Verdict] = field(default_factory=dict)
    judges: dict[Pair, list[Translator]] = field(default_factory=dict)

    @classmethod
    def judged_by(
        cls, others: Sequence[Translators], translators: Translators, vectors: Mapping[str, Tensor]
    ) -> Self:
        """Return a candidate whose translators are judged by their highest agreement with any of `others`.

        Agreement with one fit is enough, because two wrong fits rarely agree (`core.verdict`).
        """
        judges = {pair: [other[pair] for other in others] for pair in translators}
        verdicts = {}
        for pair, translator in translators.items():
            source, target = (vectors[space] for space in pair)
            verdicts[pair] = judge(source, translator, target, judges[pair])
        return cls(translators, verdicts, judges)

    @property
    def aligned(self) -> bool:
        """Whether all verdicts are *aligned*.

        *partial* is not enough: a poor replicate can make a right map look partial, and a restart may correct
        this.
        """
        return all(verdict.label == "aligned" for verdict in self.verdicts.values())

    def rank(self) -> tuple[bool, float, float]:
        """Return a fit's sort key: the lowest label, share and score of its pairs."""
        labels, shares, scores = zip(*(verdict.rank for verdict in self.verdicts.values()), strict=True)
        return min(labels), min(shares), min(scores)


@contextmanager
def opened(
    verb: str, name: str, row: Align | AlignJointly, run: track.Run, *more: Path
) -> Iterator[tuple[dict[str, store.Embeddings], torch.device, Path]]:
    """Yield the spaces of a row by name, its device and the folder of its unfinished work.

    All processes of the row share the folder. more: all other inputs of the fits.
    """
    device = resolve(row.device, float64=True)
    with distributed.process_group(device):
        spaces = {space: store.read_embeddings(space, device) for space in row.spaces}
        paths = [store.embeddings_path(space) for space in spaces]
        for path in paths:
            run.input(path, "space")
        own = ("aligners/core", f"aligners/{row.aligner}", "distributed", "fitting", "measures", verb)
        code = store.code_digest(*own)
        unfinished = store.work(verb, name, row, code, device.type, *paths, *more)
        with distributed.on_rank_zero(unfinished) as folder:
            yield spaces, device, folder


def fit_row(verb: str, name: str, work: Work, counts: Callable[[Pair], dict[str, int]]) -> None:
    """Fit the seeds of a row; write translators, verdicts and metrics of each pair, and log the numbers.

    `verb` is the table, `name` the row. `counts` returns what the texts of two spaces have in common.
    """
    best, refits = fit_until_aligned(work)
    if distributed.rank() != 0:
        return
    log_other_ranks(work)
    restarts = {"restarts": refits} if work.row.restarts else {}
    metrics = {}
    for pair, subfolder in work.subfolders.items():
        verdicts = write_pair(work, pair, best)
        of_pair: dict[str, Any] = {"seeds": len(best)}
        if verdicts:
            of_pair |= verdict_metrics(verdicts) | restarts | counts(pair)
        metrics[subfolder] = of_pair
        group = f"alignment/{subfolder}".rstrip("/")
        for seed, verdict in verdicts.items():
            work.run.log({f"seed-{seed}/{group}": {"verdict": verdict.score, "agreement": verdict.agreement}})
        work.run.log({group: {key: value for key, value in of_pair.items() if key != "by seed"}})
        if verdicts:
            line = ", ".join(f"seed {seed} {verdict.short}" for seed, verdict in verdicts.items())
            print(f"{subfolder}: {line}" if subfolder else line)
    store.write_metrics(verb, name, metrics.get("", metrics))  # metrics of a single pair are not nested
    store.publish_folder(work.folder / MADE, store.translators_path(name))


def write_pair(work: Work, pair: Pair, best: Mapping[int, Candidate]) -> dict[int, Verdict]:
    """Write translators and verdicts of a pair of spaces, and return the verdict of each seed."""
    folder = work.folder / MADE / work.subfolders[pair]
    folder.mkdir(parents=True, exist_ok=True)
    for seed, candidate in best.items():
        save(candidate.translators[pair], folder / f"seed-{seed}")
    verdicts = {seed: candidate.verdicts[pair] for seed, candidate in best.items() if work.judged}
    write_verdicts(folder, verdicts)
    return verdicts


def fit_until_aligned(work: Work) -> tuple[dict[int, Candidate], int]:
    """Return the best fit of each seed, and the number of refits, summed over the seeds.

    Judge each fit by its worst pair of spaces. Refit seeds that are not aligned, up to the row's `restarts`
    times.
    """
    if not work.judged:
        return {fit_id.seed: Candidate(fit) for fit_id, fit in fit_seeds(work, work.row.seeds, 0).items()}, 0
    best: dict[int, Candidate] = {}
    fits: dict[FitId, Translators] = {}  # of all restarts so far
    to_fit = [*work.row.seeds]
    for restart in range(work.row.restarts + 1):
        fits |= fit_seeds(work, to_fit, restart)
        for seed in to_fit:
            own = [fit for fit_id, fit in fits.items() if fit_id.seed == seed and not fit_id.replicate]
            judges = [fit for fit_id, fit in fits.items() if fit_id.seed == seed and fit_id.replicate]
            if not judges:  # a row without replicates: the fits of other seeds judge
                judges = [fit for fit_id, fit in fits.items() if fit_id.seed != seed]
            vectors = work.vectors_of_seed(seed)
            judged = (Candidate.judged_by(judges, fit, vectors) for fit in own)
            best[seed] = max(judged, key=Candidate.rank)
        not_aligned = [seed for seed, candidate in best.items() if not candidate.aligned]
        to_fit = distributed.broadcast(not_aligned)  # one decision for all processes
        if not to_fit:
            break
    return best, sum(not fit_id.replicate for fit_id in fits) - len(best)


def fit_seeds(work: Work, seeds: Sequence[int], restart: int) -> dict[FitId, Translators]:
    """Return the fits of these seeds, and a replicate of each if the row needs replicates.

    It needs none if the fits of its seeds can judge each other: there are several, and they see different
    texts. A wrong replicate makes a right fit look wrong, so each restart makes new ones. Some draws of texts
    are too hard for any restart.
    """
    fit_ids = [FitId(seed, restart) for seed in seeds]
    if work.judged and (work.row.splits or len(work.row.seeds) == 1):
        fit_ids += [FitId(seed, restart, replicate=True) for seed in seeds]
    # Each process makes its share
    mine = fit_ids[distributed.rank() :: distributed.world_size()]
    run_fits(work, mine)
    distributed.barrier()  # all fits are on disk now, and `load_or_fit` only reads them
    return {fit_id: load_or_fit(work, fit_id) for fit_id in fit_ids}


def run_fits(work: Work, fit_ids: Sequence[FitId]) -> None:
    """Make these fits, unless they are on disk.

    On a CPU run fits in parallel threads: a fit is many small matrix products, which gain little from a
    second core. Run fits one after the other if the aligner is not thread-safe or the clouds are LARGE.
    """
    fits = [partial(load_or_fit, work, fit_id) for fit_id in fit_ids]
    small = sum(cloud.nbytes for cloud in work.clouds) <= LARGE
    if aligner_module(work.row.aligner).THREAD_SAFE and work.device.type == "cpu" and small:
        side_by_side(fits)
        return
    for fit in fits:
        fit()


def load_or_fit(work: Work, fit_id: FitId) -> Translators:
    """Return a fit from disk. Make it if it is not there, so that a killed run loses no finished fit."""
    folder = work.folder / "fits" / fit_id.name  # the name tells a replicate from a fit of the same seed
    paths = {pair: folder.joinpath(*pair) for pair in work.subfolders}
    if not all(path.with_suffix(".json").exists() for path in paths.values()):  # `save` writes .json last
        first = not fit_id.replicate and not fit_id.restart  # one curve for each seed
        log = _log(work, fit_id.seed) if first else None
        with about(fit_id.name):
            made = work.fit(fit_id, log)
        if made.keys() != paths.keys():
            found, needed = (", ".join(sorted(map("/".join, of))) for of in (made, paths))
            raise BadInput(
                f"{work.row.aligner}, seed {fit_id.seed}: returned pairs {found}; needed: {needed}"
            )
        for pair, translator in made.items():
            if not isinstance(translator, Translator):
                kind = type(translator).__name__
                raise BadInput(f"{work.row.aligner}, seed {fit_id.seed}: returned a {kind}, not a Translator")
            paths[pair].parent.mkdir(parents=True, exist_ok=True)
            save(translator, paths[pair])
    return {pair: load(path).to(work.device) for pair, path in paths.items()}


def _log(work: Work, seed: int) -> Log:
    """Return a function that logs metrics of a seed: to the run on rank 0, else to a file.

    `log_other_ranks` reads the files.
    """
    prefix = "" if len(work.row.seeds) == 1 else f"seed-{seed}/"
    path = work.folder / f"{seed}{CURVES}"
    path.unlink(missing_ok=True)  # of a killed run

    def log(metrics: dict[str, float], step: int) -> None:
        named = {prefix + name: value for name, value in metrics.items()}
        if distributed.rank() == 0:
            return work.run.log(named, step)
        with open(path, "a", encoding="utf-8") as file:
            print(json.dumps([named, step]), file=file)

    return log


def log_other_ranks(work: Work) -> None:
    """Log the curves of other processes' fits to the run."""
    for file in sorted(work.folder.glob(f"*{CURVES}")):
        for line in file.read_text(encoding="utf-8").splitlines():
            work.run.log(*json.loads(line))
        file.unlink()


def write_verdicts(folder: Path, verdicts: Mapping[int, Verdict]) -> None:
    """Write verdicts.json: a verdict for each seed."""
    by_seed = {seed: asdict(verdict) for seed, verdict in verdicts.items()}
    write_text(folder / "verdicts.json", json.dumps(by_seed, indent=2) + "\n")


def verdict_metrics(verdicts: Mapping[int, Verdict]) -> dict[str, Any]:
    """Return metrics of the verdicts of all seeds.

    `verdict`: mean score. `aligned`: share of aligned seeds. `share`: mean share of correctly mapped source
    vectors over seeds that are aligned or partial, 0 if none is. `by seed`: each verdict.
    """
    shares = [verdict.share for verdict in verdicts.values() if verdict.share]
    return {
        "verdict": sum(verdict.score for verdict in verdicts.values()) / len(verdicts),
        "share": sum(shares) / max(1, len(shares)),
        "aligned": sum(verdict.label == "aligned" for verdict in verdicts.values()) / len(verdicts),
        "by seed": {str(seed): asdict(verdict) for seed, verdict in verdicts.items()},
    }
