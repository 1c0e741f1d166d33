"""Shapes and tensor types.

Owns :class:`Size`, :class:`TensorType` and the arithmetic of dimensions. Users read the error
messages raised here, so each names the shapes and what is wrong with them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Sequence
from typing import Any

from evergrad.core.dtypes import dtype
from evergrad.core.package_name import package_name
from evergrad.core.types import Args
from evergrad.errors import ShapeError

Shape = tuple[int, ...]


class Size(tuple[int, ...]):
    """The shape of a tensor as the public API returns it."""

    __slots__ = ()

    def numel(self) -> int:
        return math.prod(self)

    def __repr__(self) -> str:
        return f"{package_name()}.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, index: Any) -> Any:
        item = super().__getitem__(index)
        return Size(item) if isinstance(index, slice) else item

    def __add__(self, other: Any) -> Size:
        return Size(tuple(self) + tuple(other))


_ElementType = dtype


class TensorType:
    """Shape and element type of a value. Interned: equal types are usually the same object."""

    __slots__ = ("dtype", "nbytes", "numel", "shape")

    shape: Shape
    dtype: _ElementType
    numel: int
    nbytes: int

    def __init__(self, shape: Shape, dtype: _ElementType) -> None:
        self.shape = shape
        self.dtype = dtype
        self.numel = math.prod(shape)
        self.nbytes = self.numel * dtype.itemsize

    def __repr__(self) -> str:
        return f"{self.dtype.name}[{','.join(map(str, self.shape))}]"

    def same(self, other: TensorType) -> bool:
        return self is other or (self.shape == other.shape and self.dtype is other.dtype)


_interned: dict[tuple[Shape, dtype], TensorType] = {}
_INTERN_LIMIT = 1 << 16
_MOST_DIMENSIONS = 64  # NumPy's limit


def tensor_type(shape: Shape, dtype: dtype) -> TensorType:
    """The one :class:`TensorType` for this shape and element type.

    The table is cleared when it is full; two objects for one type then cost a cache miss, nothing
    else, which is why types are compared with :meth:`TensorType.same`.
    """
    key = (shape, dtype)
    found = _interned.get(key)
    if found is None:
        if len(shape) > _MOST_DIMENSIONS:
            raise RuntimeError(f"only tensors with up to {_MOST_DIMENSIONS} dims are supported")
        if len(_interned) >= _INTERN_LIMIT:
            _interned.clear()
        found = _interned[key] = TensorType(shape, dtype)
    return found


def broadcast_shapes(*shapes: Sequence[int]) -> Shape:
    """The shape all given shapes expand to."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for i, extent in enumerate(shape, offset):
            if extent == result[i] or extent == 1:
                continue
            if result[i] != 1:
                raise ShapeError(
                    f"The size of tensor a ({result[i]}) must match the size of tensor b "
                    f"({extent}) at non-singleton dimension {i}: shapes "
                    f"{' and '.join(str(list(s)) for s in shapes)} do not broadcast"
                )
            result[i] = extent
    return tuple(result)


def normalize_dim(dim: int, rank: int) -> int:
    """A dimension counted from the front; 0-d tensors take 0 and -1, as in PyTorch."""
    if dim.__class__ is not int:
        dim = _as_dim(dim)
    elif 0 <= dim < rank:
        return dim
    extent = max(rank, 1)
    if not -extent <= dim < extent:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-extent}, {extent - 1}], "
            f"but got {dim})"
        )
    return dim % extent


def _as_dim(dim: object) -> int:
    """An integer of another type; a bool here is ``keepdim`` at the wrong position."""
    if isinstance(dim, bool) or not hasattr(dim, "__index__"):
        raise TypeError(f"argument 'dim' must be int, not {type(dim).__name__}")
    return operator.index(dim)


def listed_dims(dims: Any) -> Iterable[int]:
    """Several dimensions, or the one that a Python, NumPy or tensor's number names."""
    is_one = not isinstance(dims, Iterable) or getattr(dims, "ndim", 1) == 0
    return (dims,) if is_one else dims


def normalize_dims(dims: int | Iterable[int] | None, rank: int) -> Shape:
    """Dimensions from the front, each at most once; ``None`` and ``()`` mean all of them."""
    if dims is None:
        return tuple(range(rank))
    if dims.__class__ is int and -rank <= dims < rank:
        return (dims % rank,)
    result = tuple(normalize_dim(d, rank) for d in listed_dims(dims))
    if len(set(result)) != len(result):
        repeated = next(d for d in result if result.count(d) > 1)
        raise RuntimeError(f"dim {repeated} appears multiple times in the list of dims")
    return result if result and rank else tuple(range(rank))


def reduced_shape(shape: Shape, dims: Shape, keepdim: bool) -> Shape:
    if keepdim:
        return tuple(1 if i in dims else n for i, n in enumerate(shape))
    return tuple(n for i, n in enumerate(shape) if i not in dims)


def infer_reshape(shape: Sequence[int], numel: int) -> Shape:
    """Fill in a ``-1`` and check that the element count stays."""
    result = tuple(map(int, shape))
    unknown = result.count(-1)
    if result and min(result) < -1:
        raise RuntimeError(f"invalid shape dimension {min(result)} in {list(result)}")
    if unknown > 1:
        raise RuntimeError("only one dimension can be inferred")
    if unknown:
        rest = -math.prod(result)
        if rest == 0:
            raise RuntimeError(
                f"cannot reshape tensor of {numel} elements into shape {list(result)} because the "
                "unspecified dimension size -1 can be any value and is ambiguous"
            )
        if numel % rest == 0:
            i = result.index(-1)
            return (*result[:i], numel // rest, *result[i + 1 :])
    elif math.prod(result) == numel:
        return result
    raise ShapeError(f"shape '{list(result)}' is invalid for input of size {numel}")


def as_shape(args: Args) -> Shape:
    """Sizes given either as ``f(2, 3)`` or as ``f((2, 3))``."""
    if len(args) == 1 and args[0].__class__ is tuple:
        (args,) = args
    elif len(args) == 1 and not isinstance(args[0], int) and isinstance(args[0], Iterable):
        is_one_size = not getattr(args[0], "ndim", 1)  # a 0-d tensor
        args = args if is_one_size else tuple(args[0])
    for n in args:
        if n.__class__ is not int:
            break
    else:
        return args
    try:
        return tuple(n if type(n) is int else n.__index__() for n in args)
    except (AttributeError, TypeError):
        raise TypeError(f"sizes must be integers, got {args!r}") from None


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Row-major strides in elements."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= max(extent, 1)
    return tuple(reversed(strides))
