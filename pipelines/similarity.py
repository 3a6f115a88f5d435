"""similarity: measure one encoder on an STS corpus: correlations, alignment, uniformity, layers, words.

It also writes the sentences that are nearest to a few others.
"""

import polars as pl
import torch
from sentence_transformers.base.modules import Transformer
from torch import Tensor
from torch.nn.functional import normalize

from pipelines.encoders import layers
from pipelines.encoders.encode import encode_each, indexed
from pipelines.encoders.loading import load
from pipelines.measures import geometry
from pipelines.measures import similarity as measures
from pipelines.measures.vectors import neighbours
from pipelines.runtime import intact, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.study import Similarity, params

SHOWN = 1000  # sentences whose layers are compared
QUERIES, ANSWERS = 10, 3  # sentences whose nearest others are written, and how many of these


def similarity(name: str, row: Similarity, study: params.Study, run: track.Run) -> None:
    """Compare cosines of the encoder's raw vectors with the scores of all pairs of the split, without a
    regressor.
    """
    frame = store.read_pairs(row.corpus, row.split)
    encoder = study.encoders[row.encoder]
    if row.pooling is not None:
        encoder = encoder.model_copy(update={"pooling": row.pooling, "layer": None})
    folder = intact.checked(store.encoder_path(row.encoder))
    loaded = load(folder, encoder, resolve(row.device, float64=True))
    run.input(store.corpus_path(row.corpus), "pairs")
    texts, places = indexed([*frame["text"], *frame["pair"]])
    inputs = folder, store.corpus_path(row.corpus)
    made_from = (store.code_digest("encoders"), row, encoder, str(loaded.device), *inputs)
    with store.work("similarity", name, *made_from) as parts:
        vectors = encode_each(loaded, texts, encoder, row.poolings, parts)
    found = {}
    for pooling, of in vectors.items():
        first, second = of[places].chunk(2)
        found[pooling] = measures.sts(first, second, frame["score"].to_torch()) | geometry.anisotropy(of)
    metrics = {"pairs": len(frame), **found.pop("own")} | ({"poolings": found} if found else {})
    cosines, words = pl.DataFrame(schema=["0"]), pl.DataFrame(schema=["word", "count", "variance"])
    one_transformer = isinstance(loaded.model[0], Transformer) and not loaded.parts
    if one_transformer and row.pooling is None:  # the layers do not depend on the pooling
        if loaded.precision != "float32":
            loaded = load(folder, encoder.model_copy(update={"precision": "float32"}), loaded.device)
        every, words = layers.compare(loaded.model, texts[:SHOWN], loaded.prompt)
        cosines = pl.DataFrame(every.numpy(), schema=[str(layer) for layer in range(len(every))])
        metrics["layers"] = {f"{layer:02d}": of for layer, of in enumerate(every.diagonal(1).tolist(), 1)}
    plots = store.tables_path("similarity", name)
    store.write_csv(plots / "layers.csv", cosines)  # both are empty without layers
    store.write_csv(plots / "words.csv", words)
    store.write_csv(plots / "nearest.csv", nearest(texts, vectors["own"]))
    run.artifact(plots / "layers.csv")
    if not study.private(row.corpus):
        run.artifact(plots / "words.csv")
        run.artifact(plots / "nearest.csv")
    store.write_metrics("similarity", name, metrics)
    run.log({"similarity": metrics})


def nearest(texts: list[str], vectors: Tensor) -> pl.DataFrame:
    """Return the sentences that are nearest to a few others, which are the same for every encoder."""
    queries = torch.linspace(0, len(texts) - 1, min(QUERIES, len(texts))).long()
    unit = normalize(vectors.float(), dim=1)
    found = neighbours(unit[queries], unit, ANSWERS + 1)  # the first is the query, or equal to it
    rows = [
        {"query": texts[q], "rank": rank, "sentence": texts[i], "cosine": float(unit[q] @ unit[i])}
        for q, near in zip(queries.tolist(), found.tolist(), strict=True)
        for rank, i in enumerate([i for i in near if i != q][:ANSWERS], start=1)
    ]
    return pl.DataFrame(rows, schema=["query", "rank", "sentence", "cosine"])


if __name__ == "__main__":
    stage.main(similarity)
