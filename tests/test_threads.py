"""Work side by side in threads: what it gives, what it raises, and the cores that it leaves as they were."""

from functools import partial

import pytest
import torch

from pipelines.aligners import mini_vec2vec, wasserstein_procrustes
from pipelines.runtime.threads import side_by_side


@pytest.fixture
def four_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_each_work_has_its_share_of_the_cores(four_cores):
    assert side_by_side([torch.get_num_threads] * 2) == [2, 2]
    assert side_by_side([torch.get_num_threads] * 7) == [1] * 7
    assert side_by_side([torch.get_num_threads]) == [4]
    assert side_by_side([]) == []
    assert torch.get_num_threads() == 4


def fail(error):
    raise error


def test_what_fails_aside_fails_where_it_is_waited_for(four_cores):
    for error in (ZeroDivisionError, SystemExit):
        with pytest.raises(error):
            side_by_side([lambda: 1, partial(fail, error)])
    assert torch.get_num_threads() == 4


MINI = mini_vec2vec.Settings(clusters=5, repeats=3, assignment_restarts=3, neighbours=5, refine_steps=5)
WASSERSTEIN = wasserstein_procrustes.Settings(
    clusters=8, repeats=3, assignment_restarts=2, rounds=(100, 100), refinements=4, passes=1
)


@pytest.mark.parametrize(("module", "few"), [(mini_vec2vec, MINI), (wasserstein_procrustes, WASSERSTEIN)])
def test_a_fit_does_not_depend_on_the_one_beside_it(module, few):
    clouds = torch.randn(2, 300, 8, generator=torch.Generator().manual_seed(0))
    fits = [partial(module.fit, *clouds, few, seed) for seed in (0, 1)]
    for beside, alone in zip(side_by_side(fits), [fit() for fit in fits], strict=True):
        torch.testing.assert_close(beside(clouds[0]), alone(clouds[0]), atol=1e-4, rtol=0)
