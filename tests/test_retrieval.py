"""Judged retrieval: trec_eval's numbers, corpora of kind `judged`, and a translator measured by queries."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from pipelines.aligners.core.translator import Identity, Linear
from pipelines.corpora.core import collect
from pipelines.encoders.query import as_function
from pipelines.measures import retrieval, summary
from pipelines.runtime import store
from pipelines.study import PathCorpus
from tests.small import put, refusal, run_stage, static_encoder, study_of, write_translator


def test_the_numbers_are_trec_evals():
    """The expected numbers are pytrec_eval-terrier 0.5.11's. Some graded documents are not there."""
    random = np.random.default_rng(0)
    documents = random.choice([-0.5, 0.5], size=(400, 4))  # of length 1, so that ties are exact
    queries = random.choice([-0.5, 0.5], size=(30, 4))
    ids = [str(number) for number in random.permutation(400)]
    judgements = [
        dict(zip(map(str, random.integers(0, 420, 40)), grades.tolist(), strict=True))
        for grades in random.integers(0, 4, size=(30, 40))
    ]
    scores = retrieval.judged_scores(torch.from_numpy(queries), torch.from_numpy(documents), ids, judgements)
    found = summary(scores)
    assert found["ndcg10"] == pytest.approx(0.028388, abs=1e-6)
    assert found["recall100"] == pytest.approx(0.225494, abs=1e-6)


def test_missing_or_irrelevant_documents_score_zero(monkeypatch):
    one = torch.eye(3)
    judgements = [{"a": 1.0, "gone": 1.0}, {"b": 0.0}, {"c": 2.0, "a": -1.0}]
    for block in (2**25, 3):
        monkeypatch.setattr(retrieval, "BLOCK", block)
        found = retrieval.judged_scores(one, one, ["a", "b", "c"], judgements)
        assert found["ndcg10"].tolist() == pytest.approx([1 / (1 + 1 / np.log2(3)), 0, 1])
        assert found["recall100"].tolist() == [0.5, 0, 1]


# ---------------------------------------------------------------- corpora

DOCUMENTS = pl.DataFrame(
    {
        "_id": ["4", "7", "9"],
        "title": ["On cats", "", "On fish"],
        "text": ["Cats sleep.", "Dogs bark.", "Fish swim."],
    }
)
CLAIMS = pl.DataFrame({"_id": ["1", "2", "3", "4"], "text": [f"claim {i}" for i in range(1, 5)]})
JUDGED = {"test/1": {"4": 2.0, "7": 1.0}, "test/2": {"9": 1.0}, "train/3": {"7": 1.0}}


def beir():
    """Write the folder `set` as BEIR has it."""
    head = "query-id\tcorpus-id\tscore\n"
    put("set/qrels/test.tsv", head + "1\t4\t2\n1\t7\t1\n2\t9\t1\n")
    put("set/qrels/train.tsv", head + "3\t7\t1\n5\t7\t1\n")
    DOCUMENTS.write_ndjson("set/corpus.jsonl")
    # What stands beside the texts has other keys in each line
    metadata = CLAIMS.select("_id", "text", metadata=pl.struct(pl.lit("x").alias("y")))
    metadata.write_ndjson("set/queries.jsonl")


def tables():
    """Write the same as two tables, but with grades of 1 alone."""
    Path("set").mkdir()
    DOCUMENTS.rename({"_id": "id"}).write_parquet("set/corpus.parquet")
    relevant = pl.Series("relevant", [["4", "7"], ["9"], ["7"], []])
    split = pl.Series("split", ["test", "test", "train", "train"])
    CLAIMS.select(relevant, split, "text", id=pl.col("_id").cast(int)).write_parquet("set/claims.parquet")


def corpus(**more):
    return collect(PathCorpus(source="path", kind="judged", path="set", **more))


