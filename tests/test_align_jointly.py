"""Several spaces at once: who sees what, a translator for every ordered pair, and what is extended stays."""

from dataclasses import replace
from itertools import permutations
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from pipelines.aligners import vec2vec, wasserstein_procrustes
from pipelines.aligners.core import verdict
from pipelines.aligners.core.translator import Linear, load_seeds, verdicts_in
from pipelines.aligners.vec2vec.networks import Vec2Vec
from pipelines.aligners.vec2vec.training import Training
from pipelines.fitting.fits import RESTART, FitId
from pipelines.fitting.splitting import rows_of_parts, vectors_of_parts
from pipelines.runtime import store
from pipelines.study import AlignJointly, params
from tests import test_aligners
from tests.small import normal, refusal, rotation, run_stage, seeded, tables_of, write_yaml
from tests.test_align import TEST, N, embeddings, texts, write
from tests.test_vec2vec import SMALL

DIMS = {"a": 7, "b": 5, "c": 6}
STARTS = {"starts": (3, 2), "start_axes": (4, 5), "start_steps": 4}


def clouds(dims=DIMS):
    g = seeded(3)
    return {name: torch.randn(200, d, generator=g) + 0.5 for name, d in dims.items()}


ROW = {"spaces": ["a", "b", "c"], "aligner": "vec2vec"}


def row(**keys):
    keys = ROW | keys
    return AlignJointly.model_validate({"start": f"pipelines/aligners/{keys['aligner']}"} | keys)


@pytest.mark.parametrize("more", [{}, STARTS])
def test_every_ordered_pair_has_a_translator(more):
    x, settings = clouds(), replace(SMALL, **more)
    fits = vec2vec.fit_jointly(x, settings, 0)
    assert set(fits) == set(permutations(DIMS, 2))
    again = vec2vec.fit_jointly(x, settings, 0)
    for (source, target), translator in fits.items():
        assert translator(x[source]).shape == (200, DIMS[target])
        assert torch.equal(again[source, target](x[source]), translator(x[source]))


@pytest.mark.parametrize("objective", ["code", "paper"])
def test_every_pair_counts_alike_in_the_losses(objective):
    """Three spaces' losses are means (code) or sums (paper) over spaces or pairs of what two spaces' are."""
    torch.manual_seed(0)
    settings = replace(SMALL, norm="layer", objective=objective)  # layer norm: rows do not see each other
    model = Vec2Vec(DIMS, **settings.shape)
    x = {name: torch.nn.functional.normalize(torch.randn(8, d)) for name, d in DIMS.items()}

    def terms(names):
        training = Training(model, {name: DIMS[name] for name in names}, settings)
        losses = training.geometry_losses(training.forward({name: x[name] for name in names}))
        return {name: value for name, (value, _) in losses.items()}

    whole, pairs = terms("abc"), [terms(names) for names in ("ab", "bc", "ac")]
    for name, value in whole.items():
        times = 2 if name == "reconstruction" else 1  # a space stands in two pairs
        times = times if objective == "paper" else 3
        torch.testing.assert_close(value, sum(pair[name] for pair in pairs) / times)


def drawn_texts(*arguments):
    """Return the texts that a row gives to each space."""
    return {name: texts(vectors) for name, vectors in vectors_of_parts(*arguments).items()}


def test_spaces_of_another_corpus_are_divided_apart():
    spaces = {"a": embeddings("a")} | {name: embeddings(name, "emails", n=40) for name in "bc"}
    drawn = drawn_texts(spaces, row(), 0)
    assert len(drawn["a"]) in (16, 17)
    assert len(drawn["b"]) == len(drawn["c"]) == 10
    assert not drawn["b"] & drawn["c"]


TIED = {"adapter_depth": 0, "backbone_depth": 0, "axes": "principal", "centre": True, **STARTS}


