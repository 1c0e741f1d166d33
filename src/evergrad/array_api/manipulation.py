"""Functions that move elements: shapes, joining, repeating, picking."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import evergrad as eg
from evergrad.array_api.adapt import as_axes, meeting, standard
from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.shapes import normalize_dim
from evergrad.core.tensor import Tensor

# -- shapes -------------------------------------------------------------------------------------


@standard()
def reshape(x: Tensor, /, shape: Sequence[int], *, copy: bool | None = None) -> Tensor:
    """The elements in order, in another shape."""
    if copy is False:
        try:
            return x.view(shape)
        except RuntimeError as error:
            raise ValueError(f"reshape without a copy: {error}") from error
    return eg.reshape(eg.clone(x) if copy else x, shape)


@standard()
def expand_dims(x: Tensor, /, axis: int = 0) -> Tensor:
    """An axis of one element more."""
    return eg.unsqueeze(x, axis)


@standard()
def squeeze(x: Tensor, /, axis: Any) -> Tensor:
    """The array without the given axes, each of one element."""
    axes = as_axes(axis)
    if any(x.shape[at] != 1 for at in axes):
        raise ValueError(f"axes {list(axes)} of shape {list(x.shape)} do not all have one element")
    return eg.squeeze(x, axes) if axes else x


@standard()
def permute_dims(x: Tensor, /, axes: Sequence[int]) -> Tensor:
    """The axes in another order."""
    return eg.permute(x, axes)


@standard()
def moveaxis(x: Tensor, source: object, destination: object, /) -> Tensor:
    """Some axes at other places, the rest in order."""
    return eg.movedim(x, source, destination)


@standard()
def broadcast_to(x: Tensor, /, shape: Sequence[int]) -> Tensor:
    """The array in a larger shape, its elements repeated without a copy."""
    return x.expand(shape)


@standard()
def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """The arrays in the shape they all expand to."""
    return eg.broadcast_tensors(*arrays)


# -- joining and parting ------------------------------------------------------------------------


@standard()
def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """The arrays one after another; flattened if ``axis`` is ``None``."""
    if axis is None:
        return eg.cat([eg.reshape(x, -1) for x in arrays])
    return eg.cat(arrays, axis)


@standard()
def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """The arrays along a new axis."""
    return eg.stack(meeting(*arrays), axis)


@standard()
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The array taken apart along an axis."""
    if not x.ndim:
        raise ValueError("a 0-d array has no axis to be taken apart along")
    return eg.unbind(x, axis)


# -- order and repetition -----------------------------------------------------------------------


@standard()
def flip(x: Tensor, /, *, axis: Any = None) -> Tensor:
    """The elements in reverse along axes, or along all of them."""
    return eg.flip(x, tuple(range(x.ndim)) if axis is None else as_axes(axis))


@standard()
def roll(x: Tensor, /, shift: Any, *, axis: Any = None) -> Tensor:
    """The elements shifted along axes, from the end to the front; flattened without an axis."""
    if axis is None:
        return eg.roll(x, shift)
    axes = as_axes(axis)
    shifts = (shift,) * len(axes) if isinstance(shift, int) else tuple(shift)
    return eg.roll(x, shifts, axes)


@standard()
def repeat(x: Tensor, repeats: object, /, *, axis: int | None = None) -> Tensor:
    """Each element several times in a row; flattened without an axis."""
    if isinstance(repeats, Tensor):
        repeats = cast(repeats, dtypes.int64)
    return eg.repeat_interleave(x, repeats, axis)


@standard()
def tile(x: Tensor, repetitions: Sequence[int], /) -> Tensor:
    """The whole array several times along each axis."""
    return eg.tile(x, tuple(repetitions))


# -- picking ------------------------------------------------------------------------------------


@standard()
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices of an axis with the given numbers."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"take from a {x.ndim}-dimensional array needs an axis")
        axis = 0
    numbers = cast(indices, dtypes.int64)  # uint8 would be a mask
    return x[(slice(None),) * normalize_dim(axis, x.ndim) + (numbers,)]


@standard()
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """The elements with the given numbers, each from its own line along an axis."""
    return eg.take_along_dim(x, cast(indices, dtypes.int64), axis)


@standard()
def where(condition: Tensor, x1: object, x2: object, /) -> Tensor:
    """``x1`` where the condition holds, ``x2`` elsewhere."""
    first, second = meeting(x1, x2)
    return eg.where(condition, first, second)
