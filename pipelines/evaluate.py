"""evaluate: a translator on true pairs -> per-example scores, metrics per seed, and tables to draw the two spaces from."""

from __future__ import annotations

import polars as pl
import torch
from torch import Tensor

from pipelines.aligners.core.translator import Identity, Translator, load_seeds
from pipelines.measures import mean_and_error, translation
from pipelines.measures.vectors import centred_unit
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Evaluate, params

HEATMAP = ("untranslated", "translated")
PICTURED = 16_384  # the first pairs, whose centres and axes the pictures are about
SPACES = [f"{cloud}_{axis}" for cloud in (*HEATMAP, "target") for axis in "xy"]


def evaluate(name: str, row: Evaluate, study: params.Study, run: track.Run) -> None:
    """Measure every seed's translator on the pairs of one split; pairs are seen here and nowhere before."""
    device = resolve(row.device)
    source, target = store.read_embeddings(row.source, device), store.read_embeddings(row.target, device)
    store.same_texts(source, target)
    translators = load_seeds(store.intact(store.translators_path(row.translator)), row.hub_correction, device)
    rows = source.rows(row.split)
    if len(rows) < 2:
        raise BadInput(
            f"evaluate.{name}: {row.source} has {len(rows)} rows of split {row.split!r}; two are needed"
        )
    for path in (store.embeddings_path(row.source), store.embeddings_path(row.target)):
        run.input(path, "pairs")

    per_seed, frames = [], []
    drawn = (
        pl.DataFrame(schema=["source", "target", *HEATMAP]),
        pl.DataFrame(schema=SPACES),
    )  # without pictures: no rows
    for seed, translator in translators.items():
        scores = scored(translator, source.vectors, target.vectors, rows, row.batch)
        frames.append(
            pl.DataFrame(
                {"id": list(source.ids[rows]), "seed": seed, **{k: v.numpy() for k, v in scores.items()}}
            )
        )
        summary = {k: mean_and_error(v) for k, v in scores.items()}
        per_seed.append(
            {"seed": seed}
            | {k: m for k, (m, _) in summary.items()}
            | {f"{k}_error": e for k, (_, e) in summary.items()}
        )
        run.log({f"seed-{seed}": {"translation": {k: m for k, (m, _) in summary.items()}}})
        if row.pictures and len(per_seed) == 1:
            x, y = source.vectors[rows[:PICTURED]], target.vectors[rows[:PICTURED]]
            with torch.inference_mode():
                translated = translator(x)
            drawn = heatmap(x, translated, y), spaces(x, translated, y)

    seeds = pl.DataFrame(per_seed)
    measures = list(summary)
    store.write_scores("evaluate", name, pl.concat(frames))
    store.write_csv(store.seeds_path(name), seeds)
    for file, frame in zip(("heatmap.csv", "spaces.csv"), drawn, strict=True):
        store.write_csv(store.plots_path("evaluate", name) / file, frame)
        run.artifact(store.plots_path("evaluate", name) / file)
    metrics = {k: seeds[k].mean() for k in measures} | {"pairs": len(rows), "seeds": len(seeds)}
    metrics["supervision"] = study.translators()[row.translator].supervision
    store.write_metrics("evaluate", name, metrics)
    run.log({"translation": metrics})
    run.table(per_seed, "seeds.json")


@torch.inference_mode()
def scored(
    translator: Translator, source: Tensor, target: Tensor, rows: Tensor, batch: int
) -> dict[str, Tensor]:
    """`paired_scores` of some rows of (n, d) and (n, e), on the CPU; only a batch is translated at once."""
    parts = [rows[part] for part in translation.batches(len(rows), batch)]
    scores = [translation.paired_scores(translator(source[part]), target[part], len(part)) for part in parts]
    return {k: torch.cat([s[k] for s in scores]).cpu() for k in scores[0]}


def heatmap(x: Tensor, translated: Tensor, y: Tensor, shown: int = 48) -> pl.DataFrame:
    """Centred cosines of the first texts' vectors to the target vectors of the same texts. (n, d), (n, e), (n, e) -> shown^2
    rows of source, target (numbers of texts), untranslated, translated"""
    clouds = (
        Identity(x.shape[1], y.shape[1])(x),
        translated,
    )  # untranslated: what a naive reader would compare
    cosines = [
        (centred_unit(cloud)[:shown] @ centred_unit(y)[:shown].T).flatten().cpu().numpy() for cloud in clouds
    ]
    n = min(shown, len(y))
    pairs = {"source": [i for i in range(n) for _ in range(n)], "target": [*range(n)] * n}
    return pl.DataFrame(pairs | dict(zip(HEATMAP, cosines, strict=True)))


def spaces(x: Tensor, translated: Tensor, y: Tensor, shown: int = 1000) -> pl.DataFrame:
    """The first texts' centred vectors on the target's two first principal axes, a row for each text.

    (n, d), (n, e), (n, e) -> the columns of SPACES
    """
    axes = torch.linalg.svd(centred_unit(y), full_matrices=False).Vh[:2].T  # (e, 2)
    clouds = (Identity(x.shape[1], y.shape[1])(x), translated, y)
    return pl.DataFrame(
        torch.cat([centred_unit(c)[:shown] @ axes for c in clouds], 1).cpu().numpy(), schema=SPACES
    )


if __name__ == "__main__":
    stage.main(evaluate)
