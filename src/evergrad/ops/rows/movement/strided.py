"""Views that only strides can describe: diagonals, sliding windows, any look at a storage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.families import linear
from evergrad.core.namespace import ops
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, lowered
from evergrad.core.shapes import Shape, TensorType, as_shape, normalize_dim
from evergrad.core.tensor import Array, Tensor, offset_of, on_storage
from evergrad.ops.rows.movement.slices import select
from evergrad.ops.rows.movement.views import Dims, expand, reshape, shaped, to_front
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import Ints

# -- diagonals ----------------------------------------------------------------------------------


def _diagonal_length(rows: int, columns: int, offset: int) -> int:
    return max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))


def _diagonal_type(x: TensorType, *, offset: int, dim1: int, dim2: int) -> TensorType:
    rest = [n for i, n in enumerate(x.shape) if i not in (dim1, dim2)]
    return shaped(x, (*rest, _diagonal_length(x.shape[dim1], x.shape[dim2], offset)))


def _diagonal_eval(x: Array, *, offset: int, dim1: int, dim2: int) -> Array:
    found = x.diagonal(offset, dim1, dim2)
    found.flags.writeable = x.flags.writeable
    return found


def _batch_diagonal(
    op: Op, args: Sequence[Tensor], dims: Dims, *, offset: int, dim1: int, dim2: int, **rest: Any
) -> tuple[Tensor, int]:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    if rest:
        rest = {"shape": (x._type.shape[0], *rest["shape"])}
    return bind(op, x, offset=offset, dim1=dim1 + 1, dim2=dim2 + 1, **rest), 0


DIAGONAL = linear(
    "diagonal", _diagonal_eval, _diagonal_type,
    lambda g, x, **attrs: bind(DIAGONAL_SCATTER, g, **attrs, shape=x._type.shape),
    batch=_batch_diagonal, alias="view", doc="A diagonal of two dimensions, as the last one.",
)  # fmt: skip


def _diagonal_scatter_eval(g: Array, *, offset: int, dim1: int, dim2: int, shape: Shape) -> Array:
    out = np.zeros(shape, g.dtype)
    _diagonal_eval(out, offset=offset, dim1=dim1, dim2=dim2)[...] = g
    return out


DIAGONAL_SCATTER: Op = linear(
    "diagonal_embed", _diagonal_scatter_eval,
    lambda g, *, offset, dim1, dim2, shape: shaped(g, shape),
    lambda g, x, *, shape, **attrs: bind(DIAGONAL, g, **attrs),
    batch=_batch_diagonal,
    emit=lowered("passes.decompose_indexing"), autocast=AutocastPolicy.KEEP,
    doc="Zeros with a diagonal laid in: diagonal's transpose.",
)  # fmt: skip


@expose(out=False)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A diagonal of two dimensions, as the last dimension of a view."""
    rank = input.ndim
    a, b = normalize_dim(dim1, rank), normalize_dim(dim2, rank)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return bind(DIAGONAL, input, offset=offset, dim1=a, dim2=b)  # type: ignore[no-any-return]


# -- windows ------------------------------------------------------------------------------------


def _unfold_type(x: TensorType, *, dim: int, size: int, step: int) -> TensorType:
    count = (x.shape[dim] - size) // step + 1
    return shaped(x, (*x.shape[:dim], count, *x.shape[dim + 1 :], size))


def _unfold_eval(x: Array, *, dim: int, size: int, step: int) -> Array:
    count = (x.shape[dim] - size) // step + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
    strides = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def _fold_eval(g: Array, *, dim: int, size: int, step: int, shape: Shape) -> Array:
    out = np.zeros(shape, g.dtype)
    lanes = np.moveaxis(out, dim, -1)
    windows = np.moveaxis(g, dim, -2)
    count = windows.shape[-2]
    for k in range(size):  # each offset in the window touches distinct elements
        lanes[..., k : k + (count - 1) * step + 1 : step] += windows[..., k]
    return out


def _batch_unfold(
    op: Op, args: Sequence[Tensor], dims: Dims, *, dim: int, size: int, step: int, **rest: Any
) -> tuple[Tensor, int]:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    if rest:
        rest = {"shape": (x._type.shape[0], *rest["shape"])}
    return bind(op, x, dim=dim + 1, size=size, step=step, **rest), 0


UNFOLD = linear(
    "unfold_dim", _unfold_eval, _unfold_type,
    lambda g, x, **attrs: bind(FOLD, g, **attrs, shape=x._type.shape),
    batch=_batch_unfold, alias="expand", doc="Sliding windows of one dimension, as the last one.",
)  # fmt: skip
FOLD: Op = linear(
    "fold_dim", _fold_eval,
    lambda g, *, dim, size, step, shape: shaped(g, shape),
    lambda g, x, *, dim, size, step, shape: bind(UNFOLD, g, dim=dim, size=size, step=step),
    batch=_batch_unfold, upcast=True,
    emit=lowered("passes.decompose_windows"), autocast=AutocastPolicy.KEEP,
    doc="Overlapping windows added up: unfold's transpose.",
)  # fmt: skip


