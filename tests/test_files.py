"""States that are written and read back: bit for bit, without running code, whole or not at all."""

import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pipelines.runtime.errors import BadInput
from pipelines.runtime.files import atomic, load_state, save_state

KEYS = st.text(max_size=5) | st.integers(-3, 12)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8)
NESTED = [
    lambda inner: st.lists(inner, max_size=3),
    st.tuples,
    lambda inner: st.dictionaries(KEYS, inner, max_size=3),
]
TREES = st.recursive(LEAVES, lambda inner: st.one_of(*(nest(inner) for nest in NESTED)))


def assert_same(one, two):
    assert type(one) is type(two)
    if isinstance(one, torch.Tensor):
        assert one.dtype == two.dtype
        assert torch.equal(one, two)
    elif isinstance(one, dict):
        assert list(one) == list(two)  # order and types of keys, too
        for key in one:
            assert_same(one[key], two[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(two)
        for a, b in zip(one, two, strict=True):
            assert_same(a, b)
    else:
        assert one == two or (one != one and two != two)


@given(TREES)
def test_any_nesting_comes_back_as_it_was(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("state") / "a.safetensors"
    save_state(path, {"tree": tree})
    assert_same(load_state(path), {"tree": tree})


def test_tensors_of_every_kind_come_back_bit_for_bit(tmp_path):
    x = torch.randn(3, 4)
    state = {
        "x": x,
        "view of it": x.T,
        "same": x,
        "half": x.bfloat16(),
        "bytes": torch.get_rng_state(),
        "empty": torch.empty(0),
    }
    state |= {
        "scalar": torch.tensor(2.5),
        "a.b": x[0],
        "a": {"b": x[1], "c": [x[1], (x[2], math.inf, -math.inf, math.nan)]},
    }
    save_state(tmp_path / "a.safetensors", state)
    assert_same(load_state(tmp_path / "a.safetensors"), state)


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD])
def test_an_optimiser_goes_on_as_if_it_had_never_stopped(tmp_path, kind):
    def problem():
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 2)
        groups = [{"params": [model.weight], "weight_decay": 0.1}, {"params": [model.bias]}]
        return model, kind(groups, lr=0.05)

    def steps(model, optimiser, numbers):
        for i in numbers:
            optimiser.zero_grad()
            (model(torch.full((4, 3), i / 7)) - i).square().mean().backward()
            optimiser.step()

    whole, optimiser = problem()
    steps(whole, optimiser, range(6))
    model, optimiser = problem()
    steps(model, optimiser, range(3))
    save_state(tmp_path / "a.safetensors", {"model": model.state_dict(), "optimiser": optimiser.state_dict()})
    model, optimiser = problem()
    state = load_state(tmp_path / "a.safetensors")
    model.load_state_dict(state["model"])
    optimiser.load_state_dict(state["optimiser"])
    steps(model, optimiser, range(3, 6))
    assert torch.equal(model.weight, whole.weight)
    assert torch.equal(model.bias, whole.bias)


def test_what_is_no_state_is_said_in_one_line(tmp_path):
    path = tmp_path / "a.safetensors"
    save_state(path, {"x": torch.ones(100)})
    whole = path.read_bytes()
    from safetensors.torch import save

    for content in (whole[:-8], whole[:20], b"", pickle.dumps({"x": 1}), save({"x": torch.ones(2)})):
        path.write_bytes(content)
        with pytest.raises(BadInput, match="not a whole state file") as error:
            load_state(path)
        assert "\n" not in str(error.value)


def test_what_cannot_be_written_leaves_the_old_file(tmp_path):
    path = tmp_path / "a.safetensors"
    save_state(path, {"x": 1})
    for state in ({"x": {1.5: 2}}, {"x": object()}, {"x": {1, 2}}):
        with pytest.raises(TypeError, match="state: "):
            save_state(path, state)
    assert load_state(path) == {"x": 1}
    with pytest.raises(ZeroDivisionError), atomic(path) as draft:
        draft.write_text(str(1 / 0))
    assert load_state(path) == {"x": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.safetensors"]
