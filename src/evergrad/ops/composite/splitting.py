"""One tensor in several parts, each a view of it."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from evergrad.core.bind import bind_prepared
from evergrad.core.op import prepared_calls
from evergrad.core.shapes import TensorType, normalize_dim
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.movement.slices import SLICE, slice_dim, sliced
from evergrad.ops.surface.public import expose


def _parts(x: Tensor, bounds: Sequence[int], dim: int) -> tuple[Tensor, ...]:
    """The parts between each two neighbours of ``bounds``."""
    return tuple([slice_dim(x, dim, a, max(a, b)) for a, b in itertools.pairwise(bounds)])


# By tensor type and arguments: the rows that give the parts.
_PARTS: dict[object, Any] = prepared_calls()


def _known_parts(
    function: str, x: Tensor, options: Any, split: Callable[..., tuple[Tensor, ...]], *args: object
) -> tuple[Tensor, ...]:
    """``split(x, *args)``, with the rows that gave the parts of such a tensor before."""
    if not STATE.get().intercepted and x._type.__class__ is TensorType:
        key = function, x._type, options
        rows = _PARTS.get(key)
        if rows is None:
            parts = split(x, *args)
            rows = [_row_of(x, part) for part in parts]
            if None not in rows:
                _PARTS[key] = rows
        else:
            parts = tuple([bind_prepared(row, x) for row in rows])
        return _of_several(function, parts)
    return _of_several(function, split(x, *args))


def _row_of(x: Tensor, part: Tensor) -> Any:
    """The specialization that has given a part; ``None`` if its chain of views was too long to
    tell."""
    assert part._view is not None
    op, attrs = part._view.chain[-1]
    return SLICE.specializations.get(((x._type,), tuple(attrs.items()))) if op is SLICE else None


def _of_several(function: str, parts: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Views that must not be written while recording: each write would have to tell all others."""
    for part in parts:
        if part._view is not None:
            part._view.function = function
    return parts


def _require_sections(name: str, sections: object) -> None:
    """Refuse texts, fractions and lists of them, which ``int()`` might accept."""
    is_one = isinstance(sections, str) or not isinstance(sections, Iterable)
    for part in (sections,) if is_one else sections if isinstance(sections, Sequence) else ():
        if not hasattr(part, "__index__"):
            raise TypeError(
                f"{name}(): argument 'indices_or_sections' must be int or a tuple of ints, not "
                f"{type(part).__name__}"
            )


def _split_every(x: Tensor, size: int, dim: int) -> tuple[Tensor, ...]:
    extent = x._type.shape[dim]
    if size < 0:
        raise RuntimeError(f"split expects split_size be non-negative, but got split_size={size}")
    if size == 0:
        if extent:
            raise RuntimeError(
                "split_size can only be 0 if dimension size is 0, but got dimension size of "
                f"{extent}"
            )
        return _parts(x, (0, 0), dim)
    return _parts(x, [*range(0, max(extent, 1), size), extent], dim)


@expose(method=False, out=False, numpy_names=True)
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of one size (the last may be smaller), or of the sizes given."""
    if not tensor.ndim:
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    _require_sections("split", split_size_or_sections)
    given = split_size_or_sections
    if not isinstance(given, int):
        if isinstance(given, Iterable) and getattr(given, "ndim", None) != 0:
            return split_with_sizes(tensor, given, dim)  # type: ignore[arg-type]
        given = operator.index(given)
    dim = normalize_dim(dim, tensor.ndim)
    return _of_several("split", _split_every(tensor, given, dim))


@expose("split", function=False, numpy_names=True)
def _split_method(self: Tensor, split_size: object, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of one size (the last may be smaller), or of the sizes given."""
    return split(self, split_size, dim)


