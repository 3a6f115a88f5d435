"""Settings of every aligner and inverter refuse a number that is not finite or out of bounds."""

import importlib
import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import pytest

from pipelines.runtime.settings import Bounds, Checked, Count, Positive
from pipelines.study.row import settings_from
from tests.test_layers import modules, within

METHODS = sorted(
    name
    for package in ("aligners", "inverters")
    for name in within(package)
    if "class Settings" in modules()[name].read_text()
)
NEEDED = {
    "pipelines.inverters.hub": {"model": "m"},
    "pipelines.inverters.judge": {"endpoint": "e", "model": "m"},
    "pipelines.inverters.vec2text": {"pretrained": "m"},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [math.nan, math.inf, -1])
def test_no_number_may_be_infinite_or_negative(method, value):
    settings = importlib.import_module(method).Settings(**NEEDED.get(method, {}))
    numbers = [name for name, default in vars(settings).items() if type(default) in (int, float)]
    for name in numbers:
        with pytest.raises(ValueError, match=f"^{name}: "):
            replace(settings, **{name: value})


@pytest.mark.parametrize(
    ("aligner", "bad"),
    [
        ("wasserstein_procrustes", {"rounds": ()}),
        ("wasserstein_procrustes", {"repeats": ()}),
        ("wasserstein_procrustes", {"refinements": 0, "passes": 0}),
        ("vec2vec", {"starts": (4, 8), "start_axes": (4, 8)}),
        ("vec2vec", {"starts": (4,)}),
        ("vec2vec", {"graph": True, "optimiser": "sgd"}),
        ("vec2vec", {"gan_weight": 0.0, "latent_gan_weight": 0.0}),
    ],
)
def test_settings_that_do_not_go_together_are_refused(aligner, bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        importlib.import_module(f"pipelines.aligners.{aligner}").Settings(**bad)


@dataclass(frozen=True)
class Plain(Checked):
    share: Annotated[float, Bounds(ge=0, lt=1)] = 0.5
    rate: Positive = 1.0
    most: Annotated[float, Bounds(gt=0, le=80)] = 1.0
    sizes: tuple[Annotated[int, Bounds(ge=2)], ...] = (2,)
    steps: Count | None = None
    kind: Literal["a", "b"] = "a"


@pytest.mark.parametrize(
    "make", [Plain, lambda **keys: settings_from(Plain, keys)], ids=["plain", "pydantic"]
)
@pytest.mark.parametrize(
    ("key", "wrong", "line"),
    [
        ("share", 1, r"1(\.0)? must be at least 0 and less than 1"),
        ("rate", 0, r"0(\.0)? must be more than 0"),
        ("rate", math.nan, "nan must be finite"),
        ("most", 81, r"81(\.0)? must be more than 0 and at most 80"),
        ("sizes", (2, 1), "1.* must be at least 2"),
        ("steps", 0, "0 must be at least 1"),
        ("steps", True, "true is no number"),
        ("kind", "c", "kind"),
    ],
)
def test_bounds_hold_in_plain_dataclasses_and_in_rows(make, key, wrong, line):
    make(share=0, most=80, sizes=(2, 3), steps=1, kind="b")
    with pytest.raises(ValueError, match=line) as refused:
        make(**{key: wrong})
    assert key in str(refused.value)
