"""Work side by side in threads: what it gives, what it raises, and the cores that it leaves as they were."""

import pytest
import torch

from pipelines.aligners import wasserstein_procrustes
from pipelines.runtime.threads import side_by_side


@pytest.fixture
def four_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_each_work_has_its_share_of_the_cores(four_cores):
    with side_by_side(2) as aside:
        waited = aside(torch.get_num_threads)
        assert (torch.get_num_threads(), waited()) == (2, 2)
    assert torch.get_num_threads() == 4


def test_what_fails_aside_fails_where_it_is_waited_for(four_cores):
    with pytest.raises(ZeroDivisionError), side_by_side(2) as aside:
        aside(lambda: 1 / 0)()
    assert torch.get_num_threads() == 4


def test_a_fit_does_not_depend_on_the_one_beside_it():
    few = wasserstein_procrustes.Settings(
        clusters=8, repeats=3, restarts=2, rounds=(100, 100), round_steps=2, refinements=4, passes=1
    )
    clouds = torch.randn(2, 300, 8, generator=torch.Generator().manual_seed(0))
    alone = [wasserstein_procrustes.fit(*clouds, few, seed) for seed in (0, 1)]
    with side_by_side(2) as aside:
        other = aside(lambda: wasserstein_procrustes.fit(*clouds, few, 1))
        both = wasserstein_procrustes.fit(*clouds, few, 0), other()
    for one, two in zip(alone, both, strict=True):
        torch.testing.assert_close(two(clouds[0]), one(clouds[0]), atol=1e-4, rtol=0)
