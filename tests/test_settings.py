"""Settings and rows refuse numbers out of bounds and keys that contradict each other."""

import importlib
import math
import re
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import pytest

from pipelines.runtime.settings import Bounds, Checked, Count, Positive
from pipelines.study import Chunk, Evaluate, EvaluateImageText, Finetune, Head, TrainImageText
from pipelines.study.row import settings_from
from tests import small
from tests.test_layers import modules, within

METHODS = sorted(
    name
    for package in ("aligners", "inverters")
    for name in within(package)
    if "class Settings" in modules()[name].read_text()
)
NEEDED = {
    "pipelines.inverters.hub": {"model": "m"},
    "pipelines.inverters.judge": {"endpoint": "http://e", "model": "m"},
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


ROSETTA, VEC2VEC, WASSERSTEIN = (
    importlib.import_module(f"pipelines.aligners.{name}").Settings
    for name in ("rosetta", "vec2vec", "wasserstein_procrustes")
)
FINETUNE = small.FINETUNE | {"steps": 4, "processes": 2}
EVALUATE = {"translator": "t", "source": "a", "target": "b"}


@pytest.mark.parametrize(
    ("make", "keys", "line"),
    [
        (WASSERSTEIN, {"rounds": ()}, "rounds"),
        (WASSERSTEIN, {"repeats": ()}, "repeats"),
        (WASSERSTEIN, {"ridge": 0.0}, "ridge: 0.0 must be more than 0"),
        (WASSERSTEIN, {"clusters": 6001}, "clusters: 6001 must be at least 2 and at most 6000"),
        (WASSERSTEIN, {"refinements": 0, "passes": 0}, "refinements"),
        (VEC2VEC, {"starts": (4, 8), "start_axes": (4, 8)}, "starts"),
        (VEC2VEC, {"starts": (4,)}, "starts"),
        (VEC2VEC, {"graph": True, "optimiser": "sgd"}, "graph"),
        (VEC2VEC, {"gan_weight": 0.0, "latent_gan_weight": 0.0}, "gan_weight"),
        (ROSETTA, {"batch": 20}, "batch: 20 rows cannot have 30 clusters"),
        (Chunk, {"size": 4, "stride": 5}, "stride 5 is more than size 4"),
        (Chunk, {"size": 4, "stride": 2, "first": True}, "stride 2 and `first` exclude each other"),
        (Chunk, {"size": 4, "least": 5}, "least 5 is more than size 4"),
        (Head, {"scale": 0}, "scale"),
        (Head, {"log": True, "weight": "sigmoid", "features": None}, "a sigmoid weight"),
        (Head, {"log": True, "linear": 0, "features": None}, "a sigmoid weight"),
        (TrainImageText, small.IMAGE_TEXT | {"batch": 1}, "batch"),
        (EvaluateImageText, {"encoders": "e", "corpus": "c", "templates": ["a photo"]}, "needs one {}"),
        (Finetune, FINETUNE | {"device": "cuda:1"}, "write `cuda`, and each process gets its own"),
        (Finetune, FINETUNE | {"batch": 9}, "cannot share batches of 9"),
        *((Evaluate, EVALUATE | {"hub_correction": x}, "hub_correction") for x in (math.nan, math.inf, -1)),
    ],
)
def test_keys_out_of_bounds_or_in_contradiction_are_refused(make, keys, line):
    with pytest.raises(ValueError, match=re.escape(line)):
        make(**keys)


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
