"""Every aligner: seeded, saved and loaded alike, exact if the answer is known, one line for bad input."""

import importlib
import sys
from dataclasses import make_dataclass, replace
from types import ModuleType
from unittest.mock import Mock

import pytest
import torch
from pydantic import ValidationError
from torch.nn.functional import cosine_similarity, normalize
from torch.testing import assert_close

import pipelines.aligners
from pipelines.aligners import identity, network, vec2vec, wasserstein_procrustes
from pipelines.aligners.core.aligner import missing
from pipelines.aligners.core.cloud import principal_axes, spectral
from pipelines.aligners.core.translator import load
from pipelines.aligners.wasserstein_procrustes import (
    Settings,
    candidates,
    divided,
    equalised,
    refine,
    rotations,
    search,
)
from pipelines.aligners.wasserstein_procrustes.candidates import agreements, children, distinct_maps, evolve
from pipelines.aligners.wasserstein_procrustes.rotations import (
    FEWEST_AXES,
    LEADING_AXES,
    LEAST_ANGLE,
    MISSES,
    MOST_ANGLE,
    MOST_AXES,
    ROTATED_MAPS,
    TURNED_AXES,
    better_rotated,
    leading_axes,
    random_rotation,
    rotated,
)
from pipelines.aligners.wasserstein_procrustes.sides import REFINEMENT_POWER, Sides, couple
from pipelines.measures.vectors import centred_unit
from pipelines.study import settings_of, translation
from pipelines.study.translation import aligner_names
from tests.small import QUICK, blocks, normal, put, quick_fit, refusal, rotation, seeded, sinkhorn

SMALL = Settings(
    clusters=12,
    repeats=(10,),
    assignment_restarts=8,
    rounds=(600, 600, 600),
    refinements=10,
    passes=3,
    rotations=2,
)


def clustered(count, rank, g):
    """Return points (count, rank) of twelve clusters."""
    centres = torch.randn(12, rank, generator=g) * torch.linspace(2, 0.5, rank)
    label = torch.multinomial(torch.linspace(1, 3, 12), count, replacement=True, generator=g)
    return centres[label] + 0.25 * torch.randn(count, rank, generator=g)


def clouds(d, e, n=600, seed=0):
    """Return disjoint halves (n, d), (n, e) of one clustered cloud, and the true map (d, e) between them."""
    g = seeded(seed)
    rank = min(d, e)
    points = clustered(2 * n, rank, g)
    into_source = rotation(d, rank, g).T
    into_target = rotation(e, rank, g).T
    return points[:n] @ into_source, points[n:] @ into_target, into_source.T @ into_target


def unit_clouds(d, **more):
    """Return both clouds in d dimensions as unit vectors about their centres, and the true map."""
    *sides, W = clouds(d, d, **more)
    return *map(centred_unit, sides), W


def sides_of(X, Y):
    """Return two clouds without known pairs."""
    return Sides.of(X, Y, torch.empty(0, 2, dtype=torch.int64), seeded())


def wasserstein(source, target, seed=0, settings=SMALL, **more):
    return wasserstein_procrustes.fit(source, target, settings, seed, **more)


def nearness(translator, x, y):
    """Mean cosine, about the centre, of translated vectors to their partners."""
    return cosine_similarity(translator(x) - translator.target_mean, y - y.mean(0)).mean().item()


def own(**members):
    """An aligner of one's own, with a plain dataclass."""
    module = ModuleType("mine")
    settings = make_dataclass("Settings", [("scale", float, 1.0)], frozen=True)
    stated = {"SUPERVISION": "unpaired", "THREAD_SAFE": True, "USES_PAIRS": False, "Settings": settings}
    vars(module).update(stated | members)
    return module


