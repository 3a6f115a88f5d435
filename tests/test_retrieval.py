"""Judged retrieval: trec_eval's numbers, and a translator measured by queries."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pipelines.aligners.core.translator import Identity, Linear
from pipelines.encoders.query import as_function
from pipelines.evaluate import Search
from pipelines.measures import retrieval, summary
from pipelines.runtime import store
from tests.small import put, refusal, run_stage, seeded, static_encoder, study_of, write_translator
from tests.test_corpora import beir


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


def test_of_equal_documents_the_greater_id_is_first():
    generator = seeded()
    for _ in range(20):
        query, documents = (torch.randn(n, 384, generator=generator) for n in (1, 999))
        documents[0] = documents[998] = query[0]
        ids = [f"{row:03}" for row in range(999)]
        assert retrieval.judged_scores(query, documents, ids, [{"998": 1.0}])["ndcg10"].item() == 1


def test_missing_or_irrelevant_documents_score_zero(monkeypatch):
    one = torch.eye(3)
    nobody = retrieval.judged_scores(one[:1], one, ["a", "b", "c"], [{}])
    assert [float(score) for score in nobody.values()] == [0, 0]
    judgements = [{"a": 1.0, "gone": 1.0}, {"b": 0.0}, {"c": 2.0, "a": -1.0}]
    for block in (2**25, 3):
        monkeypatch.setattr(retrieval, "BLOCK", block)
        found = retrieval.judged_scores(one, one, ["a", "b", "c"], judgements)
        assert found["ndcg10"].tolist() == pytest.approx([1 / (1 + 1 / np.log2(3)), 0, 1])
        assert found["recall100"].tolist() == [0.5, 0, 1]


def test_a_grade_that_is_an_integer_cuts_no_other_grade():
    found = retrieval.judged_scores(torch.eye(2), torch.eye(2), ["a", "b"], [{"a": 2}, {"b": 0.5}])
    assert found["ndcg10"].tolist() == [1, 1]


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
    with refusal("^queries: set-new has no judged queries of split 'dev'; there are: test, train"):
        run_stage("evaluate", study(queries="dev"))
    with refusal("set-old has 0 rows of split 'x'; two are needed; its splits: queries test, queries train"):
        run_stage("evaluate", study(split="x"))
    plain = replace(store.read_embeddings("set-new"), splits=np.array(["test"] * 6), judgements=None)
    with refusal("^queries: set-new has no judged queries of split 'test'; a corpus of kind judged has them"):
        Search.of("test", plain)
