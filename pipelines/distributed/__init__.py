"""torch.distributed in one page. A stage whose row says `processes: n` starts them itself (runtime/launch); torchrun may, too:
`torchrun --nproc-per-node N -m pipelines.<verb> <row>`. Everything is a no-op on one process.

One convention: every rank computes the loss of the whole batch from gathered vectors, and its gradient flows into its own
vectors only. The sum of the ranks' gradients is then exactly the gradient that one process would have. Fits, which are
independent of one another, are dealt out whole.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.runtime.errors import BadInput

Held = TypeVar("Held")


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


@contextmanager
def started(device: torch.device) -> Iterator[None]:
    """Join the group that torchrun announces in the environment, if any, and leave it at the end; `device`: this rank's."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)  # else every rank's collectives would use the first one
    # Ranks wait for each other's fits, which may take days; whoever started them ends all when one dies.
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(days=30))
    try:
        yield
    finally:
        dist.destroy_process_group()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, part: Tensor) -> Tensor:
        parts = [torch.empty_like(part) for _ in range(size())]
        dist.all_gather(parts, part.contiguous())
        ctx.rows = slice(rank() * len(part), (rank() + 1) * len(part))
        return torch.cat(parts)

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> Tensor:
        return gradients[0][ctx.rows]


def gather(part: Tensor) -> Tensor:
    """Every rank's rows, in order of rank, with gradient into this rank's own. (n, d) on each rank -> (ranks * n, d)"""
    return _Gather.apply(part) if size() > 1 else part


def total(value: Tensor) -> Tensor:
    """Sum over ranks, without gradient."""
    if size() > 1:
        value = value.clone()
        dist.all_reduce(value)
    return value


def sum_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Add up every parameter's gradient over the ranks, in place."""
    if size() > 1:
        for parameter in parameters:
            if parameter.grad is None:  # a collective call needs every rank
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)


def agree(value: Any) -> Any:
    """Rank 0's value, on every rank."""
    if size() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0)
    return box[0]


@contextmanager
def entered(context: AbstractContextManager[Held]) -> Iterator[Held]:
    """Rank 0 enters a context, such as the folder of a stage, which it alone makes and removes; every rank has what it gives,
    and none leaves before all are done."""
    with context if rank() == 0 else nullcontext() as held:
        yield agree(held)
        wait()


def share(items: list) -> list:
    """This rank's consecutive part of a batch. Raises BadInput unless the ranks divide it."""
    if len(items) % size():
        raise BadInput(f"a batch of {len(items)} cannot be divided among {size()} ranks")
    n = len(items) // size()
    return items[rank() * n : (rank() + 1) * n]


def dealt(items: Sequence) -> Sequence:
    """This rank's of things that each need a rank alone, dealt out one by one."""
    return items[rank() :: size()]


def wait() -> None:
    """Until every rank is here."""
    if size() > 1:
        dist.barrier()
