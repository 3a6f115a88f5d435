"""Who sees what: disjoint halves, true pairs for oracles only. Restarts, verdicts, resuming a killed row."""

import re
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.aligners import wasserstein_procrustes
from pipelines.aligners.core import verdict
from pipelines.aligners.core.translator import Linear, load_seeds, verdicts_in
from pipelines.fitting import fits
from pipelines.fitting.fits import RESTART
from pipelines.fitting.splitting import halves, in_common, paired_vectors, sides
from pipelines.runtime import store
from pipelines.study import Align
from tests.small import refusal, run_stage

N, TEST = 60, 10
WHOLE = TEST, N - TEST  # vectors of the dump and of the attacker, if a row says `splits: [test, train]`


def embeddings(name, corpus="passages", n=N, value=None):
    """Row i holds the number i in every coordinate, so that a vector tells which text it is of."""
    vectors = np.arange(1, n + 1, dtype=np.float32)[:, None].repeat(3, 1) if value is None else value
    splits = np.array(["train"] * (n - TEST) + ["test"] * TEST, dtype=object)
    ids = np.array([f"{corpus}{i}" for i in range(n)], dtype=object)
    about = {"corpus": corpus, "encoder": "x"}
    return store.Embeddings(name, ids, splits, torch.from_numpy(vectors), about, ids, ids)


A, B, EMAILS = embeddings("a"), embeddings("b"), embeddings("b", "emails")


def row(**settings):
    aligner = "wasserstein_procrustes" if settings.get("pairs") else "identity"
    return Align.model_validate({"source": "a", "target": "b", "aligner": aligner} | settings)


def texts(vectors):
    return set(vectors[:, 0].int().tolist())


@settings(max_examples=30)
@given(seed=st.integers(0, 10_000), pairs=st.integers(0, 20), limit=st.integers(2, 40))
def test_halves_share_no_text_but_the_known_pairs(seed, pairs, limit):
    fit = row(pairs=pairs, limit=limit)
    data = halves(A, B, fit, seed)
    source, target = texts(data.source), texts(data.target)
    assert max(source | target) <= N - TEST  # no held-out text on either side
    assert len(source & target) == pairs
    assert texts(halves(A, B, fit, seed).source) == source  # the same seed, the same
    assert len(data.source) - pairs <= limit
    if pairs:
        i, j = data.pairs.T
        assert torch.equal(data.source[i], data.target[j])
        assert texts(data.source[i]) == source & target


def in_documents(sizes, name="a"):
    """Documents of these numbers of rows, all of them to train on."""
    plain = embeddings(name, n=sum(sizes) + TEST)
    names = [f"d{i}" for i, size in enumerate(sizes) for _ in range(size)] + ["held"] * TEST
    return replace(plain, documents=np.array(names, dtype=object))


@settings(max_examples=50)
@given(
    sizes=st.lists(st.integers(1, 7), min_size=14, max_size=30),
    seed=st.integers(0, 10_000),
    pairs=st.integers(0, 4),
    limit=st.none() | st.integers(2, 40),
)
def test_no_document_has_rows_in_both_halves(sizes, seed, pairs, limit):
    a, b = in_documents(sizes), in_documents(sizes, "b")
    data = halves(a, b, row(pairs=pairs, limit=limit), seed)
    sides = [side[: len(side) - pairs] for side in (data.source, data.target)]
    ours, theirs = ({a.documents[i - 1] for i in texts(side)} for side in sides)
    assert not ours & theirs
    assert "held" not in ours | theirs
    if limit is None:  # each side loses at most a document to the cut
        assert all(abs(len(side) - (sum(sizes) - pairs) / 2) <= 7.5 for side in sides)


def test_what_two_halves_have_in_common_is_counted():
    a, b = in_documents([10] * 5), in_documents([10] * 5, "b")
    twins = a.ids.copy()
    twins[1] = twins[0]
    a, b = (replace(space, same_as=twins) for space in (a, b))
    apart = in_common(*sides(a, b, row(), 0))
    assert apart["source_documents"] + apart["target_documents"] == 5
    assert (apart["shared"], apart["shared_documents"], apart["near_duplicates"]) == (0, 0, 0)
    mixed = [in_common(*sides(a, b, row(halves="rows"), seed)) for seed in range(4)]
    assert {common["shared_documents"] for common in mixed} == {5}
    assert {common["near_duplicates"] for common in mixed} == {0, 2}


