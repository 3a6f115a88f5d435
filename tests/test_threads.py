"""Work side by side in threads: what it gives, what it raises, and the cores that it leaves as they were."""

from functools import partial
from unittest.mock import Mock

import pytest
import torch

from pipelines.runtime.threads import side_by_side
from tests.small import normal, quick_fit


@pytest.fixture
def four_cores():
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_works_share_the_cores_and_raise_their_errors(four_cores):
    assert side_by_side([torch.get_num_threads] * 2) == [2, 2]
    assert side_by_side([torch.get_num_threads] * 7) == [1] * 7
    assert side_by_side([torch.get_num_threads]) == [4]
    assert side_by_side([]) == []
    for error in (ZeroDivisionError, SystemExit):
        with pytest.raises(error):
            side_by_side([lambda: 1, Mock(side_effect=error)])
    assert torch.get_num_threads() == 4


def test_an_error_waits_for_the_other_works(four_cores):
    ended = []
    with pytest.raises(ZeroDivisionError):
        side_by_side([Mock(side_effect=ZeroDivisionError), lambda: ended.append(normal(999, 999).det())])
    assert ended


@pytest.mark.parametrize("aligner", ["mini_vec2vec", "rosetta", "wasserstein_procrustes"])
def test_a_fit_does_not_depend_on_the_one_beside_it(aligner):
    clouds = normal(2, 2, 300, 8)
    fits = [partial(quick_fit, aligner, *both) for both in clouds]
    for beside, alone in zip(side_by_side(fits), [fit() for fit in fits], strict=True):
        torch.testing.assert_close(beside(clouds[0, 0]), alone(clouds[0, 0]), atol=1e-4, rtol=0)