@expose(function=False)
def unfold(self: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows of ``size`` elements every ``step``, as a last dimension of a view."""
    if not self.ndim:
        return select(unfold(reshape(self, (1,)), dimension, size, step), 0, 0)
    dim = normalize_dim(dimension, self.ndim)
    extent = self._type.shape[dim]
    if size > extent:
        raise RuntimeError(
            f"maximum size for tensor at dimension {dim} is {extent} but size is {size}"
        )
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    return bind(UNFOLD, self, dim=dim, size=size, step=step)  # type: ignore[no-any-return]


# -- any strides --------------------------------------------------------------------------------


def _as_strided_eval(
    x: Array, *, size: Shape, stride: Shape, offset: int, base_stride: Shape
) -> Array:
    if x.size > 1 and x.strides != tuple(s * x.itemsize for s in base_stride):
        x = _laid_out(x, base_stride)
    start = np.lib.stride_tricks.as_strided(x, (offset + 1,), (x.itemsize,))[offset:]
    return np.lib.stride_tricks.as_strided(start, size, tuple(s * x.itemsize for s in stride))


def _laid_out(x: Array, stride: Shape) -> Array:
    """A copy with given strides."""
    reach = 1 + sum((n - 1) * s for n, s in zip(x.shape, stride, strict=True))
    memory = np.zeros(reach, x.dtype)
    laid = np.lib.stride_tricks.as_strided(memory, x.shape, tuple(s * x.itemsize for s in stride))
    laid[...] = x
    return laid


def _places(shape: Shape, stride: Shape, offset: int) -> Tensor:
    """The position in memory of each element, as one long vector."""
    total = ops.zeros((), dtype=dtypes.int64) + offset
    for i, (extent, step) in enumerate(zip(shape, stride, strict=True)):
        along = ops.arange(extent) * step
        total = total + reshape(along, (extent,) + (1,) * (len(shape) - i - 1))
    return reshape(expand(total, shape), -1)


def _as_strided_transpose(
    g: Tensor, x: Tensor, *, size: Shape, stride: Shape, offset: int, base_stride: Shape
) -> Tensor:
    reach = 1 + sum((n - 1) * s for n, s in zip(x._type.shape, base_stride, strict=True) if n)
    if 0 in x._type.shape or 0 in size:
        return ops.zeros(x._type.shape, dtype=g.dtype)
    memory = ops.zeros(reach, dtype=g.dtype)
    memory = ops.index_add(memory, 0, _places(size, stride, offset), reshape(g, -1))
    own = ops.index_select(memory, 0, _places(x._type.shape, base_stride, 0))
    return reshape(own, x._type.shape)


AS_STRIDED = linear(
    "as_strided", _as_strided_eval,
    lambda x, *, size, stride, offset, base_stride: shaped(x, size),
    _as_strided_transpose, alias="expand", doc="Any strided look at a storage.",
)  # fmt: skip


@expose(out=False)
def as_strided(
    input: Tensor, size: object, stride: Ints, storage_offset: int | None = None
) -> Tensor:
    """A view of the whole storage with the given sizes and strides."""
    size, stride = as_shape((size,)), as_shape((stride,))
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {size} and {stride}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported: {list(stride)}")
    offset = offset_of(input) if storage_offset is None else storage_offset
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    span = sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    base = input
    if input._view is not None and not _spans_storage(input):
        if _covers(input, offset, span):
            return _strided(input, size, stride, offset - offset_of(input))
        if input._view.base is None or input._view.base._view is not None:
            base = _storage_handle(input)
        else:
            base = input._view.base
    if 0 not in size and (offset < 0 or offset + span >= base._type.numel):
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} "
            f"require {offset + span + 1} elements, but the storage has {base._type.numel}"
        )
    return _strided(base, size, stride, offset)


def _strided(base: Tensor, size: Shape, stride: Shape, offset: int) -> Tensor:
    layout = base.layout_array()
    base_stride = tuple(s // layout.itemsize for s in layout.strides)
    return bind(  # type: ignore[no-any-return]
        AS_STRIDED, base, size=size, stride=stride, offset=offset, base_stride=base_stride
    )


def _covers(input: Tensor, offset: int, span: int) -> bool:
    """Whether a leaf that is itself a view spans the new view, and so gets its gradient."""
    if not input.requires_grad or input._view is None or input._view.base is not None:
        return False
    start = offset_of(input)
    reach = sum((n - 1) * s for n, s in zip(input._type.shape, input.stride(), strict=True))
    return offset >= start and offset + span <= start + reach


def _spans_storage(input: Tensor) -> bool:
    """Whether a view shows its whole storage in order, and so can stand for it."""
    return input.is_contiguous() and input._type.numel == input._storage.type.numel


def _storage_handle(input: Tensor) -> Tensor:
    if input.requires_grad:
        raise RuntimeError(
            "as_strided on a leaf that is itself a view has no derivative here; take it from "
            "the tensor the view was made of"
        )
    storage = input._storage
    return on_storage(storage.value, storage.type, storage, None)
