"""Settings of every aligner and inverter: a number that is not finite, or out of bounds, is refused when it is given."""

import importlib
import math
from dataclasses import fields, replace
from pathlib import Path

import pytest

from pipelines.runtime.settings import check_settings, inside

PIPELINES = Path(__file__).parents[1] / "pipelines"
METHODS = [
    f"aligners.{name}"
    for name in ("wasserstein_procrustes", "mini_vec2vec", "network", "procrustes", "transport", "vec2vec")
]
METHODS += [f"inverters.{name}" for name in ("consensus", "decoder", "hub", "judge", "search", "vec2text")]
NEEDED = {
    "inverters.hub": {"model": "m"},
    "inverters.judge": {"endpoint": "e", "model": "m"},
    "inverters.vec2text": {"pretrained": "m"},
}


def settings(method):
    return importlib.import_module(f"pipelines.{method}").Settings(**NEEDED.get(method, {}))


def numbers(method):
    return [
        f.name for f in fields(settings(method)) if type(getattr(settings(method), f.name)) in (int, float)
    ]


def test_every_method_with_numbers_is_tried_here():
    files = [p for room in ("aligners", "inverters") for p in (PIPELINES / room).rglob("*.py")]
    files = [p for p in files if "class Settings" in p.read_text()]
    names = {
        ".".join(p.relative_to(PIPELINES).with_suffix("").parts)
        .removesuffix(".__init__")
        .removesuffix(".settings")
        for p in files
    }
    assert names == {*METHODS, "aligners.identity"}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1])
def test_no_number_may_be_infinite_or_negative(method, value):
    for name in numbers(method):
        with pytest.raises(ValueError, match=f"^{name}: "):
            replace(settings(method), **{name: value})


@pytest.mark.parametrize(
    ("value", "interval", "is_inside"),
    [
        (0, "[0, 1)", True),
        (1, "[0, 1)", False),
        (0, "(0, 1]", False),
        (1, "(0, 1]", True),
        (5, "(0, inf)", True),
    ],
)
def test_ends_of_intervals(value, interval, is_inside):
    assert inside(value, interval) == is_inside


def test_choices_and_tuples_are_checked_too():
    with pytest.raises(ValueError, match=r"^method: 'best' is none of emd, sinkhorn"):
        replace(settings("aligners.transport"), method="best")
    with pytest.raises(ValueError, match=r"^rounds: \(1500, 1\) must be at least 2"):
        replace(settings("aligners.wasserstein_procrustes"), rounds=(1500, 1))
    check_settings(settings("inverters.search"), {"samples": 8})
