"""The device on which a stage computes."""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager

import torch
from torch import Tensor

from pipelines.runtime.errors import BadInput

VARIABLE = "UNIVERSAL_GEOMETRY_DEVICE"


def resolve(name: str = "auto", float64: bool = False) -> torch.device:
    """Return the device that a row's `device` names.

    auto: the device that UNIVERSAL_GEOMETRY_DEVICE names, else CUDA if available, else the CPU. MPS must be
    named. `cuda` without a number is this rank's (LOCAL_RANK of torchrun). Raises BadInput for a device that
    this machine lacks, and for MPS if the stage needs float64.
    """
    where = "device"
    if name == "auto" and (given := os.environ.get(VARIABLE)):
        where, name = VARIABLE, given
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise BadInput(f"{where}: {name!r} is none of auto, cpu, cuda, cuda:<number>, mps") from None
    if device.type == "cpu":
        return torch.device("cpu")
    if device.index is not None and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > 1:
        several = "but several processes run: write `cuda`, and each process gets its own"
        raise BadInput(f"{where}: {name} is a single device, {several}")
    if device.type == "mps" and float64:
        raise BadInput(f"{where}: mps has no float64, which this stage needs; take cpu or cuda")
    index = int(os.environ.get("LOCAL_RANK", "0")) if device.index is None else device.index
    count = _count(device.type)
    if index < count:
        return torch.device(device.type, index)
    if device.index is None and count:  # LOCAL_RANK is beyond them
        gpus = f"{count} GPU{'s' * (count > 1)}"
        few = f"`processes` is {os.environ.get('LOCAL_WORLD_SIZE')}, but this machine has {gpus}"
        raise BadInput(f"{few}: lower it, or set `device: cpu`")
    raise BadInput(
        f"{where}: {device.type}:{index} is not here: this machine has {count} of type {device.type}"
    )


def forked(device: torch.device) -> AbstractContextManager[None]:
    """Restore the random states of the CPU and of this device at the end of the block."""
    return torch.random.fork_rng([device] if device.type != "cpu" else [], device_type=device.type)


def manual_seed(seed: int, device: torch.device) -> None:
    """Seed the CPU and this device. torch's own manual_seed would seed all GPUs, which nothing restores."""
    torch.default_generator.manual_seed(seed)
    if device.type != "cpu":
        with torch.accelerator.device_index(device.index):
            torch.get_device_module(device.type).manual_seed(seed)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """Return torch's random states of the CPU and of this device, for a checkpoint."""
    states = {"cpu": torch.get_rng_state()}
    if device.type != "cpu":
        states[device.type] = torch.get_device_module(device.type).get_rng_state(device)
    return states


def restore_random_states(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Continue from what `random_states` returned."""
    torch.set_rng_state(states["cpu"])
    if device.type != "cpu" and device.type in states:
        torch.get_device_module(device.type).set_rng_state(states[device.type], device)


def to_device(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor from the CPU to this device, without waiting for the device if it is a GPU of CUDA.

    MPS would read the tensor's memory after Python has freed it (pytorch/pytorch#189690).
    """
    return tensor.to(device, non_blocking=device.type != "mps")


def _count(kind: str) -> int:
    """Return the number of accelerators of a type."""
    try:
        module = torch.get_device_module(kind)
        return int(module.device_count()) if module.is_available() else 0
    except (RuntimeError, AttributeError):
        return 0
