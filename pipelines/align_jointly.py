"""align_jointly: fit several spaces together -> data/translators/<row>/<source>/<target>/, and judge each
pair.

Spaces see disjoint texts, except for those in `paired`, which share their texts.
"""

from collections.abc import Mapping
from pathlib import Path

from pipelines.aligners.core.aligner import Pair
from pipelines.aligners.core.translator import load
from pipelines.fitting.fits import FitId, Translators, Work, fit_row, opened
from pipelines.fitting.splitting import in_common, largest, rows_of_parts, vectors_of_parts
from pipelines.runtime import intact, stage, store, track
from pipelines.runtime.progress import Log
from pipelines.study import AlignJointly, aligner_module, params


def align_jointly(name: str, row: AlignJointly, study: params.Study, run: track.Run) -> None:
    """Fit the translators of all pairs once per seed, and judge each pair as `align` does."""
    base = [store.translators_path(row.extends)] if row.extends else []
    with opened("align_jointly", name, row, run, *base) as (spaces, device, folder):
        rows_of_seeds = [rows_of_parts(spaces, row, seed) for seed in row.seeds]

        def counts(pair: Pair) -> dict[str, int]:
            sides = ([(spaces[space], rows[space]) for space in pair] for rows in rows_of_seeds)
            return largest(in_common(*both) for both in sides)

        work = Work(
            row,
            run,
            folder,
            device,
            subfolders={pair: "/".join(pair) for pair in row.ordered_pairs()},
            clouds=[space.vectors for space in spaces.values()],
            fit=lambda fit_id, log: fit_one(row, spaces, fit_id, log, folder),
            vectors_of_seed=lambda seed: vectors_of_parts(spaces, row, seed),
        )
        fit_row("align_jointly", name, work, counts)


def fit_one(
    row: AlignJointly, spaces: Mapping[str, store.Embeddings], fit_id: FitId, log: Log | None, folder: Path
) -> Translators:
    """Make one fit of all pairs, starting from another row's translators if the row extends it."""
    vectors, start = vectors_of_parts(spaces, row, fit_id.seed_of_texts(row)), {}
    clouds = dict(zip(vectors, fit_id.seen(row, [*vectors.values()]), strict=True))
    if row.extends:  # such a row has no replicates
        base = intact.checked(store.translators_path(row.extends))
        for file in sorted(base.glob(f"*/*/seed-{fit_id.seed}.json")):  # the order decides the weights
            start[file.parent.parent.name, file.parent.name] = load(file.with_suffix(""))
    module = aligner_module(row.aligner)
    return module.fit_jointly(clouds, row.settings, fit_id.generator_seed, row.paired, start, log, folder)


if __name__ == "__main__":
    stage.main(align_jointly)
