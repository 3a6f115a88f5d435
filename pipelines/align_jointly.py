"""align_jointly: several spaces, each with its own part of the texts -> data/translators/<row>/<source>/<target>/ for every
ordered pair, and a verdict on each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pipelines import distributed
from pipelines.align import (
    Verdicts,
    boundary,
    judged,
    logged,
    restarted,
    restarts,
    retell,
    shared,
    shuffled,
    summary,
    write_verdicts,
)
from pipelines.aligners.core.translator import Translator, load, save
from pipelines.aligners.core.verdict import judge
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.log import Log
from pipelines.study import AlignJointly, aligner_module, params

Fits = dict[tuple[str, str], Translator]  # by ordered pair


def parts(
    spaces: Mapping[str, store.Embeddings], row: AlignJointly, seed: int, replicate: bool = False
) -> dict[str, Tensor]:
    """Vectors of the train texts, cut into as many parts as there are spaces, of which those that are paired count as one: spaces
    of one corpus share no text, and paired ones share all.

    A space of a corpus of its own still gets one part, so that sizes do not depend on what it is fitted with. Of two splits each
    part is the whole of one, or a half of it for a replicate. Raises BadInput for fewer than two vectors.
    """
    groups = [[name] for name in spaces if name not in row.paired] + ([[*row.paired]] if row.paired else [])
    drawn, first = {}, spaces[groups[0][0]]
    for number, (name, *others) in enumerate(groups):
        space, corpus = spaces[name], spaces[name].metadata.get("corpus")
        same = corpus == first.metadata.get("corpus")
        for other in [first] * same + [spaces[other] for other in others]:
            store.same_texts(other, space)
        rows = shuffled(
            space,
            "source" if same else f"corpus {corpus}",
            seed,
            row.splits[number] if row.splits else "train",
        )
        if row.splits:
            rows = rows[: len(rows) // (2 if replicate else 1)]
        else:
            start, end = (boundary(space, rows, n * len(rows) // len(groups)) for n in (number, number + 1))
            rows = rows[start:end]
        if len(rows) < 2:
            raise BadInput(f"align_jointly: {name} has too few rows to share among {len(groups)} parts")
        rows = rows[: row.limits[name in row.paired]]
        drawn |= {each: spaces[each].vectors[rows] for each in (name, *others)}
    return drawn


def align_jointly(name: str, row: AlignJointly, study: params.Study, run: track.Run) -> None:
    """Fit all translators once per seed, then judge each as `align` does, with the other seeds' as replicates or one more fit.
    Where one of them is not `aligned` all are fitted again, up to `restarts` times, and that fit is kept whose worst verdict is
    the best."""
    device = resolve(row.device, float64=True)
    with distributed.process_group(device):
        spaces = {space: store.read_embeddings(space, device) for space in row.spaces}
        for space in spaces:
            run.input(store.embeddings_path(space), "space")
        made_from = (row, *(space.metadata for space in spaces.values()))
        with distributed.on_rank_zero(store.work("align_jointly", name, *made_from)) as folder:

            def make(seed: int, restart: int, replicate: bool) -> Fits:
                log = logged(run, folder, row, seed) if seed in row.seeds and not restart else None
                drafts = folder / "fits" / f"{seed}-{restart}"
                return kept(
                    drafts, row, device, partial(fit, row, spaces, seed, log, folder, replicate, restart)
                )

            def judge_of(seed: int) -> Callable[[Fits, Sequence[Fits]], Verdicts]:
                drawn = parts(spaces, row, seed)

                def verdicts_of(fits: Fits, replicates: Sequence[Fits]) -> Verdicts:
                    return {
                        pair: judge(drawn[pair[0]], fits[pair], [other[pair] for other in replicates])
                        for pair in row.pairs()
                    }

                return verdicts_of

            made = partial(shared, make, row.aligner, [space.vectors for space in spaces.values()])
            fits, best = judged(row, made, judge_of)
            if distributed.rank() == 0:
                retell(run, folder)
                metrics: dict[str, dict[str, Any]] = {}
                for pair in row.pairs():
                    translators = folder.joinpath("translators", *pair)
                    translators.mkdir(parents=True, exist_ok=True)
                    for seed, (chosen, _) in best.items():
                        save(fits[seed][chosen][pair], translators / f"seed-{seed}")
                    words = {seed: verdicts[pair] for seed, (_, verdicts) in best.items()}
                    write_verdicts(translators, words)
                    metrics["/".join(pair)] = summary(row.seeds, words) | restarts(row, fits)
                store.write_metrics("align_jointly", name, metrics)
                store.move_into(folder / "translators", store.translators_path(name))
                run.log(
                    {
                        f"alignment/{pair}/{k}": v
                        for pair, of in metrics.items()
                        for k, v in of.items()
                        if k != "by seed"
                    }
                )


def fit(
    row: AlignJointly,
    spaces: Mapping[str, store.Embeddings],
    seed: int,
    log: Log | None,
    folder: Path,
    replicate: bool = False,
    restart: int = 0,
) -> Fits:
    """One fit of all pairs; `folder` is for checkpoints; replicate: as `parts` has it; restart: the same vectors, other random
    numbers."""
    clouds = parts(spaces, row, seed, replicate)
    drawn = restarted(seed, restart)
    start = {}
    if row.extends:
        base = store.intact(store.translators_path(row.extends))
        pairs = [(a.name, b.name) for a in sorted(base.iterdir()) for b in sorted(a.iterdir())]
        start = {pair: load(base.joinpath(*pair, f"seed-{seed}")) for pair in pairs}
    return aligner_module(row.aligner).fit_jointly(
        clouds, row.settings, drawn, row.paired, start, log, folder
    )


def kept(folder: Path, row: AlignJointly, device: torch.device, make: Callable[[], Fits]) -> Fits:
    """Translators as they are on disk, fitted if they are not all there: a killed run continues at the seed it was at."""
    paths = {pair: folder.joinpath(*pair) for pair in row.pairs()}
    if not all(path.with_suffix(".json").exists() for path in paths.values()):
        for pair, translator in make().items():
            paths[pair].parent.mkdir(parents=True, exist_ok=True)
            save(translator, paths[pair])
    return {pair: load(path).to(device) for pair, path in paths.items()}


if __name__ == "__main__":
    stage.main(align_jointly)