def test_an_aligner_of_ones_own_is_told_what_it_lacks(monkeypatch):
    assert missing(own(fit=identity.fit)) is None
    assert missing(own(SUPERVISION="oracle")) == "mine is no OracleAligner: it lacks fit_oracle"
    assert missing(own(fit=identity.fit, SUPERVISION="unsupervised")).startswith(
        "mine.SUPERVISION: one of unpaired"
    )
    assert missing(own(fit=identity.fit, Settings=type("Settings", (), {}))) == (
        "mine.Settings: a frozen dataclass is needed"
    )
    arguments = "source, target, settings, seed, pairs, log, folder"
    short = own(fit=lambda source, target, settings, seed: None)
    assert missing(short) == f"mine.fit: it is called with ({arguments})"
    swapped = own(fit=lambda source, target, settings, seed, log=None, folder=None, pairs=None: None)
    assert missing(swapped) == f"mine.fit: it is called with ({arguments}) in this order"
    joint = own(fit=identity.fit, fit_jointly=vec2vec.fit_jointly, NEEDS_PAIRED_SPACES=False)
    assert missing(joint) == "mine is no JointAligner: it lacks CAN_EXTEND"
    joint.CAN_EXTEND = False
    assert missing(joint) is None
    joint.fit_jointly = lambda clouds, settings, seed: None
    assert missing(joint).startswith("mine.fit_jointly: it is called with (clouds, settings, seed, paired, ")
    lacking = "USES_PAIRS, fit, SUPERVISION, THREAD_SAFE, Settings"
    assert missing(ModuleType("mine")) == f"mine is no Aligner: it lacks {lacking}"
    imported = Mock(return_value=own(fit=identity.fit))
    monkeypatch.setattr(importlib, "import_module", imported)
    assert settings_of("identity", {"scale": 2}).scale == 2
    with pytest.raises(ValidationError, match="unknown key; did you mean 'scale'"):
        settings_of("identity", {"sacle": 2})
    clash = make_dataclass("Settings", [("limit", int, 1)], frozen=True)
    imported.return_value = own(fit=identity.fit, Settings=clash)
    with pytest.raises(ValueError, match=r"Settings: limit: a row of align has such a key already"):
        settings_of("identity", {})
    tensor = make_dataclass("Settings", [("axes", torch.Tensor, None)], frozen=True)
    imported.return_value = own(fit=identity.fit, Settings=tensor)
    with pytest.raises(ValueError, match=r"Settings: a key of a row cannot have type <class 'torch.Tensor'>"):
        settings_of("identity", {})
    imported.side_effect = ImportError("no module cupy")
    with pytest.raises(
        ValueError, match=r"identity cannot be imported: ImportError: no module cupy \(line \d+ of mock.py\)"
    ):
        settings_of("identity", {})


def test_a_fault_of_an_aligner_is_told_with_its_file(own_folder, monkeypatch):
    monkeypatch.setattr(translation, "__file__", own_folder / "study/translation.py")
    put("aligners/mine.py", "")
    with pytest.raises(ValueError, match=r"^aligner mine: move mine.py to mine/__init__.py$"):
        settings_of("mine", {})
    code = "import dataclasses\n@dataclasses.dataclass\nclass A:\n    a: list = []\n"
    put("aligners/own/__init__.py", code)
    monkeypatch.setattr(pipelines.aligners, "__path__", [str(own_folder / "aligners")])
    with pytest.raises(ValueError, match=r"own cannot be imported: .* \(line 2 of __init__.py\)$"):
        settings_of("own", {})


def test_quick_settings_name_every_aligner():
    assert sorted(QUICK) == aligner_names()


def test_the_example_of_contributing_is_an_aligner(monkeypatch):
    _, code = blocks("CONTRIBUTING.md", "python")
    example = ModuleType("example")
    exec(code, vars(example))
    assert missing(example) is None
    x, y, _ = clouds(6, 9)
    assert example.fit(x, y, example.Settings(axes=3), 0)(x).shape == (600, 9)
    with pytest.raises(ValueError, match="axes"):
        example.Settings(axes=0)
    monkeypatch.setitem(sys.modules, "pipelines.aligners.example", example)
    monkeypatch.setitem(QUICK, "example", {})
    for kind in (*KINDS, "two dimensions"):
        test_every_aligner_takes_any_float_type_and_dimension("example", kind)
    for kind, line in REFUSED:
        test_every_aligner_refuses_vectors_without_usable_geometry("example", kind, line)


@pytest.mark.parametrize(("d", "e"), [(6, 9), (9, 6)])
@pytest.mark.parametrize("power", [0.0, 0.25, 1.0])
def test_spectral_is_the_power_of_the_singular_values(d, e, power):
    cross = normal(d, e)
    U, S, Vh = torch.linalg.svd(cross.double(), full_matrices=False)
    assert_close(spectral(cross, power).double(), (U * (S / S[0]) ** power) @ Vh, rtol=0, atol=1e-6)
    assert not spectral(torch.zeros(d, e), power).any()