def test_an_oracle_sees_true_pairs_as_many_as_a_half_has():
    x, y = paired_vectors(A, B, row(), 0)
    assert torch.equal(x, y)
    assert max(texts(x)) <= N - TEST
    a = in_documents([3] * 15)
    assert texts(paired_vectors(a, a, row(), 0)[0]) == texts(halves(a, a, row(), 0).source)


def test_each_side_may_have_a_limit():
    data = halves(A, B, row(limit=[7, 20]), 0)
    assert (len(data.source), len(data.target)) == (7, 20)
    whole, other = (texts(halves(A, B, row(), seed).source) for seed in (0, 1))
    assert texts(data.source) <= whole != other
    assert [len(side) for side in paired_vectors(A, B, row(limit=[7, 20]), 0)] == [7, 7]


@pytest.mark.parametrize("seed", [0, verdict.REPLICATE_SEED])
def test_two_splits_are_the_dump_and_the_attackers(seed):
    apart = row(splits=["test", "train"])
    data = halves(A, B, apart, seed)
    assert texts(data.source) == set(range(N - TEST + 1, N + 1))
    assert texts(data.target) == set(range(1, N - TEST + 1))
    x, y = paired_vectors(A, B, apart, seed)  # an oracle is told which texts are those of the dump
    assert torch.equal(x, y)
    assert texts(x) == texts(data.source)


def test_two_corpora_are_halved_apart_and_have_no_known_pairs():
    data = halves(A, EMAILS, row(), 0)
    assert len(data.source) == len(data.target) == (N - TEST) // 2
    with refusal("3 known pairs asked for, but a and b share 0"):
        halves(A, EMAILS, row(pairs=3), 0)


def test_splits_that_are_not_two_or_not_there_are_refused():
    with refusal("b: too few rows of split 'else' for one side of this fit: 0$"):
        halves(A, B, row(splits=["test", "else"]), 0)
    for wrong in ({"splits": ["test", "test"]}, {"splits": ["test", "train"], "pairs": 3}):
        with pytest.raises(ValueError, match="splits: "):
            row(**wrong)


def signed(sign, source, target):
    return Linear.of(sign * torch.eye(3), source, target)


def write(name, vectors):
    e = embeddings(name, n=len(vectors), value=vectors.astype(np.float32))
    store.write_embeddings(name, list(e.ids), list(e.splits), e.vectors.numpy(), e.metadata)


@pytest.fixture
def stage(own_folder, monkeypatch):
    """Return a function that runs a row of two seeds with `fit(source, target, seed)`, for its metrics."""
    monkeypatch.setattr(verdict, "FEW", 0)  # these vectors have three dimensions
    rng = np.random.default_rng(0)
    for name in "ab":
        write(name, rng.standard_normal((N, 3)))

    def align(fit, **more):
        monkeypatch.setattr(wasserstein_procrustes, "fit", lambda x, y, settings, seed, *_: fit(x, y, seed))
        keys = {"aligner": "wasserstein_procrustes", "seeds": [0, 1]} | more
        return run_stage("align", SimpleNamespace(align={"r": row(**keys)}), "r")

    return align


def scales():
    return [t.map[0, 0].item() for t in load_seeds(store.translators_path("r")).values()]


@pytest.mark.parametrize(("changed", "kept"), [("", [5, 7]), ("vectors", [7, 7]), ("code", [7, 7])])
def test_a_killed_row_keeps_seeds_of_this_code_and_these_vectors(stage, monkeypatch, changed, kept):
    def killed_after_its_first_seed(source, target, seed):
        if seed == 1:
            raise KeyboardInterrupt
        return signed(5, source, target)

    with pytest.raises(KeyboardInterrupt):
        stage(killed_after_its_first_seed)
    assert not store.translators_path("r").exists()
    if changed == "vectors":
        write("a", 1 + np.arange(3 * N).reshape(N, 3))
    if changed == "code":
        monkeypatch.setattr(store, "code_digest", lambda *packages: "another")
    found = stage(lambda source, target, seed: signed(7, source, target))
    assert scales() == kept
    assert found["verdict"] == pytest.approx(sum(v["score"] for v in found["by seed"].values()) / 2, abs=1e-5)


def test_a_killed_row_does_not_continue_on_another_device(stage, monkeypatch):
    folders = set()
    for device in ("cpu", "meta"):
        monkeypatch.setattr(fits, "resolve", Mock(return_value=torch.device(device)))
        with fits.opened("align", "r", row(), Mock()) as (_, _, folder):
            folders.add(folder)
    assert len(folders) == 2