@pytest.mark.parametrize("more", [{}, TIED])
def test_an_encoder_joins_and_nothing_else_moves(more):
    x, settings = clouds(), replace(SMALL, **more)
    two = vec2vec.fit_jointly({"a": x["a"], "b": x["b"]}, settings, 0)
    three = vec2vec.fit_jointly(x, settings, 0, start=two)
    for pair, translator in two.items():
        assert torch.equal(three[pair](x[pair[0]]), translator(x[pair[0]]))
    untrained = vec2vec.fit_jointly(x, replace(settings, steps=0, starts=(), start_axes=()), 0, start=two)
    for pair in (("a", "c"), ("c", "a"), ("b", "c"), ("c", "b")):
        assert not torch.allclose(three[pair](x[pair[0]]), untrained[pair](x[pair[0]]), atol=1e-4)


def test_spaces_that_do_not_fit_are_refused():
    x = clouds()
    two = vec2vec.fit_jointly({"a": x["a"], "b": x["b"]}, replace(SMALL, steps=0), 0)
    with refusal("another shape than this row"):
        vec2vec.fit_jointly(x, replace(SMALL, width=14), 0, start=two)
    for spaces in ({"a": x["a"], "b": x["b"]}, {"a": x["a"], "c": x["c"]}, x | {"b": x["b"][:, 1:]}):
        with refusal("at least two encoders; with `start`, its own unchanged"):
            vec2vec.fit_jointly(spaces, SMALL, 0, start=two)
    with refusal("at least two encoders"):
        vec2vec.fit_jointly({"a": x["a"]}, SMALL, 0)
    with refusal("paired: there is no space 'z'"):
        wasserstein_procrustes.fit_jointly(x, wasserstein_procrustes.Settings(), 0, ["b", "z"])
    for name in ("latent", "training"):
        with refusal(f"the name {name} is reserved"):
            vec2vec.fit_jointly(clouds({"a": 5, name: 5}), SMALL, 0)
    for paired in (["b"], ["a", "b", "c"], []):
        with refusal("one space must be missing from"):
            wasserstein_procrustes.fit_jointly(x, SMALLER, 0, paired=paired)


# ---------------------------------------------------------------- the stage


SPACES = {name: embeddings(name) for name in "abc"}


@hypothesis(max_examples=20)
@given(seed=st.integers(0, 10_000), limit=st.integers(2, 40))
def test_spaces_of_one_corpus_share_no_text(seed, limit):
    drawn = drawn_texts(SPACES, row(limit=limit), seed)
    assert not any(drawn[a] & drawn[b] for a, b in permutations(drawn, 2))
    assert max(set().union(*drawn.values())) <= N - TEST
    third = (N - TEST) // 3
    assert {len(part) for part in drawn.values()} <= {min(limit, third), min(limit, third + 1)}


OWNED = {"aligner": "wasserstein_procrustes", "paired": ["b", "c"]}


@hypothesis(max_examples=20)
@given(
    seed=st.integers(0, 10_000), limit=st.integers(2, 40), splits=st.sampled_from([None, ("test", "train")])
)
def test_paired_spaces_share_their_texts_and_no_other(seed, limit, splits):
    asked = row(**OWNED, limit=[limit, 7], splits=splits)
    for replicate in (False, True):
        fit_id = FitId(seed, 0, replicate)
        drawn = vectors_of_parts(SPACES, asked, fit_id.seed_of_texts(asked))
        a, b, c = map(texts, fit_id.seen(asked, [*drawn.values()]))
        assert b == c
        assert len(b) == (6 if splits and replicate else 7)
        assert not a & b
        if splits:
            assert min(a) > N - TEST >= max(b)


def views(n):
    """Three spaces of 2 n clustered texts, (2 n, d) each, row i of one text; the second is blurred."""
    g = seeded()
    latent = test_aligners.clustered(2 * n, 8, g)
    turned = [latent @ rotation(d, 8, g).T for d in (8, 10, 12)]
    return turned[0], turned[1] + 0.6 * torch.randn(2 * n, 10, generator=g), turned[2]


SMALLER = replace(test_aligners.SMALL, match_in="smaller")


