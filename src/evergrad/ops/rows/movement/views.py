"""Rows that show the same elements in another shape or order: reshape, permute, expand.

All are views where strides allow it. Parts of dimensions are in
:mod:`evergrad.ops.rows.movement.slices`, what only strides can describe in
:mod:`evergrad.ops.rows.movement.strided`.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, bind_and_prepare, bind_prepared
from evergrad.core.dtypes import as_dtype, dtype
from evergrad.core.families import linear
from evergrad.core.namespace import late_bound, ops
from evergrad.core.op import TABLE, Op, prepared_calls
from evergrad.core.package_name import package_name
from evergrad.core.shapes import (
    Shape,
    TensorType,
    as_shape,
    infer_reshape,
    listed_dims,
    normalize_dim,
    normalize_dims,
    tensor_type,
)
from evergrad.core.source_location import user_stacklevel
from evergrad.core.tensor import Array, Tensor, detached
from evergrad.core.views import own_memory, viewable
from evergrad.errors import ShapeError
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad.core.types import DimsLike, DtypeLike, MemoryFormatLike

Dims = Sequence[int | None]


def shaped(x: TensorType, shape: Iterable[int]) -> TensorType:
    """The type of the same kind of elements in another shape."""
    return tensor_type(tuple(shape), x.dtype)


def to_front(x: Tensor, dim: int) -> Tensor:
    """The batch dimension first, as batching rules want it."""
    return x if dim == 0 else movedim(x, dim, 0)


# -- reshape ------------------------------------------------------------------------------------


def _batch_reshape(
    op: Op, args: Sequence[Tensor], dims: Dims, *, shape: Shape
) -> tuple[Tensor, int]:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    return reshape(x, (x._type.shape[0], *shape)), 0


def _reshape_back(g: Tensor, x: Tensor, *, shape: Shape) -> Tensor:
    return reshape(g, x._type.shape)


RESHAPE = linear(
    "reshape",
    lambda x, *, shape: x.reshape(shape),
    lambda x, *, shape: shaped(x, shape),
    _reshape_back, batch=_batch_reshape, alias="reshape", shape_generic=True, aten="view",
    doc="The same elements in another shape.",
)  # fmt: skip
RESHAPE.prepare = lambda *, shape: methodcaller("reshape", shape)


_RESHAPES = prepared_calls()
_INTS = frozenset((int,))


@late_bound
@expose(out=False)
def reshape(input: Tensor, *args: object, shape: object = None) -> Tensor:
    """Another shape; a view where the strides allow it, else a copy."""
    given = args if shape is None else (shape,)
    sizes: Any = given[0] if len(given) == 1 and isinstance(given[0], tuple) else given
    if not _INTS.issuperset(map(type, sizes)):
        target = infer_reshape(as_shape(given), input._type.numel)
        made: Tensor = bind(RESHAPE, input, shape=target)
    else:
        key = input._type, sizes
        found = _RESHAPES.get(key)
        if found is not None:
            made = bind_prepared(found, input)
        else:
            target = infer_reshape(sizes, input._type.numel)
            made = bind_and_prepare(_RESHAPES, key, RESHAPE, input, shape=target)
    return made if made._storage is input._storage else owned(made)


def view_as_is(input: Tensor) -> Tensor:
    """A new tensor on the same elements, with history."""
    return bind(RESHAPE, input, shape=input._type.shape)  # type: ignore[no-any-return]


@expose(function=False)
def view(self: Tensor, *args: object, size: object = None, dtype: DtypeLike = None) -> Tensor:
    """Another shape on the same memory, or the same bytes as another dtype."""
    if len(args) == 1 and isinstance(args[0], (dtypes.dtype, type)):
        dtype = args[0]
    if dtype is not None:
        return _view_dtype(self, as_dtype(dtype))
    sizes = as_shape(args if size is None else (size,))
    key = self._type, sizes
    found = _RESHAPES.get(key)
    if found is not None and self.layout_array().flags.c_contiguous:
        return bind_prepared(found, self)  # type: ignore[no-any-return]
    target = infer_reshape(sizes, self._type.numel)
    if not viewable(self.layout_array(), target):
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead."
        )
    return bind_and_prepare(_RESHAPES, key, RESHAPE, self, shape=target)  # type: ignore[no-any-return]


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


def _no_transpose(g: Tensor, x: Tensor, **attrs: object) -> object:
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


def owned(result: Tensor, *sources: Tensor) -> Tensor:
    """A view of memory that a function has made for its result alone, as a tensor of its own; a
    view of one of its arguments as it is."""
    storage = result._storage
    if result._view is None:
        return result
    for source in sources:
        if source._storage is storage:
            return result
    return own_memory(result)


@expose(function=False)
def contiguous(self: Tensor, memory_format: Any = None) -> Tensor:
    """Elements in row-major order, or that of a memory format: itself if they are, else a copy."""
    if self.is_contiguous(memory_format):
        return self
    order = None if memory_format is None else memory_format.order
    if order is not None:
        if len(order) != self.ndim:
            raise RuntimeError(
                f"required rank {len(order)} tensor to use {memory_format.name} format"
            )
        return permute(bind(TABLE["clone"], permute(self, order)), _inverse(order))
    return bind(TABLE["clone"], self)  # type: ignore[no-any-return]


@late_bound
@expose()
def clone(input: Tensor, *, memory_format: MemoryFormatLike = None) -> Tensor:
    """A copy in memory of its own, connected to the graph."""
    return bind(TABLE["clone"], input)  # type: ignore[no-any-return]


# -- permute ------------------------------------------------------------------------------------


def _inverse(order: Sequence[int]) -> Shape:
    return tuple(order.index(i) for i in range(len(order)))


def _batch_permute(
    op: Op, args: Sequence[Tensor], dims: Dims, *, order: Shape
) -> tuple[Tensor, int]:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    return bind(op, x, order=(0, *(i + 1 for i in order))), 0


PERMUTE: Op = linear(
    "permute",
    lambda x, *, order: x.transpose(order),
    lambda x, *, order: shaped(x, (x.shape[i] for i in order)),
    lambda g, x, *, order: bind(PERMUTE, g, order=_inverse(order)),
    batch=_batch_permute, alias="view", shape_generic=True, doc="The dimensions in another order.",
)  # fmt: skip
PERMUTE.prepare = lambda *, order: methodcaller("transpose", order)


def put_back(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """What was permuted to an order, or made in it, with the dimensions where they belong."""
    back = _inverse(order)
    return tensor if back == tuple(range(len(back))) else bind(PERMUTE, tensor, order=back)


_PERMUTATIONS = prepared_calls()


@expose(out=False)
def permute(input: Tensor, *args: object, dims: object = None) -> Tensor:
    """The dimensions in another order."""
    given = as_shape(args if dims is None else (dims,))
    key = input._type, given
    found = _PERMUTATIONS.get(key)
    if found is not None:
        return bind_prepared(found, input)  # type: ignore[no-any-return]
    rank = input.ndim
    order = tuple(normalize_dim(d, rank) for d in given)
    if sorted(order) != list(range(rank)):
        raise RuntimeError(
            f"permute(dims): dims {list(given)} must name each of the {rank} dimensions once"
        )
    return bind_and_prepare(_PERMUTATIONS, key, PERMUTE, input, order=order)  # type: ignore[no-any-return]


_TRANSPOSES = prepared_calls()


@expose("swapdims", inplace=False, out=False)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged."""
    is_plain = dim0.__class__ is int and dim1.__class__ is int
    key = input._type, dim0, dim1
    if is_plain and (found := _TRANSPOSES.get(key)) is not None:
        return bind_prepared(found, input)  # type: ignore[no-any-return]
    rank = len(input._type.shape)
    a, b = normalize_dim(dim0, rank), normalize_dim(dim1, rank)
    order = list(range(rank))
    if rank:
        order[a], order[b] = b, a
    if not is_plain:
        return bind(PERMUTE, input, order=tuple(order))  # type: ignore[no-any-return]
    return bind_and_prepare(_TRANSPOSES, key, PERMUTE, input, order=tuple(order))  # type: ignore[no-any-return]


