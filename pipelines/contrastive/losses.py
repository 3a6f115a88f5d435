"""Losses of consecutive training steps, read from the device."""

import math

import torch
from torch import Tensor

from pipelines.runtime.errors import BadInput


def finite_losses(losses: list[Tensor], first: int) -> list[float]:
    """Return the losses of steps from `first` on. Raises BadInput that names a step without a finite loss.

    All are read in one transfer, because each read makes the host wait for the device.
    """
    values = torch.stack(losses).tolist()
    for step, loss in enumerate(values, first):
        if not math.isfinite(loss):
            raise BadInput(f"step {step}: the loss is {loss}; a lower lr may help")
    return values
