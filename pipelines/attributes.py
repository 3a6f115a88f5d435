"""attributes: infer labels from translated vectors, and compare with other vectors and with floors.

translated      vectors translated by each seed's translator, scores averaged; labels by the target encoder
naive           untranslated vectors; labels by the target encoder
ideal source    source vectors; labels by the source encoder
ideal target    target vectors of the same texts; labels by the target encoder
majority        no vectors: the commonest labels first
chance          no vectors: the expected scores of a random order
"""

import sys

import polars as pl
import torch
from torch import Tensor

from pipelines.aligners.core.translator import Identity, load_seeds
from pipelines.encoders import query
from pipelines.measures import attributes as measures
from pipelines.measures import mean_and_error, numbered, summary
from pipelines.measures.vectors import centred_unit, neighbours
from pipelines.runtime import intact, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput, listed
from pipelines.study import Attributes, params


def attributes(name: str, row: Attributes, study: params.Study, run: track.Run) -> None:
    """For each wording of the labels, rank them for each text by every method, and score the rankings."""
    device = resolve(row.device)
    source, target = run.partners(row.source, row.target, device=device)
    rows, labels, names = labelled(row, source)
    x, y, true = source.vectors[rows], target.vectors[rows], measures.truth(labels, names)
    translators = load_seeds(intact.checked(store.translators_path(row.translator)), device=device)
    with torch.inference_mode():
        attacked = {f"translated {seed}": translator(x) for seed, translator in translators.items()}
        attacked["naive"] = Identity(x.shape[1], y.shape[1])(x)
    query_source, query_target = (
        query.as_function(intact.checked(store.encoder_path(n)), study.encoders[n], device)
        for n in (row.source_encoder, row.target_encoder)
    )
    documents = numbered(source.documents[rows.numpy()])
    near_x, near_y = nearest(x, row.neighbours), nearest(y, row.neighbours)  # scores are averaged over these
    metrics = {}
    for wording in row.wordings:
        texts = [measures.wording(n, wording) for n in names]
        labels_x, labels_y = query_source(texts).to(x.device), query_target(texts).to(y.device)
        ranked = {method: measures.order(v, labels_y, near_x) for method, v in attacked.items()}
        ranked["ideal source"] = measures.order(x, labels_x, near_x)
        ranked["ideal target"] = measures.order(y, labels_y, near_y)
        ranked["majority"] = measures.majority(true)
        scores = {method: measures.scores(order.cpu(), true, row.k) for method, order in ranked.items()}
        scores["chance"] = measures.chance(true, row.k)
        metrics[wording] = means(scores, documents)
    metrics |= {
        "examples": len(rows),
        "documents": int(documents.max()) + 1,
        "labels": len(names),
        "seeds": len(translators),
    }
    store.write_metrics("attributes", name, metrics)
    run.log({"attributes": metrics})


def labelled(row: Attributes, source: store.Embeddings) -> tuple[Tensor, list[list[str]], list[str]]:
    """Return the rows (n,) of the split with a label of the label set, the labels of each, and the set.

    The set has each label of at least `row.least` texts of the split. Raises BadInput for a column that is
    missing or has no labels, for fewer than two labels, and for embeddings of another corpus.
    """
    corpus = store.read_texts(source, row.corpus)
    where = f"corpus {row.corpus}"
    if row.labels not in corpus.columns:
        raise BadInput(f"{where}: no column {row.labels!r}; there are: {listed(corpus.columns)}")
    column = corpus[row.labels]
    if column.dtype == pl.String:
        column = column.reshape((-1, 1))
    elif column.dtype != pl.List(pl.String):
        raise BadInput(f"{where}: column {row.labels!r} is {column.dtype}, not labels")
    labels = [[label for label in of_text or [] if label] for of_text in column.to_list()]
    split = source.rows(row.split).tolist()
    names = measures.label_set([labels[i] for i in split], row.least)
    read = [measures.wording(label, "name").casefold() for label in names]
    if alike := [label for label, text in zip(names, read, strict=True) if read.count(text) > 1]:
        print(f"{where}: labels that read alike count as different: {listed(alike)}", file=sys.stderr)
    known = set(names)
    kept = [i for i in split if not known.isdisjoint(labels[i])]
    return torch.tensor(kept), [labels[i] for i in kept], names


def nearest(vectors: Tensor, k: int) -> Tensor | None:
    """Return the rows of each vector's k nearest by centred cosine, itself included; None if k is 1.

    (n, d) -> (n, min(k, n))
    """
    if k == 1:
        return None
    x = centred_unit(vectors.float())
    return neighbours(x, x, k)


def means(scores: dict[str, dict[str, Tensor]], documents: Tensor) -> dict[str, dict[str, float]]:
    """Return each method's mean and standard error of each measure; `translated` is the mean over seeds.

    `translated` has `<measure>_above_floor_error`, too: that of its difference from `majority` on the same
    texts. documents (n,): the number of each example's document.
    """
    out = {method: summary(measured, documents) for method, measured in scores.items()}
    names = [method for method in out if method.startswith("translated")]
    seeds = [out.pop(name) for name in names]
    translated = {k: sum(s[k] for s in seeds) / len(seeds) for k in seeds[0]}
    for measure, floor in scores["majority"].items():
        gains = sum(scores[name][measure].double() for name in names) / len(names) - floor
        translated[f"{measure}_above_floor_error"] = mean_and_error(gains, documents)[1]
    return {"translated": translated, **out}


if __name__ == "__main__":
    stage.main(attributes)