def test_identity_pads_and_cuts():
    source, target = normal(5, 3), normal(5, 4, seed=1)
    padded = quick_fit("identity", source, target)(source)
    assert torch.equal(padded, torch.cat([source, torch.zeros(5, 1)], 1))
    assert torch.equal(quick_fit("identity", target, source)(target), target[:, :3])


@pytest.mark.parametrize(("d", "e"), [(6, 6), (5, 8), (8, 5)])
def test_orthogonal_oracle_recovers_a_rotation(d, e):
    source, _, W = clouds(d, e)
    target = source @ W + 3
    # Translation keeps directions about the mean; lengths are those of the target on average.
    found = quick_fit("procrustes", source + 7, target)(source + 7)
    u, v = (normalize(x - target.mean(0)) for x in (found, target))
    assert_close(u, v, atol=1e-4, rtol=0)


def test_least_squares_oracle_is_the_normal_equation():
    source, target, _ = clouds(4, 3, n=60)
    found = quick_fit("procrustes", source, target, map="least_squares", ridge=0.1)
    X, Y = ((c := x - x.mean(0)) / c.norm(dim=1, keepdim=True) for x in (source.double(), target.double()))
    W = torch.linalg.inv(X.T @ X + 0.1 * 60 * torch.eye(4)) @ X.T @ Y
    assert_close(found.map.double(), W, atol=1e-5, rtol=0)


def test_a_network_begins_orthogonal_and_learns_what_bends(monkeypatch):
    source, _, W = clouds(8, 8, n=2000)
    target = source @ W + (source @ W).abs()  # no linear map does this
    seen, unseen = slice(0, 1500), slice(1500, None)

    def error(aligner, **settings):
        translator = quick_fit(aligner, source[seen], target[seen], **settings)
        moved, true = (side - target[seen].mean(0) for side in (translator(source[unseen]), target[unseen]))
        return 1 - float(cosine_similarity(moved, true).mean())

    line = error("procrustes")
    monkeypatch.setattr(network, "RATE", 1e-9)
    assert error("network", width=64, steps=1) == pytest.approx(line, abs=1e-4)
    monkeypatch.setattr(network, "RATE", 3e-3)
    assert error("network", width=64, steps=150) < 0.7 * line


@pytest.mark.parametrize("directions", [256, 5])
@pytest.mark.parametrize(("d", "e"), [(10, 10), (8, 12), (12, 8)])
def test_rotation_is_recovered_without_pairs(d, e, directions, monkeypatch):
    monkeypatch.setattr("pipelines.aligners.core.cloud.DIRECTIONS", directions)
    source, target, W = clouds(d, e)
    assert nearness(wasserstein(source, target), source, source @ W) > 0.98


def test_one_matrix_of_the_smaller_space_reads_both_ways():
    source, target, W = clouds(10, 14)
    plain = replace(SMALL, fidelity=0)
    both = replace(plain, match_in="smaller")
    there, back = wasserstein(source, target, settings=both), wasserstein(target, source, settings=both)
    assert_close(there.map, back.map.T, atol=1e-5, rtol=0)
    assert nearness(there, source, source @ W) > 0.98
    assert not torch.allclose(there.map, wasserstein(source, target, settings=plain).map, atol=1e-4)


def test_random_rotations_repair_reflected_directions():
    X, Y, W = unit_clouds(16)
    axes = torch.linalg.eigh(X.T @ X)[1][:, -5:-2]
    wrong = W - 2 * axes @ axes.T @ W
    sides = sides_of(X, Y)

    def cosine(map):
        return float((X @ spectral(map) * (X @ W)).sum(1).mean())

    [refined] = sides.refined([wrong], 500, "refine", 40)
    assert cosine(refined) < 0.5
    assert cosine(better_rotated(sides, refined, 12)) > 0.97


def test_rotations_end_after_rounds_without_a_better_map(monkeypatch):
    X, Y, W = unit_clouds(8)
    refined = Mock(side_effect=lambda maps, *_: [W.clone() for W in maps])
    monkeypatch.setattr(Sides, "refined", refined)
    monkeypatch.setattr(rotations, "rotated", lambda W, *_: W.clone())
    assert better_rotated(sides_of(X, Y), W, 12) is None
    assert refined.call_count == MISSES
    better_rotated(sides_of(X, Y), W, 1)
    assert refined.call_count == MISSES + 1


