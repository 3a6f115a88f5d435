"""geometry: every two embeddings of one corpus -> linear CKA and neighbour overlap: the map of who shares geometry with whom."""

from __future__ import annotations

from itertools import combinations

import polars as pl
import torch

from pipelines.measures import geometry as measures
from pipelines.measures import mean_and_error
from pipelines.pages import pictures
from pipelines.runtime import stage, store, track
from pipelines.runtime.errors import BadInput
from pipelines.study import Geometry, params


def geometry(name: str, row: Geometry, study: params.Study, run: track.Run) -> None:
    """Compares the first `limit` rows of a split. This sees true pairs: it measures, and fits nothing."""
    names = [embedding for embedding, e in study.embed.items() if e.corpus == row.corpus]
    if len(names) < 2:
        raise BadInput(f"geometry.{name}: corpus {row.corpus} has {len(names)} embeddings; two are needed")
    sides = {study.embed[n].encoder: store.read_embeddings(n) for n in names}
    for side in sides.values():
        store.same_texts(next(iter(sides.values())), side)
        run.input(store.embeddings_path(side.name), "pairs")
    rows = next(iter(sides.values())).rows(row.split)[: row.limit]
    if len(rows) <= row.neighbours + 1:
        raise BadInput(f"geometry.{name}: {len(rows)} texts of split {row.split!r} are too few for {row.neighbours} others")
    encoders = list(sides)
    cka, overlap = torch.eye(len(encoders)), torch.eye(len(encoders))
    found = []
    for i, j in combinations(range(len(encoders)), 2):
        x, y = (sides[encoders[k]].vectors[rows] for k in (i, j))
        cka[i, j] = cka[j, i] = measures.linear_cka(x, y)
        shared, error = mean_and_error(measures.neighbour_overlap(x, y, row.neighbours))
        overlap[i, j] = overlap[j, i] = shared
        pair = {"first": encoders[i], "second": encoders[j]}
        found.append(pair | {"cka": float(cka[i, j]), "overlap": shared, "overlap_error": error})
    plots = store.plots_path("geometry", name)
    store.write_csv(plots / "pairs.csv", pl.DataFrame(found))
    pictures.similarity_map(plots / "cka.png", encoders, cka, f"linear CKA on {row.corpus}")
    title = f"shared among {row.neighbours} nearest, on {row.corpus}"
    pictures.similarity_map(plots / "neighbours.png", encoders, overlap, title)
    metrics = {"texts": len(rows), "chance": row.neighbours / (len(rows) - 1)}
    metrics |= {f"{f['first']}:{f['second']}": {k: f[k] for k in ("cka", "overlap")} for f in found}
    store.write_metrics("geometry", name, metrics)
    run.log(metrics)
    for picture in ("cka.png", "neighbours.png"):
        run.artifact(plots / picture)


if __name__ == "__main__":
    stage.main(geometry)
