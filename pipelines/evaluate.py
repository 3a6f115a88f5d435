"""evaluate: measure a translator on true pairs and, if the row names `queries`, on judged retrieval.

Writes the scores of each seed with standard errors, metrics, and the points of the report's picture.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl
import torch
from torch import Tensor

from pipelines.aligners.core.translator import Identity, load_seeds
from pipelines.measures import numbered, retrieval, shown, summary, translation
from pipelines.measures.vectors import centred_unit
from pipelines.runtime import intact, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Evaluate, params

AXES_FROM = 16_384  # pairs from which the centres and axes of the picture are computed
POINTS = 1000  # pairs that the picture shows
COLUMNS = [f"{cloud}_{axis}" for cloud in ("untranslated", "translated", "target") for axis in "xy"]


@torch.inference_mode()
def evaluate(name: str, row: Evaluate, study: params.Study, run: track.Run) -> None:
    """Measure every seed's translator on the pairs of one split."""
    device = resolve(row.device)
    source, target = run.partners(row.source, row.target, device=device)
    folder = intact.checked(store.translators_path(row.translator))
    translators = load_seeds(folder, row.hub_correction, device)
    rows = source.rows(row.split)
    if len(rows) < 2:
        there = ", ".join(sorted({*source.splits}))
        fault = f"{row.source} has {len(rows)} rows of split {row.split!r}; two are needed"
        raise BadInput(f"{fault}; its splits: {there}")

    # 1. Scores of each seed
    documents = numbered(source.documents[rows.numpy()])
    search = Search.of(row.queries, target) if row.queries else None
    per_seed = []
    for seed, translator in translators.items():
        scores = translation.translated_scores(translator, source.vectors, target.vectors, rows, row.batch)
        found = summary(scores, documents)
        run.log({f"seed-{seed}": {"translation": {measure: found[measure] for measure in scores}}})
        if search:
            translated = translator(source.vectors[search.document_rows])
            found |= search.scores(target.vectors, translated)
        per_seed.append({"seed": seed} | found)
    seeds = pl.DataFrame(per_seed)
    store.write_csv(store.seeds_path(name), seeds)

    # 2. The picture. DVC expects its file: without a picture it is empty
    table = pl.DataFrame(schema=COLUMNS)
    if row.pictures:
        x, y = source.vectors[rows[:AXES_FROM]], target.vectors[rows[:AXES_FROM]]
        translated = next(iter(translators.values()))(x)  # by the first seed's translator
        table = picture(x, translated, y)
    path = store.tables_path("evaluate", name) / "spaces.csv"
    store.write_csv(path, table)
    run.artifact(path)

    # 3. Metrics
    metrics: dict[str, Any] = {m.name: seeds[m.name].mean() for m in translation.MEASURES}
    metrics |= {"pairs": len(rows), "documents": int(documents.max()) + 1, "seeds": len(seeds)}
    metrics["supervision"] = study.translators()[row.translator].supervision
    if search:
        metrics |= {m.name: seeds[m.name].mean() for m in retrieval.MEASURES}
        references = search.without_translator(source.vectors, target.vectors)
        metrics["retrieval"] = references
        if ceiling := references["re-embedded"]["ndcg10"]:
            metrics["retention"] = metrics["ndcg10"] / ceiling
    store.write_metrics("evaluate", name, metrics)
    run.log({"translation": metrics})  # MLflow shows `translation/<measure>`
    print(", ".join(f"{m.title} {metrics[m.name]:.{m.digits}f}" for m in shown(translation.MEASURES)))


@dataclass(frozen=True)
class Search:
    """Judged queries of one split, and the documents that they search."""

    query_rows: Tensor  # (q,) in the embeddings
    document_rows: Tensor  # (n,) in the embeddings
    ids: Sequence[str]  # of the documents
    judgements: Sequence[dict[str, float]]  # for each query: id of a document -> grade

    @classmethod
    def of(cls, split: str, space: store.Embeddings) -> Search:
        """Return the search of all documents by the judged queries of `split`.

        A corpus has these queries in its split `queries <split>`. Raises BadInput if there are none.
        """
        queries = space.rows(f"queries {split}")
        if space.judgements is None or not len(queries):
            fault = f"{space.name} has no judged queries of split {split!r}"
            there = sorted(of.removeprefix("queries ") for of in {*space.splits} if of.startswith("queries "))
            hint = f"there are: {', '.join(there)}" if there else "a corpus of kind judged has them"
            raise BadInput(f"queries: {fault}; {hint}")
        # A document has no judgement
        documents = [row for row, judgement in enumerate(space.judgements) if judgement is None]
        judgements = [json.loads(space.judgements[row]) for row in queries]
        return cls(queries, torch.tensor(documents), list(space.ids[documents]), judgements)

    def scores(self, vectors: Tensor, documents: Tensor) -> dict[str, float]:
        """Return the mean retrieval scores of the queries among `documents`, and their standard errors.

        vectors: of all rows of the embeddings, (rows, d); the queries are taken from it. documents: (n, d).
        """
        queries = vectors[self.query_rows]
        return summary(retrieval.judged_scores(queries, documents, self.ids, self.judgements))

    def without_translator(self, source: Tensor, target: Tensor) -> dict[str, dict[str, float]]:
        """Measure the same search without a translator, from vectors of all rows (rows, d), (rows, e).

        `re-embedded`: documents by the target encoder. `untranslated`: documents by the source encoder,
        padded or cut to e dimensions. `before`: documents and queries by the source encoder.
        """
        x, y = source[self.document_rows], target[self.document_rows]
        padded = Identity(x.shape[1], y.shape[1])(x)
        return {
            "re-embedded": self.scores(target, y),
            "untranslated": self.scores(target, padded),
            "before": self.scores(source, x),
        }


def picture(x: Tensor, translated: Tensor, y: Tensor) -> pl.DataFrame:
    """Project centred vectors on the first two principal axes of the target, y.

    x (n, d), translated (n, e), y (n, e) -> one row with COLUMNS for each of the first POINTS texts
    """
    axes = torch.linalg.svd(centred_unit(y), full_matrices=False).Vh[:2].T  # (e, 2)
    clouds = (Identity(x.shape[1], y.shape[1])(x), translated, y)
    points = torch.cat([centred_unit(cloud)[:POINTS] @ axes for cloud in clouds], 1)
    return pl.DataFrame(points.cpu().numpy(), schema=COLUMNS)


if __name__ == "__main__":
    stage.main(evaluate)
