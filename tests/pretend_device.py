"""A pretend accelerator on the CPU, as strict as a GPU. It uses torch's spare device type.

    with pretend_device.started() as record:
        x = torch.randn(3, 4).to(pretend_device.DEVICE)

As on a GPU, these raise an error: operations that mix devices, draws from a generator of the CPU, and
`.numpy()`. Tensors without dimensions and indices may come from the CPU. Unlike on a GPU, nothing is
faster, autocast changes no dtype, and inference mode is `no_grad`. `record` counts operations, and per line
of `pipelines/` how often the host waits for the device.
"""

import sys
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from unittest.mock import patch

import torch
from torch.utils import backend_registration
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    return_and_correct_aliasing,
)
from torch.utils._pytree import tree_leaves, tree_map_only

NAME = "pretend"
COPIES = ("_to_copy", "copy_", "copy", "_pin_memory")
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
# The host waits for these: values that Python reads, shapes that depend on values, checks of a solver
SYNCS = {
    "_local_scalar_dense", "nonzero", "masked_select", "_unique2", "unique_dim", "equal", "bincount",
    "multinomial", "_linalg_check_errors", "_linalg_eigh", "_linalg_svd", "linalg_lstsq",
}  # fmt: skip


class Backend(backend_registration._DummyBackendModule):
    """What torch asks of the module `torch.pretend`."""

    random = torch.Generator().manual_seed(0).get_state()

    def manual_seed(self, seed):
        self.random = torch.Generator().manual_seed(seed).get_state()

    manual_seed_all = manual_seed

    def get_rng_state(self, device=None):
        return self.random.clone()

    def set_rng_state(self, state, device=None):
        self.random = state.clone()

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]

    def is_available(self):
        return Mode.current is not None


class Hook(backend_registration._DummyPrivateUse1Hook):
    """Hide the device from tests of other modules."""

    is_available = Backend.is_available


BACKEND = Backend()
backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=BACKEND, hook=Hook())
DEVICE = torch.device(NAME, 0)


@dataclass
class Record:
    """What happened on the device."""

    operations: int = 0
    waits_at: Counter = field(default_factory=Counter)  # by file:line and operation

    @property
    def waits(self):
        """Return how often the host waited: for values, and for copies to the host."""
        return self.waits_at.total()


class OnDevice(torch.Tensor):
    """A tensor that claims to be on the device. `held` has its numbers, on the CPU."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )

    def __init__(self, held):
        self.held = held

    def __getitem__(self, index):
        return super().__getitem__(_indices(index))

    def __setitem__(self, index, value):
        super().__setitem__(_indices(index), value)

    def __reduce_ex__(self, protocol):
        return self.held.__reduce_ex__(protocol)  # a file of it is read onto the CPU

    def tolist(self):
        return self.detach().cpu().tolist()

    def numpy(self, *args, **kwargs):
        raise TypeError("numpy() of a tensor of the device: use Tensor.cpu() first")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        assert Mode.current is not None, "a tensor of the pretend device outlived its `with` block"
        return Mode.current.__torch_dispatch__(func, types, args, kwargs)


class Mode(TorchDispatchMode):
    """See every operation, also those that create a tensor on the device."""

    current = None

    def __init__(self):
        super().__init__()
        self.record = Record()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Refuse what a GPU refuses, count, and compute on the CPU."""
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        here = any(isinstance(a, OnDevice) for a in leaves)
        wanted = torch.device(kwargs["device"]).type if kwargs.get("device") is not None else None
        if not here and wanted != NAME:
            return func(*args, **kwargs)
        name = func._schema.name.split("::")[-1]
        if name not in COPIES:
            _refuse(name, args[0] if args else None, leaves)
        self.record.operations += 1
        if _waits(name, args, kwargs, wanted):
            self.record.waits_at[(_line(), name)] += 1
        plain_args, plain = tree_map_only(OnDevice, lambda a: a.held, (args, kwargs))
        if wanted == NAME:
            plain["device"] = torch.device("cpu")
        if name == "linalg_lstsq":
            plain["driver"] = "gels"  # CUDA's only driver, for matrices of full rank
        draws = torch.Tag.nondeterministic_seeded in func.tags
        with _disable_current_modes(), _random_state() if draws else nullcontext():
            out = func(*plain_args, **plain)
        if name == "_to_copy":
            return out if wanted not in (None, NAME) else OnDevice(out)
        out = tree_map_only(torch.Tensor, OnDevice, out)
        return return_and_correct_aliasing(func, args, kwargs, out)


@contextmanager
def _random_state():
    """Draw from the device's random state, and leave that of the CPU as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(BACKEND.random)
        yield
        BACKEND.random = torch.get_rng_state()


def _refuse(name, first, leaves):
    """Raise RuntimeError for what a GPU cannot do."""
    for a in leaves:
        if isinstance(a, torch.Generator):
            raise RuntimeError(f"{_line()}: {name}: expected a generator of the device, but it is of the CPU")
        if not isinstance(a, torch.Tensor) or isinstance(a, OnDevice) or a.ndim == 0:
            continue
        if not (name in INDEXING and a is not first and not a.is_floating_point()):
            raise RuntimeError(
                f"{_line()}: {name}: a tensor {tuple(a.shape)} of the CPU beside one of the device"
            )


def _waits(name, args, kwargs, wanted):
    """Whether the host waits for the device: for a value, a copy, or an index that is a mask or the host's.

    It does not wait for a copy to the device that is `non_blocking`.
    """
    if name == "_to_copy" and not isinstance(args[0], OnDevice):
        return not kwargs.get("non_blocking")
    if name == "_to_copy":
        return wanted not in (None, NAME)
    if name == "copy_":
        return isinstance(args[1], OnDevice) != isinstance(args[0], OnDevice)
    if name not in INDEXING:
        return name in SYNCS
    return any(
        not isinstance(i, OnDevice) or i.dtype == torch.bool for i in tree_leaves(args[1]) if i is not None
    )


def _indices(index):
    """Make tensors of lists: torch would move them to the device where no mode sees it."""
    if isinstance(index, tuple):
        return tuple(_indices(part) for part in index)
    return torch.tensor(index, dtype=torch.int64) if isinstance(index, list) else index


def _line():
    """Return the innermost line of `pipelines/` on the stack."""
    frame = sys._getframe()
    while frame is not None and "/pipelines/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.split('/pipelines/')[-1]}:{frame.f_lineno}" if frame else "?"


def _no_grad(on):
    """Replace inference mode, whose tensors cannot be wrapped."""
    return torch.no_grad() if on else nullcontext()


@contextmanager
def started():
    """Provide the device within the block. Autograd runs in this thread, where operations are seen."""
    Mode.current = mode = Mode()
    one_thread = torch.autograd.set_multithreading_enabled(False)
    try:
        with one_thread, patch.object(torch._C, "_InferenceMode", _no_grad), mode:
            yield mode.record
    finally:
        Mode.current = None
