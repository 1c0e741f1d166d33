"""Sums over the elements of each of a list of arrays of any shapes, and the transpose.

:data:`SUM_ITEMS` makes one number of each item, :data:`REPEAT_ITEMS` gives one to all elements of
an item; items without elements have the sum zero. Layouts are those of
:mod:`~evergrad.ops.rows.movement.item_layouts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.families import linear
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import TensorType
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import ShapeError
from evergrad.ops.rows.movement.item_layouts import Layout, offsets
from evergrad.ops.rows.movement.views import Dims, shaped, to_front


@lru_cache(maxsize=64)
def counts_of(layout: Layout) -> Array:
    """The number of elements of each item."""
    return np.array([math.prod(s) for s in layout], np.int64)


@lru_cache(maxsize=64)
def _segments(layout: Layout) -> tuple[Array, Array | None]:
    """Where the items begin that have elements, and which these are (``None``: all)."""
    counts = counts_of(layout)
    begins = np.array(offsets(layout)[:-1], np.int64)
    full = np.flatnonzero(counts)
    return (begins, None) if len(full) == len(counts) else (begins[full], full)


def _sum(x: Array, *, layout: Layout) -> Array:
    begins, full = _segments(layout)
    if full is None and len(begins):
        return np.add.reduceat(x, begins, -1)
    out = np.zeros((*x.shape[:-1], len(layout)), x.dtype)
    if len(begins):
        out[..., full] = np.add.reduceat(x, begins, -1)
    return out


def _repeat(x: Array, *, layout: Layout) -> Array:
    return np.repeat(x, counts_of(layout), -1)


def _sum_type(x: TensorType, *, layout: Layout) -> TensorType:
    if x.shape[-1] != offsets(layout)[-1]:
        raise ShapeError(f"{x} has not the elements of items of {layout}")
    return shaped(x, (*x.shape[:-1], len(layout)))


def _repeat_type(x: TensorType, *, layout: Layout) -> TensorType:
    if x.shape[-1] != len(layout):
        raise ShapeError(f"{x} has not one number for each of {len(layout)} items")
    return shaped(x, (*x.shape[:-1], offsets(layout)[-1]))


def _batch(op: Op, args: Sequence[Tensor], dims: Dims, **layouts: Layout) -> object:
    return bind(op, to_front(args[0], dims[0]), **layouts), 0  # type: ignore[arg-type]


SUM_ITEMS: Op = linear(
    "sum_items", _sum, _sum_type, lambda g, x, *, layout: repeat_items(g, layout), batch=_batch,
    upcast=True, emit=lowered("kernels.items"), autocast=AutocastPolicy.KEEP,
    doc="The sum of the elements of each item of a list of arrays.",
)  # fmt: skip
REPEAT_ITEMS: Op = linear(
    "repeat_items", _repeat, _repeat_type, lambda g, x, *, layout: sum_items(g, layout),
    batch=_batch, emit=lowered("passes.decompose_movement"), autocast=AutocastPolicy.KEEP,
    doc="A number for each item of a list of arrays at all of its elements: sum_items' transpose.",
)  # fmt: skip


def sum_items(x: Tensor, layout: Layout) -> Tensor:
    """The sum of the elements of each item."""
    return bind(SUM_ITEMS, x, layout=layout)  # type: ignore[no-any-return]


def repeat_items(x: Tensor, layout: Layout) -> Tensor:
    """The numbers of items at all of their elements."""
    return bind(REPEAT_ITEMS, x, layout=layout)  # type: ignore[no-any-return]
