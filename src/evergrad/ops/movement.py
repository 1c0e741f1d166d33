"""Rows that move elements without computing: views first, then what needs a copy.

A view shares its source's memory. ``update`` is the functional form of a write through a view: the
base with the viewed part replaced, which is also how gradients pass through in-place writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import Steps, bind, cast, viewable
from evergrad.core.dtypes import dtype
from evergrad.core.families import linear, result_dtype
from evergrad.core.op import Op
from evergrad.core.shapes import (
    Shape,
    TensorType,
    as_shape,
    infer_reshape,
    normalize_dim,
    tensor_type,
)
from evergrad.core.tensor import Tensor, detached
from evergrad.errors import ShapeError
from evergrad.ops.public import expose

Dims = Sequence[int | None]


def _shaped(x: TensorType, shape: Iterable[int]) -> TensorType:
    return tensor_type(tuple(shape), x.dtype)


def to_front(x: Tensor, dim: int) -> Tensor:
    """The batch dimension first, as batching rules want it."""
    return x if dim == 0 else movedim(x, dim, 0)


# -- reshape ------------------------------------------------------------------------------------


def _batch_reshape(op: Op, args: Sequence[Tensor], dims: Dims, *, shape: Shape) -> Any:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    return reshape(x, (x._type.shape[0], *shape)), 0


RESHAPE = linear(
    "reshape",
    lambda x, *, shape: x.reshape(shape),
    lambda x, *, shape: _shaped(x, shape),
    lambda g, x, *, shape: reshape(g, x._type.shape),
    batch=_batch_reshape, alias="reshape", doc="The same elements in another shape.",
)  # fmt: skip


@expose(out=False)
def reshape(input: Tensor, *shape: Any) -> Tensor:
    """Another shape; a view where the strides allow it, else a copy."""
    target = infer_reshape(as_shape(shape), input._type.numel)
    if target == input._type.shape:
        return view_as_is(input)
    return bind(RESHAPE, input, shape=target)  # type: ignore[no-any-return]


def view_as_is(input: Tensor) -> Tensor:
    """A new tensor on the same elements, with history."""
    return bind(RESHAPE, input, shape=input._type.shape)  # type: ignore[no-any-return]


@expose(function=False)
def view(self: Tensor, *shape: Any) -> Tensor:
    """Another shape on the same memory, or the same bytes as another dtype."""
    if len(shape) == 1 and isinstance(shape[0], dtype):
        return _view_dtype(self, shape[0])
    target = infer_reshape(as_shape(shape), self._type.numel)
    if not viewable(self.layout_array(), target):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return bind(RESHAPE, self, shape=target)  # type: ignore[no-any-return]


def _bytes_type(x: TensorType, *, dtype: dtype) -> TensorType:
    old, new = x.dtype.itemsize, dtype.itemsize
    if old == new:
        return tensor_type(x.shape, dtype)
    if not x.shape:
        raise RuntimeError("self.dim() cannot be 0 to view Float as a dtype of different size")
    last = x.shape[-1] * old
    if last % new:
        raise RuntimeError(
            f"self.size(-1) must be divisible by {new // old} to view {x.dtype.name} as "
            f"{dtype.name} (different element sizes), but got {x.shape[-1]}"
        )
    return tensor_type((*x.shape[:-1], last // new), dtype)


def _no_transpose(g: Tensor, x: Tensor, **attrs: Any) -> Any:
    raise RuntimeError("the bytes of a number have no derivative: detach() before view(dtype)")


VIEW_DTYPE = linear("view_dtype", lambda x, *, dtype: x.view(dtype.np), _bytes_type, _no_transpose,
                    alias="view", doc="The same bytes read as another element type.")  # fmt: skip


def _view_dtype(x: Tensor, target: dtype) -> Tensor:
    if target is x.dtype:
        return view_as_is(x)
    return bind(VIEW_DTYPE, detached(x), dtype=target)  # type: ignore[no-any-return]


@expose(function=False)
def view_as(self: Tensor, other: Tensor) -> Tensor:
    return view(self, other._type.shape)


@expose(function=False)
def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    return reshape(self, other._type.shape)


@expose(function=False)
def contiguous(self: Tensor, memory_format: Any = None) -> Tensor:
    """Elements in row-major order: itself if they are, else a copy."""
    if self.is_contiguous():
        return self
    from evergrad.ops.elementwise import CLONE

    return bind(CLONE, self)  # type: ignore[no-any-return]


@expose()
def clone(input: Tensor, *, memory_format: Any = None) -> Tensor:
    """A copy in memory of its own, connected to the graph."""
    from evergrad.ops.elementwise import CLONE

    return bind(CLONE, input)  # type: ignore[no-any-return]


# -- permute ------------------------------------------------------------------------------------


def _inverse(order: Shape) -> Shape:
    return tuple(order.index(i) for i in range(len(order)))


def _batch_permute(op: Op, args: Sequence[Tensor], dims: Dims, *, order: Shape) -> Any:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    return bind(op, x, order=(0, *(i + 1 for i in order))), 0


PERMUTE = linear(
    "permute",
    lambda x, *, order: x.transpose(order),
    lambda x, *, order: _shaped(x, (x.shape[i] for i in order)),
    lambda g, x, *, order: bind(PERMUTE, g, order=_inverse(order)),
    batch=_batch_permute, alias="view", doc="The dimensions in another order.",
)  # fmt: skip


@expose(out=False)
def permute(input: Tensor, *dims: Any) -> Tensor:
    """The dimensions in another order."""
    rank = input.ndim
    order = tuple(normalize_dim(d, rank) for d in as_shape(dims))
    if sorted(order) != list(range(rank)):
        raise RuntimeError(
            f"permute(dims): dims {list(dims)} must name each of the {rank} dimensions once"
        )
    return bind(PERMUTE, input, order=order)  # type: ignore[no-any-return]


@expose("swapaxes", "swapdims", inplace=False, out=False)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    rank = input.ndim
    a, b = normalize_dim(dim0, rank), normalize_dim(dim1, rank)
    order = list(range(rank))
    if rank:
        order[a], order[b] = b, a
    return bind(PERMUTE, input, order=tuple(order))  # type: ignore[no-any-return]


@expose(out=False)
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and scalars as they are."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return transpose(input, 0, 1) if input.ndim == 2 else view_as_is(input)


@expose("moveaxis", out=False)
def movedim(input: Tensor, source: Any, destination: Any) -> Tensor:
    """Dimensions moved to other places, the rest in order."""
    rank = input.ndim
    sources = [source] if isinstance(source, int) else list(source)
    targets = [destination] if isinstance(destination, int) else list(destination)
    sources = [normalize_dim(d, rank) for d in sources]
    targets = [normalize_dim(d, rank) for d in targets]
    if len(sources) != len(targets) or len(set(sources)) != len(sources) or (
        len(set(targets)) != len(targets)
    ):
        raise RuntimeError("movedim: source and destination must be equally many distinct dims")
    if not rank:
        return view_as_is(input)
    rest = iter(i for i in range(rank) if i not in sources)
    order = [sources[targets.index(i)] if i in targets else next(rest) for i in range(rank)]
    return bind(PERMUTE, input, order=tuple(order))  # type: ignore[no-any-return]


def _matrix_transpose(self: Tensor) -> Tensor:
    """The last two dimensions exchanged."""
    if self.ndim < 2:
        raise RuntimeError(
            f"tensor.mT is only supported on matrices or batches of matrices. Got {self.ndim}-D "
            "tensor."
        )
    return transpose(self, -2, -1)


def _all_reversed(self: Tensor) -> Tensor:
    """The dimensions in reverse order."""
    return bind(PERMUTE, self, order=tuple(reversed(range(self.ndim))))  # type: ignore[no-any-return]


def _adjoint(self: Tensor) -> Tensor:
    from evergrad.ops.elementwise import conj

    return conj(_matrix_transpose(self) if self.ndim else self)


Tensor.T = property(_all_reversed)  # type: ignore[attr-defined]
Tensor.mT = property(_matrix_transpose)  # type: ignore[attr-defined]
Tensor.H = property(_adjoint)  # type: ignore[attr-defined]
Tensor.mH = property(_adjoint)  # type: ignore[attr-defined]


@expose(out=False)
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    return _adjoint(input)


# -- expand and its transpose -------------------------------------------------------------------


def broadcast_array(x: Any, shape: Shape) -> Any:
    """``np.broadcast_to`` without its overhead, and writable where the memory is."""
    lead = len(shape) - x.ndim
    strides = (0,) * lead + tuple(
        0 if n == 1 and m != 1 else s for n, m, s in zip(x.shape, shape[lead:], x.strides, strict=True)
    )
    if x.flags.c_contiguous:
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def _batch_expand(op: Op, args: Sequence[Tensor], dims: Dims, *, shape: Shape) -> Any:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    own = x._type.shape
    x = reshape(x, (own[0],) + (1,) * (len(shape) - len(own) + 1) + own[1:])
    return bind(op, x, shape=(own[0], *shape)), 0


EXPAND = linear(
    "expand",
    lambda x, *, shape: broadcast_array(x, shape),
    lambda x, *, shape: _shaped(x, shape),
    lambda g, x, *, shape: sum_to_type(g, x._type),
    batch=_batch_expand, alias="expand", doc="Singleton dimensions repeated without copying.",
)  # fmt: skip


@expose(function=False)
def expand(self: Tensor, *shape: Any) -> Tensor:
    """Singleton dimensions repeated without copying; -1 keeps an extent."""
    target = list(as_shape(shape))
    own = self._type.shape
    lead = len(target) - len(own)
    if lead < 0:
        raise RuntimeError(
            f"expand({list(own)}, size={target}): the number of sizes provided ({len(target)}) "
            f"must be greater or equal to the number of dimensions in the tensor ({len(own)})"
        )
    for i, extent in enumerate(target):
        have = own[i - lead] if i >= lead else None
        if extent == -1:
            if have is None:
                raise RuntimeError(
                    f"expand({list(own)}, size={target}): -1 is not allowed in a leading, "
                    "non-existing dimension"
                )
            target[i] = have
        elif have is not None and have != 1 and have != extent:
            raise ShapeError(
                f"The expanded size of the tensor ({extent}) must match the existing size ({have}) "
                f"at non-singleton dimension {i}.  Target sizes: {target}.  Tensor sizes: "
                f"{list(own)}"
            )
    return bind(EXPAND, self, shape=tuple(target))  # type: ignore[no-any-return]


@expose(method=False, out=False)
def broadcast_to(input: Tensor, size: Any) -> Tensor:
    """``input.expand(size)``"""
    return expand(input, size)


Tensor.broadcast_to = expand  # type: ignore[attr-defined]


@expose(function=False)
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    return expand(self, other._type.shape)


def sum_to_type(g: Tensor, type: TensorType) -> Tensor:
    """The transpose of broadcasting: sum what was repeated, back to the given shape."""
    shape = g._type.shape
    if shape == type.shape:
        return g
    from evergrad.ops.reduce import sum as total

    lead = len(shape) - len(type.shape)
    dims = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(type.shape) if n == 1 and shape[i + lead] != 1
    )
    if dims:
        g = total(g, dims, keepdim=True)
    return g if g._type.shape == type.shape else reshape(g, type.shape)


# -- slices -------------------------------------------------------------------------------------
# One row for all of basic indexing with steps: for each dimension (start, stop, step) with step > 0,
# or a single index, which drops the dimension. Dimensions not mentioned at the end stay whole.

Slices = tuple[tuple[int, int, int] | int, ...]


def _slice_type(x: TensorType, *, slices: Slices) -> TensorType:
    cut = [max(0, -((s[0] - s[1]) // s[2])) for s in slices if isinstance(s, tuple)]
    return _shaped(x, (*cut, *x.shape[len(slices) :]))


def numpy_index(slices: Slices) -> tuple[Any, ...]:
    """The slices as NumPy takes them; the ellipsis makes even a single element a view."""
    return (*[slice(*s) if isinstance(s, tuple) else s for s in slices], ...)


def _slice_eval(x: Any, *, slices: Slices) -> Any:
    return x[numpy_index(slices)]


def _slice_transpose(g: Tensor, x: Tensor, *, slices: Slices) -> Tensor:
    return bind(PAD_SLICE, g, slices=slices, shape=x._type.shape)  # type: ignore[no-any-return]


def _whole(x: Tensor) -> tuple[int, int, int]:
    return (0, x._type.shape[0], 1)


def _batch_slice(op: Op, args: Sequence[Tensor], dims: Dims, *, slices: Slices) -> Any:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    return bind(op, x, slices=(_whole(x), *slices)), 0


SLICE = linear("slice", _slice_eval, _slice_type, _slice_transpose, batch=_batch_slice,
               alias="view", doc="A regular part of each dimension.")  # fmt: skip


def _pad_slice_eval(g: Any, *, slices: Slices, shape: Shape) -> Any:
    out = np.zeros(shape, g.dtype)
    out[numpy_index(slices)] = g
    return out


def _batch_pad_slice(
    op: Op, args: Sequence[Tensor], dims: Dims, *, slices: Slices, shape: Shape
) -> Any:
    g = to_front(args[0], dims[0])  # type: ignore[arg-type]
    return bind(op, g, slices=(_whole(g), *slices), shape=(g._type.shape[0], *shape)), 0


PAD_SLICE = linear(
    "pad_slice", _pad_slice_eval,
    lambda g, *, slices, shape: _shaped(g, shape),
    lambda g, x, *, slices, shape: bind(SLICE, g, slices=slices),
    batch=_batch_pad_slice, doc="Zeros with the argument laid into a regular part: slice's transpose.",
)  # fmt: skip
PAD_SLICE.lays = lambda *, slices, shape: numpy_index(slices)


def slice_dim(x: Tensor, dim: int, start: int, stop: int, step: int = 1) -> Tensor:
    """A part of one dimension, all of the others; bounds are already in range."""
    slices = tuple(
        (start, stop, step) if i == dim else (0, n, 1) for i, n in enumerate(x._type.shape)
    )
    return bind(SLICE, x, slices=slices)  # type: ignore[no-any-return]


@expose(out=False)
def narrow(input: Tensor, dim: int, start: Any, length: int) -> Tensor:
    """``length`` elements of one dimension from ``start`` on."""
    if not input.ndim:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, input.ndim)
    extent = input._type.shape[dim]
    start = int(start)
    if not -extent <= start <= extent:
        raise IndexError(
            f"start out of range (expected to be in range of [{-extent}, {extent}], but got {start})"
        )
    start = start + extent if start < 0 else start
    if length < 0 or start + length > extent:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({extent})."
        )
    return slice_dim(input, dim, start, start + length)


@expose(out=False)
def select(input: Tensor, dim: int, index: int) -> Tensor:
    """One index of one dimension, which disappears."""
    if not input.ndim:
        raise IndexError("select() cannot be applied to a 0-dim tensor.")
    dim = normalize_dim(dim, input.ndim)
    shape = input._type.shape
    extent = shape[dim]
    index = int(index)
    if not -extent <= index < extent:
        raise IndexError(
            f"select(): index {index} out of range for tensor of size {list(shape)} at dimension "
            f"{dim}"
        )
    index %= extent
    slices = tuple(index if i == dim else (0, n, 1) for i, n in enumerate(shape))
    return bind(SLICE, input, slices=slices)  # type: ignore[no-any-return]


# -- shapes by name -----------------------------------------------------------------------------


@expose(inplace=False, out=False)
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """Without singleton dimensions: all, or those named."""
    shape = input._type.shape
    rank = len(shape)
    if dim is None:
        dims = tuple(range(rank))
    else:
        given = (dim,) if isinstance(dim, int) else tuple(dim)
        dims = tuple(normalize_dim(d, rank) for d in given)
    return reshape(input, tuple(n for i, n in enumerate(shape) if not (i in dims and n == 1)))


@expose(out=False)
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a new singleton dimension at ``dim``."""
    shape = input._type.shape
    dim = normalize_dim(dim, len(shape) + 1)
    return reshape(input, (*shape[:dim], 1, *shape[dim:]))