def test_after_a_better_map_the_count_of_rounds_begins_anew(monkeypatch):
    X, Y, W = unit_clouds(8)
    refined = Mock(side_effect=lambda maps, *_: maps)
    monkeypatch.setattr(Sides, "refined", refined)
    cosines = [[0.5] * (ROTATED_MAPS + 1) for _ in range(MISSES + 2)]
    cosines[1][7] = 0.6
    monkeypatch.setattr(Sides, "cosines", Mock(side_effect=cosines))
    better = better_rotated(sides_of(X, Y), W, 12)
    assert refined.call_count == MISSES + 2
    assert better is refined.call_args_list[1].args[0][7]


def test_a_random_rotation_moves_a_window_of_leading_axes():
    X, Y, W = unit_clouds(40)
    sides, windows = sides_of(X, Y), []
    axes = sides.axes[0].flip(1)
    for _ in range(60):
        turned = rotated(W, leading_axes(sides), sides.generator)
        assert_close(turned @ turned.T, torch.eye(40), atol=1e-5, rtol=0)
        moved = ((axes.T @ (turned - W)).norm(dim=1) > 1e-3).nonzero()[:, 0].tolist()
        assert moved == list(range(moved[0], moved[0] + len(moved)))
        windows.append(moved)
    assert min(windows)[0] == 0
    assert max(window[-1] for window in windows) == LEADING_AXES - 1
    lengths = [len(window) for window in windows]
    assert FEWEST_AXES <= min(lengths) < 9
    assert 21 < max(lengths) <= MOST_AXES
    assert 60 / 3 < lengths.count(TURNED_AXES) < 60 * 2 / 3


def test_half_of_the_random_rotations_turn_by_angles_of_a_given_size():
    """Widths tell the kinds apart, but 1 of 19 matrices of any angles also has TURNED_AXES."""
    generator, drawn = seeded(), []
    for _ in range(400):
        drawn.append(random_rotation(LEADING_AXES, generator).double())
    angles = {}
    for R in drawn:
        assert_close(R @ R.T, torch.eye(len(R), dtype=torch.float64), atol=1e-5, rtol=0)
        angles.setdefault(len(R), []).append(torch.linalg.eigvals(R).angle().square().mean().sqrt())
    turned = torch.stack(angles.pop(TURNED_AXES))
    assert ((turned > LEAST_ANGLE * 0.7) & (turned < MOST_ANGLE)).float().mean() > 0.9
    signs = torch.stack([torch.linalg.det(R).sign() for R in drawn if len(R) in angles])
    assert 0.35 < (signs < 0).double().mean() < 0.65  # of all orthogonal matrices, half reflect
    kept = torch.stack([torch.linalg.det(R).sign() for R in drawn if len(R) == TURNED_AXES])
    assert (kept > 0).double().mean() > 0.9


def test_the_largest_entry_of_a_principal_axis_is_positive():
    axes = principal_axes(normal(50, 8))
    assert (axes.gather(0, axes.abs().argmax(0, keepdim=True)) > 0).all()


def test_only_axes_with_variance_are_rotated():
    X = torch.cat([unit_clouds(3)[0], torch.zeros(600, 5)], 1)
    W = spectral(normal(8, 8))
    turned = rotated(W, leading_axes(sides_of(X, X)), seeded())
    assert_close(turned[3:], W[3:])
    assert not torch.allclose(turned[:3], W[:3], atol=1e-3)


