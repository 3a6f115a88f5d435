"""embed: one corpus through one encoder -> data/embeddings/<row>.arrow."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from pipelines import distributed, encoders
from pipelines.encoders.encode import Encoded, encode
from pipelines.runtime import stage, store, track
from pipelines.runtime.device import resolve
from pipelines.runtime.errors import BadInput
from pipelines.study import Embed, Encoder, params

SHARD = 65_536  # texts that are tokenised, sorted by length and held at once


def embed(name: str, row: Embed, study: params.Study, run: track.Run) -> None:
    """Encode the texts of a corpus, in corpus order, or copy the vectors that came with it. A killed run continues.

    Several processes share the batches of each shard, and the first one writes: the file does not depend on their number.
    Raises BadInput for a missing file, a dimension that is not one, or a vector that is zero or not finite.
    """
    where, device = f"embed.{name}", resolve(row.device)
    with distributed.process_group(device):
        corpus, digest = store.read_corpus(row.corpus), store.digest(store.corpus_path(row.corpus))
        encoder, model = study.encoders[row.encoder], store.encoder_path(row.encoder)
        loaded = None if encoder.source == "given" else encoders.load(store.intact(model), encoder, device)
        run.input(store.corpus_path(row.corpus), "corpus")
        about = {"encoder": row.encoder, "corpus": row.corpus, "source": study.corpora[row.corpus].source}
        about |= (
            {"model": str(encoder.model), "precision": encoder.store} if loaded is None else _about(loaded)
        )
        made_from = (encoder, about, str(loaded and loaded.device), digest)
        with distributed.on_rank_zero(store.work("embed", name, *made_from)) as folder:
            start, fresh = time.perf_counter(), distributed.broadcast(not any(folder.iterdir()))
            if loaded is None:
                shards = given(f"{where}: corpus {row.corpus}", corpus, encoder.store)
            else:
                shards = encoded(loaded, corpus["text"], encoder, folder)
            if distributed.rank() == 0:
                summary, ids = Summary(), corpus["id"].to_list()
                documents = documents_of(corpus)
                store.write_embeddings(
                    name, ids, corpus["split"].to_list(), summary.over(shards, where, ids), about, documents
                )
                store.write_metrics("embed", name, summary.metrics)
                run.log(summary.metrics)
                if loaded and fresh:  # else it would count what a killed run did
                    run.log({"texts_per_second": len(corpus) / (time.perf_counter() - start)})
            else:
                deque(shards, 0)  # this process's part of each


def documents_of(corpus: pl.DataFrame) -> list[str] | None:
    """Which text each row was cut from, where rows of one text overlap."""
    return (
        corpus["document"].cast(pl.String).fill_null(corpus["id"]).to_list()
        if "document" in corpus.columns
        else None
    )


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


def encoded(loaded: encoders.Loaded, texts: pl.Series, row: Encoder, folder: Path) -> Iterator[Encoded]:
    """SHARD texts at a time; what a killed run has left in the folder is not encoded again."""
    for first in range(0, len(texts), SHARD):
        shard = folder / f"shard-{first // SHARD:05}"
        ranks = distributed.rank(), distributed.world_size()
        yield encode(
            loaded, texts[first : first + SHARD].to_list(), row, shard, ranks=ranks, wait=distributed.barrier
        )


def given(where: str, corpus: pl.DataFrame, dtype: str) -> Iterator[Encoded]:
    """The column `vector`, SHARD rows at a time. Raises BadInput unless every row has one, all of one dimension."""
    if "vector" not in corpus.columns:
        raise BadInput(f"{where}: there is no column 'vector'")
    column = corpus["vector"]
    widths = column.arr.len() if isinstance(column.dtype, pl.Array) else column.list.len()
    if column.null_count() or widths.n_unique() != 1 or not widths[0]:
        raise BadInput(f"{where}: the vectors are not all of one dimension")
    for first in range(0, len(column), SHARD):
        block = column[first : first + SHARD]
        yield Encoded(block.explode().to_numpy().reshape(len(block), -1).astype(dtype), None)


class Summary:
    """Rows, dimension, mean norm, mean cosine over all pairs of different rows (0: isotropic; 1: one direction), and the share
    of texts that were cut: summed in float64 over blocks."""

    def __init__(self) -> None:
        self.rows, self.cut, self.norms, self.directions = (
            0,
            None,
            0.0,
            np.zeros(()),
        )  # the last: sum of unit vectors

    def over(self, blocks: Iterable[Encoded], where: str, ids: Sequence[str]) -> Iterator[np.ndarray]:
        """The vectors of the blocks, checked and counted as they pass. Raises BadInput for NaN, infinite or zero vectors."""
        for block in blocks:
            store.check_vectors(where, block.vectors, ids[self.rows : self.rows + len(block.vectors)])
            self.add(block.vectors)
            if block.truncated is not None:
                self.cut = (self.cut or 0.0) + block.truncated * len(block.vectors)
            yield block.vectors

    def add(self, vectors: np.ndarray, rows: int = 4096) -> None:
        """Count vectors (n, d), of which `rows` at a time are held in float64."""
        for start in range(0, len(vectors), rows):
            exact = vectors[start : start + rows].astype(np.float64)
            norms = np.linalg.norm(exact, axis=1)
            self.rows, self.norms = self.rows + len(exact), self.norms + norms.sum()
            self.directions = self.directions + (exact / norms[:, None]).sum(0)

    @property
    def metrics(self) -> dict[str, float]:
        n, total = self.rows, self.directions
        mean_cosine = (
            (total @ total - n) / (n * (n - 1)) if n > 1 else 1.0
        )  # |sum of unit vectors|^2 = n + the other pairs
        truncated = {} if self.cut is None else {"truncated": self.cut / n}
        return truncated | {
            "rows": n,
            "dimension": len(total),
            "mean_norm": self.norms / n,
            "mean_cosine": mean_cosine,
        }


if __name__ == "__main__":
    stage.main(embed)
