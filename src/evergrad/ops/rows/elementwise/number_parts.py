"""What numbers are made of: common divisors, mantissa and exponent, angles in other units."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from evergrad import return_types
from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import dtype
from evergrad.core.families import elementwise
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import ITERATED, numpy_evaluates
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.creation.constants import zeros_like
from evergrad.ops.rows.elementwise.basic import exp2, where
from evergrad.ops.rows.elementwise.logic import isnan
from evergrad.ops.rows.elementwise.trigonometry import atan2
from evergrad.ops.rows.movement.complex_parts import imag, real
from evergrad.ops.surface.public import expose

if TYPE_CHECKING:
    from evergrad import return_types

# -- divisors and multiples ---------------------------------------------------------------------


def _is_integer(found: dtype) -> bool:
    return found.category == dtypes.INTEGRAL


GCD = elementwise("gcd", np.gcd, NONDIFFERENTIABLE, accepts=_is_integer,
                  emit=ITERATED, doc="The greatest common divisor.")  # fmt: skip
LCM = elementwise("lcm", np.lcm, NONDIFFERENTIABLE, accepts=_is_integer,
                  emit=ITERATED, doc="The least common multiple.")  # fmt: skip


def _of_two(op: Op, input: Tensor, other: Tensor) -> Tensor:
    if not isinstance(other, Tensor):
        raise TypeError(
            f"{op.name}(): argument 'other' (position 2) must be Tensor, not {type(other).__name__}"
        )
    return bind(op, input, other)  # type: ignore[no-any-return]


@expose(inplace=True)
def gcd(input: Tensor, other: Tensor) -> Tensor:
    """The greatest common divisor."""
    return _of_two(GCD, input, other)


@expose(inplace=True)
def lcm(input: Tensor, other: Tensor) -> Tensor:
    """The least common multiple."""
    return _of_two(LCM, input, other)


# -- mantissa and exponent ----------------------------------------------------------------------


def _is_float(found: dtype) -> bool:
    return found.is_floating_point


def _mantissa_slope(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return t * exp2(-cast(bind(EXPONENT, x), x.dtype))


_PARTS = numpy_evaluates("the bit fields of the type of storage, not of computation")
EXPONENT = elementwise(
    "frexp_exponent", lambda x: np.frexp(x)[1], NONDIFFERENTIABLE, accepts=_is_float,
    result=lambda found: dtypes.int32, takes_out=False,
    emit=_PARTS, doc="The e for which |x| / 2**e is at least 0.5 and less than 1.",
)  # fmt: skip
MANTISSA = elementwise(
    "frexp_mantissa", lambda x: np.frexp(x)[0], _mantissa_slope, accepts=_is_float,
    takes_out=False, emit=_PARTS, doc="x / 2**e for that e.",
)  # fmt: skip


@expose()
def frexp(input: Tensor) -> return_types.frexp:
    """``input`` as ``mantissa * 2 ** exponent`` with a mantissa between 0.5 and 1 in size."""
    if not input.dtype.is_floating_point:
        raise RuntimeError("torch.frexp() only supports floating-point dtypes")
    return return_types.frexp(bind(MANTISSA, input), bind(EXPONENT, input))


# -- angles -------------------------------------------------------------------------------------


@expose()
def angle(input: Tensor) -> Tensor:
    """The direction of complex numbers, in radians; 0 or pi of real ones."""
    if input.dtype.is_complex:
        return atan2(imag(input), real(input))
    floats = input if input.dtype.is_floating_point else input.to(dtypes.get_default_dtype())
    return where(isnan(floats), floats, where(floats < 0, math.pi, zeros_like(floats)))


def _scaled(name: str, input: Tensor, factor: float) -> Tensor:
    if input.dtype.is_complex:
        raise RuntimeError(f"{name} is not supported for complex tensors.")
    return input * factor


@expose(inplace=True)
def deg2rad(input: Tensor) -> Tensor:
    """Degrees in radians."""
    return _scaled("deg2rad", input, math.pi / 180)


@expose(inplace=True)
def rad2deg(input: Tensor) -> Tensor:
    """Radians in degrees."""
    return _scaled("rad2deg", input, 180 / math.pi)
