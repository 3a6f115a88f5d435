"""embed: what lands in the Arrow file, in the metrics, and what is refused before anything is written."""

from unittest.mock import Mock

import numpy as np
import polars as pl
import pytest

from pipelines.embed import embed
from pipelines.runtime import files, store
from tests.small import refusal, static_encoder, study_of, write_corpus

WORDS = ["cat", "dog", "house", "river", "void"]
TABLE = np.array([[3, 0, 4], [0, 1, 0], [1, 1, 1], [-2, 0, 1], [0, 0, 0]], np.float32)
TEXTS = ["cat", "dog house house", "river cat", "house dog"]


@pytest.fixture(autouse=True)
def folder(own_folder):
    static_encoder("e", WORDS, TABLE)


def corpus(texts, vectors=None, **more):
    n = len(texts or TEXTS)
    more |= {} if vectors is None else {"vector": pl.Series(vectors)}
    splits = ["train"] * (n - 1) + ["test"]
    write_corpus("c", texts or [None] * n, splits, id=[f"t{i}" for i in range(n)], **more)


def run(source="synthetic", **more):
    """Run the stage for a corpus of this source and an encoder with `more` keys; return its MLflow run."""
    encoder = {"path": "p", "source": "given" if source == "vectors" else "path", **more}
    corpora, rows = {"c": {"path": "p", "source": source}}, {"x": {"corpus": "c", "encoder": "e"}}
    of, tracked = study_of("", "", corpora=corpora, encoders={"e": encoder}, embed=rows), Mock()
    embed("x", of.embed["x"], of, tracked)
    return tracked


def test_vectors_stand_in_corpus_order_beside_their_metadata():
    corpus(TEXTS, document=["p", "p", "q", "r"])
    tracked = run(max_tokens=2)
    made = store.read_embeddings("x")
    cut = [np.mean([TABLE[WORDS.index(w)] for w in t.split()[:2]], 0) for t in TEXTS]
    np.testing.assert_allclose(made.vectors, cut, rtol=1e-6)
    assert list(made.ids) == ["t0", "t1", "t2", "t3"]
    assert list(made.documents) == ["p", "p", "q", "r"]
    assert list(made.splits) == ["train", "train", "train", "test"]
    expected = {"encoder": "e", "model": "e", "pooling": "mean", "max_tokens": "2", "prompt": ""}
    expected |= {"corpus": "c", "source": "synthetic", "precision": "float32", "dimension": "3"}
    weights = files.digest(store.encoder_path("e") / "model.safetensors")
    assert made.metadata == expected | {"weights": weights}
    assert store.read_metrics("embed", ["x"])["x"]["truncated"] == 0.25
    assert tracked.log.call_args.args[0]["texts_per_second"] > 0
    tracked.input.assert_called_once_with(store.corpus_path("c"), "corpus")
    assert not list(store.WORK.glob("embed/*"))


@pytest.mark.parametrize("source", ["synthetic", "vectors"])
def test_shards_change_no_byte(source, monkeypatch):
    given = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
    corpus(*((None, given) if source == "vectors" else (TEXTS,)))
    run(source)
    whole, metrics = store.embeddings_path("x").read_bytes(), store.read_metrics("embed", ["x"])
    monkeypatch.setattr("pipelines.embed.SHARD", 3)
    run(source)
    assert store.embeddings_path("x").read_bytes() == whole
    assert store.read_metrics("embed", ["x"]) == metrics


@pytest.mark.parametrize(("dtype", "dimension"), [("float32", 1), ("float16", 5000)])
def test_given_vectors_are_copied(dtype, dimension):
    vectors = np.arange(4 * dimension, dtype=np.float32).reshape(4, dimension) % 1024 + 1
    corpus(None, vectors)
    run("vectors", store=dtype)
    made = store.read_embeddings("x")
    np.testing.assert_array_equal(made.vectors, vectors)
    assert made.metadata["precision"] == dtype


@pytest.mark.parametrize(
    ("vector", "message", "dtype"),
    [
        (None, "not finite, the first with id 't1'", "float32"),
        ([0.0, 0.0], "zero, the first with id 't1'", "float32"),
        ([float("nan"), 2.0], "not finite, the first with id 't1'", "float32"),
        ([1e5, 2.0], r"not finite in float16 \(`store: float32` holds more\), the first", "float16"),
    ],
)
def test_bad_given_vectors_are_refused(vector, message, dtype):
    rows = [[1.0, 2.0], vector, [1.0, 2.0], [3.0, 4.0]]
    corpus(None, pl.Series(rows, dtype=pl.Array(pl.Float32, 2)))
    with refusal(message):
        run("vectors", store=dtype)
    assert not store.embeddings_path("x").exists()


def test_a_text_without_a_vector_is_named():
    corpus(["cat", "void void"])
    with refusal(r"embed\.x: 1 vectors are zero, the first with id 't1'"):
        run()
    static_encoder("e", WORDS, 1e5 * TABLE)
    with refusal("not finite in float16"):
        run(store="float16")
