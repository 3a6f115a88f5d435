"""embed: one corpus through one encoder -> data/embeddings/<row>.arrow."""

from __future__ import annotations

import time

import numpy as np
import polars as pl

from pipelines import encoders
from pipelines.encoders.encode import encode
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Embed, params


def embed(name: str, row: Embed, study: params.Study, run: track.Run) -> None:
    """Encode the texts of a corpus, in corpus order, or copy the vectors that came with it. A killed run continues.

    Raises BadInput for a missing file, a dimension that is not one, or a vector that is zero or not finite.
    """
    corpus, digest = store.read_corpus(row.corpus), store.digest(store.corpus_path(row.corpus))
    encoder = study.encoders[row.encoder]
    device = resolve(row.device)
    loaded = None if encoder.source == "given" else encoders.load(store.intact(store.encoder_path(row.encoder)), encoder, device)
    run.input(store.corpus_path(row.corpus), "corpus")
    about = {"encoder": row.encoder, "corpus": row.corpus, "source": study.corpora[row.corpus].source}
    about |= {"model": str(encoder.model), "precision": encoder.store} if loaded is None else _about(loaded)
    with store.work("embed", name, encoder, about, str(loaded and loaded.device), digest) as folder:
        if loaded is None:
            vectors, metrics = given(f"embed.{name}: corpus {row.corpus}", corpus).astype(encoder.store), {}
        else:
            start, continued = time.perf_counter(), any(folder.iterdir())
            encoded = encode(loaded, corpus["text"].to_list(), encoder, folder)
            if not continued:  # else it would count what a killed run did
                run.log({"texts_per_second": len(corpus) / (time.perf_counter() - start)})
            vectors, metrics = encoded.vectors, {"truncated": encoded.truncated}
        store.check_vectors(f"embed.{name}", vectors, corpus["id"].to_numpy())
        documents = corpus["document"].cast(pl.String).fill_null(corpus["id"]).to_list() if "document" in corpus.columns else None
        store.write_embeddings(name, corpus["id"].to_list(), corpus["split"].to_list(), vectors, about, documents)
    metrics |= summary(vectors)
    store.write_metrics("embed", name, metrics)
    run.log(metrics)


def _about(loaded: encoders.Loaded) -> dict[str, str]:
    """What a reader of the vectors must know, as Arrow metadata."""
    return {
        "model": loaded.name,
        "pooling": loaded.pooling,
        "max_tokens": str(loaded.max_tokens or ""),
        "prompt": loaded.prompt,
        "weights": loaded.weights,
        "precision": loaded.precision,
    }


def given(where: str, corpus: pl.DataFrame) -> np.ndarray:
    """The column `vector` as (n, dimension). Raises BadInput unless every row has one, all of one dimension."""
    if "vector" not in corpus.columns:
        raise BadInput(f"{where}: there is no column 'vector'")
    column = corpus["vector"]
    widths = column.arr.len() if isinstance(column.dtype, pl.Array) else column.list.len()
    if column.null_count() or widths.n_unique() != 1 or not widths[0]:
        raise BadInput(f"{where}: the vectors are not all of one dimension")
    return column.explode().to_numpy().reshape(len(corpus), -1)


def summary(vectors: np.ndarray) -> dict[str, float]:
    """Rows, dimension, mean norm, mean cosine over all pairs of different rows (0: isotropic; 1: one direction)."""
    exact = vectors.astype(np.float64)
    norms = np.linalg.norm(exact, axis=1)
    n, total = len(exact), (exact / norms[:, None]).sum(0)
    mean_cosine = (total @ total - n) / (n * (n - 1)) if n > 1 else 1.0  # |sum of unit vectors|^2 = n + the other pairs
    return {"rows": n, "dimension": vectors.shape[1], "mean_norm": norms.mean(), "mean_cosine": mean_cosine}


if __name__ == "__main__":
    stage.main(embed)
