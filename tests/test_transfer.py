"""Transfer tasks: exact labels, honest folds, several poolings of one pass, and their stage."""

import re

import numpy as np
import polars as pl
import pytest

from pipelines import transfer
from pipelines.corpora.core import collect
from pipelines.encoders import query
from pipelines.pages.tables.encoders import transfer_table
from pipelines.runtime import store
from pipelines.study.params import Study
from tests.small import TEXTS, refusal, run_stage, static_encoder, study_of


def correct(vectors, labels, split="train"):
    table = pl.DataFrame({"labels": [[str(label)] for label in labels], "split": split})
    return transfer.correct("x", vectors, table, 0)


def test_folds_test_every_sentence_once_and_unseen():
    draw = np.random.default_rng(0)
    labels = draw.integers(0, 2, 300).astype(str)
    noise = draw.normal(size=(300, 400)).astype(np.float32)  # enough features to learn 300 labels by heart
    assert correct(noise, labels).mean() < 0.62
    noise[:, :50] = 10 * (labels == "1")[:, None]
    assert correct(noise, labels).mean() > 0.95
    with refusal("x: a class has fewer than 10 sentences"):
        correct(noise, ["rare", *labels[1:]])


def test_a_given_split_is_used():
    labels = np.arange(240) % 3
    vectors = np.eye(3, 8, dtype=np.float32)[labels]
    split = ["train"] * 150 + ["dev"] * 50 + ["test"] * 40
    assert correct(vectors, labels, split).tolist() == [1.0] * 40
    for other in ("Train", "dev"):
        with refusal(f"x: split test, but no split train: {other}, test"):
            correct(vectors, labels, [other] * 200 + ["test"] * 40)


def test_a_single_class_names_the_task():
    with refusal("^x: a linear classifier on 8 rows has a single class"):
        correct(np.ones((12, 2), dtype=np.float32), ["a"] * 12, ["train"] * 10 + ["test"] * 2)


def test_the_mean_of_tasks_has_a_narrower_interval_than_each():
    tasks = [{"accuracy": a, "low": a - 3, "high": a + 3} for a in (80.0, 90.0, 70.0, 60.0)]
    assert transfer.average(tasks) == {"accuracy": 75.0, "low": 73.5, "high": 76.5}


def test_the_interval_of_the_mean_has_no_value_above_100():
    perfect = {"accuracy": 100.0, "low": 88.0, "high": 100.0}
    assert transfer.average([perfect]) == perfect
    assert transfer.average([perfect] * 4) == {"accuracy": 100.0, "low": 94.0, "high": 100.0}


@pytest.fixture
def corpus(own_folder):
    """Write a table of two tasks, and read it as a study does."""
    label = [int("river" in text) for text in TEXTS]
    rows = {"text": TEXTS * 6, "label": label * 6, "task": ["A"] * 72 + ["B|C"] * 144}
    rows["split"] = ["all"] * 72 + ["train"] * 108 + ["test"] * 36
    pl.DataFrame(rows).write_parquet("tasks.parquet")
    row = {"kind": "tasks", "source": "path", "path": "tasks.parquet", "columns": {"labels": "label"}}
    corpora = {"tasks": row, "mail": {"source": "path", "path": "x"}}
    measured = {"row": {"encoder": "words", "corpus": "tasks"}}
    whole = study_of("", "words", corpora=corpora, transfer=measured)
    store.write_corpus("tasks", collect(whole.corpora["tasks"]))
    return whole


def test_the_stage_measures_each_task_and_the_report_shows_them(corpus):
    vocabulary = sorted({word for text in TEXTS for word in text.split()})
    static_encoder("words", [*vocabulary, "?"], np.eye(len(vocabulary) + 1, dtype=np.float32))
    found = run_stage("transfer", corpus)
    assert found["own"]["A"]["accuracy"] == found["own"]["B|C"]["accuracy"] == 100
    assert found["tasks"] == {"A": {"texts": 72}, "B|C": {"texts": 144}}
    page = "\n".join(transfer_table(corpus))
    assert "| words   | own     | 100.0 [" in page
    assert "| B\\|C " in page


def test_a_device_without_float64_is_refused(corpus):
    tree = corpus.model_dump()
    tree["transfer"]["row"] |= {"device": "mps", "poolings": {"wk": {"pooling": "sbert-wk"}}}
    with refusal("mps has no float64, which this stage needs; take cpu or cuda"):
        run_stage("transfer", Study.model_validate(tree))


@pytest.mark.parametrize(
    ("poolings", "message"),
    [
        ({"same": {"window": 1}}, "each needs `pooling` or `layers`, or it repeats the row's own"),
        ({"own": {"pooling": "cls"}}, "the results have a 'own' of their own: choose another name"),
    ],
)
def test_poolings_that_measure_nothing_new_are_refused(corpus, poolings, message):
    tree = corpus.model_dump()
    tree["transfer"]["row"] |= {"poolings": poolings}
    with pytest.raises(ValueError, match=re.escape(message)):
        Study.model_validate(tree)


def test_a_vector_that_is_not_finite_is_one_line(corpus):
    static_encoder("words", ["river", "?"], np.array([[np.inf], [1]], dtype=np.float32))
    with refusal("encoder minilm: 9 of 36 vectors are not finite"):
        run_stage("transfer", corpus)
    encode = query.as_function(store.encoder_path("words"), corpus.encoders["words"])
    with refusal("1 of 2 vectors are not finite"):
        encode(["river", "road"])


def test_rows_without_one_label_and_other_corpora_are_refused(corpus):
    table = pl.DataFrame({"text": ["a", " ", "c"], "label": ["x", "y", "x"], "task": "A"})
    table.write_parquet("tasks.parquet")
    assert collect(corpus.corpora["tasks"])["text"].to_list() == ["a", "c"]
    table.with_columns(label=pl.Series(["x", "", "x"])).write_parquet("tasks.parquet")
    with refusal("1 rows do not have exactly one label, the first is row 1"):
        collect(corpus.corpora["tasks"])
    table.with_columns(task=pl.lit("average")).write_parquet("tasks.parquet")
    with refusal("3 rows have the task 'average'"):
        collect(corpus.corpora["tasks"])
    table.with_columns(task=pl.lit(None, pl.String)).write_parquet("tasks.parquet")
    with refusal("3 rows have no task, the first is row 0"):
        collect(corpus.corpora["tasks"])
    tree = corpus.model_dump()
    tree["transfer"]["row"]["corpus"] = "mail"
    with pytest.raises(ValueError, match="mail is neither of kind tasks nor of kind probes"):
        Study.model_validate(tree)
