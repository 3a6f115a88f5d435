"""States are written and read back bit for bit, without running code, whole or not at all."""

import errno
import math
import pickle

import pytest
import torch

from pipelines.runtime.errors import message
from pipelines.runtime.files import load_state, reading, save_state
from tests.small import refusal


def test_a_state_comes_back_bit_for_bit(tmp_path):
    x = torch.randn(3, 4)
    state = {"view": x.T, "half": x.bfloat16(), "bytes": torch.get_rng_state(), "empty": torch.empty(0)}
    state |= {"a": {"b": x[1], 3: [(math.inf, math.nan), None, True, "text"]}, "n": 10**30}
    for name in ("a.pt", "b.pt"):
        save_state(tmp_path / name, state)
    read = load_state(tmp_path / "a.pt")
    assert list(read) == list(state)
    [(infinite, nan), *rest] = read["a"].pop(3)
    assert (infinite, math.isnan(nan), rest) == (math.inf, True, state["a"].pop(3)[1:])
    torch.testing.assert_close(read, state, rtol=0, atol=0)
    assert (tmp_path / "a.pt").read_bytes() == (tmp_path / "b.pt").read_bytes()


def test_a_file_that_is_not_a_state_is_one_line(tmp_path):
    path = tmp_path / "a.pt"
    save_state(path, {"x": torch.ones(100)})
    whole = path.read_bytes()
    for content in (whole[:-8], whole[:20], b"", pickle.dumps({"x": print}), pickle.dumps([1])):
        path.write_bytes(content)
        with refusal("not a whole state file"):
            load_state(path)


def test_a_file_without_permission_is_not_called_damaged():
    with refusal("^x.npy: permission denied$"), reading("x.npy", "not a whole npy file"):
        raise PermissionError(errno.EACCES, "Permission denied")


def test_an_error_is_one_line_even_without_a_message():
    assert message(ValueError("two\n  lines"), 8) == "two line"
    assert message(ConnectionError()) == "ConnectionError"


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError])
def test_memory_that_runs_out_is_no_damaged_file(error):
    with pytest.raises(error), reading("x.arrow"):
        raise error