@expose(out=False)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from ``start_dim`` to ``end_dim`` as one."""
    shape = input._type.shape
    if not shape:
        return reshape(input, (1,))
    start, end = normalize_dim(start_dim, len(shape)), normalize_dim(end_dim, len(shape))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end:
        return input
    return reshape(input, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@expose(out=False)
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension."""
    return reshape(input, -1)


@expose(out=False)
def unflatten(input: Tensor, dim: int, sizes: Any) -> Tensor:
    """One dimension split into several."""
    shape = input._type.shape
    dim = normalize_dim(dim, len(shape))
    parts = infer_reshape(as_shape((sizes,)), shape[dim])
    return reshape(input, (*shape[:dim], *parts, *shape[dim + 1 :]))


# -- diagonal, unfold, as_strided ---------------------------------------------------------------


def _diagonal_length(rows: int, columns: int, offset: int) -> int:
    return max(0, min(rows, columns - offset) if offset >= 0 else min(rows + offset, columns))


def _diagonal_type(x: TensorType, *, offset: int, dim1: int, dim2: int) -> TensorType:
    rest = [n for i, n in enumerate(x.shape) if i not in (dim1, dim2)]
    return _shaped(x, (*rest, _diagonal_length(x.shape[dim1], x.shape[dim2], offset)))


