"""align: fit translators of two spaces on disjoint texts -> data/translators/<row>/, and judge them without
pairs.
"""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from pipelines import distributed
from pipelines.aligners.core.translator import Translator
from pipelines.fitting.fits import (
    Draw,
    Work,
    fit_until_aligned,
    log_other_ranks,
    summary,
    verdicts_of,
    write_translators,
)
from pipelines.fitting.splitting import Halves, halves, largest, paired_rows
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.log import Log
from pipelines.study import Align, aligner_module, params


def align(name: str, row: Align, study: params.Study, run: track.Run) -> None:
    """Fit one translator per seed, and judge each by its agreement with the others or with a replicate."""
    device, pair = resolve(row.device, float64=True), (row.source, row.target)
    with distributed.process_group(device):
        source, target = store.read_embeddings(row.source, device), store.read_embeddings(row.target, device)
        run.input(store.embeddings_path(row.source), "source")
        run.input(store.embeddings_path(row.target), "target")
        unfinished = store.work("align", name, row, source.metadata, target.metadata)
        with distributed.on_rank_zero(unfinished) as folder:
            work = Work(
                row,
                run,
                folder,
                device,
                pairs=[pair],
                clouds=[source.vectors, target.vectors],
                fit=lambda draw, log: {pair: fit(row, source, target, draw, log, folder)},
                vectors=lambda seed: sides(row, halves(source, target, row, seed)),
                judged=row.supervision in ("unpaired", "few pairs"),
            )
            best, restarts = fit_until_aligned(work)
            if distributed.rank() == 0:
                log_other_ranks(work)
                write_translators(folder / "translators", best, pair)
                metrics = summary(best, pair) | restarts
                if work.judged:
                    metrics |= largest(halves(source, target, row, seed).in_common for seed in row.seeds)
                store.write_metrics("align", name, metrics)
                store.move_into(folder / "translators", store.translators_path(name))
                for seed, verdict in verdicts_of(best, pair).items():
                    found = {"verdict": verdict.score, "agreement": verdict.agreement}
                    run.log({f"seed-{seed}": {"alignment": found}})
                run.log({"alignment": {key: value for key, value in metrics.items() if key != "by seed"}})


def sides(row: Align, data: Halves) -> dict[str, Tensor]:
    """Return the vectors that a fit sees, by space."""
    return {row.source: data.source, row.target: data.target}


def fit(
    row: Align,
    source: store.Embeddings,
    target: store.Embeddings,
    draw: Draw,
    log: Log | None,
    folder: Path,
) -> Translator:
    """Make one fit: an oracle gets true pairs, every other aligner gets halves. `folder`: for checkpoints."""
    module = aligner_module(row.aligner)
    if row.supervision == "oracle":
        return module.fit_oracle(*paired_rows(source, target, row, draw.seed), row.settings, draw.seed)
    data = halves(source, target, row, draw.seed, draw.replicate)
    return module.fit(data.source, data.target, row.settings, draw.generator_seed, data.pairs, log, folder)


if __name__ == "__main__":
    stage.main(align)
