"""Rows that compute each element by itself: arithmetic, exponentials, choosing.

Magnitudes are in :mod:`evergrad.ops.rows.elementwise.magnitude`, angles in
:mod:`evergrad.ops.rows.elementwise.trigonometry`, comparisons, logic and bits in
:mod:`evergrad.ops.rows.elementwise.logic`, special functions in
:mod:`evergrad.ops.rows.special.functions`. In each formula ``t`` is the tangent and ``y`` the
result.

At the edges: ``sqrt`` has slope inf at 0; ``maximum`` and ``minimum`` give each of two equal
arguments half; ``pow(x, 0)`` has slope 0 in ``x`` everywhere, ``pow(0, y)`` slope 0 in ``y`` for
``y >= 0``; ``where`` gives the branch not taken exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import dtype
from evergrad.core.eager.copies import copy_transposed
from evergrad.core.families import (
    batch_elementwise,
    elementwise,
    linear,
    meet,
    meet_as_float,
    meet_to_subtract,
    not_bool,
    not_complex,
    real_number,
    result_dtype,
)
from evergrad.core.inplace import write_in_place
from evergrad.core.namespace import late_bound, ops
from evergrad.core.op import ArgType, Op
from evergrad.core.python_numbers import PythonNumber
from evergrad.core.row_facts import (
    AutocastPolicy,
    Builder,
    Value,
    cheap,
    elementary,
    expensive,
)
from evergrad.core.shapes import TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Array, Tensor
from evergrad.memory import pool
from evergrad.ops.rows.creation.constants import check_number, zeros_like
from evergrad.ops.rows.elementwise import blocked
from evergrad.ops.rows.movement.complex_parts import real
from evergrad.ops.rows.movement.views import sum_to_type
from evergrad.ops.surface.public import (
    NUMBERS,
    TensorFunction,
    expose,
    expose_op,
    operator,
    row_of,
    warn_of_older_form,
)

ZERO_SLOPE = (lambda t, y, x: zeros_where(t),)


def zeros_where(t: Tensor) -> Tensor:
    """A zero tangent."""
    return zeros_like(t)


# -- casts and copies ---------------------------------------------------------------------------


def _cast_type(x: TensorType, *, dtype: dtype) -> TensorType:
    return tensor_type(x.shape, dtype)


def _cast_eval(x: Array, *, dtype: dtype) -> object:
    if x.dtype.kind == "c" and dtypes.BOOL < dtype.category < dtypes.COMPLEX:
        x = x.real
    if dtype.category <= dtypes.INTEGRAL and x.dtype.kind in "fV" and dtype is not dtypes.bool_:
        # As C casts do on x86: out of range is the least integer, then bits are dropped.
        with np.errstate(all="ignore"):
            if dtype in (dtypes.uint32, dtypes.uint64):
                return _to_wide_unsigned(x, dtype)
            return x.astype(dtypes.conversion_type(dtype)).astype(dtype.np)
    one = blocked.one_if_repeated(x, x.shape)
    return x.astype(dtype.np) if one is x else np.full(x.shape, one.astype(dtype.np))


def _to_wide_unsigned(x: Array, dtype: dtype) -> object:
    """Floats as uint32 or uint64: the upper half of the range is moved down by 2**31 or 2**63,
    converted as signed, and moved back."""
    x = x.astype(np.float64 if x.dtype == np.float64 else np.float32)
    bits = 8 * dtype.np.itemsize
    half = x.dtype.type(2.0 ** (bits - 1))
    upper = x >= half
    signed = np.subtract(x, half, where=upper, out=x).astype(f"i{bits // 8}")
    found = signed.view(dtype.np)
    return np.where(upper, found ^ dtype.np.type(1 << (bits - 1)), found)


def _cast_back(g: Tensor, x: Tensor, *, dtype: dtype) -> Tensor | None:
    return cast(g, x.dtype) if x.dtype.category >= dtypes.FLOATING else None


def _batch_same(op: Op, args: Sequence[object], dims: Sequence[object], **attrs: object) -> object:
    return bind(op, *args, **attrs), dims[0]


CAST = linear("cast", _cast_eval, _cast_type, _cast_back, batch=_batch_same,
              emit=cheap(lambda b, x: b.cast(x)), autocast=AutocastPolicy.KEEP, shape_generic=True,
              aten="_to_copy", doc="The same numbers in another element type.")  # fmt: skip


def _copy(x: Array) -> Array:
    out = pool.empty(x.shape, x.dtype)
    if not copy_transposed(out, x):
        np.copyto(out, x)
    return out


CLONE = linear("clone", _copy, lambda x: x, lambda g, x: g, batch=_batch_same,
               emit=cheap(lambda b, x: x), autocast=AutocastPolicy.KEEP, shape_generic=True,
               doc="A copy in memory of its own.")  # fmt: skip


# -- public rows of one and two arguments -------------------------------------------------------


def unary(
    name: str,
    function: Callable[..., object],
    d: Any,
    *aliases: str,
    promote: Any = meet_as_float,
    **options: Any,
) -> TensorFunction:
    """A row of one argument, public as function, method and in-place method."""
    op = elementwise(name, function, d, promote=promote, **options)
    return expose_op(op, (name, *aliases), inplace=True, params=("input",))


def binary(
    name: str,
    function: Callable[..., object],
    d: Any,
    *aliases: str,
    promote: Callable[[Sequence[TensorType | type]], dtype] = meet,
    inplace: bool = True,
    **options: Any,
) -> TensorFunction:
    """A row of two arguments, public as function, method and in-place method."""
    op = elementwise(name, function, d, promote=promote, **options)
    return expose_op(op, (name, *aliases), inplace=inplace, params=("input", "other"))


# -- arithmetic ---------------------------------------------------------------------------------

ADD = elementwise("add", np.add, (lambda t, y, a, b: t, lambda t, y, a, b: t),
                  emit=cheap(lambda b, x, y: b.add(x, y)), commutative=True,
                  doc="a + b")  # fmt: skip
SUB = elementwise("sub", np.subtract, (lambda t, y, a, b: t, lambda t, y, a, b: -t),
                  emit=cheap(lambda b, x, y: b.sub(x, y)), promote=meet_to_subtract,
                  doc="a - b")  # fmt: skip
MUL = elementwise("mul", np.multiply, (lambda t, y, a, b: t * b, lambda t, y, a, b: t * a),
                  emit=cheap(lambda b, x, y: b.mul(x, y)), commutative=True,
                  doc="a * b")  # fmt: skip
# The slope in b is written without y: programs scale and mask quotients in place.
DIV = elementwise("div", np.divide, (lambda t, y, a, b: t / b, lambda t, y, a, b: -t * (a / b / b)),
                  promote=meet_as_float, emit=cheap(lambda b, x, y: b.div(x, y)),
                  doc="a / b")  # fmt: skip


def _scaled(input: object, other: Tensor | int, alpha: float) -> Tensor | float:
    """``alpha * other`` in the element type of the sum, which ``alpha`` does not change."""
    if type(alpha) in NUMBERS and alpha == 1:
        return other
    category = max(_category(input), _category(other))
    if isinstance(alpha, float) and category < dtypes.FLOATING:
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    if category == dtypes.BOOL:
        return other & bool(alpha)
    if isinstance(input, Tensor) and isinstance(other, Tensor):
        other = cast(other, result_dtype((input._type, other._type)))
    return other * alpha


def _subtrahend(input: object, other: Tensor | int, alpha: float) -> Tensor | float:
    scaled = _scaled(input, other, alpha)
    if scaled is not other and isinstance(other, Tensor):
        meet_to_subtract([other._type])  # a mask that is scaled is none any more
    return scaled


def _category(operand: object) -> int:
    if isinstance(operand, Tensor):
        return operand.dtype.category
    if isinstance(operand, (bool, np.bool_)):
        return dtypes.BOOL
    return dtypes.INTEGRAL if isinstance(operand, (int, np.integer)) else dtypes.FLOATING


def _older_sum(name: str, alpha: object, others: tuple[object, ...]) -> tuple[object, object]:
    """The arguments of ``add(input, alpha, other)``."""
    if len(others) > 1:
        raise TypeError(f"{name}() takes 2 positional arguments but {len(others) + 2} were given")
    warn_of_older_form(name, ("alpha",), stacklevel=4)
    return others[0], alpha


@expose()
def add(input: Any, other: Any, *older: object, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``"""
    if older:
        other, alpha = _older_sum("add", other, older)
    return bind(ADD, input, _scaled(input, other, alpha))  # type: ignore[no-any-return]


