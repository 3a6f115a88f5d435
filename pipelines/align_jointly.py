"""align_jointly: several spaces, each with its own part of the texts -> data/translators/<row>/<source>/<target>/ for every
ordered pair, and a verdict on each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from pipelines.align import boundary, log_to, shuffled, summary, write_verdicts
from pipelines.aligners.core.translator import Translator, load, save
from pipelines.aligners.core.verdict import REPLICATE, judge
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.runtime.log import Log
from pipelines.study import AlignJointly, aligner_module, params

Fits = dict[tuple[str, str], Translator]  # by ordered pair


def parts(spaces: Mapping[str, store.Embeddings], row: AlignJointly, seed: int) -> dict[str, Tensor]:
    """Vectors of the train texts, cut into as many parts as there are spaces: spaces of one corpus share no text.

    A space of a corpus of its own still gets one part, so that sizes do not depend on what it is fitted with. Raises BadInput
    for fewer than two vectors.
    """
    drawn, first = {}, next(iter(spaces.values()))
    for number, (name, space) in enumerate(spaces.items()):
        corpus = space.metadata.get("corpus")
        same = corpus == first.metadata.get("corpus")
        if same:
            store.same_texts(first, space)
        rows = shuffled(space, "source" if same else f"corpus {corpus}", seed)
        start, end = (boundary(space, rows, n * len(rows) // len(spaces)) for n in (number, number + 1))
        rows = rows[start:end][: row.limit]
        if len(rows) < 2:
            raise BadInput(f"align_jointly: {name} has too few train rows to share among {len(spaces)} spaces")
        drawn[name] = space.vectors[rows]
    return drawn


def align_jointly(name: str, row: AlignJointly, study: params.Study, run: track.Run) -> None:
    """Fit all translators once per seed, then judge each as `align` does, with the other seeds' as replicates or one more fit."""
    device = resolve(row.device, float64=True)
    spaces = {space: store.read_embeddings(space, device) for space in row.spaces}
    for space in spaces:
        run.input(store.embeddings_path(space), "space")
    seeds = [*row.seeds, *([row.seeds[0] + REPLICATE] if len(row.seeds) == 1 else [])]
    metrics = {}
    with store.work("align_jointly", name, row, *(space.metadata for space in spaces.values())) as work:
        fits = {}
        for seed in seeds:
            log = partial(log_to, run, "" if len(row.seeds) == 1 else f"seed-{seed}/") if seed in row.seeds else None
            drafts = work / ("translators" if seed in row.seeds else "replicate")
            fits[seed] = kept(drafts, row, seed, device, partial(fit, row, spaces, seed, log, work))
        verdicts = {pair: {} for pair in row.pairs()}
        for seed in row.seeds:
            drawn = parts(spaces, row, seed)
            for pair, of_seed in verdicts.items():
                replicates = [fits[other][pair] for other in seeds if other != seed]
                of_seed[seed] = judge(drawn[pair[0]], fits[seed][pair], replicates)
        for pair, of_seed in verdicts.items():
            write_verdicts(work / "translators" / Path(*pair), of_seed)
            metrics["/".join(pair)] = summary(row.seeds, of_seed)
        store.write_metrics("align_jointly", name, metrics)
        store.move_into(work / "translators", store.translators_path(name))
    run.log({f"{pair}/{k}": v for pair, summed in metrics.items() for k, v in summed.items() if k != "by seed"})


def fit(row: AlignJointly, spaces: Mapping[str, store.Embeddings], seed: int, log: Log | None, folder: Path) -> Fits:
    """One fit of all pairs; `folder` is for checkpoints."""
    start = {}
    if row.extends:
        base = store.intact(store.translators_path(row.extends))
        pairs = [(a.name, b.name) for a in sorted(base.iterdir()) for b in sorted(a.iterdir())]
        start = {pair: load(base.joinpath(*pair, f"seed-{seed}")) for pair in pairs}
    return aligner_module(row.aligner).fit_jointly(parts(spaces, row, seed), row.settings, seed, start, log, folder)


def kept(folder: Path, row: AlignJointly, seed: int, device: torch.device, make) -> Fits:
    """Translators as they are on disk, fitted if they are not all there: a killed run continues at the seed it was at."""
    paths = {pair: folder.joinpath(*pair, f"seed-{seed}") for pair in row.pairs()}
    if not all(path.with_suffix(".json").exists() for path in paths.values()):
        for pair, translator in make().items():
            paths[pair].parent.mkdir(parents=True, exist_ok=True)
            save(translator, paths[pair])
    return {pair: load(path).to(device) for pair, path in paths.items()}


if __name__ == "__main__":
    stage.main(align_jointly)
