"""evaluate: measure a translator on true pairs.

Writes scores per example, metrics, and the table of a picture.
"""

from __future__ import annotations

import numpy as np
import polars as pl
import torch
from torch import Tensor

from pipelines.aligners.core.translator import Identity, Translator, load_seeds
from pipelines.measures import shown, summary, translation
from pipelines.measures.vectors import centred_unit
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Evaluate, params

PICTURED = 16_384  # pairs that set the centres and axes of the picture
SPACES = [f"{cloud}_{axis}" for cloud in ("untranslated", "translated", "target") for axis in "xy"]


def evaluate(name: str, row: Evaluate, study: params.Study, run: track.Run) -> None:
    """Measure every seed's translator on the pairs of one split. No earlier stage sees these pairs."""
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

    names = source.documents[rows.numpy()]
    documents = torch.from_numpy(np.unique(names, return_inverse=True)[1])
    per_seed, frames = [], []
    for seed, translator in translators.items():
        scores = scored(translator, source.vectors, target.vectors, rows, row.batch)
        columns = {k: v.numpy() for k, v in scores.items()}
        frames.append(pl.DataFrame({"id": list(source.ids[rows]), "seed": seed, **columns}))
        per_seed.append({"seed": seed} | summary(scores, documents))
        run.log({f"seed-{seed}": {"translation": {k: per_seed[-1][k] for k in scores}}})
    store.write_scores("evaluate", name, pl.concat(frames))
    seeds = pl.DataFrame(per_seed)
    store.write_csv(store.seeds_path(name), seeds)
    run.table(per_seed, "seeds.json")

    table = pl.DataFrame(schema=SPACES)
    if row.pictures:
        x, y = source.vectors[rows[:PICTURED]], target.vectors[rows[:PICTURED]]
        with torch.inference_mode():
            translated = next(iter(translators.values()))(x)
        table = spaces(x, translated, y)
    path = store.plots_path("evaluate", name) / "spaces.csv"
    store.write_csv(path, table)
    run.artifact(path)

    metrics = {m.name: seeds[m.name].mean() for m in translation.MEASURES}
    metrics |= {"pairs": len(rows), "documents": int(documents.max()) + 1, "seeds": len(seeds)}
    metrics["supervision"] = study.translators()[row.translator].supervision
    store.write_metrics("evaluate", name, metrics)
    run.log({"translation": metrics})
    print(", ".join(f"{m.title} {metrics[m.name]:.{m.digits}f}" for m in shown(translation.MEASURES)))


@torch.inference_mode()
def scored(
    translator: Translator, source: Tensor, target: Tensor, rows: Tensor, batch: int
) -> dict[str, Tensor]:
    """Return `paired_scores` for some rows of (n, d) and (n, e), on the CPU. It translates batch by batch."""
    parts = [rows[part] for part in translation.batches(len(rows), batch)]
    scores = [translation.paired_scores(translator(source[part]), target[part], len(part)) for part in parts]
    return {k: torch.cat([s[k] for s in scores]).cpu() for k in scores[0]}


def spaces(x: Tensor, translated: Tensor, y: Tensor, shown: int = 1000) -> pl.DataFrame:
    """Project the first texts' centred vectors on the target's first two principal axes.

    x (n, d), translated (n, e), y (n, e) -> one row per text with the columns of SPACES
    """
    axes = torch.linalg.svd(centred_unit(y), full_matrices=False).Vh[:2].T  # (e, 2)
    clouds = (Identity(x.shape[1], y.shape[1])(x), translated, y)
    points = torch.cat([centred_unit(cloud)[:shown] @ axes for cloud in clouds], 1)
    return pl.DataFrame(points.cpu().numpy(), schema=SPACES)


if __name__ == "__main__":
    stage.main(evaluate)
