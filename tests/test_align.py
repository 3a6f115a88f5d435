"""Who sees what: aligners get disjoint halves, oracles true pairs, and a killed row continues at the seed it was at."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines import align as verb
from pipelines.aligners import wasserstein_procrustes
from pipelines.aligners.core import verdict
from pipelines.aligners.core.translator import Linear, load_seeds
from pipelines.aligners.core.verdict import REPLICATE
from pipelines.fitting.fits import RESTART
from pipelines.fitting.splitting import halves, paired_rows
from pipelines.runtime import store
from pipelines.runtime.errors import BadInput
from pipelines.study import Align

N, TEST = 60, 10


def embeddings(name, corpus="passages", encoder="x", n=N, value=None):
    """Row i holds the number i in every coordinate, so that a vector tells which text it is of."""
    vectors = np.arange(1, n + 1, dtype=np.float32)[:, None].repeat(3, 1) if value is None else value
    splits = np.array(["train"] * (n - TEST) + ["test"] * TEST, dtype=object)
    ids = np.array([f"{corpus}{i}" for i in range(n)], dtype=object)
    return store.Embeddings(
        name, ids, splits, torch.from_numpy(vectors), {"corpus": corpus, "encoder": encoder}
    )


def row(**settings):
    return Align.model_validate({"source": "a", "target": "b", "aligner": "identity"} | settings)


def texts(vectors):
    return set(vectors[:, 0].int().tolist())


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), pairs=st.integers(0, 20), limit=st.integers(2, 40))
def test_halves_share_no_text_but_the_known_pairs(seed, pairs, limit):
    data = halves(embeddings("a"), embeddings("b"), row(pairs=pairs, limit=limit), seed)
    source, target = texts(data.source), texts(data.target)
    assert max(source | target) <= N - TEST  # no held-out text on either side
    assert len(source & target) == pairs
    assert len(data.source) - pairs <= limit
    if pairs:
        i, j = data.pairs.T
        assert torch.equal(data.source[i], data.target[j])
        assert texts(data.source[i]) == source & target


def cut_in_pieces(sizes, name="a"):
    """Documents of these many rows each, all of them to train on."""
    plain, n = embeddings(name, n=sum(sizes) + TEST), sum(sizes)
    documents = np.array(
        [f"d{i}" for i, size in enumerate(sizes) for _ in range(size)] + ["held"] * TEST, dtype=object
    )
    assert len(documents) == n + TEST
    return replace(plain, documents=documents)


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=14, max_size=30),
    seed=st.integers(0, 10_000),
    pairs=st.integers(0, 4),
    limit=st.none() | st.integers(2, 40),
)
def test_no_document_has_rows_in_both_halves(sizes, seed, pairs, limit):
    a, b = cut_in_pieces(sizes), cut_in_pieces(sizes, "b")
    data = halves(a, b, row(pairs=pairs, limit=limit), seed)
    source, target = data.source[: len(data.source) - pairs], data.target[: len(data.target) - pairs]
    ours, theirs = ({a.documents[i - 1] for i in texts(side)} for side in (source, target))
    assert not ours & theirs
    assert "held" not in ours | theirs
    if limit is None:  # each side loses a document or less to the cut
        assert abs(len(source) - (sum(sizes) - pairs) / 2) <= 7.5
        assert abs(len(target) - (sum(sizes) - pairs) / 2) <= 7.5


def test_an_oracle_sees_as_many_rows_as_the_source_half_of_whole_documents():
    a = cut_in_pieces([3] * 15)
    x, _ = paired_rows(a, cut_in_pieces([3] * 15, "b"), row(), 0)
    assert texts(x) == texts(halves(a, a, row(), 0).source)


def test_each_side_may_have_a_limit():
    data = halves(embeddings("a"), embeddings("b"), row(limit=[7, 20]), 0)
    assert (len(data.source), len(data.target)) == (7, 20)
    assert texts(data.source) <= texts(halves(embeddings("a"), embeddings("b"), row(), 0).source)
    pairs = paired_rows(embeddings("a"), embeddings("b"), row(limit=[7, 20]), 0)
    assert [len(side) for side in pairs] == [7, 7]  # an oracle's pairs are as many as the smaller side has


def test_halves_of_two_corpora_are_drawn_apart():
    data = halves(embeddings("a", "passages"), embeddings("b", "emails"), row(), 0)
    assert len(data.source) == len(data.target) == (N - TEST) // 2


def test_the_same_seed_draws_the_same_halves_and_another_draws_others():
    draw = lambda seed: texts(halves(embeddings("a"), embeddings("b"), row(), seed).source)  # noqa: E731
    assert draw(1) == draw(1) != draw(2)


def test_known_pairs_of_two_corpora_are_refused():
    with pytest.raises(BadInput, match="3 known pairs asked for, but a and b share 0"):
        halves(embeddings("a", "passages"), embeddings("b", "emails"), row(pairs=3), 0)


def test_oracles_see_true_pairs_of_train_texts():
    x, y = paired_rows(embeddings("a"), embeddings("b"), row(), 0)
    assert torch.equal(x, y)
    assert max(texts(x)) <= N - TEST


def test_of_two_splits_one_is_the_dump_and_the_other_the_attackers():
    apart = row(splits=["test", "train"], limit=15)
    data = halves(embeddings("a"), embeddings("b"), apart, 0)
    assert min(texts(data.source)) > N - TEST >= max(texts(data.target))
    assert len(data.source) == min(TEST, 15)
    assert len(data.target) == 15
    half = halves(embeddings("a"), embeddings("b"), row(splits=["test", "train"]), 0, replicate=True)
    assert (len(half.source), len(half.target)) == (TEST // 2, (N - TEST) // 2)
    x, y = paired_rows(embeddings("a"), embeddings("b"), apart, 0)  # an oracle is told whose the dump's are
    assert torch.equal(x, y)
    assert texts(x) == texts(data.source)


@pytest.mark.parametrize("seed", [999_999, 1_000_000, 20261121])
def test_a_seed_is_a_number_and_never_halves_the_splits(seed):
    data = halves(embeddings("a"), embeddings("b"), row(splits=["test", "train"]), seed)
    assert (len(data.source), len(data.target)) == (TEST, N - TEST)


def test_splits_that_are_not_two_or_not_there_are_refused():
    with pytest.raises(BadInput, match="b has 0 rows of split 'else'; two are needed"):
        halves(embeddings("a"), embeddings("b"), row(splits=["test", "else"]), 0)
    for wrong in ({"splits": ["test", "test"]}, {"splits": ["test", "train"], "pairs": 3}):
        with pytest.raises(ValueError, match="splits: "):
            row(**wrong)


@pytest.fixture
def stage(tmp_path, monkeypatch):
    """A row of `align` with two seeds, in a folder of its own, and what its aligner does: `fit` is called in the place of it."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in "ab":
        e = embeddings(name, value=rng.standard_normal((N, 3), dtype=np.float32))
        store.write_embeddings(name, list(e.ids), list(e.splits), e.vectors.numpy(), e.metadata)

    class Run:
        def log(self, metrics, step=0): ...
        def input(self, path, context): ...

    def align(fit, **more):
        monkeypatch.setattr(wasserstein_procrustes, "fit", fit)
        keys = {"aligner": "wasserstein_procrustes", "seeds": [0, 1]} | more
        verb.align("r", row(**keys), None, Run())

    return align