def test_a_second_encoder_improves_the_first_coupling():
    """A blurred view of the attacker's texts is aligned better beside a clear one, both ways."""
    x, blurred, clear = views(450)

    def fit(**others):
        clouds = {"x": x[:450]} | {name: cloud[450:] for name, cloud in others.items()}
        settings = replace(SMALLER, rotations=0)  # with rotations the blurred view alone has .75
        return wasserstein_procrustes.fit_jointly(clouds, settings, 0, paired=[*others])

    alone, both = fit(b=blurred), fit(b=blurred, c=clear)
    assert set(both) == {("x", "b"), ("b", "x"), ("x", "c"), ("c", "x")}
    assert test_aligners.nearness(both["x", "c"], x[:450], clear[:450]) > 0.98
    for pair, source, target in ((("x", "b"), x, blurred), (("b", "x"), blurred, x)):
        near, far = (test_aligners.nearness(fits[pair], source[:450], target[:450]) for fits in (both, alone))
        assert near > 0.8 > 0.6 > far


@pytest.mark.parametrize("seen", [1000, 500])  # the rows that are seen are of the same texts
def test_a_paired_space_that_tells_nothing_new_changes_nothing(seen, monkeypatch):
    monkeypatch.setattr(wasserstein_procrustes, "MOST", seen)
    x, y, _ = views(600)
    clouds = {"x": x[:600], "y": y[600:]}
    alone = wasserstein_procrustes.fit_jointly(clouds, SMALLER, 1, paired=["y"])["x", "y"]
    more = clouds | {"z": clouds["y"] @ rotation(10, 10, seeded(7))}
    both = wasserstein_procrustes.fit_jointly(more, SMALLER, 1, paired=["y", "z"])["x", "y"]
    # a turned copy changes only the rounding
    assert torch.cosine_similarity(both(x), alone(x)).min() > 0.999
    if seen == 1000:  # one paired space is the pair
        assert torch.equal(alone(x), wasserstein_procrustes.fit(*clouds.values(), SMALLER, 1)(x))


@pytest.fixture
def stage(own_folder):
    rng = np.random.default_rng(0)
    for name, d in DIMS.items():
        write(name, rng.standard_normal((300, d), dtype=np.float32))

    def run(name, **keys):
        return run_stage("align_jointly", SimpleNamespace(align_jointly={name: row(**keys)}), name)

    return run


FEW = {k: v for k, v in vars(SMALL).items() if v != getattr(vec2vec.Settings(), k)}


def test_a_row_writes_every_pair_and_another_extends_it(stage):
    stage("two", **FEW, spaces=["a", "b"], parts=3, seeds=[0, 1])
    metrics = stage("three", **FEW, start="data/translators/two", seeds=[0, 1])
    assert set(metrics) == {f"{a}/{b}" for a, b in permutations("abc", 2)}
    x = normal(4, DIMS["a"])
    for seed in (0, 1):
        two, three = (load_seeds(store.translators_path(f"{name}/a/b"))[seed] for name in ("two", "three"))
        assert torch.equal(two(x), three(x))
    study = SimpleNamespace(align=[], align_jointly=["three"])
    assert store.alignments(study)["three/c/a"] == metrics["c/a"]
    by_seed = verdicts_in(store.translators_path("three/c/a"))
    scores = [verdict["score"] for verdict in metrics["c/a"]["by seed"].values()]
    assert [by_seed[seed]["score"] for seed in (0, 1)] == pytest.approx(scores, abs=1e-6)


def test_a_space_that_joins_gets_texts_that_the_others_never_saw(stage):
    spaces = {name: store.read_embeddings(name) for name in "abc"}
    two = rows_of_parts({name: spaces[name] for name in "ab"}, row(spaces=["a", "b"], parts=3), 0)
    three = rows_of_parts(spaces, row(), 0)
    assert all(torch.equal(two[name], three[name]) for name in "ab")
    assert not {*three["c"].tolist()} & {*two["a"].tolist(), *two["b"].tolist()}


def test_a_row_with_paired_spaces_writes_its_maps(stage):
    quick = {"clusters": 5, "repeats": [2], "rounds": [40], "refinements": 2, "passes": 1}
    assert set(stage("owned", **OWNED | quick, seeds=[0, 1])) == {"a/b", "a/c", "b/a", "c/a"}
    assert list(load_seeds(store.translators_path("owned/c/a"))) == [0, 1]


