"""Quadratic assignment against brute force, CSLS against its definition, k-means and mutual neighbours."""

import itertools

import pytest
import torch
from sklearn.cluster import KMeans, kmeans_plusplus
from torch.nn.functional import normalize
from torch.testing import assert_close

from pipelines.aligners.core.matching import csls, mutual, objective, partners, quadratic_assignment, two_opt
from pipelines.aligners.mini_vec2vec import centred_gram
from pipelines.aligners.mini_vec2vec.kmeans import kmeans_from, kmeans_plus_plus
from pipelines.measures.vectors import kmeans
from tests.small import normal, rotation, seeded, sinkhorn

SIDE, FAR = [1.0, 0, 0, 0], [-0.6, 0.8, 0, 0]


@pytest.mark.parametrize("C", [1, 6])
@pytest.mark.parametrize("with_linear", [False, True])
def test_solver_equals_brute_force(C, with_linear):
    A, B, L = normal(3, 2, C, C, dtype=torch.float64)
    A, B, L = A + A.mT, B + B.mT, L if with_linear else None
    p, value = quadratic_assignment(A, B, seeded(1), L, restarts=8, steps=80)
    every = torch.tensor(list(itertools.permutations(range(C))))
    for k in range(2):
        quadratic = (A[k] * B[k][every[:, :, None], every[:, None, :]]).sum((1, 2))
        linear = 0 if L is None else L[k].gather(1, every.T).sum(0)
        assert value[k].item() == pytest.approx((quadratic + linear).max().item(), abs=1e-9)
    assert_close(value, objective(A, B, p, L))
    assert (p.sort(1).values == torch.arange(C)).all()


def test_two_opt_finds_the_best_permutation():
    A, B = (centred_gram(normal(3, 6, 4, seed=seed).double()) for seed in (0, 1))
    found = two_opt(A, B, 30, seeded(2))
    for a, b, p in zip(A, B, found.tolist(), strict=True):
        value = {q: float((a * b[list(q)][:, list(q)]).sum()) for q in itertools.permutations(range(6))}
        assert value[tuple(p)] == pytest.approx(max(value.values()))


def test_centroids_turned_moved_and_shuffled_are_matched_again():
    centroids, order = normal(4, 8, 6), normal(4, 8, seed=1).argsort(1)
    turn = rotation(6, 6, seeded(2))
    turned = centroids.gather(1, order[..., None].expand_as(centroids)) @ turn + 3
    found = two_opt(centred_gram(centroids), centred_gram(turned), 30, seeded(3))
    assert torch.equal(order.gather(1, found), torch.arange(8).expand(4, 8))


@pytest.mark.parametrize("k", [3, 50])
def test_csls_is_its_definition(k):
    a, b = (normalize(normal(n, 4, seed=n, dtype=torch.float64)) for n in (9, 7))
    scores = a @ b.T
    near_a = scores.sort(1, descending=True).values[:, :k].mean(1, keepdim=True)
    near_b = scores.sort(0, descending=True).values[:k].mean(0)
    assert_close(csls(a, b, k), 2 * scores - near_a - near_b)


def test_mutual_is_best_both_ways():
    scores = torch.tensor([[3.0, 1.0, 0.0], [4.0, 2.0, 1.0], [0.0, 0.0, 5.0]])
    rows, columns = mutual(scores)
    assert rows.tolist() == [1, 2]
    assert columns.tolist() == [0, 2]


def test_kmeans_ends_at_means_of_its_own_clusters():
    centres = 10 * torch.eye(4, 6)
    X = centres.repeat(50, 1) + 0.1 * normal(200, 6)
    centroids = kmeans(X, 4, 10, seeded(1))
    for found in centroids:
        assert_means_of_their_clusters(found, X)
    assert any((torch.cdist(centres, found).min(1).values < 0.1).all() for found in centroids)


def assert_means_of_their_clusters(centroids, X):
    near = torch.cdist(X, centroids).argmin(1)
    for c in near.unique():
        assert_close(centroids[c], X[near == c].mean(0), rtol=1e-4, atol=1e-4)


def blobs():
    centres, noise = (normal(n, 6, seed=n, dtype=torch.float64) for n in (12, 600))
    return 3 * centres[torch.randint(12, (600,), generator=seeded())] + noise


def inertia(X, centroids):
    return torch.cdist(X, centroids).min(1).values.square().sum().item()


def test_k_means_ends_where_scikit_learns_does():
    X, start = blobs(), normal(12, 6, dtype=torch.float64)
    want = KMeans(12, init=start.numpy(), n_init=1).fit(X.numpy())
    assert_close(inertia(X, kmeans_from(start, X)), want.inertia_, rtol=1e-3, atol=0)
    assert_means_of_their_clusters(kmeans_from(start, X, tolerance=0.0), X)


def test_spread_rows_are_as_good_a_start_as_scikit_learns():
    X = blobs()
    ours, theirs, plain = 0.0, 0.0, 0.0
    for seed in range(30):
        draws = seeded(seed)
        start = kmeans_plus_plus(X, 12, draws)
        assert (torch.cdist(start, X).min(1).values < 1e-6).all()
        assert len(start.unique(dim=0)) == 12
        ours += inertia(X, start)
        theirs += inertia(X, torch.from_numpy(kmeans_plusplus(X.numpy(), 12, random_state=seed)[0]))
        plain += inertia(X, X[torch.randperm(600, generator=draws)[:12]])
    assert ours == pytest.approx(theirs, rel=0.1)
    assert plain > 1.3 * ours


def test_the_second_spread_row_does_not_depend_on_the_draw_of_the_first():
    drawn = {tuple(kmeans_plus_plus(torch.eye(4), 2, seeded(n)).argmax(1).tolist()) for n in range(200)}
    assert drawn == set(itertools.permutations(range(4), 2))


def test_partners_are_those_of_sinkhorn_written_out_in_float64():
    moved, y = (normalize(normal(n, 4, seed=n)) for n in (7, 9))
    cosines = moved.double() @ y.double().T
    plan = sinkhorn(cosines, 20, rounds=200)  # until rows and columns have equal sums
    partner = partners(moved, y, 20.0, rounds=200)
    assert_close(partner.double(), plan @ y.double(), atol=0.02, rtol=0.02)  # bf16 cosines


def test_partners_are_found_by_a_torch_without_mkldnn(monkeypatch):
    moved, y = (normalize(normal(n, 4, seed=n)) for n in (7, 9))
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    monkeypatch.setattr(torch.ops, "mkldnn", None)
    plan = sinkhorn(moved.double() @ y.double().T, 20)
    assert_close(partners(moved, y, 20.0).double(), plan @ y.double(), atol=1e-5, rtol=1e-5)


def test_partners_of_points_far_from_all_are_still_averages(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    moved, y = (normalize(0.03 * normal(n, 4, seed=n) + torch.tensor(at)) for n, at in ((7, SIDE), (9, FAR)))
    cosines = moved.double() @ y.double().T
    assert -0.72 < cosines.min() < cosines.max() < -0.45
    plan = sinkhorn(cosines, 50)
    assert_close(partners(moved, y, 50.0).double(), plan @ y.double(), atol=1e-4, rtol=1e-4)