@expose("subtract")
def sub(input: Any, other: Any, *older: object, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``"""
    if older:
        other, alpha = _older_sum("sub", other, older)
    return bind(SUB, input, _subtrahend(input, other, alpha))  # type: ignore[no-any-return]


@expose(function=False)
def add_(self: Tensor, other: Any, *older: object, alpha: Any = 1) -> Tensor:
    """In-place form of ``add``."""
    if older:
        other, alpha = _older_sum("add_", other, older)
    return write_in_place(ADD, self, _scaled(self, other, alpha))


@expose("subtract_", function=False)
def sub_(self: Tensor, other: Any, *older: object, alpha: Any = 1) -> Tensor:
    """In-place form of ``sub``."""
    if older:
        other, alpha = _older_sum("sub_", other, older)
    return write_in_place(SUB, self, _subtrahend(self, other, alpha))


@expose(method=False)
def rsub(input: object, other: object, alpha: object = 1) -> Tensor:
    """``other - alpha * input``"""
    return sub(other, input, alpha=alpha)


mul: TensorFunction = expose_op(MUL, ("mul", "multiply"), inplace=True, params=("input", "other"))


def _div_in_place(self: Tensor, other: object) -> Tensor:
    return write_in_place(DIV, self, other)


@expose("divide", inplace=_div_in_place)
def div(input: object, other: object, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``; rounded towards zero with ``"trunc"``, downwards with ``"floor"``."""
    if rounding_mode is None:
        return bind(DIV, input, other)  # type: ignore[no-any-return]
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        return bind(TRUNC_DIVIDE, input, other)  # type: ignore[no-any-return]
    raise RuntimeError(
        "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
        f"'{rounding_mode}'"
    )


true_divide: TensorFunction = expose_op(
    DIV, ("true_divide",), inplace=True, params=("input", "other")
)


def _no_zero_divisor(function: Callable[..., object]) -> Callable[..., object]:
    """Integers have no infinity, so their division by zero is an error."""

    def checked(a: Array, b: Array, **out: object) -> object:
        integral = np.asarray(b).dtype.kind in "iu" and np.asarray(a).dtype.kind in "iu"
        if integral and not np.all(b):
            raise RuntimeError("ZeroDivisionError: integer division or modulo by zero")
        return function(a, b, **out)

    return checked


def _trunc_divide(a: Array, b: Array, **out: Any) -> object:
    if np.asarray(a).dtype.kind in "iu" and np.asarray(b).dtype.kind in "iu":
        quotient = np.floor_divide(a, b)
        one_up = (quotient < 0) & (quotient * b != a)
        return np.add(quotient, one_up, dtype=quotient.dtype, **out)
    return np.trunc(np.divide(a, b), **out)


NO_SLOPE = (lambda t, y, a, b: zeros_where(t), lambda t, y, a, b: zeros_where(t))


def _int_parts(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Quotient and remainder of integers, rounded towards zero. A divisor of 0 is the error of a
    check before; a processor fails on it, and on the least integer by -1."""
    zero, one = b.number(0), b.number(1)
    if not b.is_signed:
        quotient = b.int_div(x, b.choose(b.eq(y, zero), one, y))
        return quotient, b.sub(x, b.mul(quotient, y))
    is_minus_one = b.eq(y, b.number(-1))
    divisor = b.choose(b.logical_or(is_minus_one, b.eq(y, zero)), one, y)
    quotient = b.int_div(x, divisor)
    rest = b.sub(x, b.mul(quotient, divisor))
    return b.choose(is_minus_one, b.neg(x), quotient), rest


def _is_rounded_up(b: Builder, rest: Value, y: Value) -> Value:
    """Whether rounding a quotient of integers towards zero rounded it upwards."""
    if not b.is_signed:
        return b.lt(b.number(0), b.number(0))
    zero = b.number(0)
    other_sign = b.logical_xor(b.lt(rest, zero), b.lt(y, zero))
    return b.logical_and(other_sign, b.ne(rest, zero))


def _emit_remainder(b: Builder, x: Value, y: Value) -> Value:
    """As Python's ``%``: the sign of the divisor, also of a zero."""
    if not b.is_float:
        _, rest = _int_parts(b, x, y)
        return b.choose(_is_rounded_up(b, rest, y), b.add(rest, y), rest)
    zero = b.number(0)
    rest = b.math("fmod", x, y)
    other_sign = b.logical_xor(b.lt(rest, zero), b.lt(y, zero))
    moved = b.choose(other_sign, b.add(rest, y), rest)
    return b.choose(b.eq(rest, zero), b.copysign(zero, y), moved)


def _emit_floor_divide(b: Builder, x: Value, y: Value) -> Value:
    """As NumPy's: from the remainder, which is exact."""
    if not b.is_float:
        whole, rest = _int_parts(b, x, y)
        return b.choose(_is_rounded_up(b, rest, y), b.sub(whole, b.number(1)), whole)
    zero, one = b.number(0), b.number(1)
    plain = b.div(x, y)
    rest = b.math("fmod", x, y)
    quotient = b.div(b.sub(x, rest), y)
    other_sign = b.logical_xor(b.lt(rest, zero), b.lt(y, zero))
    below = b.logical_and(other_sign, b.ne(rest, zero))
    quotient = b.choose(below, b.sub(quotient, one), quotient)
    whole = b.floor(quotient)
    up = b.gt(b.sub(quotient, whole), b.number(0.5))
    whole = b.choose(up, b.add(whole, one), whole)
    whole = b.choose(b.eq(quotient, zero), b.copysign(zero, plain), whole)
    return b.choose(b.eq(y, zero), plain, whole)


def _emit_trunc_divide(b: Builder, x: Value, y: Value) -> Value:
    return b.trunc(b.div(x, y)) if b.is_float else _int_parts(b, x, y)[0]


def _emit_fmod(b: Builder, x: Value, y: Value) -> Value:
    return b.math("fmod", x, y) if b.is_float else _int_parts(b, x, y)[1]


# The division of integers by zero is an error: programs check divisors before.
floor_divide: TensorFunction = binary(
    "floor_divide", _no_zero_divisor(np.floor_divide), NO_SLOPE,
    accepts=real_number, emit=cheap(_emit_floor_divide), eager_loop=True,
    doc="The quotient rounded downwards.",
)  # fmt: skip
TRUNC_DIVIDE = elementwise(
    "trunc_divide", _no_zero_divisor(_trunc_divide), NO_SLOPE,
    accepts=real_number,
    emit=cheap(_emit_trunc_divide),
    doc="The quotient rounded towards zero.",
)  # fmt: skip
remainder: TensorFunction = binary(
    "remainder", _no_zero_divisor(np.remainder),
    (lambda t, y, a, b: t, lambda t, y, a, b: -t * floor_divide(a, b)),
    accepts=real_number, emit=expensive(_emit_remainder),
    doc="What division leaves over, with the divisor's sign.",
)  # fmt: skip
fmod: TensorFunction = binary(
    "fmod", _no_zero_divisor(np.fmod),
    (lambda t, y, a, b: t, lambda t, y, a, b: -t * bind(TRUNC_DIVIDE, a, b)),
    accepts=real_number,
    emit=expensive(_emit_fmod),
    doc="What division leaves over, with the dividend's sign.",
)  # fmt: skip


def _pow_eval(a: Any, b: Any, **out: Any) -> object:
    if np.asarray(b).dtype.kind in "iu" and np.asarray(a).dtype.kind in "iu" and np.any(b < 0):
        ones = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
        powers = np.power(a, np.maximum(b, 0))
        return np.add(np.where(b < 0, ones, powers), 0, dtype=a.dtype, **out)
    if isinstance(b, (int, float, np.generic)) and getattr(a, "dtype", None) in _PLAIN_FLOATS:
        return _float_power(a, float(b), **out)
    return np.power(a, b, **out)


_PLAIN_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


def _float_power(a: Any, b: float, **out: Any) -> object:
    """Small powers by products, as in PyTorch. Other whole ones by magnitudes: NumPy takes 50 times
    as long for negative numbers."""
    if b == 3:
        return np.multiply(np.multiply(a, a), a, **out)
    if b == -1:
        return np.divide(1, a, **out)
    if b == -2:
        return np.divide(1, np.multiply(a, a), **out)
    if not b.is_integer():
        return np.power(a, a.dtype.type(b), **out)
    if b % 2 == 0:
        return np.power(np.abs(a), a.dtype.type(b), **out)
    return np.copysign(np.power(np.abs(a), a.dtype.type(b)), a, **out)


def _pow_base(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return where(b == 0, 0, t * (b * bind(POW, a, b - 1)))


def _pow_exponent(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    dead = (a == 0) & ((b >= 0) if not b.dtype.is_complex else (real(b) >= 0))
    return where(dead, 0, t * (y * log(where(dead, 1, a))))


POW = elementwise("pow", _pow_eval, (_pow_base, _pow_exponent), accepts=not_bool,
                  emit=expensive(lambda b, x, y: b.pow(x, y), floats=True), eager_loop=False,
                  doc="a to the power of b")  # fmt: skip


def _meet_as_number(types: Sequence[ArgType]) -> dtype:
    """Booleans become integers."""
    found = meet(types)
    return dtypes.int64 if found is dtypes.bool_ else found


square: TensorFunction = unary(
    "square", np.square, lambda t, y, x: t * (x * 2), promote=_meet_as_number,
               emit=cheap(lambda b, x: b.mul(x, x)), doc="x * x")  # fmt: skip


@expose(inplace=True)
def pow(input: Any, exponent: Any) -> Tensor:
    """``input`` to the power of ``exponent``."""
    if exponent.__class__ is bool and isinstance(input, Tensor) and input.dtype is dtypes.bool_:
        return input | (not exponent)
    if type(exponent) in (int, float, PythonNumber) and isinstance(input, Tensor):
        if exponent == 2 and input.dtype.category >= dtypes.INTEGRAL:
            if input.dtype.category == dtypes.INTEGRAL and isinstance(exponent, float):
                return square(cast(input, dtypes.get_default_dtype()))
            return square(input)
        if exponent == 0.5 and input.dtype.category >= dtypes.FLOATING:
            return sqrt(input)
        if exponent == 1 and input.dtype.category >= dtypes.FLOATING:
            return bind(CLONE, input)  # type: ignore[no-any-return]
        if exponent < 0 and exponent.__class__ is int and input.dtype.category <= dtypes.INTEGRAL:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
    return bind(POW, input, fitting(exponent, input))  # type: ignore[no-any-return]


@expose(inplace=True)
def float_power(input: object, exponent: object) -> Tensor:
    """``pow`` in double precision."""
    kinds = [a._type if isinstance(a, Tensor) else a.__class__ for a in (input, exponent)]
    found = result_dtype(kinds)
    wide = dtypes.complex128 if found.is_complex else dtypes.float64
    widened = [cast(a, wide) if isinstance(a, Tensor) else a for a in (input, exponent)]
    return bind(POW, *widened)  # type: ignore[no-any-return]


neg: TensorFunction = unary(
    "neg", np.negative, lambda t, y, x: -t, "negative", promote=meet, accepts=not_bool,
            emit=cheap(lambda b, x: b.neg(x)), doc="-x")  # fmt: skip


NEG = row_of(neg)


@expose()
def positive(input: Tensor) -> Tensor:
    """The tensor itself."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


reciprocal: TensorFunction = unary("reciprocal", np.reciprocal, lambda t, y, x: -t * (y * y),
                   emit=cheap(lambda b, x: b.div(b.number(1), x)), eager_loop=True,
                   doc="1 / x")  # fmt: skip


# -- powers, exponentials, logarithms -----------------------------------------------------------

sqrt: TensorFunction = unary(
    "sqrt", np.sqrt, lambda t, y, x: t / (y * 2), emit=cheap(lambda b, x: b.sqrt(x)),
             doc="The square root.")  # fmt: skip
rsqrt: TensorFunction = unary("rsqrt", lambda x, **out: np.reciprocal(np.sqrt(x), **out),
              lambda t, y, x: t * (y * y * y) * -0.5,
              emit=cheap(lambda b, x: b.div(b.number(1), b.sqrt(x))), eager_loop=True,
              doc="1 / sqrt(x)")  # fmt: skip
exp: TensorFunction = unary(
    "exp", np.exp, lambda t, y, x: t * y, emit=elementary("exp"),
            doc="e to the power of x.")  # fmt: skip
exp2: TensorFunction = unary("exp2", np.exp2, lambda t, y, x: t * (y * math.log(2)),
             emit=elementary("exp2"), doc="2 to the power of x.")  # fmt: skip
expm1: TensorFunction = unary("expm1", blocked.expm1, lambda t, y, x: t * (y + 1),
              emit=elementary("expm1"),
              doc="exp(x) - 1, exact near 0.")  # fmt: skip
log: TensorFunction = unary("log", np.log, lambda t, y, x: t / x, emit=elementary("log"),
            doc="The natural logarithm.")  # fmt: skip
log2: TensorFunction = unary("log2", np.log2, lambda t, y, x: t / (x * math.log(2)),
             emit=elementary("log2"), doc="The logarithm base 2.")  # fmt: skip
log10: TensorFunction = unary("log10", np.log10, lambda t, y, x: t / (x * math.log(10)),
              emit=elementary("log10"), doc="The logarithm base 10.")  # fmt: skip
log1p: TensorFunction = unary("log1p", blocked.log1p, lambda t, y, x: t / (x + 1),
              emit=elementary("log1p"), doc="log(1 + x), exact near 0.")  # fmt: skip


RECIPROCAL, EXP = row_of(reciprocal), row_of(exp)


def _sigmoid_eval(x: Array) -> Array:
    total = np.exp(np.negative(x))
    total += 1
    return np.reciprocal(total, out=total)


sigmoid: TensorFunction = unary(
    "sigmoid", blocked.in_pieces(_sigmoid_eval), lambda t, y, x: t * (y * (1 - y)),
                emit=elementary("sigmoid"), eager_loop=True,
                doc="1 / (1 + exp(-x))")  # fmt: skip
relu: TensorFunction = unary(
    "relu", lambda x, **out: np.maximum(x, 0, **out), lambda t, y, x: where(y <= 0, 0, t),
    promote=meet, accepts=real_number,
    emit=cheap(lambda b, x: b.choose(b.lt(x, b.number(0)), b.number(0), x)),
    eager_loop=True, doc="max(x, 0); slope 0 at 0.",
)  # fmt: skip


# -- choosing -----------------------------------------------------------------------------------


def _half_where_equal(t: Tensor, a: Tensor, b: Tensor, lost: Tensor) -> Tensor:
    """Equal ones share the slope; where one is NaN neither lost, and both have it."""
    return where(lost, 0, where(a == b, t / 2, t))


maximum: TensorFunction = binary(
    "maximum", np.maximum,
    (lambda t, y, a, b: _half_where_equal(t, a, b, a < b),
     lambda t, y, a, b: _half_where_equal(t, a, b, a > b)),
    accepts=not_complex, inplace=False, emit=cheap(lambda b, x, y: b.maximum(x, y)),
    commutative=True,
    doc="The larger of two; NaN if either is.",
)  # fmt: skip
minimum: TensorFunction = binary(
    "minimum", np.minimum,
    (lambda t, y, a, b: _half_where_equal(t, a, b, a > b),
     lambda t, y, a, b: _half_where_equal(t, a, b, a < b)),
    accepts=not_complex, inplace=False, emit=cheap(lambda b, x, y: b.minimum(x, y)),
    commutative=True,
    doc="The smaller of two; NaN if either is.",
)  # fmt: skip


def _number_of_two(b: Builder, x: Value, y: Value, value: Value) -> Value:
    """``value``, or the other where one of two is NaN."""
    return b.choose(b.is_nan(x), y, b.choose(b.is_nan(y), x, value))


fmax: TensorFunction = binary(
    "fmax", np.fmax,
    (lambda t, y, a, b: where((a >= b) | (b != b), t, 0),
     lambda t, y, a, b: where((a >= b) | (b != b), 0, t)),
    accepts=not_complex, inplace=False,
    emit=cheap(lambda b, x, y: _number_of_two(b, x, y, b.maximum(x, y))),
    doc="The larger of two; NaN only if both are.",
)  # fmt: skip
fmin: TensorFunction = binary(
    "fmin", np.fmin,
    (lambda t, y, a, b: where((a <= b) | (b != b), t, 0),
     lambda t, y, a, b: where((a <= b) | (b != b), 0, t)),
    accepts=not_complex, inplace=False,
    emit=cheap(lambda b, x, y: _number_of_two(b, x, y, b.minimum(x, y))),
    doc="The smaller of two; NaN only if both are.",
)  # fmt: skip


def _where_type(c: TensorType, a: TensorType, b: TensorType) -> TensorType:
    if c.dtype is not dtypes.bool_:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{c.dtype.name}. Compare (condition > 0), or convert with .bool()."
        )
    return tensor_type(broadcast_shapes(c.shape, a.shape, b.shape), a.dtype)


def _where_transpose(g: Tensor, c: Tensor, a: Tensor, b: Tensor) -> tuple[None, Tensor, Tensor]:
    return (
        None,
        sum_to_type(where(c, g, 0), a._type),
        sum_to_type(where(c, 0, g), b._type),
    )


def _where_meet(types: Sequence[TensorType | type]) -> tuple[dtype, ...]:
    condition = types[0].dtype if isinstance(types[0], TensorType) else dtypes.bool_
    if condition is dtypes.uint8:
        condition = dtypes.bool_
    common = result_dtype(types[1:])
    return condition, common, common


WHERE = linear("where", blocked.where, _where_type, _where_transpose,
               batch=batch_elementwise, arguments=(1, 2), promote=_where_meet,
               eager_loop=True, emit=cheap(
                   lambda b, c, x, y: b.choose(c, x, y), exact=True, integers=True
               ),
               autocast=AutocastPolicy.KEEP, eager_derivative=1 << 14, shape_generic=True,
               doc="a where the condition holds, else b.")  # fmt: skip
WHERE.selects = True


def fitting(number: object, beside: object) -> object:
    """A number that does not fit the integers it stands beside would wrap around: refused."""
    if number.__class__ is not int or not isinstance(beside, Tensor):
        return number
    if beside.dtype.category == dtypes.INTEGRAL:
        check_number(number, beside.dtype)
    return number


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Tensor, input: object, other: object) -> Tensor: ...
@late_bound
@expose(method=False)
def where(condition: Tensor, input: Any = None, other: object = None) -> Any:
    """``input`` where the condition holds, ``other`` elsewhere."""
    if input is None and other is None:
        return ops.nonzero(condition, as_tuple=True)
    return bind(WHERE, condition, fitting(input, other), fitting(other, input))


@expose("where", function=False)
def _where_method(self: Tensor, condition: Tensor, other: object) -> Tensor:
    """The tensor where the condition holds, ``other`` elsewhere."""
    return where(condition, self, other)


# -- operators ----------------------------------------------------------------------------------

operator("__add__", ADD, reflected="__radd__", inplace="add_")
operator("__sub__", SUB, reflected="__rsub__", inplace="sub_")
operator("__mul__", MUL, reflected="__rmul__", inplace="mul_")
operator("__truediv__", DIV, reflected="__rtruediv__", inplace="div_")
setattr(Tensor, "__rdiv__", Tensor.__rtruediv__)  # noqa: B010 - not an attribute of the class
Tensor.__rtruediv__.__name__ = "__rdiv__"  # as in PyTorch, for __torch_function__
operator("__floordiv__", floor_divide, reflected="__rfloordiv__", inplace="floor_divide_")
operator("__mod__", remainder, reflected="__rmod__", inplace="remainder_")
operator("__pow__", pow, reflected="__rpow__", inplace="pow_")
Tensor.__pow__.__name__ = "pow"
expose("__neg__", function=False)(neg)
expose("__pos__", function=False)(positive)
