"""Element types: what may become what, what meets where, and their limits."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import evergrad as eg
from evergrad.array_api.adapt import standard
from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.dtypes import dtype
from evergrad.core.families import result_dtype
from evergrad.core.shapes import tensor_type
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.creation.constants import as_number, check_place

if TYPE_CHECKING:
    from evergrad.core.types import DeviceLike, DtypeLike

# The kinds that ``isdtype`` and ``dtypes(kind=)`` know, as questions about an element type.
KINDS: dict[str, Any] = {
    "bool": lambda d: d is dtypes.bool_,
    "signed integer": lambda d: d.category == dtypes.INTEGRAL and d.is_signed,
    "unsigned integer": lambda d: d.category == dtypes.INTEGRAL and not d.is_signed,
    "integral": lambda d: d.category == dtypes.INTEGRAL,
    "real floating": lambda d: d.category == dtypes.FLOATING,
    "complex floating": lambda d: d.category == dtypes.COMPLEX,
    "numeric": lambda d: d.category > dtypes.BOOL,
}


class FloatLimits(NamedTuple):
    """What ``finfo`` returns."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: dtype


class IntegerLimits(NamedTuple):
    """What ``iinfo`` returns."""

    bits: int
    max: int
    min: int
    dtype: dtype


def dtype_of(value: object) -> dtype:
    """The element type given, or that of an array."""
    return value.dtype if isinstance(value, Tensor) else dtypes.as_dtype(value)


@standard("finfo")
def _finfo(type: object, /) -> FloatLimits:
    """The limits of a floating-point type (of its real part, for a complex one)."""
    info = dtypes.finfo(dtype_of(type))
    return FloatLimits(
        info.bits, info.eps, info.max, info.min, info.smallest_normal, dtype_of(type).to_real()
    )


@standard("iinfo")
def _iinfo(type: object, /) -> IntegerLimits:
    """The limits of an integer type."""
    info = dtypes.iinfo(dtype_of(type))
    return IntegerLimits(info.bits, info.max, info.min, dtype_of(type))


@standard()
def isdtype(dtype: DtypeLike, kind: object) -> bool:
    """Whether an element type is of a kind, is a given one, or is among several of these."""
    if isinstance(kind, tuple):
        return any(isdtype(dtype, one) for one in kind)
    if not isinstance(kind, str):
        return dtypes.as_dtype(dtype) is dtypes.as_dtype(kind)
    if kind not in KINDS:
        raise ValueError(f"{kind!r} is no kind of data type; the kinds are {', '.join(KINDS)}")
    return bool(KINDS[kind](dtypes.as_dtype(dtype)))


@standard()
def can_cast(from_: object, to: object, /) -> bool:
    """Whether promotion leads from one element type to another."""
    return dtypes.promote_types(dtype_of(from_), dtypes.as_dtype(to)) is dtypes.as_dtype(to)


@standard()
def result_type(*arrays_and_dtypes: object) -> dtype:
    """The element type in which arrays, element types and Python numbers meet."""
    types: list[Any] = []
    for value in arrays_and_dtypes:
        if isinstance(value, bool | int | float | complex | np.generic):
            types.append(type(as_number(value)))
        else:  # a vector represents every array: 0-d ones count alike
            types.append(tensor_type((1,), dtype_of(value)))
    if all(isinstance(t, type) for t in types):
        raise ValueError("result_type needs at least one array or element type")
    return result_dtype(types)


@standard()
def astype(
    x: Tensor, dtype: DtypeLike, /, *, copy: bool = True, device: DeviceLike = None
) -> Tensor:
    """The elements in another type."""
    check_place(device)
    target = dtypes.as_dtype(dtype)
    if x.dtype.is_complex and dtypes.BOOL < target.category < dtypes.COMPLEX:
        raise TypeError(
            f"a {x.dtype.name} array cannot become {target.name}: say which part is meant, "
            "as in astype(real(x), ...)"
        )
    if target is x.dtype:
        return eg.clone(x) if copy else x
    return cast(x, target)
