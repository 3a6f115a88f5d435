"""evaluate: a translator on true pairs -> per-example scores, metrics per seed, pictures of the two spaces."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from pipelines.aligners.core.translator import load_seeds
from pipelines.aligners.identity import Identity
from pipelines.measures import mean_and_error, translation
from pipelines.pages import pictures
from pipelines.runtime import stage, store, track
from pipelines.runtime.errors import BadInput
from pipelines.study import Evaluate, params


def evaluate(name: str, row: Evaluate, study: params.Study, run: track.Run) -> None:
    """Measure every seed's translator on the pairs of one split; pairs are seen here and nowhere before."""
    source, target = store.read_embeddings(row.source), store.read_embeddings(row.target)
    store.same_texts(source, target)
    translators = load_seeds(store.translators_path(row.translator), row.hub_correction)
    rows = source.rows(row.split)
    if len(rows) < 2:
        raise BadInput(f"evaluate.{name}: {row.source} has {len(rows)} rows of split {row.split!r}; two are needed")
    x, y = source.vectors[rows], target.vectors[rows]
    for path in (store.embeddings_path(row.source), store.embeddings_path(row.target)):
        run.input(path, "pairs")

    per_seed, frames = [], []
    for seed, translator in translators.items():
        with torch.inference_mode():
            translated = translator(x)
        scores = translation.paired_scores(translated, y, row.batch)
        frames.append(pl.DataFrame({"id": list(source.ids[rows]), "seed": seed, **{k: v.numpy() for k, v in scores.items()}}))
        summary = {k: mean_and_error(v) for k, v in scores.items()}
        per_seed.append(
            {"seed": seed} | {k: m for k, (m, _) in summary.items()} | {f"{k}_error": e for k, (_, e) in summary.items()}
        )
        run.log({f"seed/{k}": m for k, (m, _) in summary.items()}, step=seed)
        if row.pictures and len(per_seed) == 1:
            _pictures(name, x, y, translated, run)

    seeds = pl.DataFrame(per_seed)
    measures = list(summary)
    store.write_scores("evaluate", name, pl.concat(frames))
    store.write_csv(store.seeds_path(name), seeds)
    metrics = {k: seeds[k].mean() for k in measures} | {"pairs": len(rows), "seeds": len(seeds)}
    store.write_metrics("evaluate", name, metrics)
    run.log(metrics)
    run.table(per_seed, "seeds.json")


def _pictures(name: str, x: Tensor, y: Tensor, translated: Tensor, run: track.Run) -> None:
    before = Identity(x.shape[1], y.shape[1])(x)  # what a naive reader of the source vectors would compare
    folder = store.plots_path("evaluate", name)
    pictures.heatmap(folder / "heatmap.png", before, translated, y)
    pictures.spaces(folder / "spaces.png", before, translated, y)
    for picture in ("heatmap.png", "spaces.png"):
        run.artifact(folder / picture)


if __name__ == "__main__":
    stage.main(evaluate)