def _diagonal_eval(x: Any, *, offset: int, dim1: int, dim2: int) -> Any:
    found = x.diagonal(offset, dim1, dim2)
    found.flags.writeable = x.flags.writeable
    return found


def _batch_diagonal(
    op: Op, args: Sequence[Tensor], dims: Dims, *, offset: int, dim1: int, dim2: int, **rest: Any
) -> Any:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    if rest:
        rest = {"shape": (x._type.shape[0], *rest["shape"])}
    return bind(op, x, offset=offset, dim1=dim1 + 1, dim2=dim2 + 1, **rest), 0


DIAGONAL = linear(
    "diagonal", _diagonal_eval, _diagonal_type,
    lambda g, x, **attrs: bind(DIAGONAL_SCATTER, g, **attrs, shape=x._type.shape),
    batch=_batch_diagonal, alias="view", doc="A diagonal of two dimensions, as the last one.",
)  # fmt: skip


def _diagonal_scatter_eval(g: Any, *, offset: int, dim1: int, dim2: int, shape: Shape) -> Any:
    out = np.zeros(shape, g.dtype)
    _diagonal_eval(out, offset=offset, dim1=dim1, dim2=dim2)[...] = g
    return out


DIAGONAL_SCATTER = linear(
    "diagonal_embed", _diagonal_scatter_eval,
    lambda g, *, offset, dim1, dim2, shape: _shaped(g, shape),
    lambda g, x, *, offset, dim1, dim2, shape: bind(DIAGONAL, g, offset=offset, dim1=dim1, dim2=dim2),
    batch=_batch_diagonal, doc="Zeros with a diagonal laid in: diagonal's transpose.",
)  # fmt: skip


