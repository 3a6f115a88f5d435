"""geometry: every two embeddings of one corpus -> linear CKA and neighbour overlap: the map of who shares geometry with whom."""

from __future__ import annotations

from itertools import combinations

import polars as pl

from pipelines.measures import geometry as measures
from pipelines.measures import mean_and_error
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Geometry, params


def geometry(name: str, row: Geometry, study: params.Study, run: track.Run) -> None:
    """Compares the first `limit` rows of a split. This sees true pairs: it measures, and fits nothing."""
    names = [embedding for embedding, e in study.embed.items() if e.corpus == row.corpus]
    if len(names) < 2:
        raise BadInput(f"geometry.{name}: corpus {row.corpus} has {len(names)} embeddings; two are needed")
    device = resolve(row.device, float64=True)
    sides = {study.embed[n].encoder: store.read_embeddings(n, device) for n in names}
    for side in sides.values():
        store.same_texts(next(iter(sides.values())), side)
        run.input(store.embeddings_path(side.name), "pairs")
    rows = next(iter(sides.values())).rows(row.split)[: row.limit]
    if len(rows) <= row.neighbours + 1:
        raise BadInput(f"geometry.{name}: {len(rows)} texts of split {row.split!r} are too few for {row.neighbours} others")
    encoders = list(sides)
    pairs = []
    for i, j in combinations(range(len(encoders)), 2):
        x, y = (sides[encoders[k]].vectors[rows] for k in (i, j))
        shared, error = mean_and_error(measures.neighbour_overlap(x, y, row.neighbours))
        pair = {"first": encoders[i], "second": encoders[j]}
        pairs.append(pair | {"cka": float(measures.linear_cka(x, y)), "overlap": shared, "overlap_error": error})
    plots = store.plots_path("geometry", name)
    store.write_csv(plots / "pairs.csv", pl.DataFrame(pairs))
    metrics = {"texts": len(rows), "chance": row.neighbours / (len(rows) - 1)}
    metrics |= {f"{f['first']}:{f['second']}": {k: f[k] for k in ("cka", "overlap")} for f in pairs}
    store.write_metrics("geometry", name, metrics)
    run.log(metrics)
    run.artifact(plots / "pairs.csv")


if __name__ == "__main__":
    stage.main(geometry)
