"""embed: one corpus through one encoder -> data/embeddings/<row>.arrow."""

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from pipelines import distributed
from pipelines.encoders.encode import Encoded, encode
from pipelines.encoders.loading import Loaded, for_queries, load
from pipelines.runtime import intact, stage, store, track
from pipelines.runtime.device import resolve
from pipelines.study import Embed, Encoder, params

SHARD = 65_536  # texts that are tokenized, sorted by length and held in memory at once


def embed(name: str, row: Embed, study: params.Study, run: track.Run) -> None:
    """Encode the texts of a corpus, in corpus order, or copy the vectors that came with it.

    A killed run continues. Several processes share the parts of each shard. The file does not depend on their
    number, but on that of their threads. Raises BadInput for a missing file, or a vector that is zero or not
    finite.
    """
    device = resolve(row.device)
    with distributed.process_group(device):
        # 1. Read the corpus and open the encoder.
        corpus, encoder = store.read_corpus(row.corpus), study.encoders[row.encoder]
        run.input(store.corpus_path(row.corpus), "corpus")
        about = {"encoder": row.encoder, "corpus": row.corpus, "source": study.corpora[row.corpus].source}
        loaded = None
        if encoder.source == "given":
            about |= {"model": str(encoder.model), "precision": encoder.store}
        else:
            loaded = load(intact.checked(store.encoder_path(row.encoder)), encoder, device)
            about |= metadata(loaded)

        made_from = (
            store.code_digest("embed", "encoders"),
            encoder,
            about,
            str(loaded and loaded.device),
            store.encoder_path(row.encoder),
            store.corpus_path(row.corpus),
        )
        with distributed.on_rank_zero(store.work("embed", name, *made_from)) as folder:
            # 2. Encode, shard by shard. Rank 0 writes the file; other ranks only encode their parts.
            start, fresh = time.perf_counter(), not any(folder.iterdir())
            distributed.barrier()  # rank 0 has looked: others may write now
            if loaded is None:
                shards = given(corpus["vector"], encoder.store)
            else:
                shards = of_corpus(loaded, corpus, encoder, folder)
            if distributed.rank() > 0:
                deque(shards, 0)
                return
            metrics: dict[str, float] = {}  # complete once `write_embeddings` has read all shards
            ids = corpus["id"].to_list()
            vectors = checked(shards, f"embed.{name}", ids, metrics)
            splits = corpus["split"].to_list()
            store.write_embeddings(name, ids, splits, vectors, about, store.document_columns(corpus))

            # 3. Write the metrics. A resumed run does not know its speed.
            store.write_metrics("embed", name, metrics)
            run.log(metrics)
            if loaded and fresh:
                run.log({"texts_per_second": len(corpus) / (time.perf_counter() - start)})


def metadata(loaded: Loaded) -> dict[str, str]:
    """Return what the file says about the encoder."""
    return {
        "model": loaded.name,
        "pooling": loaded.pooling,
        "max_tokens": str(loaded.max_tokens or ""),
        "prompt": loaded.prompt,
        "weights": loaded.weights,
        "precision": loaded.precision,
    }


def of_corpus(loaded: Loaded, corpus: pl.DataFrame, row: Encoder, folder: Path) -> Iterator[Encoded]:
    """Encode a corpus, SHARD texts at a time, except those that a killed run has left in the folder.

    Judged queries follow the documents, and get the encoder's own prompt of queries.
    """
    ranks = distributed.rank(), distributed.world_size()
    asked = corpus["judgements"].is_not_null() if "judgements" in corpus.columns else pl.lit(False)
    documents, queries = corpus.filter(~asked)["text"], corpus.filter(asked)["text"]
    for encoder, texts, place in (
        (loaded, documents, folder),
        (for_queries(loaded), queries, folder / "queries"),
    ):
        for first in range(0, len(texts), SHARD):
            shard, chunk = place / f"shard-{first // SHARD:05}", texts[first : first + SHARD].to_list()
            yield encode(encoder, chunk, row, shard, ranks, distributed.barrier)


def given(vectors: pl.Series, dtype: str) -> Iterator[Encoded]:
    """Yield the vectors that came with a corpus, an array column, SHARD rows at a time."""
    for first in range(0, len(vectors), SHARD):
        with np.errstate(over="ignore"):  # `checked` refuses vectors that float16 cannot hold
            block = vectors[first : first + SHARD].to_numpy().astype(dtype)
        yield Encoded(block, None)


def checked(
    blocks: Iterable[Encoded], where: str, ids: Sequence[str], metrics: dict[str, float]
) -> Iterator[np.ndarray]:
    """Check and yield the vectors, and write their `metrics`: rows, dimension, fraction of truncated texts.

    Raises BadInput for NaN, infinite or zero vectors.
    """
    rows = 0
    for block in blocks:
        count, dimension = block.vectors.shape
        store.check_vectors(where, block.vectors, ids[rows : rows + count])
        rows += count
        metrics |= {"rows": rows, "dimension": dimension}
        if block.truncated is not None:
            metrics["truncated"] = metrics.get("truncated", 0.0) + block.truncated * count / len(ids)
        yield block.vectors


if __name__ == "__main__":
    stage.main(embed)
