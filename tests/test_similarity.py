"""Measures of sentence similarity and geometry against independent references, and their stages."""

import math
from itertools import permutations, product
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.stats import pearsonr, spearmanr

from pipelines.encoders import pooling
from pipelines.geometry import match
from pipelines.measures import geometry, labels, similarity
from pipelines.measures.vectors import overlap
from pipelines.runtime import store
from pipelines.similarity import similarity as stage
from tests.small import (
    DOES,
    WHO,
    Largest,
    normal,
    refusal,
    rotation,
    run_stage,
    seeded,
    study_of,
    write_corpus,
    write_embeddings,
    write_network,
    write_report,
)


def cloud(n=60, d=8, seed=0):
    return normal(n, d, seed=seed) + 0.3


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9)), min_size=4, max_size=40))
def test_spearman_and_pearson_are_scipys_ties_included(values):
    a, b = torch.tensor(values, dtype=torch.float64).T
    if len(a.unique()) > 1 and len(b.unique()) > 1:
        assert similarity.spearman(a, b) == pytest.approx(spearmanr(a, b).statistic, abs=1e-12)
        assert similarity.pearson(a, b) == pytest.approx(pearsonr(a, b).statistic, abs=1e-12)


def test_nothing_correlates_with_a_constant():
    assert math.isnan(similarity.pearson(torch.arange(7), torch.full((7,), 3.3, dtype=torch.float64)))


def test_alignment_counts_pairs_with_a_score_above_four_only():
    first, second = torch.tensor([[1.0, 0], [1, 0], [2, 0]]), torch.tensor([[0.0, 3], [0, 1], [5, 0]])
    scores = torch.tensor([4.5, 4.0, 5.0])
    assert similarity.alignment(first, second, scores) == pytest.approx((2 + 0) / 2)


def test_uniformity_is_its_formula_in_any_blocks():
    x = cloud(50)
    distances = pdist(x / x.norm(dim=1, keepdim=True), "sqeuclidean")
    assert similarity.uniformity(x) == pytest.approx(np.log(np.exp(-2 * distances).mean()), abs=1e-6)
    assert similarity.uniformity(x, block=7) == pytest.approx(similarity.uniformity(x), abs=1e-6)
    assert np.isnan(similarity.uniformity(x[:1]))


def test_a_single_vector_has_no_mean_cosine():
    assert geometry.anisotropy(cloud(1)) == pytest.approx({"top": 1.0, "effective_rank": 1.0})


def test_anisotropy_tells_a_cone_from_a_sphere():
    sphere, cone = geometry.anisotropy(cloud(500, 16) - 0.3), geometry.anisotropy(cloud(500, 16) + 5)
    assert sphere["mean_cosine"] == pytest.approx(0, abs=0.02)
    assert cone["mean_cosine"] > 0.9
    assert cone["top"] > 0.9 > 0.2 > sphere["top"]
    assert sphere["effective_rank"] > 14 > 2 > cone["effective_rank"]
    opposite = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 0.0]])
    assert geometry.anisotropy(opposite)["mean_cosine"] == pytest.approx(-1 / 3)
    x = cloud(40, 6).double()
    energy = np.linalg.svd((x / x.norm(dim=1, keepdim=True)).numpy(), compute_uv=False) ** 2
    assert geometry.anisotropy(x)["top"] == pytest.approx(energy[0] / energy.sum(), abs=1e-9)


def ckas(x, y):
    return geometry.linear_cka(x, y, geometry.random_orders(len(x), 1, seed=0))


def test_cka_is_its_formula_and_ignores_rotation_and_scale():
    x, y = cloud(80, 5).double(), cloud(80, 9, seed=1).double()
    turn = rotation(5, 5, seeded(2)).double()
    assert ckas(x, 3 * x @ turn + 7)[0] == pytest.approx(1, abs=1e-6)
    centre = np.eye(80) - 1 / 80
    k, m = (centre @ (v.numpy() @ v.numpy().T) @ centre for v in (x, y))
    expected = (k * m).sum() / np.linalg.norm(k) / np.linalg.norm(m)
    assert ckas(x, y)[0] == pytest.approx(expected, abs=1e-9)


def shared(x, y, k=10):
    return overlap(geometry.nearest_others(x, k), geometry.nearest_others(y, k)).mean().item()


def test_overlap_is_one_after_rotation_and_else_chance():
    x = cloud(400, 12).double()
    assert shared(x, x @ rotation(12, 12, seeded(2)).double()) > 0.99
    assert shared(x, cloud(400, 12, seed=5)) == pytest.approx(10 / 399, abs=0.015)


@settings(max_examples=10)
@given(st.integers(0, 1000), st.integers(2, 6), st.integers(1, 6), st.integers(1, 6))
def test_the_chance_of_cka_is_its_mean_over_all_pairings(seed, n, d, e):
    x, y = cloud(n, d, seed).double(), cloud(n, e, seed + 1).double()
    orders = torch.tensor(list(permutations(range(n))))
    _, chance, null = geometry.linear_cka(x, y, orders)
    assert chance == pytest.approx(null.mean().item(), rel=1e-9)