@expose(out=False)
def swapaxes(input: Tensor, axis0: int, axis1: int) -> Tensor:
    """Two dimensions exchanged."""
    return transpose(input, axis0, axis1)


@expose(out=False)
def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and scalars as they are."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return transpose(input, 0, 1) if input.ndim == 2 else view_as_is(input)


@late_bound
@expose("moveaxis", out=False)
def movedim(input: Tensor, source: object, destination: object) -> Tensor:
    """Dimensions moved to other places, the rest in order."""
    rank = input.ndim
    sources = [normalize_dim(d, rank) for d in listed_dims(source)]
    targets = [normalize_dim(d, rank) for d in listed_dims(destination)]
    if (
        len(sources) != len(targets)
        or len(set(sources)) != len(sources)
        or len(set(targets)) != len(targets)
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
    if self.ndim not in (0, 2) and package_name() == "torch":
        warnings.warn(
            "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is "
            "deprecated and it will throw an error in a future release. Consider `x.mT` to "
            "transpose batches of matrices or `x.permute(*torch.arange(x.ndim - 1, -1, -1))` to "
            "reverse the dimensions of a tensor.",
            stacklevel=user_stacklevel(),
        )
    return bind(PERMUTE, self, order=tuple(reversed(range(self.ndim))))  # type: ignore[no-any-return]


def _adjoint(self: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    return ops.conj(_matrix_transpose(self) if self.ndim else self)


setattr(Tensor, "T", property(_all_reversed))  # noqa: B010 - declared in a stub
setattr(Tensor, "mT", property(_matrix_transpose))  # noqa: B010 - declared in a stub
setattr(Tensor, "H", property(_adjoint))  # noqa: B010 - declared in a stub
setattr(Tensor, "mH", property(_adjoint))  # noqa: B010 - declared in a stub


@expose(out=False)
def adjoint(input: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    return _adjoint(input)


# -- expand and its transpose -------------------------------------------------------------------


def broadcast_array(x: Array, shape: Shape) -> Array:
    """``np.broadcast_to`` without its overhead, and writable where the memory is."""
    lead = len(shape) - x.ndim
    own = zip(x.shape, shape[lead:], x.strides, strict=True)
    strides = (*(0,) * lead, *[0 if n == 1 and m != 1 else s for n, m, s in own])
    if x.flags.c_contiguous:
        return np.ndarray(shape, x.dtype, x, 0, strides)
    return np.lib.stride_tricks.as_strided(x, shape, strides)


def _batch_expand(
    op: Op, args: Sequence[Tensor], dims: Dims, *, shape: Shape
) -> tuple[Tensor, int]:
    x = to_front(args[0], dims[0])  # type: ignore[arg-type]
    own = x._type.shape
    x = reshape(x, (own[0],) + (1,) * (len(shape) - len(own) + 1) + own[1:])
    return bind(op, x, shape=(own[0], *shape)), 0


EXPAND = linear(
    "expand",
    lambda x, *, shape: broadcast_array(x, shape),
    lambda x, *, shape: shaped(x, shape),
    lambda g, x, *, shape: sum_to_type(g, x._type),
    batch=_batch_expand, alias="expand", shape_generic=True,
    doc="Singleton dimensions repeated without copying.",
)  # fmt: skip


_EXPANSIONS = prepared_calls()


@late_bound
@expose(function=False)
def expand(self: Tensor, *args: object, size: object = None, implicit: bool = False) -> Tensor:
    """Singleton dimensions repeated without copying; -1 keeps an extent."""
    given = as_shape(args if size is None else (size,))
    key = self._type, given
    found = _EXPANSIONS.get(key)
    if found is not None:
        return bind_prepared(found, self)  # type: ignore[no-any-return]
    target = list(given)
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
    return bind_and_prepare(_EXPANSIONS, key, EXPAND, self, shape=tuple(target))  # type: ignore[no-any-return]


@expose(method=False, out=False)
def broadcast_to(input: Tensor, size: object) -> Tensor:
    """``input.expand(size)``"""
    return expand(input, size)


setattr(Tensor, "broadcast_to", expand)  # noqa: B010 - declared in a stub


@expose(function=False)
def expand_as(self: Tensor, other: Tensor) -> Tensor:
    return expand(self, other._type.shape)


@late_bound
def sum_to_type(g: Tensor, type: TensorType) -> Tensor:
    """The transpose of broadcasting: sum what was repeated, back to the given shape."""
    shape = g._type.shape
    if shape == type.shape:
        return g
    lead = len(shape) - len(type.shape)
    dims = tuple(range(lead)) + tuple(
        i + lead for i, n in enumerate(type.shape) if n == 1 and shape[i + lead] != 1
    )
    if dims:
        g = ops.sum(g, dims, keepdim=True)
    return g if g._type.shape == type.shape else reshape(g, type.shape)


# -- shapes by name -----------------------------------------------------------------------------


_SQUEEZED = prepared_calls()


@expose(out=False)
def squeeze(input: Tensor, dim: DimsLike = None, *dims: int, axis: Any = None) -> Tensor:
    """Without singleton dimensions: all, or those named."""
    dim = axis if dim is None else dim
    is_plain = not dims and (dim is None or dim.__class__ is int)
    key = input._type, dim if is_plain else None
    if is_plain and (found := _SQUEEZED.get(key)) is not None:
        return bind_prepared(found, input)  # type: ignore[no-any-return]
    shape = input._type.shape
    rank = len(shape)
    if dim is None:
        dims = tuple(range(rank))
    else:
        given: Any = (dim, *dims) if dims else tuple(listed_dims(dim))
        dims = normalize_dims(given, rank) if given else ()
    left = tuple([n for i, n in enumerate(shape) if n != 1 or i not in dims])
    if not is_plain:
        return bind(RESHAPE, input, shape=left)  # type: ignore[no-any-return]
    return bind_and_prepare(_SQUEEZED, key, RESHAPE, input, shape=left)  # type: ignore[no-any-return]


_UNSQUEEZED = prepared_calls()


@expose(out=False)
def unsqueeze(input: Tensor, dim: int | None = None, *, axis: int | None = None) -> Tensor:
    """With a new singleton dimension at ``dim``, which NumPy calls ``axis``."""
    if dim is None:
        if axis is None:
            raise TypeError("unsqueeze() missing 1 required positional argument: 'dim'")
        dim = axis
    is_plain = dim.__class__ is int
    key = input._type, dim
    if is_plain and (found := _UNSQUEEZED.get(key)) is not None:
        return bind_prepared(found, input)  # type: ignore[no-any-return]
    shape = input._type.shape
    dim = normalize_dim(dim, len(shape) + 1)
    target = (*shape[:dim], 1, *shape[dim:])
    if not is_plain:
        return bind(RESHAPE, input, shape=target)  # type: ignore[no-any-return]
    return bind_and_prepare(_UNSQUEEZED, key, RESHAPE, input, shape=target)  # type: ignore[no-any-return]


@expose(out=False)
def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dimensions from ``start_dim`` to ``end_dim`` as one."""
    shape = input._type.shape
    start, end = normalize_dim(start_dim, len(shape)), normalize_dim(end_dim, len(shape))
    if not shape:
        return reshape(input, (1,))
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    if start == end:
        return input
    return reshape(input, (*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :]))


@expose(out=False)
def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension."""
    return reshape(input, -1)


@expose(out=False, numpy_names=True)
def unflatten(input: Tensor, dim: int, sizes: object) -> Tensor:
    """One dimension split into several."""
    shape = input._type.shape
    dim = normalize_dim(dim, len(shape))
    parts = as_shape((sizes,))
    if not parts:
        raise RuntimeError("unflatten: sizes must be non-empty")
    parts = infer_reshape(parts, shape[dim])
    return reshape(input, (*shape[:dim], *parts, *shape[dim + 1 :]))
