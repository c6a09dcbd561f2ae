"""Differentiable all-gather of rows, for losses and norms over all ranks."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._compile import _disable_dynamo


class _GatherRows(torch.autograd.Function):
    """All-gather of rows; the backward pass sums the gradients over ranks."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        every = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(every, padded)
        return torch.cat([part[:size] for part, size in zip(every, sizes)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total[own_rows(ctx.sizes)], None


def own_rows(sizes: list[int]) -> slice:
    """Slice of the rows of this rank among the gathered rows of all ranks."""
    rank = dist.get_rank()
    return slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))


@_disable_dynamo  # torch.compiler.disable would import the compiler now, which takes a second
def gather_rows(rows: Tensor) -> tuple[Tensor, slice]:
    """Gather rows (n, ...) of all ranks; also return the slice of this rank's rows.

    All ranks must call this function. A loss L of the gathered rows is the same on every rank. The backward pass gives
    each rank the sum over ranks of dL/d(rows of this rank). Gradients of the weights, averaged over ranks, are then
    equal to the gradients in a single process with all rows.
    """
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([len(rows)]))
    counts = [int(size) for size in sizes]
    every: Tensor = _GatherRows.apply(rows, counts)
    return every, own_rows(counts)


@_disable_dynamo
def gather_row(row: Tensor) -> Tensor:
    """Gather one row (...) from each rank as (ranks, ...).

    All ranks must call this function.
    """
    every: Tensor = _GatherRows.apply(row[None], [1] * dist.get_world_size())
    return every
