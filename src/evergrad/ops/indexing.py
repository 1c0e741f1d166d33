"""Reading and writing at indices and under masks, by function.

``x[...]`` itself is in :mod:`evergrad.ops.getitem`. What depends on the values of a mask
(``nonzero``, ``masked_select``) reads the array, then goes through the same rows as an index would.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast, write_in_place
from evergrad.core.dtypes import dtype
from evergrad.core.op import Op
from evergrad.core.shapes import Shape, broadcast_shapes, normalize_dim
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.trace import Var
from evergrad.errors import ShapeError
from evergrad.ops.elementwise import WHERE, where
from evergrad.ops.index_rows import EMBEDDING, INDEX, INDEX_ADD, INDEX_COPY
from evergrad.ops.movement import SLICE, clone, expand, reshape
from evergrad.ops.public import NUMBERS, expose
from evergrad.ops.scatter_rows import GATHER, SCATTER, SCATTER_ADD, SCATTER_REDUCE

# What a write is made of: the row, its operands (the target first), its attributes.
Write = tuple[Op, tuple[Any, ...], dict[str, Any]]


def _writing(prepare: Callable[..., Write]) -> Callable[..., Tensor]:
    """Make a prepared write public: as function and method, and in place without a copy."""
    name = prepare.__name__

    @functools.wraps(prepare)
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        op, operands, attrs = prepare(input, *args, **kwargs)
        written: Tensor = bind(op, *operands, **attrs)
        same = written._type.shape == input._type.shape
        return written if same else reshape(written, input._type.shape)

    def in_place(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        op, operands, attrs = prepare(self, *args, **kwargs)
        write_in_place(op, *operands, **attrs)
        return self

    in_place.__name__ = in_place.__qualname__ = name + "_"
    in_place.__doc__ = f"In-place form of ``{name}``."
    setattr(Tensor, name + "_", in_place)
    return expose(numpy_names=True)(function)


# -- arguments ----------------------------------------------------------------------------------


def number_as(value: Any, target: dtype) -> Any:
    """A number as one of this type; one that does not fit is refused, a fraction is cut off."""
    value = value.item() if isinstance(value, np.generic) else value
    if target.is_complex:
        return value
    refusal = RuntimeError(f"value cannot be converted to type {target.name} without overflow")
    if isinstance(value, complex):
        raise refusal
    if target.is_floating_point:
        return value
    if target is dtypes.bool_:
        return bool(value)
    try:
        value = int(value)
    except (OverflowError, ValueError):
        raise refusal from None
    limits = np.iinfo(target.np)
    if not min(limits.min, -limits.max) <= value <= limits.max:
        raise refusal
    return value


def _at_least_1d(x: Tensor) -> Tensor:
    return x if x.ndim else reshape(x, (1,))


def _require_index(name: str, index: Any, *, int32: bool = True, vector: bool = True) -> Tensor:
    if not isinstance(index, Tensor):
        raise TypeError(f"{name}(): argument 'index' must be Tensor, not {type(index).__name__}")
    if index.dtype is not dtypes.int64 and not (int32 and index.dtype is dtypes.int32):
        wanted = "int32 or int64" if int32 else "int64"
        raise RuntimeError(
            f"{name}(): Expected dtype {wanted} for index, but got {index.dtype.name}"
        )
    if vector and index.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} with size: "
            f"{list(index._type.shape)}"
        )
    return _at_least_1d(index) if vector else index


def _require_dtype(name: str, input: Tensor, source: Any) -> None:
    if not isinstance(source, Tensor):
        raise TypeError(f"{name}(): the source must be Tensor, not {type(source).__name__}")
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype.name} and (source) {source.dtype.name}"
        )


def _vector_write(
    name: str, op: Op, input: Tensor, dim: int, index: Tensor, source: Tensor
) -> Write:
    """A write of whole slices: ``source`` has one for each index."""
    _require_dtype(name, input, source)
    if source.ndim != input.ndim:
        raise IndexError(
            f"{name}(): When source and destination are not scalars, their dimensionality must "
            f"match. Source dimensionality ({source.ndim}), destination dimensionality "
            f"({input.ndim})"
        )
    dim = normalize_dim(dim, input.ndim)
    target, source = _at_least_1d(input), _at_least_1d(source)
    count = source._type.shape[dim]
    if count != index._type.numel:
        raise IndexError(
            f"{name}(): Number of indices ({index._type.numel}) should be equal to "
            f"source.size(dim) ({count}) for dim {dim}"
        )
    shape = target._type.shape
    if source._type.shape != (*shape[:dim], count, *shape[dim + 1 :]):
        raise ShapeError(
            f"{name}(): source tensor shape must match self tensor shape, excluding the specified "
            f"dimension. Got self.shape = {list(shape)} source.shape = {list(source._type.shape)}"
        )
    return op, (target, source, index), {"start": dim, "wrap": False}


# -- whole slices by number ---------------------------------------------------------------------


@expose(numpy_names=True)
def index_select(input: Tensor, dim: int, index: Tensor) -> Tensor:
    """The slices of a dimension with the given numbers."""
    index = _require_index("index_select", index)
    dim = normalize_dim(dim, input.ndim)
    if input.ndim:
        return bind(INDEX, input, index, start=dim, wrap=False)  # type: ignore[no-any-return]
    if index._type.numel != 1:
        raise RuntimeError(
            f"index_select(): Index to scalar can have only 1 value, got {index._type.numel} "
            "value(s)"
        )
    return reshape(bind(INDEX, reshape(input, (1,)), index, start=0, wrap=False), ())


@_writing
def index_add(input: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> Write:
    """``alpha * source`` added, slice by slice, to the slices with the given numbers."""
    index = _require_index("index_add_", index)
    if not (alpha.__class__ in NUMBERS and alpha == 1):
        source = source * number_as(alpha, source.dtype)
    return _vector_write("index_add_", INDEX_ADD, input, dim, index, source)


@_writing
def index_copy(input: Tensor, dim: int, index: Tensor, source: Tensor) -> Write:
    """The slices with the given numbers replaced by those of ``source``."""
    index = _require_index("index_copy_", index, int32=False)
    return _vector_write("index_copy_", INDEX_COPY, input, dim, index, source)


@_writing
def index_fill(input: Tensor, dim: int, index: Tensor, value: Any) -> Write:
    """The slices with the given numbers filled with one number."""
    index = _require_index("index_fill_", index, int32=False)
    value = _fill_value("index_fill_", input, value)
    dim = normalize_dim(dim, input.ndim)
    return INDEX_COPY, (_at_least_1d(input), value, index), {"start": dim, "wrap": True}


def _fill_value(name: str, input: Tensor, value: Any) -> Any:
    if not isinstance(value, Tensor):
        return number_as(value, input.dtype)
    if value.ndim:
        raise RuntimeError(
            f"{name} only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    return cast(value, input.dtype)


@expose(inplace=True, numpy_names=True)
def index_reduce(
    input: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *,
    include_self: bool = True,
) -> Tensor:  # fmt: skip
    """The slices with the given numbers folded with those of ``source``."""
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(
            "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got "
            f"{reduce}."
        )
    index = _require_index("index_reduce", index)
    _, (target, source, index), attrs = _vector_write(
        "index_reduce", INDEX_ADD, input, dim, index, source
    )
    dim = attrs["start"]
    along = (1,) * dim + index._type.shape + (1,) * (target.ndim - dim - 1)
    places = expand(reshape(index, along), source._type.shape)
    folded = scatter_reduce(target, dim, places, source, reduce, include_self=include_self)
    return reshape(folded, input._type.shape)


@expose(method=False, out=False)
def embedding(
    weight: Tensor, indices: Tensor, padding_idx: int = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:  # fmt: skip
    """Rows of a table. The row ``padding_idx`` gets no gradient; gradients are always dense."""
    if weight.ndim != 2:
        raise RuntimeError("'weight' must be 2-D")
    indices = _require_index("embedding", indices, vector=False)
    if padding_idx < 0 and not scale_grad_by_freq:
        return bind(INDEX, weight, indices, start=0, wrap=False)  # type: ignore[no-any-return]
    return bind(  # type: ignore[no-any-return]
        EMBEDDING, weight, indices, padding_idx=padding_idx, by_frequency=bool(scale_grad_by_freq)
    )


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """A last dimension that is 1 at the place the number names and 0 elsewhere."""
    from evergrad.ops.creation import arange

    if tensor.dtype is not dtypes.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes == -1 or not isinstance(tensor._storage.value, Var):
        num_classes = _checked_classes(tensor.array(), num_classes)
    places = arange(num_classes)
    return cast(reshape(tensor, (*tensor._type.shape, 1)) == places, dtypes.int64)


def _checked_classes(classes: Any, count: int) -> int:
    if not classes.size:
        if count <= 0:
            raise RuntimeError("Can not infer total number of classes from empty tensor.")
        return count
    if classes.min() < 0:
        raise RuntimeError("Class values must be non-negative.")
    if count == -1:
        return int(classes.max()) + 1
    if classes.max() >= count:
        raise RuntimeError("Class values must be smaller than num_classes.")
    return count


# -- single elements ----------------------------------------------------------------------------


@expose()
def take(input: Tensor, index: Tensor) -> Tensor:
    """The elements with the given numbers, counted through the whole tensor."""
    index = _require_index("take", index, int32=False, vector=False)
    return bind(INDEX, reshape(input, -1), index, start=0, wrap=True)  # type: ignore[no-any-return]


@expose(inplace=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """The elements with the given numbers replaced by, or added to, those of ``source``."""
    index = _require_index("put_", index, int32=False, vector=False)
    _require_dtype("put_", input, source)
    if source._type.numel != index._type.numel:
        raise IndexError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {source._type.numel}, index.numel() = {index._type.numel}"
        )
    row = INDEX_ADD if accumulate else INDEX_COPY
    flat = bind(row, reshape(input, -1), reshape(source, -1), reshape(index, -1), start=0, wrap=True)
    return reshape(flat, input._type.shape)


@_writing
def index_put(
    input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Write:
    """``input[indices] = values``, or ``+=`` where repeated places add up."""
    if not isinstance(indices, (tuple, list)):
        raise TypeError(
            "index_put(): argument 'indices' (position 1) must be tuple of Tensors, not "
            f"{type(indices).__name__}"
        )
    for i, index in enumerate(indices):
        if not isinstance(index, Tensor):
            raise TypeError(
                f"index_put(): expected Tensor as element {i} in argument 0, but got "
                f"{type(index).__name__}"
            )
    places = places_of(input, indices, 0)
    return write_at(input, places, values, 0, accumulate=accumulate)


def places_of(input: Tensor, indices: Sequence[Tensor], start: int) -> list[Tensor]:
    """Index tensors with every mask replaced by the places where it holds."""
    places: list[Tensor] = []
    for index in indices:
        kind = index.dtype
        if kind is dtypes.bool_ or kind is dtypes.uint8:
            require_mask_fits(index, input._type.shape, start + len(places), start)
            places += nonzero(index, as_tuple=True) if index.ndim else _as_places(index)
        elif kind is dtypes.int64 or kind is dtypes.int32:
            places.append(index)
        else:
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if len(places) > input.ndim - start:
        raise IndexError(f"too many indices for tensor of dimension {input.ndim}")
    return places


def _as_places(truth: Tensor) -> list[Tensor]:
    """A single truth value as an index into a dimension of one."""
    return [from_array(np.zeros(1 if truth.array() else 0, np.int64))]


def require_mask_fits(mask: Tensor, shape: Shape, dim: int, start: int = 0) -> None:
    """Raise unless the mask has the extents of the dimensions it stands for."""
    if dim + mask.ndim > len(shape):
        raise IndexError(f"too many indices for tensor of dimension {len(shape)}")
    for i, extent in enumerate(mask._type.shape):
        if extent != shape[dim + i]:
            raise IndexError(
                f"The shape of the mask {list(mask._type.shape)} at index {i} does not match the "
                f"shape of the indexed tensor {list(shape)} at index {dim + i}"
            )


def shape_at(input: Tensor, places: Sequence[Tensor], start: int) -> Shape:
    """The shape of what stands at the places."""
    shapes = [p._type.shape for p in places]
    try:
        found = broadcast_shapes(*shapes)
    except ShapeError:
        listed = ", ".join(str(list(s)) for s in shapes)
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            + listed
        ) from None
    shape = input._type.shape
    return (*shape[:start], *found, *shape[start + len(places) :])


def write_at(
    input: Tensor, places: Sequence[Tensor], values: Any, start: int, *, accumulate: bool = False
) -> Write:
    """The write of a number or of broadcast values at index tensors."""
    attrs = {"start": start, "wrap": True}
    shape = shape_at(input, places, start)
    if isinstance(values, Tensor):
        if values.dtype is not input.dtype:
            raise RuntimeError(
                "Index put requires the source and destination dtypes match, got "
                f"{input.dtype.name} for the destination and {values.dtype.name} for the source."
            )
        values = _broadcast_values(values, shape)
    return INDEX_ADD if accumulate else INDEX_COPY, (input, values, *places), attrs


def _broadcast_values(values: Tensor, shape: Shape) -> Tensor:
    """Expanded to the indexed shape; leading dimensions of one may be too many."""
    own = values._type.shape
    extra = len(own) - len(shape)
    if extra > 0 and all(n == 1 for n in own[:extra]):
        values = reshape(values, own[extra:])
    try:
        return values if values._type.shape == shape else expand(values, shape)
    except RuntimeError:
        raise ShapeError(
            f"shape mismatch: value tensor of shape {list(own)} cannot be broadcast to indexing "
            f"result of shape {list(shape)}"
        ) from None
