"""What functions of indices have in common: checked arguments, and how a write becomes public."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import dtype
from evergrad.core.inplace import assign, write_in_place
from evergrad.core.op import Op
from evergrad.core.prepared import prepared
from evergrad.core.tensor import Tensor
from evergrad.core.tracing import is_known
from evergrad.ops.rows.creation.constants import check_number
from evergrad.ops.rows.elementwise.basic import WHERE
from evergrad.ops.rows.movement.views import reshape
from evergrad.ops.surface.public import expose, named_in_place
from evergrad.ops.surface.signatures import DerivedSignature

# What a write is made of: the row, its operands (the target first, but for ``where``), its
# attributes.
Write = tuple[Op, tuple[Any, ...], dict[str, Any]]


def writing(prepare: Callable[..., Write]) -> Callable[..., Tensor]:
    """Make a prepared write public: as function and method, and in place without a copy."""
    name = prepare.__name__

    @prepared
    @functools.wraps(prepare)
    def function(input: Tensor, *args: object, **kwargs: object) -> Tensor:
        op, operands, attrs = prepare(input, *args, **kwargs)
        written: Tensor = bind(op, *operands, **attrs)
        same = written._type.shape == input._type.shape
        return written if same else reshape(written, input._type.shape)

    def in_place(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        if "axis" in kwargs:
            kwargs["dim"] = kwargs.pop("axis")
        op, operands, attrs = prepare(self, *args, **kwargs)
        if op is WHERE:  # values under a mask: the target is its last operand
            assign(self, bind(op, *operands, **attrs))
        else:
            write_in_place(op, *operands, **attrs)
        return self

    function.__signature__ = DerivedSignature(prepare, returns="Tensor")  # type: ignore[attr-defined]
    in_place.keywords = {"axis": "dim"}  # type: ignore[attr-defined]
    setattr(Tensor, name + "_", named_in_place(in_place, name, function))
    return expose(numpy_names=True)(function)


# -- arguments ----------------------------------------------------------------------------------


def number_as(value: Any, target: dtype) -> object:
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


def checked_number(value: object, target: dtype) -> Any:
    """``number_as`` for functions that also refuse what is beyond a floating type."""
    if value.__class__ in (float, complex) and target.category >= dtypes.FLOATING:
        check_number(value, target)
    return number_as(value, target)


def at_least_1d(x: Tensor) -> Tensor:
    return x if x.ndim else reshape(x, (1,))


def require_index(name: str, index: Tensor, *, int32: bool = True, vector: bool = True) -> Tensor:
    if not isinstance(index, Tensor):
        raise TypeError(f"{name}(): argument 'index' must be Tensor, not {type(index).__name__}")
    is_index = index.dtype is dtypes.int64 or (int32 and index.dtype is dtypes.int32)
    if not is_index and index._type.numel:
        wanted = "int32 or int64" if int32 else "int64"
        raise RuntimeError(
            f"{name}(): Expected dtype {wanted} for index, but got {index.dtype.name}"
        )
    if vector and index.ndim > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index.ndim} with size: "
            f"{list(index._type.shape)}"
        )
    return at_least_1d(index) if vector else index


def require_dtype(name: str, input: Tensor, source: Tensor) -> None:
    if not isinstance(source, Tensor):
        raise TypeError(f"{name}(): the source must be Tensor, not {type(source).__name__}")
    if source.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}(): self and source expected to have the same dtype, but got (self) "
            f"{input.dtype.name} and (source) {source.dtype.name}"
        )


def fill_value(name: str, input: Tensor, value: object) -> object:
    if not isinstance(value, Tensor):
        return checked_number(value, input.dtype)
    if value.ndim:
        raise RuntimeError(
            f"{name} only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.ndim} dimension(s)."
        )
    if value.dtype is not input.dtype and is_known(value):
        checked_number(value.item(), input.dtype)
    return cast(value, input.dtype)