@expose(out=False, numpy_names=True)
def split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of the sizes given, which add up to the whole.

    Args:
        input: the tensor
        split_sizes: extents of the parts
        dim: the dimension; default 0

    >>> eg.split_with_sizes(eg.arange(4), (1, 3))
    (tensor([0]), tensor([1, 2, 3]))
    """
    dim = normalize_dim(dim, input.ndim)
    extent = input._type.shape[dim]
    sizes = [int(size) for size in split_sizes]
    if sum(sizes) != extent or any(size < 0 for size in sizes):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {extent} (input tensor's size "
            f"at dimension {dim}), but got split_sizes={sizes}"
        )
    bounds = [0]
    for size in sizes:
        bounds.append(bounds[-1] + size)
    return _of_several("split_with_sizes", _parts(input, bounds, dim))


@expose(out=False, numpy_names=True)
def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most ``chunks`` parts of one size, the last of which may be smaller."""
    if not input.ndim:
        raise RuntimeError("chunk expects at least a 1-dimensional tensor")
    _require_sections("chunk", chunks)
    if chunks <= 0:
        raise RuntimeError(f"chunk expects `chunks` to be greater than 0, got: {chunks}")
    dim = normalize_dim(dim, input.ndim)
    extent = input._type.shape[dim]
    if extent == 0:
        return _parts(input, (0,) * (chunks + 1), dim)
    size = -(-extent // chunks)
    return _known_parts("chunk", input, (size, dim), _split_every, size, dim)


_PLACES = dict.fromkeys(
    ("indices", "sections", "tensor_indices_or_sections"), "indices_or_sections"
)


@expose(out=False, numpy_names=True, keywords=_PLACES)
def tensor_split(input: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts that differ in size by one at most, or between the indices given."""
    if not input.ndim:
        raise RuntimeError(
            "tensor_split expected at least a 1-dimensional tensor, but got a tensor with 0 dims"
        )
    given = indices_or_sections
    if isinstance(given, Tensor):
        given = given.array().tolist()
    _require_sections("tensor_split", given)
    dim = normalize_dim(dim, input.ndim)
    extent = input._type.shape[dim]
    if not isinstance(given, int):
        inner = [slice(None, int(i)).indices(extent)[1] for i in given]
        return _parts(input, [0, *inner, extent], dim)
    if given <= 0:
        raise RuntimeError(f"number of sections must be larger than 0, got {given}")
    size, larger = divmod(extent, given)
    return _parts(input, [i * size + min(i, larger) for i in range(given + 1)], dim)


def _split_along(name: str, dim: int, least: int, doc: str) -> Callable[..., tuple[Tensor, ...]]:
    def function(input: Tensor, indices_or_sections: Any, *further: int) -> tuple[Tensor, ...]:
        if input.ndim < least:
            raise RuntimeError(
                f"{name} requires a tensor with at least {least} dimension, but got a tensor with "
                f"{input.ndim} dimensions!"
            )
        along = dim if input.ndim > dim else 0
        extent = input._type.shape[along]
        sections = (indices_or_sections, *further) if further else indices_or_sections
        _require_sections(name, sections)
        if isinstance(sections, int) and (sections <= 0 or extent % sections):
            raise RuntimeError(
                f"{name} attempted to split along dimension {along}, but the size of the dimension "
                f"{extent} is not divisible by the split_size {sections}!"
            )
        return tensor_split(input, sections, along)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return expose(out=False, keywords=_PLACES)(function)


hsplit: Callable[..., object] = _split_along(
    "hsplit", 1, 1, "Parts side by side: of columns, or of a vector."
)
vsplit: Callable[..., object] = _split_along("vsplit", 0, 2, "Parts below each other: of rows.")
dsplit: Callable[..., object] = _split_along(
    "dsplit", 2, 3, "Parts behind each other: of the third dimension."
)


@expose(out=False, numpy_names=True)
def unbind(input: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """Every index of a dimension by itself, without the dimension."""
    if not input.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    dim = normalize_dim(dim, input.ndim)
    return _known_parts("unbind", input, dim, _every_index, dim)


def _every_index(x: Tensor, dim: int) -> tuple[Tensor, ...]:
    shape = x._type.shape
    before = tuple((0, extent, 1) for extent in shape[:dim])
    return tuple([sliced(x, (*before, i)) for i in range(shape[dim])])
