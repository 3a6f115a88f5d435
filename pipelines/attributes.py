"""attributes: what the nearest labels of translated vectors say, beside naive, ideal and chance."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl
import torch
from torch import Tensor

from pipelines.aligners.core.translator import Identity, load_seeds
from pipelines.encoders import query
from pipelines.measures import attributes as measures
from pipelines.measures import mean_and_error
from pipelines.measures.vectors import centred_unit, neighbours
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Attributes, params

Scores = dict[str, Tensor]


def attributes(name: str, row: Attributes, study: params.Study, run: track.Run) -> None:
    """Every wording: translated (all seeds), naive, ideal in source, ideal in target, majority, chance."""
    device = resolve(row.device)
    source, target = store.read_embeddings(row.source, device), store.read_embeddings(row.target, device)
    store.same_texts(source, target)
    rows, labels, names = labelled(name, row, source)
    x, y, true = source.vectors[rows], target.vectors[rows], measures.truth(labels, names)
    for path in (store.embeddings_path(row.source), store.embeddings_path(row.target)):
        run.input(path, "vectors")
    translators = load_seeds(store.intact(store.translators_path(row.translator)), row.hub_correction, device)
    with torch.inference_mode():
        translated = {seed: translator(x) for seed, translator in translators.items()}
    query_source, query_target = (
        query.as_function(store.intact(store.encoder_path(n)), study.encoders[n], device)
        for n in (row.source_encoder, row.target_encoder)
    )
    near_x, near_y = (crowd(v, row.neighbours) for v in (x, y))
    metrics, frames, tables = {}, [], []
    for wording in row.wordings:
        texts = [measures.wording(n, wording, row.descriptions, row.template) for n in names]
        labels_y, labels_x = query_target(texts), query_source(texts)
        ranked = {f"translated {seed}": order(v, labels_y, row, near_x) for seed, v in translated.items()}
        ranked["naive"] = order(Identity(x.shape[1], y.shape[1])(x), labels_y, row, near_x)
        ranked["ideal source"] = order(x, labels_x, row, near_x)
        ranked["ideal target"] = order(y, labels_y, row, near_y)
        ranked["majority"] = measures.majority(true)
        scores = {k: measures.scores(v, true, row.k) for k, v in ranked.items()} | {
            "chance": measures.chance(true, row.k)
        }
        metrics[wording] = summary(scores)
        frames += [frame(source.ids[rows], wording, method, s) for method, s in scores.items()]
        tables += per_label(names, wording, ranked, true, row.k[-1])
    store.write_scores("attributes", name, pl.concat(frames))
    store.write_csv(store.plots_path("attributes", name) / "labels.csv", pl.DataFrame(tables))
    metrics |= {"examples": len(rows), "labels": len(names), "seeds": len(translators)}
    store.write_metrics("attributes", name, metrics)
    run.log({"attributes": metrics})
    if not study.private(row.corpus):
        run.table(tables, "labels.json")


def order(vectors: Tensor, labels: Tensor, row: Attributes, near: Tensor) -> Tensor:
    """`measures.order` where the vectors are; the order is small, and comes to the CPU, where the truth is."""
    return measures.order(vectors, labels.to(vectors.device), row.centre, near).cpu()


def crowd(vectors: Tensor, k: int) -> Tensor:
    """Each vector's k nearest among all of them by centred cosine, itself one of them. (n, d) -> (n, k)"""
    if k == 1:
        return torch.arange(len(vectors), device=vectors.device)[:, None]
    x = centred_unit(vectors.float())
    return neighbours(x, x, k)


def labelled(
    name: str, row: Attributes, source: store.Embeddings
) -> tuple[Tensor, list[list[str]], list[str]]:
    """Rows of the split that have one of the labels, their labels, and the label set. Raises BadInput for < 2 labels or rows."""
    corpus = store.read_corpus(row.corpus)
    where = f"attributes.{name}: corpus {row.corpus}"
    if row.labels not in corpus.columns:
        raise BadInput(f"{where}: there is no column {row.labels!r}; there are: {', '.join(corpus.columns)}")
    if list(source.ids) != corpus["id"].to_list():
        raise BadInput(f"{where}: its ids are not those of {row.source}; `dvc repro` makes them agree")
    column = corpus[row.labels]
    if column.dtype == pl.String:
        every = [[label] if label else [] for label in column.to_list()]
    elif column.dtype == pl.List(pl.String):
        every = [row_labels or [] for row_labels in column.to_list()]
    else:
        raise BadInput(f"{where}: column {row.labels!r} is {column.dtype}, not labels")
    split = source.rows(row.split).tolist()
    names = measures.label_set([every[i] for i in split], row.least)
    kept = [i for i in split if set(every[i]) & set(names)]
    return torch.tensor(kept), [every[i] for i in kept], names


def summary(scores: dict[str, Scores]) -> dict[str, dict[str, float]]:
    """Per method: mean and standard error of each measure; `translated` is the mean over the seeds."""
    out = {}
    for method, measured in scores.items():
        means = {k: mean_and_error(v) for k, v in measured.items()}
        out[method] = {k: m for k, (m, _) in means.items()} | {f"{k}_error": e for k, (_, e) in means.items()}
    seeds = [out.pop(m) for m in list(out) if m.startswith("translated")]
    return {"translated": {k: sum(s[k] for s in seeds) / len(seeds) for k in seeds[0]}, **out}


def frame(ids: Sequence[str], wording: str, method: str, scores: Scores) -> pl.DataFrame:
    """Per-example scores of one method."""
    columns = {k: v.double().numpy() for k, v in scores.items()}
    return pl.DataFrame({"id": list(ids), "wording": wording, "method": method, **columns})


def per_label(
    names: Sequence[str], wording: str, ranked: dict[str, Tensor], true: Tensor, k: int
) -> list[dict]:
    """One line per label: the first seed's translation beside ideal in target."""
    first = next(iter(ranked))
    tables = [measures.per_label(ranked[m], true, k) for m in (first, "ideal target")]
    return [
        {
            "wording": wording,
            "label": n,
            **translated,
            **{f"ideal_{key}": v for key, v in best.items() if key != "examples"},
        }
        for n, translated, best in zip(names, *tables, strict=True)
    ]


if __name__ == "__main__":
    stage.main(attributes)
