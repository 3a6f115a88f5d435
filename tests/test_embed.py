"""embed: what lands in the Arrow file, in the metrics, and what is refused before anything is written."""

import numpy as np
import polars as pl
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

from pipelines.embed import Summary, embed
from pipelines.runtime import store
from pipelines.runtime.errors import BadInput
from pipelines.study import params

WORDS = ["cat", "dog", "house", "river", "void"]
TABLE = np.array([[3, 0, 4], [0, 1, 0], [1, 1, 1], [-2, 0, 1], [0, 0, 0]], np.float32)
TEXTS = ["cat", "dog house house", "river cat", "house dog"]
EXPECTED = [TABLE[[WORDS.index(w) for w in t.split()]].mean(0) for t in TEXTS]


class Run:
    """Stands in for a tracked run."""

    def __init__(self):
        self.logged, self.inputs = {}, []

    def log(self, metrics, step=0):
        self.logged |= metrics

    def input(self, path, context):
        self.inputs.append((path, context))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def corpus(texts, vectors=None):
    n = len(TEXTS if texts is None else texts)
    columns = {"id": [f"t{i}" for i in range(n)], "text": texts or [None] * n}
    columns |= {"split": ["train"] * (n - 1) + ["test"], "labels": [[]] * n}
    frame = pl.DataFrame(columns, schema=store.CORPUS_COLUMNS)
    store.write_corpus("c", frame if vectors is None else frame.with_columns(vector=pl.Series(vectors)))


def encoder():
    words = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="void"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    model = SentenceTransformer(modules=[StaticEmbedding(words, torch.from_numpy(TABLE))], device="cpu")
    store.encoder_path("e").mkdir(parents=True)
    model.save(str(store.encoder_path("e")), create_model_card=False)


def study(corpus="synthetic", **more) -> params.Study:
    given = corpus == "vectors"
    row = {"path": "p", "source": "given" if given else "path", **more}
    where = {"path": "p", "source": corpus}
    tables = {
        "corpora": {"c": where},
        "encoders": {"e": row},
        "embed": {"x": {"corpus": "c", "encoder": "e"}},
    }
    return params.Study.model_validate({"study": "s", **tables})


def run(of: params.Study) -> Run:
    tracked = Run()
    embed("x", of.embed["x"], of, tracked)  # pyright: ignore[reportArgumentType]
    return tracked


def test_vectors_stand_in_corpus_order_beside_who_made_them():
    corpus(TEXTS)
    encoder()
    tracked = run(study(max_tokens=2))
    made = store.read_embeddings("x")
    cut = [np.mean([TABLE[WORDS.index(w)] for w in t.split()[:2]], 0) for t in TEXTS]
    np.testing.assert_allclose(made.vectors, cut, rtol=1e-6)
    assert list(made.ids) == ["t0", "t1", "t2", "t3"]
    assert list(made.splits) == ["train", "train", "train", "test"]
    weights = store.digest(store.encoder_path("e") / "model.safetensors")
    expected = {
        "encoder": "e",
        "model": "e",
        "pooling": "mean",
        "max_tokens": "2",
        "weights": weights,
        "corpus": "c",
    }
    assert made.metadata == expected | {
        "precision": "float32",
        "source": "synthetic",
        "dimension": "3",
        "prompt": "",
    }
    metrics = store.read_metrics("embed")["x"]
    assert metrics["truncated"] == 0.25
    assert "texts_per_second" not in metrics  # it changes at every run
    assert tracked.logged["texts_per_second"] > 0
    assert tracked.inputs == [(store.corpus_path("c"), "corpus")]
    assert not list(store.WORK.glob("embed/*"))


@pytest.mark.parametrize("source", ["synthetic", "vectors"])
def test_shards_are_of_no_consequence(source, monkeypatch):
    given = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
    corpus(*((None, given) if source == "vectors" else (TEXTS,)))
    encoder()
    run(study(source))
    whole, metrics = store.embeddings_path("x").read_bytes(), store.read_metrics("embed")
    monkeypatch.setattr("pipelines.embed.SHARD", 3)
    run(study(source))
    assert store.embeddings_path("x").read_bytes() == whole
    assert store.read_metrics("embed") == metrics


def test_which_text_overlapping_rows_were_cut_from_stands_beside_them():
    corpus(TEXTS)
    encoder()
    run(study())
    assert store.read_embeddings("x").documents is None
    store.write_corpus("c", store.read_corpus("c").with_columns(document=pl.Series(["p", "p", "q", "r"])))
    run(study())
    assert list(store.read_embeddings("x").documents) == ["p", "p", "q", "r"]


def test_metrics_are_those_of_all_pairs():
    vectors = np.array(EXPECTED)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = [unit[i] @ unit[j] for i in range(4) for j in range(4) if i != j]
    summary = Summary()
    for block in (vectors[:1], vectors[1:]):
        summary.add(block)
    found = summary.metrics
    assert found["mean_cosine"] == pytest.approx(np.mean(cosines))
    assert found["mean_norm"] == pytest.approx(np.mean(np.linalg.norm(vectors, axis=1)))
    assert (found["rows"], found["dimension"]) == (4, 3)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("dimension", [1, 3, 5000])
def test_given_vectors_are_copied(dtype, dimension):
    vectors = np.arange(4 * dimension, dtype=np.float32).reshape(4, dimension) % 1024 + 1
    corpus(None, vectors)
    run(study("vectors", store=dtype))
    made = store.read_embeddings("x")
    np.testing.assert_array_equal(made.vectors, vectors)
    assert made.metadata["precision"] == dtype


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 2.0], [1.0], [1.0, 2.0], [3.0, 4.0]], "not all of one dimension"),
        ([[1.0, 2.0], None, [1.0, 2.0], [3.0, 4.0]], "not all of one dimension"),
        ([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0], [3.0, 4.0]], "zero, the first with id 't1'"),
        ([[1.0, 2.0], [1.0, 2.0], [float("nan"), 2.0], [3.0, 4.0]], "not finite, the first with id 't2'"),
    ],
)
def test_bad_given_vectors_are_refused(vectors, message):
    corpus(None, vectors)
    with pytest.raises(BadInput, match=message):
        run(study("vectors"))
    assert not store.embeddings_path("x").exists()


def test_a_text_without_a_vector_is_named_and_the_old_file_kept():
    corpus(TEXTS)
    encoder()
    run(study())
    before = store.embeddings_path("x").read_bytes()
    corpus(["cat", "void void"])
    with pytest.raises(BadInput, match=r"embed\.x: 1 vectors are zero, the first with id 't1'"):
        run(study())
    assert store.embeddings_path("x").read_bytes() == before


def test_missing_files_are_named():
    with pytest.raises(BadInput, match=r"c\.parquet"):
        run(study())
    corpus(TEXTS)
    with pytest.raises(BadInput, match="encoders/e: there is no such folder"):
        run(study())
