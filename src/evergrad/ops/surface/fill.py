"""Writes of given values: ``copy_``, ``fill_``, ``zero_`` and changes of size.

All go through the one primitive ``assign``, which keeps versions and history right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core.bind import cast
from evergrad.core.compound import Compound
from evergrad.core.dtypes import float32, float64
from evergrad.core.functionalize import SymbolicNumber
from evergrad.core.inplace import assign, fill_number
from evergrad.core.shapes import Shape, as_shape
from evergrad.core.tensor import Tensor, from_array
from evergrad.errors import ShapeError
from evergrad.ops.rows.creation.constants import constant
from evergrad.ops.rows.movement.slices import narrow
from evergrad.ops.rows.movement.strided import diagonal
from evergrad.ops.rows.movement.views import clone, expand
from evergrad.ops.surface.public import NUMBERS, expose, resize

if TYPE_CHECKING:
    from evergrad.core.types import Ints, MemoryFormatLike


def _filling(name: str, target: Tensor, value: object) -> Tensor:
    """A number or 0-d tensor in the type of the target, repeated without a copy."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Tensor):
        if value.ndim:
            raise RuntimeError(
                f"{name} only supports 0-dimension value tensor but got tensor with {value.ndim} "
                "dimensions."
            )
        value = cast(value, target.dtype)
    elif isinstance(value, (SymbolicNumber, *NUMBERS)):
        value = constant((), value, target.dtype)
    else:
        raise TypeError(
            f"{name}(): argument 'value' must be Tensor or Number, not {type(value).__name__}"
        )
    return expand(value, target._type.shape) if target.ndim else value


@expose(function=False)
def fill_(input: Tensor, value: object) -> Tensor:
    """Write one number, or the element of a 0-d tensor, everywhere."""
    # Numbers of a trace are of other types, though their __class__ is float.
    if type(value) in (int, float) and _fits(value, input) and fill_number(input, value):
        return input
    part = _each_once(input)
    assign(part, _filling("fill_", part, value))
    return input


def _fits(number: Any, target: Tensor) -> bool:
    """Whether a number needs no check to be an element: a small one in a type of its kind."""
    is_float = target.dtype is float32 or target.dtype is float64
    return bool(number == 0 or (is_float and abs(number) < 1e30))


def _each_once(self: Tensor) -> Tensor:
    """Without the repetitions of an expanded tensor: one number may be written to all at once."""
    part = self
    for dim, (step, extent) in enumerate(
        zip(self.layout_array().strides, self._type.shape, strict=True)
    ):
        if step == 0 and extent > 1:
            part = narrow(part, dim, 0, 1)
    return part


@expose(method=False, out=False)
def fill(input: Tensor, value: object) -> Tensor:
    """One number everywhere, in the shape and type of ``input``.

    Args:
        input: the tensor
        value: the number

    >>> eg.fill(eg.zeros(2), 3.0)
    tensor([3., 3.])
    """
    if isinstance(input, Compound):
        return input.filled(value, input.dtype)
    return clone(_filling("fill", input, value))


@expose(function=False)
def zero_(input: Tensor) -> Tensor:
    """Write zeros everywhere."""
    return fill_(input, 0)


@expose(function=False)
def copy_(self: Tensor, other: object, non_blocking: bool = False) -> Tensor:
    """Write the elements of another tensor, cast and broadcast to fit."""
    if not isinstance(other, Tensor):
        return assign(self, _filling("copy_", self, other))
    value = cast(other, self.dtype)
    if value._type.shape != self._type.shape:
        _check_broadcast(self._type.shape, value._type.shape)
        value = expand(value, self._type.shape)
    return assign(self, value)


def _check_broadcast(target: Shape, source: Shape) -> None:
    if len(source) > len(target):
        raise ShapeError(
            f"output with shape {list(target)} doesn't match the broadcast shape {list(source)}"
        )
    lead = len(target) - len(source)
    for dim, (have, want) in enumerate(zip(source, target[lead:], strict=True), lead):
        if have not in (1, want):
            raise ShapeError(
                f"The size of tensor a ({want}) must match the size of tensor b ({have}) at "
                f"non-singleton dimension {dim}"
            )


@expose(function=False)
def apply_(self: Tensor, callable: Callable[[Any], object]) -> Tensor:
    """Replace each element by what a Python function makes of it. Slow, and without gradients."""
    if self.requires_grad:
        raise TypeError("Can't call apply_() on Variable that requires grad. Use var.detach()")
    values = [callable(value) for value in self.array().reshape(-1).tolist()]
    return assign(self, from_array(np.array(values, self.dtype.np).reshape(self._type.shape)))


@expose(function=False)
def fill_diagonal_(self: Tensor, fill_value: object, wrap: bool = False) -> Tensor:
    """Write one number on the main diagonal; ``wrap`` begins anew below a tall matrix."""
    shape = self._type.shape
    if len(shape) < 2:
        raise RuntimeError("dimensions must larger than 1")
    if len(shape) > 2 and len(set(shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    if 0 in shape:
        return self
    height, width = shape[:2]
    starts = range(0, height, width + 1) if wrap and len(shape) == 2 else (0,)
    for start in starts:
        part = narrow(self, 0, start, height - start)
        while part.ndim > 1:
            part = diagonal(part)
        fill_(part, fill_value)
    return self


@expose(function=False)
def resize_(
    self: Tensor, *sizes: object, size: Ints | None = None, memory_format: MemoryFormatLike = None
) -> Tensor:
    """Another size in place; elements that come into being are zero."""
    return resize(self, as_shape(sizes if size is None else (size,)))


@expose(function=False)
def resize_as_(
    input: Tensor, the_template: Tensor, *, memory_format: MemoryFormatLike = None
) -> Tensor:
    """The size of another tensor, in place."""
    return resize(input, the_template._type.shape)