@pytest.mark.parametrize("write", [beir, tables])
def test_documents_queries_and_judgements_are_one_corpus(own_folder, capsys, write):
    write()
    frame = corpus()
    assert ("1 judged queries are not in it and are left out" in capsys.readouterr().out) == (write is beir)
    store.check_corpus("set", frame)
    assert frame["id"].to_list() == ["4", "7", "9", "test/1", "test/2", "train/3"]
    assert frame["text"][:2].to_list() == ["On cats Cats sleep.", "Dogs bark."]
    assert frame["split"].to_list() == ["train"] * 3 + ["queries test"] * 2 + ["queries train"]
    judged = {i: json.loads(of) for i, of in frame.select("id", "judgements").drop_nulls().iter_rows()}
    assert judged == (JUDGED if write is beir else {i: dict.fromkeys(of, 1.0) for i, of in JUDGED.items()})


def test_a_folder_without_judgements_or_documents_is_refused(own_folder):
    beir()

    def refused(match, **more):
        with refusal(match):
            corpus(**more)

    refused("no `rows`", rows=2)
    for grade in ("good", "inf"):
        put("set/qrels/test.tsv", f"query-id\tcorpus-id\tscore\n1\t4\t{grade}\n")
        refused("grade of query '1' is no number")
    put("set/qrels/test.tsv", "1\t4\t1.0\n2\t9\t1.0\n")
    refused("its first line is a judgement")
    shutil.rmtree("set/qrels")
    refused(r"or qrels/\*\.tsv")
    Path("set/corpus.jsonl").unlink()
    refused("no table `corpus`")


# ---------------------------------------------------------------- stages


def study(**evaluate):
    return study_of(
        "",
        "old new",
        corpora={"set": {"kind": "judged", "source": "path", "path": "set"}},
        align={"row": {"source": "set-old", "target": "set-new", "aligner": "identity"}},
        evaluate={"row": {"split": "train", "queries": "test", "pictures": False} | evaluate},
    )


def test_queries_have_a_prompt_and_measure_a_translator(own_folder):
    words = ["claim", "ask", "Cats", "Dogs", "Fish", "1", "2", "3", "?"]
    table = np.zeros((9, 5), np.float32)
    table[[2, 3, 4], [0, 1, 2]] = 1
    table[[5, 6, 7], [0, 2, 1]] = 1  # claim 1 is of cats, 2 of fish, 3 of dogs
    table[[0, 8], 3] = table[1, 4] = 0.1
    static_encoder("new", words, table)
    static_encoder("old", words, np.ascontiguousarray(table[:, [1, 0, 2, 3, 4]]))  # cats and dogs swapped
    config = store.encoder_path("new") / "config_sentence_transformers.json"
    put(config, '{"prompts": {"query": "ask "}}')
    beir()
    for verb, name in (("collect", "set"), ("embed", "set-old"), ("embed", "set-new")):
        run_stage(verb, study(), name)
    new = store.read_embeddings("set-new")
    assert (new.vectors[:, 4] > 0).tolist() == [False] * 3 + [True] * 3  # "ask", of the prompt
    asked = as_function(store.encoder_path("new"), study().encoders["new"], queries=True)
    assert torch.equal(asked(["claim 1"]), new.vectors[3:4])
    turned = Linear(5, 5)
    turned.map.copy_(torch.eye(5)[[1, 0, 2, 3, 4]])  # cats and dogs change places again
    for seed, translator in enumerate((Identity(5, 5), turned)):
        write_translator("row", translator, seed)
    found = run_stage("evaluate", study())
    before, best = (found["retrieval"][of]["ndcg10"] for of in ("untranslated", "re-embedded"))
    assert before < best
    assert (found["seeds"], found["ndcg10"]) == (2, pytest.approx((before + best) / 2))
    assert found["retention"] == pytest.approx(found["ndcg10"] / best)
    with refusal("none of 'dev'"):
        run_stage("evaluate", study(queries="dev"))
    with refusal("set-old has 0 rows of split 'x'; two are needed"):
        run_stage("evaluate", study(split="x"))
