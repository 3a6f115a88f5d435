"""What is not finite is not measured, translated or read: NaN compares false, and would rank as perfect."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from pipelines.aligners.core.hubness import InvertedSoftmax
from pipelines.aligners.core.translator import Identity, Linear, load, save
from pipelines.measures import attributes, defences, geometry, image_text, similarity, translation
from pipelines.measures.vectors import neighbours
from tests.small import normal, put, refusal

X, Y = (normal(40, 6, seed=seed) for seed in (0, 1))
BAD = pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
MEASURES = {
    "paired_scores": translation.paired_scores,
    "ranks": translation.ranks,
    "order": attributes.order,
    "recall_kept": lambda x, y: defences.recall_kept(x, y),
    "linear_cka": lambda x, y: geometry.linear_cka(x, y, torch.arange(len(x))[None]),
    "cosines": similarity.cosines,
    "sts": lambda x, y: similarity.sts(x, y, torch.linspace(0, 5, len(x))),
    "neighbours": lambda x, y: neighbours(x, y, 2),
}
RIGHT = torch.ones(40, 6, dtype=torch.bool)
ALONE = {
    "anisotropy": geometry.anisotropy,
    "uniformity": similarity.uniformity,
    "nearest_others": lambda x: geometry.nearest_others(x, 3),
    "paired_ranks": lambda s: image_text.paired_ranks(s, RIGHT),
    "retrieval": lambda s: image_text.retrieval(s, RIGHT),
    "top1": lambda s: image_text.top1(s, torch.zeros(40, dtype=torch.int64)),
}


def poisoned(value):
    vectors = X.clone()
    vectors[[7, 30], 2] = value
    return vectors


@BAD
@pytest.mark.parametrize("name", MEASURES | ALONE)
def test_a_measure_names_the_first_row_that_is_not_finite(name, value):
    bad = poisoned(value)
    for sides in [(bad,)] if name in ALONE else [(bad, Y), (X, bad)]:
        with refusal(r"^[a-z ]+: row 7 is not finite \(2 such rows of 40\)$"):
            (MEASURES | ALONE)[name](*sides)


def linear(value=0.0):
    translator = Linear.of(torch.eye(6), X, Y)
    translator.map[2, 3] = value
    return translator


@BAD
def test_a_translator_refuses_to_return_what_is_not_finite(value):
    bent = InvertedSoftmax.around(linear(), X, 1.0)
    bent.map[2, 3] = value
    for name, translator in (("Linear", linear(value)), ("InvertedSoftmax", bent)):
        with refusal(rf"^{name}: what it translated: row 0 is not finite \(40 such"):
            translator(X)
    with refusal("Identity: what it translated: row 7 is not finite"):
        Identity(6, 6)(poisoned(value))


@BAD
def test_no_infinite_translator_is_written_or_read(own_folder, value):
    with refusal("bad: map is not finite"):
        save(linear(value), Path("bad"))
    assert not list(Path().glob("bad*"))
    save(linear(), Path("t"))
    save_file(linear(value).state_dict(), "t.safetensors")
    with refusal("t: map is not finite"):
        load(Path("t"))
    save(InvertedSoftmax.around(linear(), X, 1.0), Path("bent"))
    described = json.loads(Path("bent.json").read_text())
    described["config"]["strength"] = value
    put("bent.json", json.dumps(described))
    with refusal("bent: strength is not finite"):
        load(Path("bent"))
