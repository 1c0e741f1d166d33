"""Samples of items moved between layouts."""

from __future__ import annotations

import math

import numpy as np

from evergrad.core.bind import bind
from evergrad.ops.rows.movement.item_layouts import (
    Layout,
    meeting,
    offsets,
    places_within,
    shared_places,
)
from evergrad.ops.rows.movement.items import (
    ADD_ITEMS,
    MUL_ITEMS,
    SUB_ITEMS,
    extend_items,
    restrict_items,
)
from evergrad.ops.rows.reduce.item_sums import repeat_items, sum_items
from evergrad.testing.samples import Array, normal, sample


def _enter(inner: Layout, outer: Layout, label: str) -> None:
    at, size = places_within(inner, outer), offsets(outer)[-1]

    def extended(x: Array) -> Array:
        out = np.zeros(size, x.dtype)
        out[at] = x
        return out

    sample("extend_items", lambda ns, x: extend_items(x, inner, outer), normal(len(at)),
           reference=extended, torch=False, label=label)  # fmt: skip
    sample("restrict_items", lambda ns, x: restrict_items(x, inner, outer), normal(size),
           reference=lambda x: x[at], torch=False, label=label)  # fmt: skip


def _placed(x: Array, own: Layout, outer: Layout) -> Array:
    here, there = shared_places(own, outer)
    out = np.zeros(offsets(outer)[-1], x.dtype)
    out[there] = x[here]
    return out


def _enter_pair(first: Layout, second: Layout, outer: Layout, label: str) -> None:
    """Sum and difference take results that have the indices of both operands, products any."""
    sizes = [offsets(own)[-1] for own in (first, second)]
    is_whole = all(meeting(own, outer) == meeting(own, own) for own in (first, second))
    for op, combine in ((ADD_ITEMS, np.add), (SUB_ITEMS, np.subtract), (MUL_ITEMS, np.multiply)):
        if is_whole or op is MUL_ITEMS:
            sample(
                op.name,
                lambda ns, a, b, op=op: bind(op, a, b, inner=(first, second), outer=outer),
                normal(sizes[0]), normal(sizes[1]),
                reference=lambda a, b, combine=combine: combine(
                    _placed(a, first, outer), _placed(b, second, outer)
                ),
                torch=False, label=label,
            )  # fmt: skip


def _enter_sums(layout: Layout, label: str) -> None:
    counts = [math.prod(s) for s in layout]
    ends = np.cumsum(counts)[:-1]
    sample("sum_items", lambda ns, x: sum_items(x, layout), normal(sum(counts)),
           reference=lambda x: np.array([p.sum() for p in np.split(x, ends)], x.dtype),
           torch=False, label=label)  # fmt: skip
    sample("repeat_items", lambda ns, x: repeat_items(x, layout), normal(len(counts)),
           reference=lambda x: np.repeat(x, counts), torch=False, label=label)  # fmt: skip


_enter_sums(((3,), (1,), (2,)), "vectors")
_enter_sums(((0,), (2, 2), (0,), (3,), (0,)), "items without elements")
_enter_pair(((2,), (3,)), ((4,), (1,)), ((4,), (3,)), "vectors")
_enter_pair(((2,), (0,)), ((0,), (0,)), ((2,), (0,)), "the first is the sum's")
_enter_pair(((2, 1), (1,)), ((1, 3), (2,)), ((2, 3), (2,)), "matrices")
_enter_pair(((0,),), ((2,),), ((2,),), "from nothing")
_enter_pair(((4,), (3,)), ((2,), (5,)), ((2,), (3,)), "a part")
_enter(((2,), (3,), (1,)), ((4,), (3,), (2,)), "vectors")
_enter(((3,),), ((5,),), "one")
_enter(((2,), (0,)), ((3,), (1,)), "empty item")
_enter(((2, 2), (3,)), ((3, 4), (3, 2)), "matrices")
_enter(((0,), (0,)), ((2,), (1,)), "from nothing")
_enter(((2,), (1,)), ((2,), (1,)), "the same")
