"""A pretend accelerator: torch's spare device type with its numbers on the CPU, which is strict about what a GPU is strict about.

    with pretend_device.started() as record:
        x = torch.randn(3, 4).to(pretend_device.DEVICE)

As on a GPU: an operation that mixes devices raises, so does a draw from the CPU's generator, and so does `.numpy()`; a tensor
without dimensions may come from the CPU, and so may indices. Unlike on a GPU: nothing is faster, autocast changes no dtype, and
inference mode is `no_grad`.
What is recorded: operations by name, and, by the file and line of `pipelines/` that asked for them, copies to the host, copies to
the device, and host syncs (every value that Python must wait for: `.item()`, a mask as an index, `nonzero`).
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    return_and_correct_aliasing,
)
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _DummyPrivateUse1Hook,
    _setup_privateuseone_for_python_backend,
)

NAME = "pretend"
COPIES = ("_to_copy", "copy_", "copy", "_pin_memory")
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
# What a GPU answers only after all its work is done: values that Python reads, shapes that depend on values, checks of a solver.
SYNCS = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "equal",
    "bincount",
    "_linalg_check_errors",
)
SYNCS += ("_linalg_eigh", "_linalg_svd", "linalg_lstsq", "multinomial")


class Backend(_DummyBackendModule):
    """What torch asks of the module `torch.pretend`."""

    def __init__(self) -> None:
        self.seed(0)

    def seed(self, seed: int) -> None:
        self.state = torch.Generator().manual_seed(seed).get_state()

    def manual_seed_all(self, seed: int) -> None:
        self.seed(seed)

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return self.state.clone()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        self.state = state.clone()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def is_initialized(self) -> bool:
        return True

    def is_available(self) -> bool:
        return Mode.current is not None

    def _is_in_bad_fork(self) -> bool:
        return False

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 1


class Hook(_DummyPrivateUse1Hook):
    """What torch asks before it calls the device the current accelerator: tests of other modules must not find one."""

    def is_available(self) -> bool:
        return Mode.current is not None


BACKEND = Backend()
_setup_privateuseone_for_python_backend(NAME, backend_module=BACKEND, hook=Hook())
DEVICE = torch.device(NAME, 0)


@dataclass
class Record:
    """What happened on the device: each counter by name, or by (file:line, name)."""

    operations: Counter[str] = field(default_factory=Counter)
    syncs: Counter[tuple[str, str]] = field(default_factory=Counter)
    to_host: Counter[tuple[str, str]] = field(default_factory=Counter)
    to_device: Counter[tuple[str, str]] = field(default_factory=Counter)

    @property
    def waits(self) -> int:
        """How often the host waited: syncs and copies to it."""
        return self.syncs.total() + self.to_host.total()


class OnDevice(torch.Tensor):
    """A tensor that says that it is on the device; `held`: its numbers, on the CPU."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> OnDevice:
        return torch.Tensor._make_wrapper_subclass(  # pyright: ignore[reportAttributeAccessIssue]
            cls,
            held.shape,
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=DEVICE,
        )

    def __init__(self, held: torch.Tensor) -> None:
        self.held = held

    def __repr__(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride]
        return f"OnDevice({self.held})"

    def __getitem__(self, index: Any) -> Any:
        return super().__getitem__(_indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(_indices(index), value)

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError(f"can't convert {NAME}:0 device type tensor to numpy; use Tensor.cpu() first")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert Mode.current is not None, "a tensor of the pretend device outlived its `with` block"
        return Mode.current.run(func, args, kwargs or {})


class Mode(TorchDispatchMode):
    """Sees every operation, also those that make a tensor on the device from nothing."""

    current: Mode | None = None

    def __init__(self) -> None:
        super().__init__()
        self.record = Record()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Refuse, count, and compute on the CPU what a GPU would."""
        tensors = [a for a in tree_leaves((args, kwargs)) if isinstance(a, torch.Tensor)]
        here = any(isinstance(a, OnDevice) for a in tensors)
        wanted = torch.device(kwargs["device"]).type if kwargs.get("device") is not None else None
        if not here and wanted != NAME:
            return func(*args, **kwargs)
        name = func._schema.name.split("::")[-1]
        generator = next((a for a in tree_leaves((args, kwargs)) if isinstance(a, torch.Generator)), None)
        if name not in COPIES:
            self._refuse(name, tensors, args, generator)
        self._count(name, args, here, wanted)
        plain_args, plain = tree_map(_held, args), tree_map(_held, kwargs)
        if wanted == NAME:
            plain["device"] = torch.device("cpu")
        out = _drawing(func, generator)(lambda: func(*plain_args, **plain))
        if name == "_to_copy":
            return out if wanted not in (None, NAME) else OnDevice(out)
        out = tree_map(lambda o: OnDevice(o) if isinstance(o, torch.Tensor) else o, out)
        return return_and_correct_aliasing(func, args, kwargs, out)

    def _refuse(
        self, name: str, tensors: list[torch.Tensor], args: Any, generator: torch.Generator | None
    ) -> None:
        """Raise RuntimeError for what a GPU cannot do."""
        if generator is not None:
            raise RuntimeError(f"{_line()}: {name}: expected a generator of the device, but it is of the CPU")
        for a in tensors:
            index = name in INDEXING and a is not args[0] and not a.is_floating_point()
            if not (isinstance(a, OnDevice) or a.ndim == 0 or index):
                raise RuntimeError(
                    f"{_line()}: {name}: a tensor {tuple(a.shape)} of the CPU beside one of the device"
                )

    def _count(self, name: str, args: Any, here: bool, wanted: str | None) -> None:
        self.record.operations[name] += 1
        if name == "_to_copy":
            there = wanted == NAME if wanted else here
            if here != there:
                (self.record.to_device if there else self.record.to_host)[(_line(), name)] += 1
        elif name == "copy_" and isinstance(args[0], OnDevice) != isinstance(args[1], OnDevice):
            (self.record.to_device if isinstance(args[0], OnDevice) else self.record.to_host)[
                (_line(), name)
            ] += 1
        masks = name in INDEXING and any(
            isinstance(i, torch.Tensor) and i.dtype == torch.bool for i in tree_leaves(args[1:2])
        )
        if name in SYNCS or masks:
            self.record.syncs[(_line(), name)] += 1


def _indices(index: Any) -> Any:
    """Lists as tensors: torch would put them onto the device by a way that no mode sees."""
    if isinstance(index, tuple):
        return tuple(_indices(part) for part in index)
    return torch.tensor(index, dtype=torch.int64) if isinstance(index, list) else index


def _held(value: Any) -> Any:
    return value.held if isinstance(value, OnDevice) else value


def _drawing(func: Any, generator: torch.Generator | None) -> Callable[[Callable[[], Any]], Any]:
    """Run with the device's random state in the place of the CPU's, where the operation draws from it."""

    def run(compute: Callable[[], Any]) -> Any:
        with _disable_current_modes():
            if torch.Tag.nondeterministic_seeded not in func.tags or generator is not None:
                return compute()
            cpu = torch.get_rng_state()
            torch.set_rng_state(BACKEND.state)
            try:
                return compute()
            finally:
                BACKEND.state = torch.get_rng_state()
                torch.set_rng_state(cpu)

    return run


def _line() -> str:
    """The innermost line of `pipelines/` on the stack."""
    frame = sys._getframe()
    while frame is not None and "/pipelines/" not in frame.f_code.co_filename:
        frame = frame.f_back
    return f"{frame.f_code.co_filename.split('/pipelines/')[-1]}:{frame.f_lineno}" if frame else "?"


def _no_grad(on: bool) -> Any:
    """In the place of inference mode, whose tensors cannot be wrapped."""
    return torch.no_grad() if on else nullcontext()


@contextmanager
def started() -> Iterator[Record]:
    """The device is there within the block; autograd runs in this thread, where operations are seen."""
    Mode.current = mode = Mode()
    try:
        with (
            torch.autograd.set_multithreading_enabled(False),
            patch.object(torch._C, "_InferenceMode", _no_grad),
            mode,
        ):
            yield mode.record
    finally:
        Mode.current = None
