"""Magnitude and direction of real and complex numbers: conjugate, absolute value, sign.

In each formula ``t`` is the tangent and ``y`` the result. ``abs``, ``sign`` and ``sgn`` have slope
0 at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.families import batch_elementwise, elementwise, meet, not_complex, opaque
from evergrad.core.inplace import write_in_place, write_result
from evergrad.core.namespace import late_bound
from evergrad.core.node import next_sequence
from evergrad.core.row_facts import AutocastPolicy, Builder, Value, cheap, lowered
from evergrad.core.shapes import tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.elementwise.basic import CLONE, ZERO_SLOPE, unary, where, zeros_where
from evergrad.ops.rows.movement.complex_parts import real
from evergrad.ops.surface.public import expose, expose_op

if TYPE_CHECKING:
    from evergrad.ops.surface.public import TensorFunction


@late_bound
def conj(input: Tensor) -> Tensor:
    """The complex conjugate; real tensors as they are."""
    return bind(CONJ, input) if input.dtype.is_complex else input


COMPLEX = lowered("passes.split_complex")
CONJ = elementwise("conj", np.conjugate, (lambda t, y, x: conj(t),), holomorphic=False,
                   emit=COMPLEX, doc="The complex conjugate.")  # fmt: skip
expose("conj_physical")(conj)


def _slope_of_abs(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return t * sgn(x)


def _complex_abs_vjp(g: Tensor, out: Tensor, z: Tensor) -> Tensor:
    return sgn(z) * cast(g, z.dtype)


def _complex_abs_jvp(tangents: Sequence[Tensor], out: Tensor, z: Tensor) -> Tensor:
    return real(conj(sgn(z)) * tangents[0])


ABS_REAL = elementwise("abs", np.absolute, (_slope_of_abs,), accepts=not_complex,
                       emit=cheap(lambda b, x: b.abs(x)), doc="|x|")  # fmt: skip
# |z| maps complex to real: both derivatives are written for real directions.
ABS_COMPLEX = opaque(
    "abs_complex", np.absolute, lambda z: tensor_type(z.shape, z.dtype.to_real()),
    _complex_abs_vjp, jvp=_complex_abs_jvp, batch=batch_elementwise,
    emit=COMPLEX, autocast=AutocastPolicy.KEEP, doc="|z| of complex numbers.",
)  # fmt: skip


def _abs_in_place(self: Tensor) -> Tensor:
    if self.dtype.is_complex or self.dtype is dtypes.bool_:
        since = next_sequence()
        return write_result("abs", self, abs(self), since)
    return write_in_place(ABS_REAL, self)


@expose("absolute", inplace=_abs_in_place)
def abs(input: Tensor) -> Tensor:
    """The absolute value."""
    if input.dtype.is_complex:
        return bind(ABS_COMPLEX, input)  # type: ignore[no-any-return]
    if input.dtype is dtypes.bool_:
        return bind(CLONE, input)  # type: ignore[no-any-return]
    return bind(ABS_REAL, input)  # type: ignore[no-any-return]


def _sign_eval(x: Array) -> object:
    """NaN has no sign either: 0."""
    return x.copy() if x.dtype.kind == "b" else np.subtract((x > 0).astype(x.dtype), x < 0)


def _emit_sign(b: Builder, x: Value) -> Value:
    above = b.choose(b.gt(x, b.number(0)), b.number(1), b.number(0))
    return b.choose(b.lt(x, b.number(0)), b.number(-1), above)


sign: TensorFunction = unary(
    "sign", _sign_eval, ZERO_SLOPE, promote=meet, accepts=not_complex, takes_out=False,
             emit=cheap(_emit_sign), eager_loop=True, doc="-1, 0 or 1.")  # fmt: skip


def _sgn_eval(z: Array) -> object:
    if z.dtype.kind != "c":
        return _sign_eval(z)
    size = np.absolute(z)
    return np.where(size == 0, 0, z / np.where(size == 0, 1, size)).astype(z.dtype)


def _sgn_slope(t: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """For complex z, the part of t across z, divided by |z|."""
    if not z.dtype.is_complex:
        return zeros_where(t)
    size = cast(abs(z), z.dtype)
    across = t - y * cast(real(conj(y) * t), z.dtype)
    return where(size == 0, 0, across / where(size == 0, 1, size))


SGN = elementwise("sgn", _sgn_eval, (_sgn_slope,), holomorphic=False, takes_out=False,
                  emit=cheap(_emit_sign, floats=True), doc="z / |z|, and 0 at 0.")  # fmt: skip
sgn: TensorFunction = expose_op(SGN, ("sgn",), inplace=True, params=("input",))
expose("__abs__", function=False)(abs)
