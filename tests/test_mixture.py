"""Encoders that share a dump are told apart before a map is fitted."""

import pytest
import torch
from torch.nn.functional import normalize, pad

from pipelines.aligners import wasserstein_procrustes
from pipelines.aligners.core.mixture import clustered, one_encoder
from tests.small import QUICK, normal, refusal, rotation, seeded

WIDTH, TOPICS = 96, 30
SETTINGS = wasserstein_procrustes.Settings(**QUICK["wasserstein_procrustes"])
SPECTRUM = torch.linspace(3, 0.1, WIDTH) ** 1.5


def embedded(encoder, count, texts=0, kind=None):
    """Return vectors of texts about random topics, by an encoder with directions of its own.

    kind: texts of one kind vary along half of the encoder's directions above all, and share a mean.
    """
    random = seeded(1000 * encoder + texts)
    topics = normal(TOPICS, WIDTH, seed=texts)[torch.randint(TOPICS, (count,), generator=random)]
    x = topics + 0.7 * torch.randn(count, WIDTH, generator=random)
    if kind is not None:
        x = x * torch.where(torch.arange(WIDTH) % 2 == kind, 1, 0.5) + normal(1, WIDTH, seed=50 + kind)
    return normalize((x * SPECTRUM) @ rotation(WIDTH, WIDTH, seeded(encoder)), dim=1)


def mixed(*clouds, seed=0):
    """Return the clouds in one, in random order, and of which of them each row is."""
    of = torch.cat([torch.full((len(cloud),), number) for number, cloud in enumerate(clouds)])
    order = torch.randperm(len(of), generator=seeded(seed))
    return torch.cat(clouds)[order], of[order]


@pytest.mark.parametrize(("share", "zeros"), [(0.1, 0), (0.25, 0), (0.5, 0), (0.25, 96)])
def test_the_larger_of_two_encoders_is_found(share, zeros):
    second = round(3000 * share)
    dump, of = mixed(embedded(1, 3000 - second), embedded(2, second, texts=1))
    kept = torch.bincount(of[one_encoder(pad(dump, (0, zeros)))], minlength=2)
    assert max(kept) > 0.97 * (3000 - second)
    assert min(kept) < 0.05 * second


def test_the_largest_of_three_encoders_is_found():
    dump, of = mixed(embedded(1, 1600), embedded(2, 1300), embedded(3, 1000))
    kept = of[one_encoder(dump)]
    assert len(kept) > 1500
    assert (kept == 0).double().mean() > 0.95


@pytest.mark.parametrize("second", [300, 1500])
def test_two_kinds_of_texts_are_of_one_encoder(second):
    dump, _ = mixed(embedded(1, 1500, kind=0), embedded(1, second, texts=1, kind=1))
    assert torch.equal(one_encoder(dump), torch.arange(len(dump)))


@pytest.mark.parametrize(
    "cloud",
    [normal(3000, 80), normal(5, 80), normal(50, 80).repeat(20, 1), torch.eye(2, 80).repeat(100, 1)],
    ids=["without shape", "few", "repeated", "two points"],
)
def test_what_has_no_parts_is_whole(cloud):
    assert torch.equal(one_encoder(cloud), torch.arange(len(cloud)))


def test_a_map_is_fitted_to_the_vectors_and_pairs_of_one_encoder(caplog):
    dump, of = mixed(embedded(1, 1000), embedded(2, 500, texts=1))
    target = embedded(3, 900, texts=2)
    rows = one_encoder(dump)
    assert (of[rows] == 0).double().mean() > 0.9
    assert len(rows) < 1300
    known = torch.stack([torch.arange(50), torch.arange(50) + 7], 1)  # of both encoders
    kept = known[torch.isin(known[:, 0], rows)]
    assert 0 < len(kept) < 50
    moved = torch.stack([(rows[None] == kept[:, :1]).int().argmax(1), kept[:, 1]], 1)
    for pairs, of_part in ((None, None), (known, moved)):
        caplog.clear()
        whole = wasserstein_procrustes.fit(dump, target, SETTINGS, 0, pairs)
        [said] = caplog.messages
        part = wasserstein_procrustes.fit(dump[rows], target, SETTINGS, 0, of_part)
        assert torch.equal(whole(target), part(target))
        assert caplog.messages == [said]  # nothing of a source of one encoder
    expected = "source: these look like vectors of several encoders; the fit uses those of one, {:,} of 1,500"
    assert said == expected.format(len(rows))
    with refusal("the source mixes encoders, and no pair is of the one with most vectors"):
        wasserstein_procrustes.fit(dump, target, SETTINGS, 0, known[~torch.isin(known[:, 0], rows)])
    paired = {"a": target, "b": embedded(4, 900, texts=2)}
    whole, part = (
        wasserstein_procrustes.fit_jointly({"dump": cloud, **paired}, SETTINGS, 0, ["a", "b"])
        for cloud in (dump, dump[rows])
    )
    for pair in whole:
        assert torch.equal(whole[pair](target), part[pair](target))
    assert caplog.messages[-1] == said.replace("source", "dump")


def test_no_cluster_is_empty():
    centroids, cluster = clustered(normal(3, 8).repeat(100, 1), seeded())
    assert centroids.shape == (3, 8)
    assert torch.bincount(cluster).tolist() == [100, 100, 100]