def test_a_null_is_the_measure_of_the_rows_in_other_orders():
    x, y, orders = cloud(30, 4).double(), cloud(30, 6, seed=1).double(), geometry.random_orders(30, 5, seed=3)
    near = [geometry.nearest_others(side, 4) for side in (x, y)]
    null, overlaps = geometry.linear_cka(x, y, orders)[2], geometry.overlap_null(*near, orders)
    in_float32 = geometry.linear_cka(x.float(), y.float(), orders)[2]
    torch.testing.assert_close(in_float32, null, check_dtype=False)
    for order, of_cka, of_null in zip(orders, null, overlaps, strict=True):
        assert sorted(order.tolist()) == list(range(30))
        assert of_cka == pytest.approx(ckas(x, y[order])[0], abs=1e-12)
        assert of_null == pytest.approx(shared(x, y[order], 4), abs=1e-6)


def test_a_null_of_vectors_of_16_bits_does_not_overflow():
    x, y, orders = 100 * cloud(60), 100 * cloud(60, seed=1), geometry.random_orders(60, 5, seed=3)
    half = geometry.linear_cka(x.half(), y.half(), orders)[2]
    torch.testing.assert_close(half, geometry.linear_cka(x, y, orders)[2], rtol=0.01, atol=0.001)


@settings(max_examples=100)
@given(st.integers(0, 12), st.lists(st.integers(0, 12), min_size=19, max_size=99))
def test_a_calibrated_value_is_positive_only_if_p_is_small(raw, null):
    calibrated, p = geometry.calibrate(raw / 12, torch.tensor(null) / 12)
    assert p == (1 + sum(value >= raw for value in null)) / (len(null) + 1)
    assert (calibrated > 0) == (p <= 0.05)
    assert 0 <= calibrated <= raw / 12


def test_vectors_that_are_all_the_same_have_no_cka_and_no_p():
    near = geometry.nearest_others(cloud(20))
    found = geometry.compare(cloud(20), torch.ones(20, 3), (near, near), geometry.random_orders(20, 9, 0))
    assert all(math.isnan(value) for name, value in found.items() if name.startswith("cka"))


def test_labels_match_by_centroids():
    topic = torch.arange(400) // 2 % 10
    x = normal(10, 16)[topic] + normal(400, 16, seed=1) / 4
    turned = (x + normal(400, 16, seed=2) / 4) @ rotation(16, 16, seeded()) + 5
    names = [[f"topic {i}", "every"][: 1 + i % 2] for i in topic.tolist()]
    rows = [str(i) for i in range(400)]
    assert labels.compare(x, turned, names, rows, match)["labels_matched"] == 1
    assert labels.compare(x, turned, names, rows, match)["labels_p"] == pytest.approx(0.001)
    unrelated = labels.compare(x, normal(400, 16, seed=3), names, rows, match)
    assert unrelated["labels_matched"] < 0.5
    assert unrelated["labels_p"] > 0.05
    assert labels.compare(x, x, [["a"], ["b"]] * 200, rows, match) == {}
    alternating = [[f"topic {i % 10}"] for i in range(400)]
    x = normal(10, 16)[torch.arange(400) % 10] + normal(400, 16, seed=1) / 4
    assert labels.compare(x, x, alternating, rows, match)["labels_matched"] == 1


def test_many_labels_are_matched_in_little_memory():
    names, rows = [[f"label {i // 4}"] for i in range(160)], [str(i) for i in range(160)]
    with Largest() as seen:
        labels.compare(normal(160, 8), normal(160, 8), names, rows, lambda a, b, _: torch.arange(len(a)))
    assert 0 < seen.numel <= 1000 * 40  # random orders of 40 labels, and no 1000 matrices of 40 x 40