@pytest.mark.parametrize(("sign", "times"), [(1, 2), (-1, 1)])
def test_step_3_is_repeated_only_from_a_better_map(monkeypatch, sign, times):
    source, target, W = clouds(16, 16)
    starts, left_out = [], []

    def refine(sides, W, *_, skipped=0):
        starts.append(W)
        left_out.append(skipped)
        return W

    monkeypatch.setattr(candidates, "compete", lambda *_: [-W])
    monkeypatch.setattr(wasserstein_procrustes, "refine", refine)
    monkeypatch.setattr(Sides, "refined", lambda self, maps, *_: [W.clone() for W in maps])
    monkeypatch.setattr(rotations, "rotated", lambda *_: sign * W)
    wasserstein(source, target, settings=replace(SMALL, groups=1, equalise=0, rotations=12))
    assert left_out == [0, SMALL.refinements // 2][:times]
    assert all(torch.allclose(start, W, atol=1e-5) for start in starts[1:])


@pytest.mark.parametrize(("last", "evolved"), [(1, []), (-1, [2 + 5])])
def test_an_evolution_follows_if_the_last_two_maps_differ(monkeypatch, last, evolved):
    source, target, W = clouds(8, 8)
    evolve = Mock(return_value=[W])
    monkeypatch.setattr(candidates, "compete", lambda *_: [W, last * W])
    monkeypatch.setattr(candidates, "evolve", evolve)
    wasserstein(source, target, settings=replace(SMALL, repeats=(3, 5)))
    assert [len(call.args[1]) for call in evolve.call_args_list] == evolved


def test_an_evolution_finds_the_map_that_no_candidate_is_near():
    X, Y, W = unit_clouds(16)
    maps = [spectral(W + normal(16, 16, seed=seed) * 0.5) for seed in range(12)]
    assert max(float((X @ V * (X @ W)).sum(1).mean()) for V in maps) < 0.6
    best, *others = evolve(sides_of(X, Y), maps, None)
    assert float((X @ spectral(best) * (X @ W)).sum(1).mean()) > 0.95
    assert len(others) < 4


@pytest.mark.parametrize(("d", "e"), [(5, 9), (9, 5)])
def test_children_are_means_of_the_parents_that_agree_most(d, e):
    X, (V, W) = normal(50, d), (spectral(normal(d, e, seed=seed)) for seed in (1, 2))
    near = [spectral(M + 0.02 * normal(d, e, seed=k)) for k, M in enumerate((V, W, V, W))]
    agreement = agreements(X, near)
    moved = [normalize(X @ M) for M in near]
    assert_close(agreement, torch.tensor([[float((a * b).sum(1).mean()) for b in moved] for a in moved]))
    scaled = [spectral(M, 0.5) for M in near]
    kept, orthogonal = distinct_maps(X, scaled, 3)
    assert [*map(id, kept)] == [id(scaled[0]), id(scaled[1])]
    assert_close(orthogonal, [spectral(M) for M in kept])
    assert [*map(id, distinct_maps(X, near, 1)[0])] == [id(near[0])]
    first, second, *_ = children(X, near)
    means = [spectral(near[k] + near[k + 2], REFINEMENT_POWER) for k in (0, 1)]
    assert min((first - M).norm() + (second - N).norm() for M, N in (means, means[::-1])) < 1e-4
    assert len(children(X, near)) == 4
    assert children(X, near[:1]) == []


def test_equalised_axes_weigh_more_alike():
    U, V = rotation(4, 4, seeded(1)), rotation(5, 5, seeded(2))
    norms = torch.tensor([8.0, 2.0, 0.5, 0.0])
    got = equalised(U * norms @ V[:, :4].T, U, V, 0.25)
    assert torch.allclose(U.T @ got @ V[:, :4], torch.diag(norms**0.5), atol=1e-5)
    assert (got @ V[:, 4]).norm() < 1e-5


def test_groups_are_whole_clusters():
    X, Y, _ = unit_clouds(8, n=900)
    generator = seeded()
    xs, ys = (divided(cloud, 3, generator) for cloud in (X, Y))
    for groups, cloud in ((xs, X), (ys, Y)):
        assert torch.equal(torch.cat(groups).unique(dim=0), cloud.unique(dim=0))  # each vector once
        assert len(torch.cat(groups)) == len(cloud)
        assert len(groups) == 3
        nearest = [(x @ cloud.T).topk(2).indices[:, 1] for x in groups]  # a vector's nearest other one
        inside = [(cloud[n][:, None] == x[None]).all(2).any(1) for n, x in zip(nearest, groups, strict=True)]
        assert torch.cat(inside).float().mean() > 0.8
    assert len(divided(X[:899], 3, generator)) == 2  # 300 vectors for each group
    assert divided(X, 1, generator)[0] is X


@pytest.mark.parametrize(("d", "e"), [(8, 8), (8, 12), (12, 8)])
def test_couple_averages_the_plans_of_all_pairs_of_groups(d, e):
    X, Y, _ = unit_clouds(12, n=900)
    X, Y, W = normalize(X[:, :d]), normalize(Y[:, :e]), torch.randn(d, e, generator=seeded())
    xs, ys = X.split([200, 300, 400]), Y.split([350, 300, 250])
    cross, cosine = couple(xs, ys, W, 30)
    expected, cosines, lengths = torch.zeros(d, e, dtype=torch.float64), 0.0, 0.0
    for x in (x.double() for x in xs):
        image = x @ W.double()
        length = image.norm(dim=1, keepdim=True)
        for y in (y.double() for y in ys):
            of_pairs = image / length @ y.T
            plan = sinkhorn(of_pairs, 30)
            expected += x.T @ plan @ y / len(xs)
            cosines += float((plan * of_pairs * length).sum())
            lengths += float((plan * length).sum())
    assert_close(cross.double(), expected, rtol=0, atol=4e-3 * float(expected.norm()))
    assert cosine == pytest.approx(cosines / lengths, abs=4e-3)


def test_after_groups_all_vectors_are_coupled_once_without_groups(monkeypatch):
    x, y, W = unit_clouds(12, n=1200)
    coupling = Mock(side_effect=couple)
    monkeypatch.setattr(wasserstein_procrustes, "couple", coupling)
    monkeypatch.setattr(wasserstein_procrustes, "best_candidate", lambda *_: W)
    monkeypatch.setattr(wasserstein_procrustes, "groups_harm", lambda *_: False)
    settings = replace(SMALL, groups=3, equalise=0.2, rotations=0)
    sides = sides_of(x, y)
    cross = search(sides, settings, None)
    *_, grouped, (xs, ys, map, temperature) = [call.args for call in coupling.call_args_list]
    assert (len(grouped[0]), len(grouped[1])) == (3, 3)
    assert [len(xs[0]), len(ys[0])] == [len(x), len(y)]
    assert temperature == grouped[3]
    of_groups, of_all = couple(*grouped)[0], couple(xs, ys, map, temperature)[0]
    assert_close(map, spectral(equalised(of_groups, *sides.axes, 0.2)))
    assert_close(cross, (of_groups + of_all) / 2)


def sides_of_other_topics(seed):
    """Return two sides (1200, 12) and the true map: each has 40 topics of its own; all share ten styles."""
    g = seeded(seed)
    scale = torch.linspace(2, 0.5, 12)
    styles = torch.randn(10, 12, generator=g) * scale
    W = rotation(12, 12, g)

    def side():
        topics = 1.5 * torch.randn(40, 12, generator=g) * scale
        style = styles[torch.multinomial(torch.linspace(1, 3, 10), 1200, replacement=True, generator=g)]
        return topics.repeat(30, 1) + style + 0.3 * torch.randn(1200, 12, generator=g)

    return side(), side() @ W, W


def test_groups_keep_a_map_where_topics_of_two_sides_differ(monkeypatch):
    monkeypatch.setattr(wasserstein_procrustes, "GROUP_LEAST", 80)  # 1,200 vectors are few

    def kept(groups):
        """Mean share of the true map that is left after a refinement that starts from it."""
        shares = []
        for seed in range(3):
            *sides, W = sides_of_other_topics(seed)
            x, y = map(centred_unit, sides)
            cross = refine(sides_of(x, y), W, Settings(groups=groups, refinements=20, passes=2))
            shares.append(float((spectral(cross) * W).sum()) / 12)
        return sum(shares) / 3

    assert kept(6) > kept(1) + 0.04


@pytest.mark.parametrize(
    "name", ["mini_vec2vec", "rosetta", "transport", "vec2vec", "wasserstein_procrustes"]
)
def test_a_fit_depends_on_its_seed_alone(name):
    source, target, _ = clouds(8, 10)
    torch.manual_seed(1)
    first = quick_fit(name, source, target, seed=3)(source)
    draw = torch.rand(3)
    again, other = (quick_fit(name, source, target, seed=seed)(source) for seed in (3, 4))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other, atol=1e-3)
    torch.manual_seed(1)
    assert torch.equal(torch.rand(3), draw)


