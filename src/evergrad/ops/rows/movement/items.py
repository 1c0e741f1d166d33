"""Lists of arrays whose shapes differ, extended with zeros to other shapes, and the transpose.

A layout is a tuple of shapes; the elements of all items are side by side in the last dimension of a
tensor, and dimensions before it are batch dimensions. :data:`EXTEND_ITEMS` copies each item into
zeros of a larger shape, :data:`RESTRICT_ITEMS` takes the part of each item that has a smaller one;
a shape of fewer dimensions has ones behind. Both are copies of contiguous runs where these are few
or long, else one indexed copy; the choice is made once for a pair of layouts.

:data:`ADD_ITEMS`, :data:`SUB_ITEMS` and :data:`MUL_ITEMS` combine two lists of items in one pass
over the elements of the result, which a native loop makes run by run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.eager.items import pair_evaluator
from evergrad.core.families import bilinear, linear, meet
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import TensorType
from evergrad.core.tensor import Array, Tensor
from evergrad.errors import ShapeError
from evergrad.ops.rows.indexing.index import at_front, batch_size
from evergrad.ops.rows.movement.item_layouts import (
    Layout,
    moves,
    offsets,
    pair_runs,
    shared_places,
)
from evergrad.ops.rows.movement.views import Dims, shaped, to_front


def _extend(x: Array, *, inner: Layout, outer: Layout) -> Array:
    size, runs, places = moves(inner, outer)
    out = np.zeros((*x.shape[:-1], size), x.dtype)
    if runs is None:
        out[..., places] = x
        return out
    for part, whole in runs:
        out[..., whole] = x[..., part]
    return out


def _restrict(x: Array, *, inner: Layout, outer: Layout) -> Array:
    _, runs, places = moves(inner, outer)
    if runs is None:
        return x.take(places, -1)
    if len(runs) == 1:
        return x[..., runs[0][1]].copy()
    out = np.empty((*x.shape[:-1], len(places)), x.dtype)
    for part, whole in runs:
        out[..., part] = x[..., whole]
    return out


def _type(given: str, wanted: str) -> Callable[..., TensorType]:
    def infer(x: TensorType, **layouts: Layout) -> TensorType:
        own, other = layouts[given], layouts[wanted]
        if x.shape[-1] != offsets(own)[-1] or len(own) != len(other):
            raise ShapeError(f"{x} has not the elements of items of {own}")
        return shaped(x, (*x.shape[:-1], offsets(other)[-1]))

    return infer


def _batch(op: Op, args: Sequence[Tensor], dims: Dims, **layouts: Layout) -> object:
    return bind(op, to_front(args[0], dims[0]), **layouts), 0  # type: ignore[arg-type]


# -- two lists of items --------------------------------------------------------------------------


def _placed(x: Array, own: Layout, out: Layout) -> Array:
    """Items in the shapes of ``out``: zeros where they have no element, without those beyond."""
    if own == out:
        return x
    here, there = shared_places(own, out)
    made = np.zeros((*x.shape[:-1], offsets(out)[-1]), x.dtype)
    made[..., there] = x[..., here]
    return made


def _pairwise(combine: np.ufunc) -> Callable[..., Array]:
    """Zeros are combined too, so that the result is that of the extensions to the bit."""

    def evaluate(a: Array, b: Array, *, inner: tuple[Layout, Layout], outer: Layout) -> Array:
        first, second = inner
        found: Array = combine(_placed(a, first, outer), _placed(b, second, outer))
        return found

    return evaluate


def _pair_type(
    a: TensorType, b: TensorType, *, inner: tuple[Layout, Layout], outer: Layout
) -> TensorType:
    if a.shape[:-1] != b.shape[:-1]:
        raise ShapeError(f"operands {a} and {b} have other dimensions before the elements")
    infer = _type("inner", "outer")
    types = [infer(x, inner=own, outer=outer) for x, own in zip((a, b), inner, strict=True)]
    return types[0]


def _pair_batch(op: Op, args: Sequence[Tensor], dims: Dims, **layouts: object) -> object:
    size = batch_size(args, dims)
    fronts = [at_front(x, d, size) for x, d in zip(args, dims, strict=True)]
    return bind(op, *fronts, **layouts), 0


def _add_transposes(
    g: Tensor, a: Tensor, b: Tensor, *, inner: tuple[Layout, Layout], outer: Layout
) -> tuple[Tensor, ...]:
    return tuple(g if own == outer else restrict_items(g, own, outer) for own in inner)


def _sub_transposes(
    g: Tensor, a: Tensor, b: Tensor, *, inner: tuple[Layout, Layout], outer: Layout
) -> tuple[Tensor, ...]:
    left, right = _add_transposes(g, a, b, inner=inner, outer=outer)
    return left, -right


def _mul_transposes(
    g: Tensor, a: Tensor, b: Tensor, *, inner: tuple[Layout, Layout], outer: Layout
) -> tuple[Tensor, ...]:
    """Products too, in the layouts of the operands: the row is closed under transposition."""
    first, second = inner
    return (
        mul_items(g, b, (outer, second), first),
        mul_items(g, a, (outer, first), second),
    )


EXTEND_ITEMS: Op = linear(
    "extend_items", _extend, _type("inner", "outer"),
    lambda g, x, **layouts: bind(RESTRICT_ITEMS, g, **layouts), batch=_batch,
    emit=lowered("passes.decompose_movement"), autocast=AutocastPolicy.KEEP,
    doc="Items copied into zeros of larger shapes.",
)  # fmt: skip
RESTRICT_ITEMS: Op = linear(
    "restrict_items", _restrict, _type("outer", "inner"),
    lambda g, x, **layouts: bind(EXTEND_ITEMS, g, **layouts), batch=_batch,
    emit=lowered("passes.decompose_movement"), autocast=AutocastPolicy.KEEP,
    doc="The parts of items that have smaller shapes: extend_items' transpose.",
)  # fmt: skip
ADD_ITEMS: Op = linear(
    "add_items", _pairwise(np.add), _pair_type, _add_transposes, batch=_pair_batch, promote=meet,
    upcast=True, emit=lowered("kernels.items"), autocast=AutocastPolicy.KEEP,
    doc="The sum of two lists of items, each extended with zeros to common shapes.",
)  # fmt: skip
SUB_ITEMS: Op = linear(
    "sub_items", _pairwise(np.subtract), _pair_type, _sub_transposes, batch=_pair_batch,
    promote=meet, upcast=True, emit=lowered("kernels.items"), autocast=AutocastPolicy.KEEP,
    doc="The difference of two lists of items, each extended with zeros to common shapes.",
)  # fmt: skip
MUL_ITEMS: Op = bilinear(
    "mul_items", _pairwise(np.multiply), _pair_type, _mul_transposes, batch=_pair_batch,
    promote=meet, emit=lowered("kernels.items"), autocast=AutocastPolicy.KEEP,
    doc="The product of two lists of items in any shapes, zero where an operand has no element.",
)  # fmt: skip
# What two elements become, by row.
COMBINATIONS: dict[Op, str] = {ADD_ITEMS: "add", SUB_ITEMS: "sub", MUL_ITEMS: "mul"}


def _with_runs(op: Op) -> Callable[..., Callable[..., object]]:
    def prepared(
        plain: Callable[..., Array], a: TensorType, b: TensorType, *,
        inner: tuple[Layout, Layout], outer: Layout,
    ) -> Callable[..., object]:  # fmt: skip
        size = offsets(outer)[-1]
        if len(a.shape) != 1 or a.dtype is not b.dtype or not size:
            return plain
        runs = pair_runs(*inner, outer)
        return pair_evaluator(COMBINATIONS[op], a.dtype.np, size, runs, plain)

    return prepared


for _op in COMBINATIONS:
    _op.prepare_for = _with_runs(_op)


def add_items(a: Tensor, b: Tensor, inner: tuple[Layout, Layout], outer: Layout) -> Tensor:
    """Items of the shapes ``inner[0]`` and ``inner[1]``, added in those of ``outer``."""
    return bind(ADD_ITEMS, a, b, inner=inner, outer=outer)  # type: ignore[no-any-return]


def mul_items(a: Tensor, b: Tensor, inner: tuple[Layout, Layout], outer: Layout) -> Tensor:
    """Items of the shapes ``inner[0]`` and ``inner[1]``, multiplied in those of ``outer``."""
    return bind(MUL_ITEMS, a, b, inner=inner, outer=outer)  # type: ignore[no-any-return]


def extend_items(x: Tensor, inner: Layout, outer: Layout) -> Tensor:
    """Items of the shapes ``inner`` in those of ``outer``, which are at least as large."""
    return bind(EXTEND_ITEMS, x, inner=inner, outer=outer)  # type: ignore[no-any-return]


def restrict_items(x: Tensor, inner: Layout, outer: Layout) -> Tensor:
    """The parts of shapes ``inner`` of items whose shapes are ``outer``."""
    return bind(RESTRICT_ITEMS, x, inner=inner, outer=outer)  # type: ignore[no-any-return]
