"""similarity: measure one encoder on an STS corpus: correlations, alignment, uniformity, spectrum, and its
layers.
"""

from __future__ import annotations

import polars as pl
import torch
from sentence_transformers.base.modules import Transformer

from pipelines.encoders import layers
from pipelines.encoders.encode import encode
from pipelines.encoders.loading import Loaded, load
from pipelines.measures import geometry
from pipelines.measures import similarity as measures
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.study import Similarity, params

SHOWN = 1000  # sentences whose layers are dissected
WORDS = 25  # at either end of the table of words


def similarity(name: str, row: Similarity, study: params.Study, run: track.Run) -> None:
    """Compare cosines of the encoder's raw vectors with the scores of all pairs of the split, without a
    regressor.
    """
    frame = store.read_pairs(row.corpus, row.split)
    encoder = study.encoders[row.encoder]
    if row.pooling is not None:
        encoder = encoder.model_copy(update={"pooling": row.pooling, "layer": None})
    folder = store.intact(store.encoder_path(row.encoder))
    loaded = load(folder, encoder, resolve(row.device))
    run.input(store.corpus_path(row.corpus), "pairs")
    texts = list(dict.fromkeys(frame["text"].to_list() + frame["pair"].to_list()))
    digest = store.digest(store.corpus_path(row.corpus))
    made_from = (row, encoder, loaded.weights, str(loaded.device), digest)
    with store.work("similarity", name, *made_from) as parts:
        vectors = torch.from_numpy(encode(loaded, texts, encoder, parts).vectors).float()
    at = {text: i for i, text in enumerate(texts)}
    first, second = (vectors[[at[text] for text in frame[column]]] for column in ("text", "pair"))
    metrics = {"pairs": len(frame), **measures.sts(first, second, frame["score"].to_torch())}
    metrics |= geometry.anisotropy(vectors)
    spectrum = geometry.spectrum(vectors)
    plots = store.plots_path("similarity", name)
    ranks = range(1, len(spectrum) + 1)
    store.write_csv(plots / "spectrum.csv", pl.DataFrame({"rank": ranks, "value": spectrum.numpy()}))
    one_transformer = isinstance(loaded.model[0], Transformer) and not loaded.parts
    if one_transformer and row.pooling is None:  # the layers do not depend on the pooling
        exact = encoder.model_copy(update={"precision": "float32"})
        metrics["layers"] = dissect(name, load(folder, exact, loaded.device), texts[:SHOWN])
    store.write_metrics("similarity", name, metrics)
    run.log({"similarity": metrics})
    for table in sorted(plots.glob("*.csv")):
        run.artifact(table)


def dissect(name: str, loaded: Loaded, texts: list[str]) -> dict[str, float]:
    """Write SBERT-WK's figures: the cosine of neighbouring layers, and the words that vary most and least.

    Returns the mean cosine by layer.
    """
    found = layers.dissect(loaded.model, texts)
    plots = store.plots_path("similarity", name)
    mean, spread = torch.as_tensor(found.mean).numpy(), torch.as_tensor(found.spread).numpy()
    cosines = {"layer": range(1, len(mean) + 1), "mean": mean, "spread": spread}
    store.write_csv(plots / "layers.csv", pl.DataFrame(cosines))
    words = pl.DataFrame({"word": found.words, "count": found.counts, "variance": found.variances})
    words = words.sort("variance", "word", descending=[True, False])
    if len(words) > 2 * WORDS:
        words = pl.concat([words.head(WORDS), words.tail(WORDS)])
    store.write_csv(plots / "words.csv", words)
    return {f"{layer:02d}": float(cosine) for layer, cosine in enumerate(mean, start=1)}


if __name__ == "__main__":
    stage.main(similarity)
