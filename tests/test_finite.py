"""What is not finite is not measured, translated or read: NaN compares false, and would rank as perfect."""

import json

import pytest
import torch

from pipelines.aligners.core.hubness import InvertedSoftmax
from pipelines.aligners.core.translator import Identity, Linear, load, save
from pipelines.measures import attributes, defences, geometry, image_text, similarity, translation
from pipelines.measures.vectors import neighbours
from pipelines.runtime.errors import BadInput
from pipelines.study import Evaluate

X, Y = (torch.randn(40, 6, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
BAD = pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
MEASURES = {
    "paired_scores": translation.paired_scores,
    "ranks": translation.ranks,
    "order": attributes.order,
    "recall_kept": lambda x, y: defences.recall_kept(x, y, k=3),
    "linear_cka": geometry.linear_cka,
    "cka_chance": geometry.cka_chance,
    "cka_null": lambda x, y: geometry.cka_null(x, y, geometry.random_orders(len(x), 2, 0)),
    "cosines": similarity.cosines,
    "sts": lambda x, y: similarity.sts(x, y, torch.linspace(0, 5, len(x))),
    "neighbours": lambda x, y: neighbours(x, y, 2),
}
ALONE = {
    "anisotropy": geometry.anisotropy,
    "uniformity": similarity.uniformity,
    "nearest_others": lambda x: geometry.nearest_others(x, 3),
    "paired_ranks": lambda s: image_text.paired_ranks(s, torch.ones(s.shape, dtype=torch.bool)),
    "retrieval": lambda s: image_text.retrieval(s, torch.ones(s.shape, dtype=torch.bool)),
    "top1": lambda s: image_text.top1(s, torch.zeros(len(s), dtype=torch.int64)),
}


def poisoned(vectors, value, row=7):
    vectors = vectors.clone()
    vectors[row, 2] = value
    return vectors


@BAD
@pytest.mark.parametrize("name", MEASURES)
@pytest.mark.parametrize("side", [0, 1])
def test_a_measure_of_two_sides_names_the_first_row_that_is_not_finite(name, side, value):
    sides = [X, Y]
    sides[side] = poisoned(sides[side], value)
    with pytest.raises(BadInput, match=r"^[a-z ]+: row 7 is not finite \(1 such rows of 40\)$"):
        MEASURES[name](*sides)


@BAD
@pytest.mark.parametrize("name", ALONE)
def test_a_measure_names_the_first_row_that_is_not_finite(name, value):
    with pytest.raises(BadInput, match=r"^[a-z ]+: row 7 is not finite \(2 such rows of 40\)$"):
        ALONE[name](poisoned(poisoned(X, value), value, row=30))


def linear():
    return Linear.of(torch.eye(6), X, Y)


@BAD
@pytest.mark.parametrize("make", [linear, lambda: InvertedSoftmax.around(linear(), X, 1.0)])
def test_a_translator_yields_no_number_that_is_none(make, value):
    translator = make()
    translator.map[2, 3] = value
    with pytest.raises(
        BadInput, match=rf"^{type(translator).__name__}: what it translated: row 0 is not finite \(40 such"
    ):
        translator(X)


def test_a_translator_refuses_a_vector_that_is_not_finite():
    with pytest.raises(BadInput, match="Identity: what it translated: row 7 is not finite"):
        Identity(6, 6)(poisoned(X, float("nan")))


@BAD
def test_a_translator_that_is_not_finite_is_neither_written_nor_read(tmp_path, value):
    translator = linear()
    save(translator, tmp_path / "t")
    translator.map[2, 3] = value
    with pytest.raises(BadInput, match="bad: map is not finite"):
        save(translator, tmp_path / "bad")
    assert not list(tmp_path.glob("bad*"))

    from safetensors.torch import save_file

    save_file(translator.state_dict(), tmp_path / "t.safetensors")
    with pytest.raises(BadInput, match="t: map is not finite"):
        load(tmp_path / "t")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_translators_settings_are_finite_too(tmp_path, value):
    save(InvertedSoftmax.around(linear(), X, 1.0), tmp_path / "t")
    described = json.loads((tmp_path / "t.json").read_text())
    described["config"]["strength"] = value
    (tmp_path / "t.json").write_text(json.dumps(described))
    with pytest.raises(BadInput, match="t: strength is not finite"):
        load(tmp_path / "t")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_row_refuses_a_hub_correction_that_is_no_strength(value):
    row = {"translator": "t", "source": "a", "target": "b"}
    Evaluate.model_validate(row | {"hub_correction": 2.0})
    with pytest.raises(ValueError, match="hub_correction"):
        Evaluate.model_validate(row | {"hub_correction": value})
