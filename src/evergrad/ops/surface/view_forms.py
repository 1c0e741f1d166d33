"""Views in other forms: a tensor that becomes a view of itself, and writes through a view as
functions.

``x.squeeze_()`` points the handle ``x`` at another view of its storage. The handle it was before
lives on as the base whose history it follows.

The row ``update`` is the functional form of a write through a view: the base with the viewed part
replaced, which is also how gradients pass through in-place writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from evergrad.core.bind import bind, cast
from evergrad.core.compound import Compound
from evergrad.core.families import linear
from evergrad.core.node import Leaf
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import as_shape, contiguous_strides, normalize_dim
from evergrad.core.state import STATE
from evergrad.core.tensor import Array, Tensor, current_node, note_handle, on_storage
from evergrad.core.views import View, ViewChain
from evergrad.errors import ShapeError
from evergrad.ops.rows.creation.constants import arange, zeros_like
from evergrad.ops.rows.indexing.functions import index_copy
from evergrad.ops.rows.movement.slices import SLICE
from evergrad.ops.rows.movement.strided import AS_STRIDED, DIAGONAL, as_strided
from evergrad.ops.rows.movement.views import (
    Dims,
    expand,
    reshape,
    squeeze,
    t,
    to_front,
    transpose,
    unsqueeze,
)
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import DimsLike, Ints

# -- in place -----------------------------------------------------------------------------------


def _become(self: Tensor, look: Callable[[Tensor], Tensor]) -> Tensor:
    """Point a handle at a view of what it was; a tensor without an array takes over the result."""
    if isinstance(self, Compound):
        return self.take_over(look(self))
    node = current_node(self)
    leaf = node if isinstance(node, Leaf) else None
    if leaf is not None and STATE.get().grad:
        raise RuntimeError(
            "a leaf Variable that requires grad is being used in an in-place operation. "
            "Write under no_grad(), or to a clone() of it."
        )
    former = on_storage(self._value, self._type, self._storage, self._view)
    former._node, former._index = node, self._index
    found = look(former)
    self._value, self._type = found._value, found._type
    note_handle(self)
    self._node, self._index = found._node, found._index
    self._view = found._view
    if leaf is not None and found._view is not None:  # a leaf follows no other tensor's history
        self._node, self._index = leaf, 0
        self._view = View(None, found._view.chain, self._storage.version)
    return self


@expose(function=False, numpy_names=True)
def squeeze_(self: Tensor, dim: DimsLike = None, *dims: int) -> Tensor:
    """In-place form of ``squeeze``."""
    return _become(self, lambda x: squeeze(x, dim, *dims))


@expose(function=False, numpy_names=True)
def unsqueeze_(self: Tensor, dim: int) -> Tensor:
    """In-place form of ``unsqueeze``."""
    return _become(self, lambda x: unsqueeze(x, dim))


@expose("swapaxes_", "swapdims_", function=False, keywords={"axis0": "dim0", "axis1": "dim1"})
def transpose_(self: Tensor, dim0: int, dim1: int) -> Tensor:
    """In-place form of ``transpose``."""
    return _become(self, lambda x: transpose(x, dim0, dim1))


@expose(function=False)
def t_(self: Tensor) -> Tensor:
    """In-place form of ``t``."""
    return _become(self, t)


@expose(function=False)
def as_strided_(
    input: Tensor, size: Ints, stride: Ints, storage_offset: int | None = None
) -> Tensor:
    """In-place form of ``as_strided``."""
    return _become(input, lambda x: as_strided(x, size, stride, storage_offset))


# -- as functions -------------------------------------------------------------------------------


def part_of(array: Array, chain: ViewChain) -> Array:
    """The part of an array that view ops give."""
    for op, attrs in chain.ops:
        array = op.eval(array, **attrs)
    return array


def _update_eval(base: Array, value: Array, *, chain: ViewChain) -> Array:
    for order in ("K", "C"):
        out = base.copy(order=order)
        part = part_of(out, chain)
        if not part.size or np.may_share_memory(part, out):
            part[...] = value
            return out
    # In this layout the steps need a copy, which a write would not come back from.
    places = part_of(np.arange(out.size).reshape(out.shape), chain)
    out.reshape(-1)[places] = value
    return out


def _update_transpose(
    g: Tensor, base: Tensor, value: Tensor, *, chain: ViewChain
) -> tuple[Tensor, Tensor]:
    part = g
    for op, attrs in chain.ops:
        part = bind(op, part, **attrs)
    return bind(UPDATE, g, zeros_like(value), chain=chain), part


def _batch_update(
    op: Op, args: Sequence[Tensor], dims: Dims, *, chain: ViewChain
) -> tuple[Tensor, int]:
    """Batch the steps by running them, batched, on positions, and write there."""
    base, value = args
    size = next(a._type.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    base = expand(base, (size, *base._type.shape)) if dims[0] is None else to_front(base, dims[0])
    value = (
        expand(value, (size, *value._type.shape)) if dims[1] is None else to_front(value, dims[1])
    )
    count = math.prod(base._type.shape[1:])
    places = reshape(arange(count), base._type.shape[1:])
    for view_op, attrs in chain.ops:
        places = bind(view_op, places, **attrs)
    flat = reshape(base, (size, count))
    written = index_copy(flat, 1, reshape(places, -1), reshape(value, (size, -1)))
    return reshape(written, base._type.shape), 0


UPDATE = linear("update", _update_eval, lambda base, value, *, chain: base, _update_transpose,
                batch=_batch_update,
                emit=lowered("passes.decompose"), autocast=AutocastPolicy.KEEP,
                doc="The base with a viewed part replaced.")  # fmt: skip


def _written(input: Tensor, src: Tensor, op: Op, attrs: dict[str, object]) -> Tensor:
    """``input`` with the part that a view row shows replaced."""
    part = op.type(input._type, **attrs)
    if src._type.shape != part.shape:
        raise ShapeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src._type.shape)}, slice size = {list(part.shape)}"
        )
    chain = ViewChain(((op, attrs),))
    return bind(UPDATE, input, cast(src, input.dtype), chain=chain)  # type: ignore[no-any-return]


@expose(out=False)
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy with a diagonal replaced."""
    first, second = normalize_dim(dim1, input.ndim), normalize_dim(dim2, input.ndim)
    if first == second:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return _written(input, src, DIAGONAL, {"offset": offset, "dim1": first, "dim2": second})


