"""align_jointly: fit several spaces together -> data/translators/<row>/<source>/<target>/, and judge each
pair.

Spaces see disjoint texts, except for those in `paired`, which share their texts.
"""

from collections.abc import Mapping
from pathlib import Path

from pipelines import distributed
from pipelines.aligners.core.aligner import Pair
from pipelines.aligners.core.translator import load
from pipelines.fitting.fits import Draw, Fit, Work, fit_row
from pipelines.fitting.splitting import in_common, largest, rows_of_parts, vectors_of_parts
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.log import Log
from pipelines.study import AlignJointly, aligner_module, params


def align_jointly(name: str, row: AlignJointly, study: params.Study, run: track.Run) -> None:
    """Fit the translators of all pairs once per seed, and judge each pair as `align` does."""
    device = resolve(row.device, float64=True)
    with distributed.process_group(device):
        spaces = {space: store.read_embeddings(space, device) for space in row.spaces}
        for space in spaces:
            run.input(store.embeddings_path(space), "space")
        code = store.code("aligners/core", f"aligners/{row.aligner}", "fitting", "measures")
        made_from = [row, code, *(store.digest(store.embeddings_path(space)) for space in spaces)]
        if row.extends:
            files = sorted(store.translators_path(row.extends).rglob("*.safetensors"))
            made_from += [store.digest(file) for file in files]
        with distributed.on_rank_zero(store.work("align_jointly", name, *made_from)) as folder:
            work = Work(
                row,
                run,
                folder,
                device,
                subfolders={pair: "/".join(pair) for pair in row.pairs()},
                clouds=[space.vectors for space in spaces.values()],
                fit=lambda draw, log: fit(row, spaces, draw, log, folder),
                vectors_of_seed=lambda seed: vectors_of_parts(spaces, row, seed),
            )
            drawn = [rows_of_parts(spaces, row, seed) for seed in row.seeds]

            def common(pair: Pair) -> dict[str, int]:
                sides = ([(spaces[space], rows[space]) for space in pair] for rows in drawn)
                return largest(in_common(*both) for both in sides)

            fit_row("align_jointly", name, work, common)


def fit(
    row: AlignJointly, spaces: Mapping[str, store.Embeddings], draw: Draw, log: Log | None, folder: Path
) -> Fit:
    """Make one fit of all pairs, starting from another row's translators if the row extends it."""
    clouds, start = vectors_of_parts(spaces, row, draw.seed, draw.replicate), {}
    if row.extends:
        base = store.intact(store.translators_path(row.extends))
        for file in base.glob(f"*/*/seed-{draw.seed}.json"):
            start[file.parent.parent.name, file.parent.name] = load(file.with_suffix(""))
    module = aligner_module(row.aligner)
    return module.fit_jointly(clouds, row.settings, draw.generator_seed, row.paired, start, log, folder)


if __name__ == "__main__":
    stage.main(align_jointly)
