"""similarity: one encoder on one STS corpus -> Spearman, Pearson, alignment, uniformity, spectrum, and its layers dissected."""

from __future__ import annotations

import polars as pl
import torch
from sentence_transformers.base.modules import Transformer

from pipelines import encoders
from pipelines.encoders import layers
from pipelines.encoders.encode import encode
from pipelines.measures import geometry
from pipelines.measures import similarity as measures
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.study import Similarity, params

SHOWN = 1000  # sentences whose layers are looked at
BATCH = 64


def similarity(name: str, row: Similarity, study: params.Study, run: track.Run) -> None:
    """Cosine of the encoder's raw vectors, no regressor, all pairs of the split together."""
    frame = store.read_pairs(row.corpus, row.split)
    encoder = study.encoders[row.encoder]
    if row.pooling is not None:
        encoder = encoder.model_copy(update={"pooling": row.pooling, "layer": None})
    folder = store.intact(store.encoder_path(row.encoder))
    loaded = encoders.load(folder, encoder, resolve(row.device))
    run.input(store.corpus_path(row.corpus), "pairs")
    texts = list(dict.fromkeys(frame["text"].to_list() + frame["pair"].to_list()))
    made_from = (
        row,
        encoder,
        loaded.weights,
        str(loaded.device),
        store.digest(store.corpus_path(row.corpus)),
    )
    with store.work("similarity", name, *made_from) as parts:
        vectors = torch.from_numpy(encode(loaded, texts, encoder, parts).vectors).float()
    at = {text: i for i, text in enumerate(texts)}
    first, second = (vectors[[at[text] for text in frame[column]]] for column in ("text", "pair"))
    metrics = {"pairs": len(frame), **measures.sts(first, second, frame["score"].to_torch())}
    metrics |= geometry.anisotropy(vectors)
    spectrum = geometry.spectrum(vectors)
    plots = store.plots_path("similarity", name)
    store.write_csv(
        plots / "spectrum.csv", pl.DataFrame({"rank": range(1, len(spectrum) + 1), "value": spectrum.numpy()})
    )
    one = isinstance(loaded.model[0], Transformer) and not loaded.parts
    if one and row.pooling is None:  # another pooling leaves the layers as they are
        exact = encoders.load(
            folder, encoder.model_copy(update={"precision": "float32"}), loaded.device
        )  # as they were trained
        metrics["layers"] = dissect(name, exact, texts[:SHOWN])
    store.write_metrics("similarity", name, metrics)
    run.log({"similarity": metrics})
    for table in sorted(plots.glob("*.csv")):
        run.artifact(table)


def dissect(name: str, loaded: encoders.Loaded, texts: list[str]) -> dict[str, float]:
    """The figures of SBERT-WK: cosine of neighbouring layers, and the words whose vectors change most and least."""
    dissected = layers.dissect(loaded.model, texts, BATCH)
    plots = store.plots_path("similarity", name)
    cosines = {
        "mean": torch.as_tensor(dissected.mean).numpy(),
        "spread": torch.as_tensor(dissected.spread).numpy(),
    }
    store.write_csv(
        plots / "layers.csv", pl.DataFrame({"layer": range(1, len(dissected.mean) + 1), **cosines})
    )
    table = pl.DataFrame(
        {"word": dissected.words, "count": dissected.counts, "variance": dissected.variances}
    )
    table = table.sort("variance", "word", descending=[True, False])
    store.write_csv(
        plots / "words.csv", pl.concat([table.head(25), table.tail(25)]) if len(table) > 50 else table
    )
    return {f"{k:02d}": float(v) for k, v in enumerate(torch.as_tensor(dissected.mean), start=1)}


if __name__ == "__main__":
    stage.main(similarity)