@expose(out=False, numpy_names=True)
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with one index of a dimension replaced."""
    dim = normalize_dim(dim, input.ndim)
    shape = input._type.shape
    extent = shape[dim]
    if not -extent <= index < extent:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(shape)} at dimension "
            f"{dim}"
        )
    before = tuple((0, n, 1) for n in shape[:dim])
    return _written(input, src, SLICE, {"slices": (*before, index % extent)})


@expose(numpy_names=True)
def slice_scatter(
    input: Tensor, src: Tensor, dim: int = 0, start: int | None = None, end: int | None = None,
    step: int = 1,
) -> Tensor:  # fmt: skip
    """A copy with a slice of a dimension replaced."""
    dim = normalize_dim(dim, input.ndim)
    if step < 1:
        raise ValueError("slice step must be positive")
    shape = input._type.shape
    first, last, step = slice(start, end, step).indices(shape[dim])
    before = tuple((0, n, 1) for n in shape[:dim])
    return _written(input, src, SLICE, {"slices": (*before, (first, max(first, last), step))})


@expose(out=False)
def as_strided_scatter(
    input: Tensor, src: Tensor, size: object, stride: Ints, storage_offset: int | None = None
) -> Tensor:
    """A copy with the part that ``as_strided`` shows replaced.

    Args:
        input: the tensor
        src: what replaces the part
        size, stride, storage_offset: of the part, as ``as_strided`` takes them

    >>> eg.as_strided_scatter(eg.zeros(2, 2), eg.ones(2), (2,), (3,))
    tensor([[1., 0.],
            [0., 1.]])
    """
    if not input.is_contiguous():
        raise RuntimeError(
            "as_strided_scatter: the strides count through contiguous memory; call it on "
            "input.contiguous()"
        )
    size, stride = as_shape((size,)), as_shape((stride,))
    offset = storage_offset or 0
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if 0 not in size and (offset < 0 or last >= input._type.numel):
        raise RuntimeError(
            f"as_strided_scatter: sizes {list(size)}, strides {list(stride)}, storage offset "
            f"{offset} require {last + 1} elements, but the input has {input._type.numel}"
        )
    own = contiguous_strides(input._type.shape)
    attrs = {"size": size, "stride": stride, "offset": offset, "base_stride": own}
    return _written(input, src, AS_STRIDED, attrs)
