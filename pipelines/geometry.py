"""geometry: every two embeddings of one corpus -> linear CKA and neighbour overlap, raw and calibrated: the map of who shares
geometry with whom."""

from __future__ import annotations

from itertools import combinations

import polars as pl

from pipelines.measures import geometry as measures
from pipelines.measures import mean_and_error
from pipelines.measures.vectors import overlap
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Geometry, params

MEASURES = ("cka", "cka_chance", "cka_calibrated", "cka_p", "overlap", "overlap_calibrated", "overlap_p")


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
        raise BadInput(
            f"geometry.{name}: {len(rows)} texts of split {row.split!r} are too few for {row.neighbours} others"
        )
    vectors = {encoder: side.vectors[rows] for encoder, side in sides.items()}
    near = {encoder: measures.nearest_others(x, row.neighbours) for encoder, x in vectors.items()}
    orders = measures.random_orders(len(rows), row.permutations, row.seed).to(device)
    pairs = []
    for first, second in combinations(vectors, 2):
        x, y = vectors[first], vectors[second]
        shared, error = mean_and_error(overlap(near[first], near[second]).float())
        cka = measures.calibrate(measures.linear_cka(x, y), measures.cka_null(x, y, orders))
        neighbours = measures.calibrate(shared, measures.overlap_null(near[first], near[second], orders))
        pair = {"first": first, "second": second, "cka": cka.raw, "overlap": shared, "overlap_error": error}
        pair |= {"cka_chance": measures.cka_chance(x, y), "cka_calibrated": cka.calibrated, "cka_p": cka.p}
        pairs.append(pair | {"overlap_calibrated": neighbours.calibrated, "overlap_p": neighbours.p})
    plots = store.plots_path("geometry", name)
    store.write_csv(plots / "pairs.csv", pl.DataFrame(pairs))
    metrics = {"texts": len(rows), "chance": row.neighbours / (len(rows) - 1)}
    metrics |= {f"{f['first']}:{f['second']}": {k: f[k] for k in MEASURES} for f in pairs}
    store.write_metrics("geometry", name, metrics)
    run.log({"geometry": metrics})
    run.artifact(plots / "pairs.csv")


if __name__ == "__main__":
    stage.main(geometry)
