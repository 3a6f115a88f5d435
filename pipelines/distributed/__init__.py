"""torch.distributed for stages with `processes: n`. Every function is a no-op in a single process.

Training: every rank computes the loss of the global batch from gathered vectors, and backpropagates into its
own vectors only. The sum of the ranks' gradients then equals the gradient of a single process. Fits are
independent of one another, so each rank makes whole fits.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from pipelines.runtime.errors import BadInput

T = TypeVar("T")


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


@contextmanager
def process_group(device: torch.device) -> Iterator[None]:
    """Join the process group that the environment announces, if any. `device` is this rank's device."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        yield
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)  # otherwise NCCL uses the first GPU on every rank
    # A rank may wait days for another rank's fit. The launcher ends all ranks when one dies.
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=timedelta(days=30))
    try:
        yield
    finally:
        dist.destroy_process_group()


@contextmanager
def on_rank_zero(context: AbstractContextManager[T]) -> Iterator[T]:
    """Enter a context on rank 0 only and give its value to all ranks, which leave it together."""
    with context if rank() == 0 else nullcontext() as value:
        yield broadcast(value)
        barrier()


def all_gather(rows: Tensor) -> Tensor:
    """Return the rows of all ranks in rank order, with gradient into this rank's rows.

    (n, d) -> (ranks * n, d)
    """
    if world_size() == 1:
        return rows
    gathered = [torch.empty_like(rows) for _ in range(world_size())]
    dist.all_gather(gathered, rows.detach().contiguous())
    # The gathered copies have no gradient. This rank's rows have theirs.
    gathered[rank()] = rows
    return torch.cat(gathered)


def all_reduce(value: Tensor) -> Tensor:
    """Return the sum over ranks, without gradient."""
    if world_size() > 1:
        value = value.clone()
        dist.all_reduce(value)
    return value


def all_reduce_gradients(parameters: Iterable[torch.nn.Parameter]) -> None:
    """Sum every parameter's gradient over the ranks, in place."""
    if world_size() > 1:
        for parameter in parameters:
            if parameter.grad is None:  # a collective call needs every rank
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)


def broadcast(value: Any) -> Any:
    """Return rank 0's value on every rank."""
    if world_size() == 1:
        return value
    values = [value]
    dist.broadcast_object_list(values, src=0)
    return values[0]


def barrier() -> None:
    """Wait until every rank is here."""
    if world_size() > 1:
        dist.barrier()


def shard(batch: list) -> list:
    """Return this rank's consecutive part of a batch. Raises BadInput if the ranks do not divide it."""
    if len(batch) % world_size():
        raise BadInput(f"a batch of {len(batch)} cannot be divided among {world_size()} ranks")
    n = len(batch) // world_size()
    return batch[rank() * n : (rank() + 1) * n]