@expose(out=False)
def diagonal(input: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """A diagonal of two dimensions, as the last dimension of a view."""
    rank = input.ndim
    a, b = normalize_dim(dim1, rank), normalize_dim(dim2, rank)
    if a == b:
        raise RuntimeError(f"diagonal dimensions cannot be identical {dim1}, {dim2}")
    return bind(DIAGONAL, input, offset=offset, dim1=a, dim2=b)  # type: ignore[no-any-return]


def _unfold_type(x: TensorType, *, dim: int, size: int, step: int) -> TensorType:
    count = (x.shape[dim] - size) // step + 1
    return _shaped(x, (*x.shape[:dim], count, *x.shape[dim + 1 :], size))


def _unfold_eval(x: Any, *, dim: int, size: int, step: int) -> Any:
    count = (x.shape[dim] - size) // step + 1
    shape = (*x.shape[:dim], count, *x.shape[dim + 1 :], size)
    strides = (*x.strides[:dim], x.strides[dim] * step, *x.strides[dim + 1 :], x.strides[dim])
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def _fold_eval(g: Any, *, dim: int, size: int, step: int, shape: Shape) -> Any:
    out = np.zeros(shape, g.dtype)
    lanes = np.moveaxis(out, dim, -1)
    windows = np.moveaxis(g, dim, -2)
    count = windows.shape[-2]
    for k in range(size):  # each offset in the window touches distinct elements
        lanes[..., k : k + (count - 1) * step + 1 : step] += windows[..., k]
    return out


def _batch_unfold(
    op: Op, args: Sequence[Tensor], dims: Dims, *, dim: int, size: int, step: int, **rest: Any
) -> Any:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    if rest:
        rest = {"shape": (x._type.shape[0], *rest["shape"])}
    return bind(op, x, dim=dim + 1, size=size, step=step, **rest), 0


UNFOLD = linear(
    "unfold_dim", _unfold_eval, _unfold_type,
    lambda g, x, **attrs: bind(FOLD, g, **attrs, shape=x._type.shape),
    batch=_batch_unfold, alias="expand", doc="Sliding windows of one dimension, as the last one.",
)  # fmt: skip
FOLD = linear(
    "fold_dim", _fold_eval,
    lambda g, *, dim, size, step, shape: _shaped(g, shape),
    lambda g, x, *, dim, size, step, shape: bind(UNFOLD, g, dim=dim, size=size, step=step),
    batch=_batch_unfold, upcast=True, doc="Overlapping windows added up: unfold's transpose.",
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
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")
    return bind(UNFOLD, self, dim=dim, size=size, step=step)  # type: ignore[no-any-return]


def _as_strided_eval(x: Any, *, size: Shape, stride: Shape, offset: int, base_stride: Shape) -> Any:
    if x.size > 1 and x.strides != tuple(s * x.itemsize for s in base_stride):
        x = _laid_out(x, base_stride)
    start = np.lib.stride_tricks.as_strided(x, (offset + 1,), (x.itemsize,))[offset:]
    return np.lib.stride_tricks.as_strided(start, size, tuple(s * x.itemsize for s in stride))


def _laid_out(x: Any, stride: Shape) -> Any:
    """A copy whose elements stand in memory as the strides say."""
    reach = 1 + sum((n - 1) * s for n, s in zip(x.shape, stride, strict=True))
    memory = np.zeros(reach, x.dtype)
    laid = np.lib.stride_tricks.as_strided(memory, x.shape, tuple(s * x.itemsize for s in stride))
    laid[...] = x
    return laid


def _places(shape: Shape, stride: Shape, offset: int) -> Tensor:
    """The position in memory of each element, as one long vector."""
    from evergrad.ops.creation import arange, zeros

    total = zeros((), dtype=dtypes.int64) + offset
    for i, (extent, step) in enumerate(zip(shape, stride, strict=True)):
        along = arange(extent) * step
        total = total + reshape(along, (extent,) + (1,) * (len(shape) - i - 1))
    return reshape(expand(total, shape), -1)


def _as_strided_transpose(
    g: Tensor, x: Tensor, *, size: Shape, stride: Shape, offset: int, base_stride: Shape
) -> Tensor:
    from evergrad.ops.creation import zeros
    from evergrad.ops.indexing import index_add, index_select

    reach = 1 + sum((n - 1) * s for n, s in zip(x._type.shape, base_stride, strict=True) if n)
    if 0 in x._type.shape or 0 in size:
        return zeros(x._type.shape, dtype=g.dtype)
    memory = zeros(reach, dtype=g.dtype)
    memory = index_add(memory, 0, _places(size, stride, offset), reshape(g, -1))
    own = index_select(memory, 0, _places(x._type.shape, base_stride, 0))
    return reshape(own, x._type.shape)


AS_STRIDED = linear(
    "as_strided", _as_strided_eval,
    lambda x, *, size, stride, offset, base_stride: _shaped(x, size),
    _as_strided_transpose, alias="expand", doc="Any strided look at a storage.",
)  # fmt: skip


@expose(out=False)
def as_strided(input: Tensor, size: Any, stride: Any, storage_offset: int | None = None) -> Tensor:
    """A view of the whole storage with the given sizes and strides."""
    size, stride = as_shape((size,)), as_shape((stride,))
    if len(size) != len(stride):
        raise RuntimeError(f"mismatch in length of strides and shape: {size} and {stride}")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported: {list(stride)}")
    offset = input.storage_offset() if storage_offset is None else storage_offset
    base = input
    if input._view is not None and not _spans_storage(input):
        if input._view.base is None or input._view.base._view is not None:
            base = _storage_handle(input)
        else:
            base = input._view.base
    layout = base.layout_array()
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if 0 not in size and (offset < 0 or last >= base._type.numel):
        raise RuntimeError(
            f"setStorage: sizes {list(size)}, strides {list(stride)}, storage offset {offset} "
            f"require {last + 1} elements, but the storage has {base._type.numel}"
        )
    base_stride = tuple(s // layout.itemsize for s in layout.strides)
    return bind(  # type: ignore[no-any-return]
        AS_STRIDED, base, size=size, stride=stride, offset=offset, base_stride=base_stride
    )


def _spans_storage(input: Tensor) -> bool:
    """Whether a view shows its whole storage in order, and so can stand for it."""
    return input.is_contiguous() and input._type.numel == input._storage.type.numel


def _storage_handle(input: Tensor) -> Tensor:
    if input.requires_grad:
        raise RuntimeError(
            "as_strided on a leaf that is itself a view has no derivative here; take it from "
            "the tensor the view was made of"
        )
    from evergrad.core.tensor import on_storage

    storage = input._storage
    return on_storage(storage.value, storage.type, storage, None)


# -- complex as pairs ---------------------------------------------------------------------------


def _batch_front(op: Op, args: Sequence[Tensor], dims: Dims, **attrs: Any) -> Any:
    return bind(op, to_front(args[0], dims[0]), **attrs), 0  # type: ignore[arg-type]


VIEW_AS_REAL = linear(
    "view_as_real",
    lambda z: np.lib.stride_tricks.as_strided(z.real, (*z.shape, 2), (*z.strides, z.itemsize // 2)),
    lambda z: tensor_type((*z.shape, 2), z.dtype.to_real()),
    lambda g, z: view_as_complex(g),
    batch=_batch_front, alias="view", doc="Complex numbers as pairs of real ones.",
)  # fmt: skip
VIEW_AS_COMPLEX = linear(
    "view_as_complex", lambda x: _pairs_as_complex(x),
    lambda x: tensor_type(x.shape[:-1], x.dtype.to_complex()),
    lambda g, x: view_as_real(g),
    batch=lambda op, args, dims: (bind(op, contiguous(to_front(args[0], dims[0]))), 0),
    alias="view", doc="Pairs of real numbers as complex ones.",
)  # fmt: skip


def _pairs_as_complex(x: Any) -> Any:
    kind = np.dtype(np.complex64 if x.dtype == np.float32 else np.complex128)
    if 0 in x.shape:
        return np.zeros(x.shape[:-1], kind)
    if x.strides[-1] != x.itemsize:  # a cotangent; what users give has been checked
        x = np.ascontiguousarray(x)
    return x.view(kind).reshape(x.shape[:-1], copy=False)


@expose(method=False, out=False)
def view_as_real(input: Tensor) -> Tensor:
    """Complex numbers as a last dimension of (real, imaginary)."""
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return bind(VIEW_AS_REAL, input)  # type: ignore[no-any-return]


@expose(method=False, out=False)
def view_as_complex(input: Tensor) -> Tensor:
    """A last dimension of (real, imaginary) as complex numbers."""
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(
            f"view_as_complex is only supported for floating point tensors, but got a tensor of "
            f"scalar type: {input.dtype.name}"
        )
    if not input.ndim or input._type.shape[-1] != 2:
        raise RuntimeError("Tensor must have a last dimension of size 2")
    if input.layout_array().strides[-1] != input.itemsize:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    return bind(VIEW_AS_COMPLEX, input)  # type: ignore[no-any-return]


def _part_type(z: TensorType) -> TensorType:
    return tensor_type(z.shape, z.dtype.to_real())


REAL = linear("real", lambda z: z.real, _part_type, lambda g, z: cast(g, z.dtype),
              batch=_batch_front, alias="view", doc="The real part.")  # fmt: skip
IMAG = linear("imag", lambda z: z.imag, _part_type, lambda g, z: cast(g, z.dtype) * 1j,
              batch=_batch_front, alias="view", doc="The imaginary part.")  # fmt: skip


@expose(method=False, out=False)
def real(input: Tensor) -> Tensor:
    """The real part as a view; real tensors as they are."""
    return bind(REAL, input) if input.dtype.is_complex else input  # type: ignore[no-any-return]


@expose(method=False, out=False)
def imag(input: Tensor) -> Tensor:
    """The imaginary part as a view."""
    if not input.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return bind(IMAG, input)  # type: ignore[no-any-return]


Tensor.real = property(real)  # type: ignore[attr-defined]
Tensor.imag = property(imag)  # type: ignore[attr-defined]


# -- a write, as a function ---------------------------------------------------------------------


def _update_eval(base: Any, value: Any, *, steps: Steps) -> Any:
    out = base.copy(order="K")
    part = out
    for op, attrs in steps.steps:
        part = op.eval(part, **attrs)
    part[...] = value
    return out


def _update_transpose(g: Tensor, base: Tensor, value: Tensor, *, steps: Steps) -> Any:
    from evergrad.ops.creation import zeros_like

    part = g
    for op, attrs in steps.steps:
        part = bind(op, part, **attrs)
    return bind(UPDATE, g, zeros_like(value), steps=steps), part


def _batch_update(op: Op, args: Sequence[Tensor], dims: Dims, *, steps: Steps) -> Any:
    """Batch the steps by running them, batched, on positions, and write there."""
    from evergrad.ops.creation import arange
    from evergrad.ops.indexing import index_copy

    base, value = args
    size = next(a._type.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    base = expand(base, (size, *base._type.shape)) if dims[0] is None else to_front(base, dims[0])
    value = (
        expand(value, (size, *value._type.shape)) if dims[1] is None else to_front(value, dims[1])
    )
    count = math.prod(base._type.shape[1:])
    places = reshape(arange(count), base._type.shape[1:])
    for step, attrs in steps.steps:
        places = bind(step, places, **attrs)
    flat = reshape(base, (size, count))
    written = index_copy(flat, 1, reshape(places, -1), reshape(value, (size, -1)))
    return reshape(written, base._type.shape), 0


UPDATE = linear("update", _update_eval, lambda base, value, *, steps: base, _update_transpose,
                batch=_batch_update, doc="The base with a viewed part replaced.")  # fmt: skip


# -- joining ------------------------------------------------------------------------------------


def _cat_type(*xs: TensorType, dim: int) -> TensorType:
    first = xs[0]
    total = 0
    for i, x in enumerate(xs):
        if len(x.shape) != len(first.shape):
            raise RuntimeError(
                f"Tensors must have same number of dimensions: got {len(first.shape)} and "
                f"{len(x.shape)}"
            )
        for d, (n, m) in enumerate(zip(first.shape, x.shape, strict=True)):
            if d != dim and n != m:
                raise ShapeError(
                    f"Sizes of tensors must match except in dimension {dim}. Expected size {n} but "
                    f"got size {m} for tensor number {i} in the list."
                )
        total += x.shape[dim]
    return _shaped(first, (*first.shape[:dim], total, *first.shape[dim + 1 :]))


def _cat_transpose(g: Tensor, *xs: Tensor, dim: int) -> tuple[Tensor, ...]:
    parts, start = [], 0
    for x in xs:
        stop = start + x._type.shape[dim]
        parts.append(slice_dim(g, dim, start, stop))
        start = stop
    return tuple(parts)


def _batch_cat(op: Op, args: Sequence[Tensor], dims: Dims, *, dim: int) -> Any:
    size = next(a._type.shape[d] for a, d in zip(args, dims, strict=True) if d is not None)
    fronted = [
        expand(a, (size, *a._type.shape)) if d is None else to_front(a, d)
        for a, d in zip(args, dims, strict=True)
    ]
    return bind(op, *fronted, dim=dim + 1), 0


def _cat_eval(*xs: Any, dim: int) -> Any:
    return np.concatenate(xs, dim)


CAT = linear("cat", _cat_eval, _cat_type, _cat_transpose, batch=_batch_cat,
             doc="Tensors one after the other.")  # fmt: skip


def _together(name: str, tensors: Any) -> list[Tensor]:
    tensors = list(tensors)
    if not tensors:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):
            raise TypeError(
                f"{name}(): expected Tensor as element {i} in argument 0, but got "
                f"{type(x).__name__}"
            )
    common = result_dtype([x._type for x in tensors])
    return [cast(x, common) for x in tensors]


@expose("concat", "concatenate", method=False, numpy_names=True)
def cat(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors one after the other along a dimension."""
    parts = _together("cat", tensors)
    rank = max(x.ndim for x in parts)
    if any(not x.ndim for x in parts):
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    dim = normalize_dim(dim, rank)
    kept = [x for x in parts if x._type.shape != (0,) or rank == 1]  # as PyTorch has always done
    return bind(CAT, *kept, dim=dim)  # type: ignore[no-any-return]


@expose(method=False)
def stack(tensors: Any, dim: int = 0) -> Tensor:
    """Tensors of one shape along a new dimension."""
    parts = _together("stack", tensors)
    for i, x in enumerate(parts):
        if x._type.shape != parts[0]._type.shape:
            raise ShapeError(
                f"stack expects each tensor to be equal size, but got {list(parts[0]._type.shape)} "
                f"at entry 0 and {list(x._type.shape)} at entry {i}"
            )
    dim = normalize_dim(dim, parts[0].ndim + 1)
    return bind(CAT, *[unsqueeze(x, dim) for x in parts], dim=dim)  # type: ignore[no-any-return]
