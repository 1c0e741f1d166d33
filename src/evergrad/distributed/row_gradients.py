"""Averages of row-sparse gradients: the rows that the ranks have, gathered and added up.

Nothing of the table's size is allocated or sent, unless some rank has a dense gradient.
"""

from __future__ import annotations

from typing import Any

import evergrad
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.distributed.buckets import Bucket
from evergrad.distributed.collectives import all_gather, all_reduce
from evergrad.distributed.objects import all_gather_object
from evergrad.distributed.process_group import ProcessGroup, ReduceOp
from evergrad.distributed.traced import apply
from evergrad.ops.rows.collective import ALL_GATHER, ALL_REDUCE

_DENSE = -1


class RowBucket(Bucket):
    """The bucket of one parameter whose gradient is row-sparse; it has no flat tensor."""


def average_rows(
    parameter: Tensor, grad: Tensor | None, group: ProcessGroup, divisor: int, label: str
) -> Tensor | None:
    """The sum of the gradients of all ranks over ``divisor``: sparse and coalesced, or dense if
    some rank has a dense one; ``None`` if no rank has any."""
    with using(grad=False):
        rows: Any = None
        if grad is not None and grad.is_sparse:
            rows = grad.coalesce()
        count = 0 if grad is None else _DENSE if rows is None else rows.indices().shape[1]
        counts: list[Any] = [None] * group.size()
        all_gather_object(counts, None if grad is None else count, group)
        known = [n for n in counts if n is not None]
        if not known:
            return None
        if _DENSE in known:
            return _dense_average(parameter, grad, group, divisor, label)
        sizes = [n or 0 for n in counts]
        indices = _gathered(
            evergrad.zeros(1, 0, dtype=evergrad.int64) if rows is None else rows.indices(), 1,
            sizes, group,
        )  # fmt: skip
        values = _gathered(
            evergrad.zeros(0, *parameter.shape[1:], dtype=parameter.dtype)
            if rows is None else rows.values(), 0, sizes, group,
        )  # fmt: skip
        found = evergrad.sparse_coo_tensor(indices, values, tuple(parameter.shape)).coalesce()
        return evergrad.sparse_coo_tensor(
            found.indices(), found.values() / divisor, tuple(parameter.shape), is_coalesced=True
        )


def traced_average_rows(parameter: Tensor, grad: Tensor, group: ProcessGroup, label: str) -> Tensor:
    """The same in a trace, where every rank has as many rows; places may repeat."""
    with using(grad=False):
        if not grad.is_sparse:
            return apply(ALL_REDUCE, grad, group, reduction="AVG", label=label)
        rows: Any = grad
        indices = apply(ALL_GATHER, rows._indices().reshape(-1), group, label=label)
        values = apply(ALL_GATHER, rows._values(), group, label=label)
        shape = tuple(parameter.shape)
        found: Tensor = evergrad.sparse_coo_tensor(
            indices.reshape(1, -1), values.reshape(-1, *shape[1:]) / group.size(), shape
        )
        return found


def _gathered(own: Tensor, dim: int, sizes: list[int], group: ProcessGroup) -> Tensor:
    """The parts of all ranks, of these extents along a dimension, side by side in their order."""
    most = max(sizes)
    shape = list(own.shape)
    shape[dim] = most - shape[dim]
    even = evergrad.cat([own, evergrad.zeros(shape, dtype=own.dtype)], dim).contiguous()
    parts: list[Tensor] = [evergrad.empty_like(even) for _ in sizes]
    all_gather(parts, even, group)
    return evergrad.cat([part.narrow(dim, 0, n) for part, n in zip(parts, sizes, strict=True)], dim)


def _dense_average(
    parameter: Tensor, grad: Tensor | None, group: ProcessGroup, divisor: int, label: str
) -> Tensor:
    if grad is None:
        total: Tensor = evergrad.zeros_like(parameter, requires_grad=False)
    else:
        total = grad.to_dense() if grad.is_sparse else grad.clone()
    all_reduce(total, ReduceOp.SUM, group, label=label)
    found: Tensor = total / divisor
    return found
