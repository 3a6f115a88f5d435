"""Attribute inference: the scores, the chance that stands beside them, and the order of labels."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import BadInput
from pipelines.measures import attributes as A


def test_scores_of_a_ranking_worked_by_hand():
    ranked = torch.tensor([[2, 0, 1, 3], [3, 1, 0, 2]])
    true = torch.tensor([[True, False, True, False], [True, False, False, False]])
    s = A.scores(ranked, true, (1, 2))
    assert s["top1"].tolist() == [1, 0]
    assert s["precision1"].tolist() == [1, 0]
    assert s["recall1"].tolist() == [0.5, 0]
    assert s["precision2"].tolist() == [1, 0]
    assert s["recall2"].tolist() == [1, 0]
    assert s["mean_rank"].tolist() == [1, 3]


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 5), st.data())
def test_chance_is_the_average_over_every_possible_order(count, data):
    true = torch.tensor([data.draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))])
    ks = (1, 2, 3, 9)
    every = [A.scores(torch.tensor([p]), true, ks) for p in itertools.permutations(range(count))]
    said = A.chance(true, ks)
    for name, value in said.items():
        mean = sum(e[name].item() for e in every) / math.factorial(count)
        assert value.item() == pytest.approx(mean, abs=1e-12), name


def test_order_is_by_cosine_and_ignores_length():
    labels = torch.tensor([[1.0, 0.0], [0.0, 5.0], [-1.0, 0.0]])
    assert A.order(torch.tensor([[0.1, 0.9], [-7.0, 0.1]]), labels).tolist() == [[1, 0, 2], [2, 1, 0]]


def test_centring_removes_what_all_vectors_share():
    generator = torch.Generator().manual_seed(0)
    labels = torch.randn(6, 16, generator=generator)
    vectors = labels + 0.1 * torch.randn(6, 16, generator=generator)
    shift = 50 * torch.randn(16, generator=generator)
    assert A.order(vectors + shift, labels)[:, 0].unique().numel() < 6
    assert A.order(vectors + shift, labels, centre=True)[:, 0].tolist() == list(range(6))


def test_per_label_counts():
    ranked = torch.tensor([[0, 1], [1, 0], [0, 1]])
    true = torch.tensor([[True, False], [True, False], [False, True]])
    first, second = A.per_label(ranked, true, 1)
    assert first == {"examples": 2, "recall1": 0.5, "precision1": 0.5, "mean_rank": 1.5}
    assert second == {"examples": 1, "recall1": 0.0, "precision1": 0.0, "mean_rank": 2.0}


def test_majority_names_the_commonest_label_for_everyone():
    true = torch.tensor([[False, True], [False, True], [True, False]])
    assert A.scores(A.majority(true), true, (1,))["top1"].tolist() == [1, 1, 0]


def test_wordings():
    assert A.wording("fitness_&_health", "name", {}, "") == "fitness & health"
    assert A.wording("fitness_&_health", "template", {}, "A text about {label}.") == "A text about fitness & health."
    assert A.wording("x", "description", {"x": "an unknown"}, "") == "an unknown"
    with pytest.raises(BadInput, match="no description of label 'y'"):
        A.wording("y", "description", {}, "")


@pytest.mark.parametrize(("labels", "message"), [([["a"], ["a"]], "only 'a'"), ([[], []], "no label")])
def test_fewer_than_two_labels_is_one_line(labels, message):
    with pytest.raises(BadInput, match=message):
        A.label_set(labels)


def test_an_example_without_a_label_is_refused():
    with pytest.raises(BadInput, match="1 examples have no label"):
        A.scores(torch.tensor([[0, 1]]), torch.tensor([[False, False]]), (1,))


def test_rare_labels_can_be_left_out():
    assert A.label_set([["a", "b"], ["a"], ["b"], ["c"]], least=2) == ["a", "b"]
    assert A.truth([["a", "c"], ["c"]], ["a", "b"]).tolist() == [[True, False], [False, False]]
