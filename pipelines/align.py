"""align: vectors of one half of the texts and target vectors of the OTHER half -> data/translators/<row>/, and a verdict."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from pipelines import distributed
from pipelines.aligners.core.translator import Translator, load, save
from pipelines.aligners.core.verdict import REPLICATE, Verdict, judge
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.log import Log
from pipelines.runtime.threads import side_by_side
from pipelines.study import Align, AlignJointly, aligner_module, params

RESTART = 10_000_019  # added to a seed for each restart
CURVES = ".curves.jsonl"
LARGE = 2**30  # bytes of vectors: a fit of so many fills the cores by itself, and two need twice the memory
Fit = TypeVar("Fit")
Verdicts = dict[tuple[str, str], Verdict]  # on each translator of a fit, by source and target


@dataclass(frozen=True)
class Halves:
    """What an attacker has: vectors of two disjoint sets of texts."""

    source: Tensor  # (n, d)
    target: Tensor  # (m, e)
    pairs: (
        Tensor | None
    )  # (k, 2) indices into source and target of the same texts, where the row grants known pairs
    shared: int = 0  # texts on both sides beside those pairs: none, or the halves are none


def halves(
    source: store.Embeddings, target: store.Embeddings, row: Align, seed: int, replicate: bool = False
) -> Halves:
    """Draw two disjoint halves of the train texts, or the two splits that the row names; with `pairs: k`, append k texts to both
    sides. A document whose rows overlap is on one side alone, but for those pairs.

    Of two different corpora each side still gets one half, so that a row's sizes do not depend on what it is paired with.
    replicate: of two splits, which all seeds see whole, take half of each. Raises BadInput for fewer than two vectors a side.
    """
    most_x, most_y = row.limits
    one_corpus = source.metadata.get("corpus") == target.metadata.get("corpus")
    if one_corpus:
        store.same_texts(source, target)
    if row.splits:
        rows_x, rows_y = (
            shuffled(e, "source", seed, split) for e, split in zip((source, target), row.splits, strict=True)
        )
        share = (
            2 if replicate else 1
        )  # seeds have all the dump; a replicate must have other texts, and has half of them
        for rows, side, split in zip((rows_x, rows_y), (source, target), row.splits, strict=True):
            if len(rows) < 2 * share:
                needed = "four" if replicate else "two"
                raise BadInput(
                    f"align: {side.name} has {len(rows)} rows of split {split!r}; {needed} are needed"
                )
        rows_x, rows_y = rows_x[: len(rows_x) // share][:most_x], rows_y[: len(rows_y) // share][:most_y]
        return Halves(
            source.vectors[rows_x], target.vectors[rows_y], None, on_both(source, target, rows_x, rows_y)
        )
    rows_x = shuffled(source, "source", seed)
    rows_y = rows_x if one_corpus else shuffled(target, "target", seed)
    shared = rows_x[: row.pairs] if one_corpus else rows_x[:0]
    if row.pairs > len(shared):
        raise BadInput(
            f"align: {row.pairs} known pairs asked for, but {source.name} and {target.name} share {len(shared)}"
        )
    first = boundary(source, rows_x, row.pairs)
    middle_x = boundary(source, rows_x, (len(rows_x) + row.pairs) // 2)
    middle_y = middle_x if one_corpus else boundary(target, rows_y, (len(rows_y) + row.pairs) // 2)
    rows_x, rows_y = rows_x[first:middle_x][:most_x], rows_y[middle_y:][:most_y]
    if min(len(rows_x), len(rows_y)) < 2:
        raise BadInput(f"align: {source.name} and {target.name} have too few train rows to halve")
    k = torch.arange(row.pairs)
    pairs = torch.stack([len(rows_x) + k, len(rows_y) + k], 1) if row.pairs else None
    both = on_both(source, target, rows_x, rows_y)
    return Halves(
        source.vectors[torch.cat([rows_x, shared])], target.vectors[torch.cat([rows_y, shared])], pairs, both
    )


def on_both(source: store.Embeddings, target: store.Embeddings, rows_x: Tensor, rows_y: Tensor) -> int:
    """How many texts of one corpus are among the rows of both; ids of two corpora may be the same by chance."""
    if source.metadata.get("corpus") != target.metadata.get("corpus"):
        return 0
    return len(set(source.ids[rows_x.numpy()]) & set(target.ids[rows_y.numpy()]))


def paired_rows(
    source: store.Embeddings, target: store.Embeddings, row: Align, seed: int
) -> tuple[Tensor, Tensor]:
    """True pairs, for oracles only: as many as `halves` gives to the smaller side, of the dump's split if the row names one."""
    store.same_texts(source, target)
    rows = shuffled(source, "source", seed, row.splits[0] if row.splits else "train")
    rows = rows[: len(rows) if row.splits else boundary(source, rows, len(rows) // 2)]
    rows = rows[: min((most for most in row.limits if most is not None), default=None)]
    return source.vectors[rows], target.vectors[rows]


def shuffled(embeddings: store.Embeddings, salt: str, seed: int, split: str = "train") -> Tensor:
    """The rows of a split in random order; where rows overlap, the documents in random order, the rows of each together."""
    rows = embeddings.rows(split)
    key = hashlib.sha256(f"{salt}:{seed}".encode()).digest()[:7]  # two corpora: two independent permutations
    generator = torch.Generator().manual_seed(int.from_bytes(key, "big"))
    if embeddings.documents is None:
        return rows[torch.randperm(len(rows), generator=generator)]
    names, document = np.unique(embeddings.documents[rows.numpy()], return_inverse=True)
    place = torch.randperm(len(names), generator=generator)
    return rows[place[torch.from_numpy(document)].argsort(stable=True)]


def boundary(embeddings: store.Embeddings, rows: Tensor, at: int) -> int:
    """Where to cut shuffled rows: at `at`, or after the rest of the document that this would cut in two."""
    if embeddings.documents is None or not 0 < at < len(rows):
        return at
    documents = embeddings.documents[rows.numpy()]
    elsewhere = np.flatnonzero(documents[at:] != documents[at - 1])
    return at + int(elsewhere[0]) if len(elsewhere) else len(rows)


def align(name: str, row: Align, study: params.Study, run: track.Run) -> None:
    """Fit one translator per seed, then judge each from unpaired vectors alone, with the other seeds as replicates; where there
    are none, or all have the same texts, with one more fit. What is not `aligned` is fitted again, up to `restarts` times.

    Of several processes each makes its share of the fits, and the first one writes: translators do not depend on their number.
    """
    device = resolve(row.device, float64=True)
    judges = row.supervision in ("unpaired", "few pairs")  # oracles and the naive reading make no claim
    with distributed.process_group(device):
        source, target = store.read_embeddings(row.source, device), store.read_embeddings(row.target, device)
        run.input(store.embeddings_path(row.source), "source")
        run.input(store.embeddings_path(row.target), "target")
        with distributed.on_rank_zero(
            store.work("align", name, row, source.metadata, target.metadata)
        ) as folder:

            def make(seed: int, restart: int, replicate: bool) -> Translator:
                log = logged(run, folder, row, seed) if seed in row.seeds and not restart else None
                path = folder / "fits" / f"{seed}-{restart}"
                return _kept(
                    path, device, partial(fit, row, source, target, seed, log, folder, replicate, restart)
                )

            def judge_of(seed: int) -> Callable[[Translator, Sequence[Translator]], Verdicts]:
                drawn = halves(source, target, row, seed).source
                return lambda translator, replicates: {
                    (row.source, row.target): judge(drawn, translator, replicates)
                }

            made = partial(shared, make, row.aligner, (source.vectors, target.vectors))
            fits, verdicts = judged(row, made, judge_of if judges else None)
            if distributed.rank() == 0:
                retell(run, folder)
                translators = folder / "translators"
                translators.mkdir(exist_ok=True)
                for seed, of_seed in fits.items():
                    save(of_seed[verdicts[seed][0] if verdicts else 0], translators / f"seed-{seed}")
                words = {
                    seed: verdict for seed, (_, of_seed) in verdicts.items() for verdict in of_seed.values()
                }
                both = (
                    {"shared": max(halves(source, target, row, seed).shared for seed in row.seeds)}
                    if judges
                    else {}
                )
                summed = summary(row.seeds, words) | restarts(row, fits) | both
                store.write_metrics("align", name, summed)
                write_verdicts(translators, words)
                store.move_into(translators, store.translators_path(name))
                for seed, verdict in words.items():
                    run.log(
                        {
                            f"seed-{seed}": {
                                "alignment": {"verdict": verdict.score, "agreement": verdict.agreement}
                            }
                        }
                    )
                run.log({"alignment": {k: v for k, v in summed.items() if k != "by seed"}})


def shared(
    make: Callable[..., Fit], aligner: str, clouds: Sequence[Tensor], wanted: Sequence[tuple]
) -> list[Fit]:
    """What `make` gives for each of `wanted`. Of several processes each makes its share, and finds the others' on disk, where
    `make` keeps them."""
    each([partial(make, *one) for one in distributed.assign_round_robin(wanted)], aligner, clouds)
    distributed.barrier()
    return [make(*one) for one in wanted]


def each(fits: Sequence[Callable[[], Fit]], aligner: str, clouds: Sequence[Tensor]) -> list[Fit]:
    """What each fit to these clouds gives: on a CPU side by side, as a fit is many small products, which gain little from a
    second core; one after the other where the aligner is not THREAD_SAFE or the clouds are LARGE."""
    alone = not aligner_module(aligner).THREAD_SAFE or any(cloud.device.type != "cpu" for cloud in clouds)
    if alone or sum(cloud.nbytes for cloud in clouds) > LARGE:
        return [fit() for fit in fits]
    return side_by_side(fits)


def judged(
    row: Align | AlignJointly,
    made: Callable[[Sequence[tuple[int, int, bool]]], list[Fit]],
    judge_of: Callable[[int], Callable[[Fit, Sequence[Fit]], Verdicts]] | None,
) -> tuple[dict[int, list[Fit]], dict[int, tuple[int, Verdicts]]]:
    """The fits of each seed, and which of them has the best verdicts, with those: of a fit the worst counts. `made` makes (seed,
    restart, replicate): what is not `aligned` is fitted again, and so are replicates, which may be what is wrong.
    `judge_of(seed)` judges a fit of that seed by replicates; None: nobody does."""
    of_replicates = replicate_seeds(row) if judge_of else []
    fits: dict[int, list[Fit]] = {seed: [] for seed in row.seeds}
    found: dict[int, list[Verdicts]] = {seed: [] for seed in row.seeds}  # of each of the fits
    best: dict[int, tuple[int, Verdicts]] = {}
    extra, doubtful = [], [*row.seeds]
    for restart in range(row.restarts + 1):
        new = made(
            [
                *((seed, restart, False) for seed in doubtful),
                *((seed, restart, True) for seed in of_replicates),
            ]
        )
        newest, new_replicates = dict(zip(doubtful, new, strict=False)), new[len(doubtful) :]
        extra += new_replicates
        for seed, fit in newest.items():
            fits[seed].append(fit)
        if judge_of is None:
            break
        for seed in doubtful:
            verdicts_of = judge_of(seed)
            replicates = extra or [m for apart, others in fits.items() if apart != seed for m in others]
            fresh = new_replicates or [m for apart, m in newest.items() if apart != seed]
            if fresh:  # the best replicate counts: of the earlier fits these alone can change a verdict
                again = [verdicts_of(fit, fresh) for fit in fits[seed][:-1]]
                for earlier, now in zip(found[seed], again, strict=True):
                    earlier.update(
                        {pair: max(earlier[pair], verdict, key=score) for pair, verdict in now.items()}
                    )
            found[seed].append(verdicts_of(newest[seed], replicates))
        best = {
            seed: max(enumerate(those), key=lambda one: score(worst(one[1])))
            for seed, those in found.items()
            if those
        }
        doubtful = distributed.broadcast(
            [seed for seed, (_, verdicts) in best.items() if worst(verdicts).label != "aligned"]
        )
        if not doubtful:
            break
    return fits, best


def score(verdict: Verdict) -> float:
    return verdict.score


def worst(verdicts: Verdicts) -> Verdict:
    return min(verdicts.values(), key=score)


def restarts(row: Align | AlignJointly, fits: dict[int, list[Fit]]) -> dict[str, int]:
    """How many fits were restarts, for the metrics of a row that has them."""
    return {"restarts": sum(map(len, fits.values())) - len(fits)} if row.restarts else {}


def replicate_seeds(row: Align | AlignJointly) -> list[int]:
    """The seed, none of the row's, of the fit that judges the others, where there is but one or all see the same texts."""
    return (
        [next(s for s in count(row.seeds[0] + REPLICATE) if s not in row.seeds)]
        if len(row.seeds) == 1 or row.splits
        else []
    )


def write_verdicts(folder: Path, verdicts: dict[int, Verdict]) -> None:
    """Beside the translators, for who must choose one of them without pairs."""
    (folder / "verdicts.json").write_text(
        json.dumps({seed: asdict(v) for seed, v in verdicts.items()}, indent=2) + "\n"
    )


def _kept(path: Path, device: torch.device, fit: Callable[[], Translator]) -> Translator:
    """A translator as it is on disk, fitted if it is not there yet: a killed run continues at the seed it was at."""
    if not path.with_suffix(".json").exists():  # written last
        path.parent.mkdir(exist_ok=True)
        save(fit(), path)
    return load(path).to(device)


def summary(seeds: Sequence[int], verdicts: dict[int, Verdict]) -> dict[str, Any]:
    """Mean score, share of the seeds that are `aligned`, and every seed's score, word and agreement."""
    if not verdicts:
        return {"seeds": len(seeds)}
    each = list(verdicts.values())
    mean, aligned = (
        sum(values) / len(each) for values in ([v.score for v in each], [v.label == "aligned" for v in each])
    )
    by_seed = {str(seed): asdict(v) for seed, v in verdicts.items()}
    return {"seeds": len(seeds), "verdict": mean, "aligned": aligned, "by seed": by_seed}


def fit(
    row: Align,
    source: store.Embeddings,
    target: store.Embeddings,
    seed: int,
    log: Log | None,
    folder: Path,
    replicate: bool = False,
    restart: int = 0,
) -> Translator:
    """Oracles get true pairs; `folder` goes to an aligner that keeps checkpoints there; replicate: as `halves` has it; restart:
    the same vectors, other random numbers."""
    module = aligner_module(row.aligner)
    if row.supervision == "oracle":
        return module.fit_oracle(*paired_rows(source, target, row, seed), row.settings, seed)
    data = halves(source, target, row, seed, replicate)
    drawn = restarted(seed, restart)
    return module.fit(data.source, data.target, row.settings, drawn, data.pairs, log, folder)


def restarted(seed: int, restart: int) -> int:
    """The seed of a restart's random numbers."""
    return (seed + restart * RESTART) % 2**32


def logged(run: track.Run, folder: Path, row: Align | AlignJointly, seed: int) -> Log:
    """Where the curves of a seed's fit go: to the run, which is the first process's; of others to a file, for `retell`."""
    prefix = "" if len(row.seeds) == 1 else f"seed-{seed}/"

    def log(metrics: dict[str, float], step: int) -> None:
        named = {prefix + k: v for k, v in metrics.items()}
        if distributed.rank() == 0:
            return run.log(named, step)
        with open(folder / f"{seed}{CURVES}", "a") as file:
            print(json.dumps([named, step]), file=file)

    return log


def retell(run: track.Run, folder: Path) -> None:
    """The curves of other processes' fits, to the run."""
    for file in sorted(folder.glob(f"*{CURVES}")):
        for line in file.read_text().splitlines():
            run.log(*json.loads(line))
        file.unlink()


if __name__ == "__main__":
    stage.main(align)