@pytest.mark.parametrize("seen", [1000, 200])
def test_known_pairs_turn_a_hopeless_case(seen, monkeypatch):
    """A round cloud has no shape to match: only pairs can tell how it was turned. They are always sampled."""
    monkeypatch.setattr(wasserstein_procrustes, "MOST", seen)
    g = seeded()
    source = torch.randn(400, 6, generator=g)
    W = rotation(6, 6, g)
    target = torch.cat([source[:40] @ W, torch.randn(360, 6, generator=g)])
    order = torch.randperm(400, generator=g)
    known, target = torch.stack([torch.arange(40), order.argsort()[:40]], 1), target[order]
    turned = source @ W
    assert nearness(wasserstein(source, target), source, turned) < 0.8
    assert nearness(wasserstein(source, target, pairs=known), source, turned) > 0.9


def test_live_curves_are_logged():
    source, target, _ = clouds(8, 8)
    last = {}
    wasserstein(source, target, log=lambda metrics, step: last.update(dict.fromkeys(metrics, step)))
    steps = SMALL.refinements + SMALL.passes
    assert last == {"competition/best": 2, "competition/worst": 2, "coupled_cosine": steps - 1}


KINDS, SLOW = ("float16", "float64", "float64 beside float32", "far from zero", "one-hot"), pytest.mark.slow
REFUSED = [
    ("one dimension", "target: vectors of dimension 1 have no geometry"),
    ("too large", r"target: values range over \de\+\d\d, which float32 cannot normalise"),
    ("one row", "source: 1 vectors, but at least"),
    ("not a number", "target: row 4 is not finite"),
]