def test_labels_are_not_matched_by_documents_of_both_sides():
    document = torch.arange(400) // 10
    x = normal(40, 16)[document] + normal(400, 16, seed=1) / 4  # labels tell nothing but the document
    names = [[f"label {i % 10}"] for i in (document // 2).tolist()]
    found = labels.compare(x, x, names, [f"document {i}" for i in document.tolist()], match)
    assert found["labels_matched"] < 0.5
    assert found["labels_p"] > 0.05


# ---------------------------------------------------------------- the stages, on a small network

PAIRS = [*product(WHO, WHO, DOES)]
FIRST, SECOND = [f"{a} {does} today" for a, _, does in PAIRS], [f"{b} {does} now" for _, b, does in PAIRS]
SCORES = [5.0 * (a == b) for a, b, _ in PAIRS]


@pytest.fixture
def pairs(own_folder):
    """Write a corpus of pairs and an encoder."""
    write_network(store.encoder_path("small"), FIRST + SECOND)
    write_corpus("sts", FIRST, "test", pair=SECOND, score=SCORES)


def study(**row):
    return study_of(
        "sts",
        "small other",
        similarity={"row": {"encoder": "small", "corpus": "sts", **row}},
        embed={"sts-small": {}, "sts-other": {}},
        geometry={"row": {"corpus": "sts"}},
    )


def measured(**row):
    return run_stage("similarity", study(**row))


def plotted(name):
    return store.read_csv(store.tables_path("similarity", "row") / f"{name}.csv")


def test_similarity_measures_an_encoder_and_its_layers(pairs):
    found = measured()
    model = pooling.open_model(store.encoder_path("small"))
    first, second = (torch.from_numpy(model.encode(side)) for side in (FIRST, SECOND))
    expected = similarity.sts(first, second, torch.tensor(SCORES))
    assert {k: found[k] for k in expected} == pytest.approx(expected, abs=0.05)  # padding may swap near ties
    assert list(found["layers"]) == ["01", "02"]
    near = plotted("nearest")
    unit = torch.from_numpy(model.encode([*dict.fromkeys(FIRST + SECOND)], normalize_embeddings=True))
    expected = (unit @ unit[0]).sort(descending=True).values[1:4]  # without the sentence itself
    assert near["cosine"][:3].to_list() == pytest.approx(expected.tolist(), abs=1e-4)
    cosines = plotted("layers").to_torch()
    assert cosines.diagonal(1).tolist() == pytest.approx(list(found["layers"].values()), abs=1e-5)
    assert not list(store.WORK.rglob("*.npy"))


def test_a_device_without_float64_is_refused(pairs):
    with refusal("^device: mps has no float64"):
        measured(device="mps")


def test_sentences_of_private_pairs_reach_neither_mlflow_nor_the_report(pairs):
    whole, run = study(), Mock()
    whole.corpora["sts"] = whole.corpora["sts"].model_copy(update={"private": True})
    stage("row", whole.similarity["row"], whole, run)
    write_report(whole)
    assert [call.args[0].name for call in run.artifact.call_args_list] == ["layers.csv"]
    page = Path("report/report.md").read_text()
    assert "sts" in page
    assert not [text for text in FIRST if text in page]


def test_pairs_of_one_sentence_have_no_nearest_others(pairs):
    write_corpus("sts", ["same"] * 3, "test", pair=["same"] * 3, score=[1.0, 2.0, 3.0])
    measured()
    assert plotted("nearest").is_empty()
    write_report(study())


def test_a_row_may_replace_the_pooling_or_compare_several(pairs):
    wk = {"pooling": "sbert-wk", "first_layer": 0}
    ways = {"cls": {"pooling": "cls"}, "wk": wk, "max": {"pooling": "max"}}
    with pytest.raises(ValueError, match=r"\.poolings: each needs `pooling` or `layers`"):
        measured(pooling="cls", poolings={"same": {}})
    found = measured(poolings=ways)["poolings"]
    alone, own = measured(pooling="cls"), measured()["spearman"]
    assert "layers" not in alone
    assert measured(pooling="first-last")["spearman"] == own
    assert found["cls"] == {key: pytest.approx(alone[key], abs=1e-4) for key in found["cls"]}
    assert len({own, *(of["spearman"] for of in found.values())}) == 4


def test_too_few_pairs_or_embeddings_are_named(pairs):
    with refusal("0 pairs of split 'dev'"):
        measured(split="dev")
    write_corpus("sts", FIRST, "test", pair=SECOND, score=[3.0] * len(FIRST))
    with refusal("48 pairs of split 'test', all of one score"):
        measured()
    with refusal("corpus sts is embedded by 0 encoders; two are needed"):
        run_stage("geometry", study().model_copy(update={"embed": {}}))
    for side in ("small", "other"):
        write_embeddings(f"sts-{side}", cloud(20), "test")
    with refusal("its ids are not those of corpus sts"):
        run_stage("geometry", study())


def test_geometry_compares_embeddings_and_is_in_the_report(pairs):
    whole, x = study(), cloud(len(PAIRS), 12)
    for name, vectors in (("small", x), ("other", x.flip(1))):
        write_embeddings(f"sts-{name}", vectors, "test")
    metrics = run_stage("geometry", whole)["other:small"]
    chance = metrics.pop("cka_chance")
    assert chance == pytest.approx(ckas(x, x)[1], abs=1e-6)
    wholly = {"cka": 1.0, "cka_calibrated": 1.0, "cka_p": 0.01}
    assert metrics == wholly | {key.replace("cka", "overlap"): value for key, value in wholly.items()}
    measured()
    write_report(whole)
    page = Path("report/report.md").read_text()
    assert f"### sts (GENERATED; {len(PAIRS)} pairs, test)" in page
    assert "| small   | its own |" in page
    assert f"| other and small | 1.000      | {chance:.3f}  | 1.000      | 1.000" in page
    assert "similarity row: plane" in page
    most = plotted("words")["word"][0]
    assert f"| row | {most} " in page
