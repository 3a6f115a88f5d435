"""Attribute inference: the scores, the chance that stands beside them, and the order of labels."""

import itertools
import math

import polars as pl
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.aligners.core.translator import Linear
from pipelines.attributes import means, nearest
from pipelines.encoders import query
from pipelines.measures.attributes import chance, label_set, majority, order, scores, truth, wording
from pipelines.runtime import store
from tests.small import (
    normal,
    refusal,
    run_stage,
    study_of,
    write_corpus,
    write_embeddings,
    write_translator,
)


def test_scores_of_a_ranking_worked_by_hand():
    ranked = torch.tensor([[2, 0, 1, 3], [3, 1, 0, 2]])
    true = torch.tensor([[True, False, True, False], [True, False, False, False]])
    found = {name: values.tolist() for name, values in scores(ranked, true, (1, 2)).items()}
    assert found == {
        "top1": [1, 0], "precision1": [1, 0], "recall1": [0.5, 0],
        "top2": [1, 0], "precision2": [1, 0], "recall2": [1, 0],
        "mean_rank": [1, 3], "mean_rank_all": [1.5, 3],
    }  # fmt: skip


@settings(max_examples=30)
@given(st.integers(2, 5), st.data())
def test_chance_is_the_average_over_every_possible_order(count, data):
    true = torch.tensor([data.draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))])
    ks = (1, 2, 3, 9)
    every = [scores(torch.tensor([p]), true, ks) for p in itertools.permutations(range(count))]
    for name, value in chance(true, ks).items():
        mean = sum(e[name].item() for e in every) / math.factorial(count)
        assert value.item() == pytest.approx(mean, abs=1e-12), name


def test_order_is_by_cosine_and_ignores_length():
    labels = torch.tensor([[1.0, 0.0], [0.0, 5.0], [-1.0, 0.0]])
    assert order(torch.tensor([[0.1, 0.9], [-7.0, 0.1]]), labels).tolist() == [[1, 0, 2], [2, 1, 0]]


def test_neighbours_outvote_a_vector_that_was_translated_badly():
    groups = torch.tensor([[1.0, 0.0], [0.9, 0.1], [1.0, -0.1], [0.0, 1.0], [0.1, 0.9], [-0.1, 1.0]])
    near = nearest(groups, 3)
    assert [set(row) for row in near.tolist()] == [{0, 1, 2}] * 3 + [{3, 4, 5}] * 3
    assert nearest(groups, 1) is None
    assert nearest(groups, 99).shape == (6, 6)
    labels, translated = torch.eye(2), groups.clone()
    translated[0] = torch.tensor([0.4, 0.6])  # this one went astray
    assert order(translated, labels, near=near)[:, 0].tolist() == [0, 0, 0, 1, 1, 1]


def test_majority_names_the_commonest_label_for_everyone():
    true = torch.tensor([[False, True], [False, True], [True, False]])
    assert scores(majority(true), true, (1,))["top1"].tolist() == [1, 1, 0]
    with refusal("1 examples have no label"):
        scores(majority(true), true & torch.tensor([[True], [True], [False]]), (1,))


def test_the_difference_from_the_floor_is_that_of_the_same_texts():
    first, second, floor = (torch.arange(100) % period == 0 for period in (2, 3, 5))
    methods = {"translated 0": first, "translated 1": second, "majority": floor}
    found = means({name: {"top1": right.double()} for name, right in methods.items()}, torch.arange(100))
    gains = (first.double() + second.double()) / 2 - floor.double()
    assert found["translated"]["top1_above_floor_error"] == pytest.approx(gains.std().item() / 10)


def test_rare_labels_can_be_left_out_and_the_others_are_worded():
    assert label_set([["a", "b"], ["a"], ["b"], ["c"]], least=2) == ["a", "b"]
    assert truth([["a", "c"], ["c"]], ["a", "b"]).tolist() == [[True, False], [False, False]]
    assert wording("fitness_&_health", "name") == "fitness & health"
    assert wording("fitness_&_health", "template") == "This text is about fitness & health."


# ---------------------------------------------------------------- the stage


def measured(**keys):
    """Run the stage with a row that has these keys."""
    fits = {"none": {"source": "notes-a", "target": "notes-b", "aligner": "identity"}}
    study = study_of("notes", "a b", align=fits, attributes={"r": {"translator": "none"} | keys})
    return run_stage("attributes", study, "r")


@pytest.fixture
def stored(own_folder, monkeypatch):
    """A corpus of three subjects, embedded by two encoders that are each other's negative, and a translator
    that knows it.
    """
    subjects = ["law", "oil", "art"]

    def encode(texts):
        return torch.tensor([[1.01 if s in t else 0.01 for s in (*subjects, "none")] for t in texts])

    texts = [f"{subjects[i % 3]} {i}" for i in range(30)]
    splits = ["train"] * 10 + ["test"] * 20
    of_each = [[text[:3]] for text in texts]
    write_corpus("notes", texts, splits, labels=of_each, holes=[[*of, None, ""] for of in of_each])
    vectors = encode(texts) + 0.05 * normal(30, 4)
    for name, side in (("a", -vectors), ("b", vectors)):
        write_embeddings(f"notes-{name}", side, splits, corpus="notes")
    write_translator("none", Linear.of(-torch.eye(4), -vectors, vectors))
    by_name = lambda folder, row, device: encode if folder.name == "b" else lambda t: -encode(t)  # noqa: E731
    monkeypatch.setattr(query, "as_function", by_name)


@pytest.mark.parametrize("labels", ["labels", "holes"])
def test_translated_stand_beside_ideal_and_chance(stored, labels):
    found = measured(wordings=["name", "template"], k=[1, 2], labels=labels)
    assert (found["examples"], found["labels"]) == (20, 3)
    for way in ("name", "template"):
        top1 = {method: measures["top1"] for method, measures in found[way].items()}
        assert top1["translated"] == top1["ideal target"] == top1["ideal source"] == 1
        assert top1["naive"] == 0
        assert top1["chance"] == pytest.approx(1 / 3, abs=1e-6)


def test_labels_that_read_alike_are_named(stored, capsys):
    measured()
    assert "alike" not in capsys.readouterr().err
    corpus = store.read_corpus("notes").with_row_index("row")
    spelt = pl.when(pl.col("row") == 29).then(pl.lit(["Art_"])).otherwise("labels")
    store.write_corpus("notes", corpus.with_columns(labels=spelt).drop("row"))
    measured()
    said = "corpus notes: labels that read alike count as different: Art_, art\n"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"labels": "sender"}, "no column 'sender'"),
        ({"split": "elsewhere"}, "of at least 1 examples are needed; found: 0"),
    ],
)
def test_labels_that_are_not_there_are_one_line(stored, keys, message):
    with refusal(message):
        measured(**keys)
