"""Newcombe's interval against the examples of his paper, and what must hold of any interval of shares."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.measures.intervals import Interval, difference, share

COUNTS = st.integers(1, 300).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [  # Newcombe 1998, table II, method 10
        ((56, 70, 48, 80), 0.0524, 0.3339),
        ((5, 56, 0, 29), -0.0381, 0.1926),
        ((0, 10, 0, 10), -0.2775, 0.2775),
        ((10, 10, 0, 20), 0.6791, 1.0),
    ],
)
def test_a_difference_has_the_interval_of_the_paper(counts, low, high):
    found = difference(*counts)
    assert found.value == pytest.approx(counts[0] / counts[1] - counts[2] / counts[3])
    assert found[1:] == pytest.approx((low, high), abs=6e-5)


def test_a_share_has_wilsons_interval():
    """Newcombe 1998, "Two-sided confidence intervals for the single proportion", table I, method 3."""
    assert share(81, 263)[1:] == pytest.approx((0.2553, 0.3662), abs=6e-5)
    assert share(0, 20)[1:] == pytest.approx((0, 0.1611), abs=6e-5)
    for count, of in ((1, 0), (-1, 3), (4, 3)):
        with pytest.raises(ValueError, match="is no share"):
            share(count, of)


@pytest.mark.parametrize("error", [math.nan, 0.0])
def test_one_document_tells_nothing_about_others(error):
    assert share(4, 5).widened(error, 1) == Interval(0.8, -math.inf, math.inf)


def test_an_interval_of_few_documents_stays_a_share():
    assert share(95, 100).widened(0.1, 3).within(0, 1) == pytest.approx((0.95, 0.519735, 1))


@given(COUNTS, COUNTS)
def test_an_interval_holds_its_estimate_and_turns_with_its_sides(a, b):
    assert 0 <= share(*a).low <= share(*a).value <= share(*a).high <= 1
    one, other = difference(*a, *b), difference(*b, *a)
    assert -1 <= one.low <= one.value <= one.high <= 1 + 1e-12
    assert one[1:] == pytest.approx((-other.high, -other.low))
    assert not difference(*a, *a).above_zero
