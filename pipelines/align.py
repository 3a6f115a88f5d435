"""align: fit translators of two spaces -> data/translators/<row>/, and judge them without pairs."""

from pathlib import Path

from torch import Tensor

from pipelines.aligners.core.aligner import Pair
from pipelines.aligners.core.translator import Translator
from pipelines.fitting.fits import FitId, Work, fit_row, opened
from pipelines.fitting.splitting import halves, in_common, largest, paired_vectors, sides
from pipelines.runtime import stage, store, track
from pipelines.runtime.progress import Log
from pipelines.study import Align, aligner_module, params


def align(name: str, row: Align, study: params.Study, run: track.Run) -> None:
    """Fit one translator per seed, and judge each by its agreement with the others or with a replicate.

    Oracles and naive baselines are not judged.
    """
    pair = row.spaces
    with opened("align", name, row, run) as (spaces, device, folder):
        source, target = (spaces[space] for space in pair)

        def vectors_of_seed(seed: int) -> dict[str, Tensor]:
            data = halves(source, target, row, seed)
            return {row.source: data.source, row.target: data.target}

        def counts(_: Pair) -> dict[str, int]:
            return largest(in_common(*sides(source, target, row, seed)) for seed in row.seeds)

        work = Work(
            row,
            run,
            folder,
            device,
            subfolders={pair: ""},  # one pair: its files need no folder of their own
            clouds=[source.vectors, target.vectors],
            fit=lambda fit_id, log: {pair: fit_one(row, source, target, fit_id, log, folder)},
            vectors_of_seed=vectors_of_seed,
            judged=row.judged,
        )
        fit_row("align", name, work, counts)


def fit_one(
    row: Align,
    source: store.Embeddings,
    target: store.Embeddings,
    fit_id: FitId,
    log: Log | None,
    folder: Path,
) -> Translator:
    """Make one fit: an oracle gets true pairs, every other aligner what an attacker has.

    `folder` is for checkpoints.
    """
    module = aligner_module(row.aligner)
    if row.supervision == "oracle":
        return module.fit_oracle(*paired_vectors(source, target, row, fit_id.seed), row.settings, fit_id.seed)
    data = halves(source, target, row, fit_id.seed_of_texts(row))
    x, y = fit_id.seen(row, [data.source, data.target])
    return module.fit(x, y, row.settings, fit_id.generator_seed, data.pairs, log, folder)


if __name__ == "__main__":
    stage.main(align)