def test_a_fit_is_judged_by_its_worst_pair(stage, monkeypatch):
    """Seed 0 is wrong in one direction, once. Both seeds are refitted: seed 1 had none to agree with."""
    monkeypatch.setattr(verdict, "FEW", 0)  # these vectors have few dimensions
    fitted = []

    def fit(clouds, settings, seed, *_):
        fitted.append((seed // RESTART, seed % RESTART))
        a, b = clouds["a"], clouds["b"]
        there = Linear.of((-1 if seed == 0 else 1) * torch.eye(7, 5), a, b)
        return {("a", "b"): there, ("b", "a"): Linear.of(torch.eye(5, 7), b, a)}

    monkeypatch.setattr(vec2vec, "fit_jointly", fit)
    metrics = stage("r", spaces=["a", "b"], seeds=[0, 1], restarts=3)
    assert sorted(fitted) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [t.map[0, 0].item() for t in load_seeds(store.translators_path("r/a/b")).values()] == [1, 1]
    assert {of["restarts"] for of in metrics.values()} == {2}


@pytest.mark.parametrize("more", [[], [("b", "a"), ("c", "a")]])
def test_an_aligner_that_returns_other_pairs_is_named(stage, monkeypatch, more):
    there = Linear.of(torch.eye(7, 5), normal(9, 7), normal(9, 5))
    monkeypatch.setattr(vec2vec, "fit_jointly", lambda *_: {("a", "b"): there} | dict.fromkeys(more, there))
    found = "a/b, b/a, c/a" if more else "a/b"
    with refusal(f"vec2vec, seed 0: returned pairs {found}; needed: a/b, b/a$"):
        stage("r", spaces=["a", "b"], seeds=[0])


EXTENDS = {"start": "data/translators/two"}


def load(folder, rows, **tables):
    """Load a study with these rows of align_jointly."""
    spaces = {name: {"corpus": "passages", "encoder": name} for name in DIMS}
    study = tables_of("passages", "a b c", embed=spaces, align_jointly=rows, **tables)
    write_yaml(folder / "params.yaml", study)
    return params.load(folder / "params.yaml")


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ({"r": {"spaces": ["a", "a"]}}, "spaces: one is named twice"),
        ({"r": {"aligner": "identity"}}, "aligner: identity fits two spaces, no more"),
        ({"r": {"start": "pipelines"}}, "start: pipelines/aligners/vec2vec or data/translators/<row"),
        ({"r": {"start": "data/translators/q"}}, "align_jointly.r.start: there is no row 'q'"),
        ({"r": {"paired": ["b", "c"]}}, "paired: vec2vec gives each space its own texts"),
        (
            {"r": OWNED | {"paired": ["b"]}},
            "paired: wasserstein_procrustes needs all of the spaces but one there",
        ),
        ({"r": OWNED | {"splits": ["test", "test"]}}, "splits: two different ones"),
        ({"r": {"limit": [5, 9]}}, "limit: the second number is for the spaces in `paired`"),
        (
            {"r": OWNED, "s": OWNED | {"start": "data/translators/r"}},
            "start: wasserstein_procrustes cannot extend translators",
        ),
        (
            {"two": {}, "r": EXTENDS},
            "align_jointly.r.spaces: list those of two first",
        ),
        (
            {"two": {"spaces": ["a", "b"]}, "r": EXTENDS},
            "align_jointly.r: two needs `parts: 3` and `halves: documents`",
        ),
        ({"r": {"parts": 2}}, "parts: at least 3 are needed"),
        (
            {"two": {"spaces": ["a", "b"], "parts": 3}, "r": EXTENDS},
            "align_jointly.r.seeds: at least two of two are needed",
        ),
    ],
)
def test_rows_that_do_not_fit_get_one_line(rows, line, tmp_path):
    with refusal(rf"^.*{line}.*$"):
        load(tmp_path, {name: ROW | keys for name, keys in rows.items()})


def test_a_translator_of_a_joint_row_is_named_by_its_pair(tmp_path):
    def named(translator):
        measured = {"translator": translator, "source": "a", "target": "c"}
        return load(tmp_path, {"three": ROW | {"restarts": 3}}, evaluate={"r": measured})

    pair = named("three/a/c").translators()["three/a/c"]
    assert (pair.target, pair.restarts) == ("c", 3)
    with refusal(r"evaluate\.r\.target: c is of encoder c"):
        named("three/a/b")
    with refusal("there is no row 'three/a'"):
        named("three/a")
