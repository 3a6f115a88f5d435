"""collect: one corpus -> data/corpora/<corpus>.parquet."""

from pipelines.corpora.core import collect as collected
from pipelines.runtime import stage, store, track
from pipelines.study import AnyCorpus, params


def collect(name: str, row: AnyCorpus, study: params.Study, run: track.Run) -> None:
    """Read or generate the corpus and write it."""
    frame = collected(row)
    store.write_corpus(name, frame)
    words = frame["text"].str.count_matches(r"\S+")
    documents = frame["document"].value_counts()["count"]
    metrics = {
        "rows": len(frame),
        "test": len(frame.filter(split="test")),
        "documents": len(documents),
        "largest_document": documents.max(),
        "words": words.mean() or 0.0,
        "labels": frame["labels"].explode().drop_nulls().n_unique(),
    }
    store.write_metrics("collect", name, metrics)
    run.log(metrics)


if __name__ == "__main__":
    stage.main(collect)
