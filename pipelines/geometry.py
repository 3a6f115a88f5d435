"""geometry: compare every two embeddings of one corpus by linear CKA, shared neighbours and labels, raw and
against chance.
"""

from itertools import combinations

import polars as pl
import torch
from torch import Tensor

from pipelines.aligners.core.matching import quadratic_assignment
from pipelines.measures import geometry as measures
from pipelines.measures import labels
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Geometry, params

PAIRINGS, SEED = 99, 0  # random pairings of the permutation test, whose smallest p is 1 / 100


def geometry(name: str, row: Geometry, study: params.Study, run: track.Run) -> None:
    """Compare the first `limit` rows of a split. This uses true pairs, and fits nothing.

    Embeddings are taken by name, so that the order of rows in params.yaml changes no number.
    """
    spaces = study.spaces()
    names = sorted(row.spaces or (n for n, space in study.embed.items() if space.corpus == row.corpus))
    encoders = {spaces[n].encoder for n in names}
    if len(encoders) < 2:
        raise BadInput(f"corpus {row.corpus} is embedded by {len(encoders)} encoders; two are needed")
    device = resolve(row.device, float64=True)
    sides = run.partners(*names, device=device)
    rows = sides[0].rows(row.split)[: row.limit]
    if len(rows) <= measures.NEIGHBOURS + 1:
        few = f"{len(rows)} texts of split {row.split!r} are too few for {measures.NEIGHBOURS} others"
        raise BadInput(few)
    vectors = {spaces[side.name].encoder: side.vectors[rows] for side in sides}
    frame = store.read_texts(sides[0], row.corpus)[rows.numpy()]
    of_rows = frame["labels"].to_list(), frame["document"].to_list()
    near = {encoder: measures.nearest_others(x) for encoder, x in vectors.items()}
    orders = measures.random_orders(len(rows), PAIRINGS, SEED).to(device)
    metrics: dict[str, object] = {
        "texts": len(rows),
        "chance": measures.NEIGHBOURS / (len(rows) - 1),
        "repeated": frame["text"].drop_nulls().is_duplicated().sum(),  # their neighbours are ties
    }
    pairs = []
    for a, b in combinations(vectors, 2):
        found = measures.compare(vectors[a], vectors[b], (near[a], near[b]), orders)
        found |= labels.compare(vectors[a], vectors[b], *of_rows, match)
        pairs.append({"first": a, "second": b} | found)
        metrics[f"{a}:{b}"] = found
    table = store.tables_path("geometry", name) / "pairs.csv"
    store.write_csv(table, pl.DataFrame(pairs))
    store.write_metrics("geometry", name, metrics)
    run.log({"geometry": metrics})
    run.artifact(table)


def match(a: Tensor, b: Tensor, generator: torch.Generator) -> Tensor:
    """Solve one quadratic assignment. (k, k), (k, k) -> (k,)"""
    return quadratic_assignment(a[None], b[None], generator)[0][0]


if __name__ == "__main__":
    stage.main(geometry)