@pytest.mark.parametrize("seeds", [[0, verdict.REPLICATE_SEED], [20261121]])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("limit", [None, 12])
def test_seeds_on_one_dump_have_replicates_on_parts_of_their_vectors(stage, seeds, sign, limit, capsys):
    """Seeds on one dump always agree with each other. With a limit, each seed has a part of the dump."""
    sizes = [min(limit or N, side) for side in WHOLE]
    whole, parts = [], []

    def fit(source, target, seed):
        own = [texts(side * 1e6) for side in (source, target)]
        replicate = [*map(len, own)] != sizes
        (parts if replicate else whole).append(own)
        return signed(sign if replicate else 1, source, target)

    by_seed = stage(fit, seeds=seeds, splits=["test", "train"], limit=limit)["by seed"]
    assert len(whole) == len(parts) == len(seeds)
    for part in parts:
        assert any(part[0] < fitted[0] and part[1] < fitted[1] for fitted in whole)
        assert all(abs(len(seen) - 0.75 * size) < 1 for seen, size in zip(part, sizes, strict=True))
    assert list(by_seed) == [str(seed) for seed in seeds]
    assert all(np.sign(v["agreement"]) == sign and abs(v["agreement"]) > 0.9 for v in by_seed.values())
    assert list(load_seeds(store.translators_path("r"))) == seeds  # the replicate is not written
    label = "aligned" if sign == 1 else "failed"
    said = ", ".join(rf"seed {seed} {label} \(agreement -?\d\.\d\d\)" for seed in seeds)
    assert re.fullmatch(f"{said}\n", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("wrong", "fitted"),
    [
        ((), [(0, 0), (0, 1)]),  # nothing is refitted without doubt
        # seed 0 is wrong twice, and until then seed 1 has nobody to agree with
        ((0, RESTART), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]),
    ],
)
def test_failed_fits_are_repeated_and_the_best_kept(stage, wrong, fitted):
    seen = {}

    def fit(source, target, seed):
        seen[seed // RESTART, seed % RESTART] = texts(source * 1e6)
        return signed(-1 if seed in wrong else 1, source, target)

    found = stage(fit, restarts=3)
    assert sorted(seen) == fitted
    assert all(seen[restart, seed] == seen[0, seed] for restart, seed in seen)  # the same vectors
    assert scales() == [1, 1]
    assert found["restarts"] == len(fitted) - 2
    assert (found["shared"], found["source_documents"]) == (0, 25)


def test_a_replicate_judges_no_other_seed(stage):
    def fit(source, target, seed):
        return signed(-1 if seed == 1 + verdict.REPLICATE_SEED else 1, source, target)

    by_seed = stage(fit, splits=["test", "train"])["by seed"]
    assert [v["label"] for v in by_seed.values()] == ["aligned", "failed"]


def test_a_replicate_with_the_seed_of_a_refit_is_another_fit(stage):
    sizes = []

    def fit(source, target, seed):
        sizes.append(len(target))
        return signed(1 if len(target) == N - TEST else -1, source, target)

    stage(fit, seeds=[0, verdict.REPLICATE_SEED], splits=["test", "train"], restarts=1)
    assert sizes.count(N - TEST) == 4
    assert len(sizes) == 8


@pytest.mark.parametrize("aligner", ["identity", "procrustes"])
def test_a_naive_row_and_an_oracle_have_no_verdict(stage, aligner):
    assert stage(None, aligner=aligner) == {"seeds": 2}
    assert verdicts_in(store.translators_path("r")) == {0: {}, 1: {}}


def test_an_aligner_that_returns_no_translator_is_named(stage):
    with refusal("seed 0: returned a int, not a Translator"):
        stage(lambda source, target, seed: 3)


@pytest.mark.parametrize("restarts", [0, 2])
def test_a_lone_seed_restarts_with_its_replicate(stage, restarts):
    """A wrong replicate makes a right fit look wrong: both are fitted again, the replicate to other texts."""
    seen = set()

    def fit(source, target, seed):
        if seed % RESTART >= verdict.REPLICATE_SEED:
            seen.add(frozenset(texts(source * 1e6)))
        return signed(-1 if seed == verdict.REPLICATE_SEED else 1, source, target)

    found = stage(fit, seeds=[0], restarts=restarts)
    assert (found["by seed"]["0"]["agreement"] > 0.9) == bool(restarts)
    assert found.get("restarts", 0) == bool(restarts)
    assert len(seen) == 1 + bool(restarts)