def test_a_killed_row_keeps_the_seeds_that_it_has_fitted(stage):
    def killed(source, target, settings, seed, pairs, log, folder):
        if seed == 1:
            raise KeyboardInterrupt
        return Linear.of(torch.eye(3) * 5, source, target)

    with pytest.raises(KeyboardInterrupt):
        stage(killed)
    assert not store.translators_path("r").exists()
    stage(
        lambda source, target, settings, seed, pairs, log, folder: Linear.of(torch.eye(3) * 7, source, target)
    )
    assert [t.map[0, 0].item() for t in load_seeds(store.translators_path("r")).values()] == [5, 7]
    found = store.read_metrics("align")["r"]
    assert set(found["by seed"]) == {"0", "1"}
    assert found["verdict"] == pytest.approx(sum(v["score"] for v in found["by seed"].values()) / 2, abs=1e-5)


@pytest.mark.parametrize("seeds", [[0, 2], [0, 1_000_000], [20261121]])
@pytest.mark.parametrize("sign", [1, -1])
def test_seeds_that_share_the_dump_are_judged_by_a_replicate_that_sees_half_of_it(stage, seeds, sign):
    """Seeds on one dump agree with each other, which says nothing: what counts is a fit on half of it."""
    sizes = []

    def fit(source, target, settings, seed, pairs, log, folder):
        sizes.append((len(source), len(target)))
        return Linear.of(torch.eye(3) * (1 if len(source) == TEST else sign), source, target)

    stage(fit, seeds=seeds, splits=["test", "train"])
    assert sorted(sizes) == [(TEST // 2, (N - TEST) // 2), *[(TEST, N - TEST)] * len(seeds)]
    by_seed = store.read_metrics("align")["r"]["by seed"]
    assert list(by_seed) == [str(seed) for seed in seeds]
    assert all(np.sign(v["agreement"]) == sign and abs(v["agreement"]) > 0.9 for v in by_seed.values())
    assert list(load_seeds(store.translators_path("r"))) == seeds  # the replicate is none of the row's


def test_what_is_not_aligned_is_fitted_again_and_the_best_is_kept(stage, monkeypatch):
    """Seed 0 goes wrong twice, and seed 1 has nobody to agree with until then: two restarts of both, a third is not spent."""
    monkeypatch.setattr(verdict, "FEW", 0)  # these vectors have three dimensions
    fitted = []

    def fit(source, target, settings, seed, pairs, log, folder):
        fitted.append((seed // RESTART, seed % RESTART, texts(source * 1e6)))
        wrong = seed in (0, RESTART)
        return Linear.of(-torch.eye(3) if wrong else torch.eye(3), source, target)

    stage(fit, restarts=3)
    fitted.sort()
    assert [(restart, seed) for restart, seed, _ in fitted] == [
        (0, 0),
        (0, 1),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]
    assert fitted[0][2] == fitted[2][2] == fitted[4][2]  # the same vectors
    assert [t.map[0, 0].item() for t in load_seeds(store.translators_path("r")).values()] == [1, 1]
    summed = store.read_metrics("align")["r"]
    assert summed["restarts"] == 4
    assert all(v["agreement"] > 0.9 for v in summed["by seed"].values())


def test_a_lone_seed_restarts_with_its_replicate(stage, monkeypatch):
    """A wrong replicate makes a right fit look wrong: both are fitted again."""
    monkeypatch.setattr(verdict, "FEW", 0)

    def fit(source, target, settings, seed, pairs, log, folder):
        return Linear.of(-torch.eye(3) if seed == REPLICATE else torch.eye(3), source, target)

    stage(fit, seeds=[0])
    assert store.read_metrics("align")["r"]["by seed"]["0"]["agreement"] < -0.9
    stage(fit, seeds=[0], restarts=2)
    summed = store.read_metrics("align")["r"]
    assert (summed["restarts"], summed["by seed"]["0"]["agreement"] > 0.9) == (1, True)


def test_without_doubt_nothing_is_fitted_again(stage, monkeypatch):
    monkeypatch.setattr(verdict, "FEW", 0)  # these vectors have three dimensions
    fitted = []

    def fit(source, target, settings, seed, pairs, log, folder):
        fitted.append(seed)
        return Linear.of(torch.eye(3), source, target)

    stage(fit, restarts=5)
    assert sorted(fitted) == [0, 1]