def spaces(kind):
    random = normal(120, 5000)
    few = random[:, :6]
    one_hot = torch.eye(12)[torch.arange(120) % 12]
    return {
        "two dimensions": (random[:, :2], few),
        "float16": (few.half(), few.half()),
        "float64": (few.double(), few.double()),
        "float64 beside float32": (few.double(), few),
        "far from zero": (few + 1000, few),
        "one-hot": (one_hot, one_hot),
        "5,000 dimensions": (few, random),
        "one dimension": (few, random[:, :1]),
        "too large": (few, few * 1e30),
        "one row": (few[:1], few[:1]),
        "not a number": (few, few.index_fill(0, torch.tensor([4]), torch.nan)),
    }[kind]


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize("kind", [*KINDS, "two dimensions", pytest.param("5,000 dimensions", marks=SLOW)])
def test_every_aligner_takes_any_float_type_and_dimension(name, kind):
    source, target = spaces(kind)
    translated = quick_fit(name, source, target)(source)
    assert (translated.shape, translated.dtype) == (target.shape, torch.float32)


@pytest.mark.parametrize("name", QUICK)
@pytest.mark.parametrize(("kind", "line"), REFUSED)
def test_every_aligner_refuses_vectors_without_usable_geometry(name, kind, line):
    with refusal(line):
        quick_fit(name, *spaces(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_a_map_of_equal_clouds_is_right_in_any_float_type(kind):
    source, target = spaces(kind)
    moved = quick_fit("procrustes", source, target)(source)
    assert cosine_similarity(centred_unit(moved), centred_unit(target.float())).min() > 0.99


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda x: x[:11], "11 distinct vectors"),
        (lambda x: x[:3].repeat(200, 1), "3 distinct vectors"),
        (lambda x: x.index_fill(0, torch.tensor([4, 7]), float("nan")), "row 4 is not finite .2 such rows"),
        (lambda x: torch.ones_like(x), "are the same"),
        (lambda x: x[:1], "1 vectors"),
        (lambda x: x.long(), "must be a floating point matrix"),
    ],
)
def test_bad_input_is_one_line_that_names_the_side(side, spoil, says):
    both = dict(zip(("source", "target"), clouds(8, 8)[:2], strict=True))
    both[side] = spoil(both[side])
    with refusal(f"{side}: .*{says}"):
        wasserstein(**both)


def test_malformed_pairs_are_refused():
    source, target, _ = clouds(8, 8)
    with refusal("600 source vectors beside 599"):
        quick_fit("procrustes", source, target[:599])
    for pairs in ([[0, 600]], [[-1, 0]], [0, 1], [[1.0, 1.0]], [[True, False]], [[0, 1], [2]]):
        with refusal("pairs: "):
            wasserstein(source, target, pairs=pairs)


@pytest.mark.parametrize(
    "name",
    ["json:loads", "pipelines.aligners.core.translator:load", "pipelines.aligners.procrustes:Settings"],
)
def test_a_file_that_names_another_class_builds_nothing(tmp_path, name):
    put(tmp_path / "seed-0.json", f'{{"class": "{name}", "config": {{}}}}')
    with refusal("is no translator"):
        load(tmp_path / "seed-0")
