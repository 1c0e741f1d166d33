"""Rows that compute each element by itself: arithmetic, functions, rounding.

Comparisons, logic and bits are in :mod:`evergrad.ops.logic`, special functions in
:mod:`evergrad.ops.special`. In each formula ``t`` is the tangent and ``y`` the result.

At the edges: ``sqrt`` has slope inf at 0; ``abs`` and ``sign`` have slope 0 at 0; ``maximum`` and
``minimum`` give each of two equal arguments half; ``pow(x, 0)`` has slope 0 in ``x`` everywhere,
``pow(0, y)`` slope 0 in ``y`` for ``y >= 0``; ``where`` gives the branch not taken exactly 0.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any, overload

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast, write_in_place
from evergrad.core.dtypes import dtype
from evergrad.core.families import elementwise, linear, meet, meet_as_float, result_dtype
from evergrad.core.op import ArgType, Op
from evergrad.core.shapes import TensorType, broadcast_shapes, tensor_type
from evergrad.core.tensor import Tensor
from evergrad.ops import pieces
from evergrad.ops.public import NUMBERS, TensorFunction, expose, expose_op, operator

ZERO_SLOPE = (lambda t, y, x: zeros_where(t),)


def zeros_where(t: Tensor) -> Tensor:
    """A zero tangent."""
    from evergrad.ops.creation import zeros_like

    return zeros_like(t)


# -- casts and copies ---------------------------------------------------------------------------


def _cast_type(x: TensorType, *, dtype: dtype) -> TensorType:
    return tensor_type(x.shape, dtype)


def _cast_eval(x: Any, *, dtype: dtype) -> Any:
    if x.dtype.kind == "c" and dtypes.BOOL < dtype.category < dtypes.COMPLEX:
        x = x.real
    if dtype.category <= dtypes.INTEGRAL and x.dtype.kind in "fV" and dtype is not dtypes.bool_:
        # As C casts do: through int64, wrapping around.
        with np.errstate(all="ignore"):
            return x.astype(np.int64).astype(dtype.np)
    return x.astype(dtype.np)


def _cast_back(g: Tensor, x: Tensor, *, dtype: dtype) -> Any:
    return cast(g, x.dtype) if x.dtype.category >= dtypes.FLOATING else None


def _batch_same(op: Op, args: Sequence[Any], dims: Sequence[Any], **attrs: Any) -> Any:
    return bind(op, *args, **attrs), dims[0]


CAST = linear("cast", _cast_eval, _cast_type, _cast_back, batch=_batch_same,
              doc="The same numbers in another element type.")  # fmt: skip


def _copy(x: Any) -> Any:
    from evergrad.memory import pool

    out = pool.empty(x.shape, x.dtype)
    np.copyto(out, x)
    return out


CLONE = linear("clone", _copy, lambda x: x, lambda g, x: g, batch=_batch_same,
               doc="A copy in memory of its own.")  # fmt: skip


# -- helpers for this module --------------------------------------------------------------------


def _numeric(d: dtype) -> bool:
    return d is not dtypes.bool_


def _real(d: dtype) -> bool:
    return not d.is_complex


def unary(
    name: str,
    function: Callable[..., Any],
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
    function: Callable[..., Any],
    d: Any,
    *aliases: str,
    promote: Any = meet,
    inplace: bool = True,
    **options: Any,
) -> TensorFunction:
    """A row of two arguments, public as function, method and in-place method."""
    op = elementwise(name, function, d, promote=promote, **options)
    return expose_op(op, (name, *aliases), inplace=inplace, params=("input", "other"))


# -- arithmetic ---------------------------------------------------------------------------------

ADD = elementwise("add", np.add, (lambda t, y, a, b: t, lambda t, y, a, b: t), doc="a + b")
SUB = elementwise("sub", np.subtract, (lambda t, y, a, b: t, lambda t, y, a, b: -t), doc="a - b",
                  accepts=_numeric)  # fmt: skip
MUL = elementwise("mul", np.multiply, (lambda t, y, a, b: t * b, lambda t, y, a, b: t * a),
                  doc="a * b")  # fmt: skip
DIV = elementwise("div", np.divide, (lambda t, y, a, b: t / b, lambda t, y, a, b: -t * (y / b)),
                  promote=meet_as_float, doc="a / b")  # fmt: skip


def _scaled(other: Any, alpha: Any) -> Any:
    if alpha.__class__ in NUMBERS and alpha == 1:
        return other
    integral = not isinstance(other, Tensor) or other.dtype.category < dtypes.FLOATING
    if isinstance(alpha, float) and integral and not isinstance(other, float):
        raise RuntimeError(
            "For integral input tensors, argument alpha must not be a floating point number."
        )
    return other * alpha


@expose()
def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``"""
    return bind(ADD, input, _scaled(other, alpha))  # type: ignore[no-any-return]


@expose("subtract")
def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``"""
    return bind(SUB, input, _scaled(other, alpha))  # type: ignore[no-any-return]


@expose(function=False)
def add_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """In-place form of ``add``."""
    return write_in_place(ADD, self, _scaled(other, alpha))


@expose(function=False)
def sub_(self: Tensor, other: Any, *, alpha: Any = 1) -> Tensor:
    """In-place form of ``sub``."""
    return write_in_place(SUB, self, _scaled(other, alpha))


@expose(method=False)
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``other - alpha * input``"""
    return sub(other, input, alpha=alpha)


mul = expose_op(MUL, ("mul", "multiply"), inplace=True, params=("input", "other"))


@expose("divide", inplace=True)
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
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


true_divide = expose_op(DIV, ("true_divide",), inplace=True, params=("input", "other"))


def _no_zero_divisor(function: Callable[..., Any]) -> Callable[..., Any]:
    """Integers have no infinity, so their division by zero is an error."""

    def checked(a: Any, b: Any, **out: Any) -> Any:
        integral = np.asarray(b).dtype.kind in "iub" and np.asarray(a).dtype.kind in "iub"
        if integral and not np.all(b):
            raise RuntimeError("ZeroDivisionError: integer division or modulo by zero")
        return function(a, b, **out)

    return checked


def _trunc_divide(a: Any, b: Any, **out: Any) -> Any:
    if a.dtype.kind in "iu":
        quotient = np.floor_divide(a, b)
        return np.add(quotient, (quotient < 0) & (quotient * b != a), dtype=a.dtype, **out)
    return np.trunc(np.divide(a, b), **out)


NO_SLOPE = (lambda t, y, a, b: zeros_where(t), lambda t, y, a, b: zeros_where(t))

floor_divide = binary("floor_divide", _no_zero_divisor(np.floor_divide), NO_SLOPE, accepts=_real,
                      doc="The quotient rounded downwards.")  # fmt: skip
TRUNC_DIVIDE = elementwise("trunc_divide", _no_zero_divisor(_trunc_divide), NO_SLOPE,
                           accepts=_real, doc="The quotient rounded towards zero.")  # fmt: skip
remainder = binary(
    "remainder", _no_zero_divisor(np.remainder),
    (lambda t, y, a, b: t, lambda t, y, a, b: -t * floor_divide(a, b)),
    accepts=_real, doc="What division leaves over, with the divisor's sign.",
)  # fmt: skip
fmod = binary(
    "fmod", _no_zero_divisor(np.fmod),
    (lambda t, y, a, b: t, lambda t, y, a, b: -t * bind(TRUNC_DIVIDE, a, b)),
    accepts=_real, doc="What division leaves over, with the dividend's sign.",
)  # fmt: skip


def _pow_eval(a: Any, b: Any, **out: Any) -> Any:
    if np.asarray(b).dtype.kind in "iu" and np.asarray(a).dtype.kind in "iu" and np.any(b < 0):
        ones = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
        return np.add(np.where(b < 0, ones, np.power(a, np.abs(b))), 0, dtype=a.dtype, **out)
    return np.power(a, b, **out)


def _pow_base(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return where(b == 0, 0, t * (b * bind(POW, a, b - 1)))


def _pow_exponent(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    dead = (a == 0) & ((b >= 0) if not b.dtype.is_complex else (real(b) >= 0))
    return where(dead, 0, t * (y * log(where(dead, 1, a))))


POW = elementwise("pow", _pow_eval, (_pow_base, _pow_exponent), doc="a to the power of b")


def _meet_as_number(types: Sequence[ArgType]) -> dtype:
    """Booleans become integers."""
    found = meet(types)
    return dtypes.int64 if found is dtypes.bool_ else found


square = unary("square", np.square, lambda t, y, x: t * (x * 2), promote=_meet_as_number,
               doc="x * x")  # fmt: skip


@expose(inplace=True)
def pow(input: Any, exponent: Any) -> Tensor:
    """``input`` to the power of ``exponent``."""
    if exponent.__class__ in (int, float) and isinstance(input, Tensor):
        if exponent == 2 and input.dtype.category >= dtypes.INTEGRAL:
            if input.dtype.category == dtypes.INTEGRAL and isinstance(exponent, float):
                return square(cast(input, dtypes.get_default_dtype()))
            return square(input)
        if exponent == 0.5 and input.dtype.category >= dtypes.FLOATING:
            return sqrt(input)
        if exponent == 1 and input.dtype.category >= dtypes.FLOATING:
            return bind(CLONE, input)  # type: ignore[no-any-return]
        if exponent < 0 and exponent.__class__ is int and input.dtype.category == dtypes.INTEGRAL:
            raise RuntimeError("Integers to negative integer powers are not allowed.")
    return bind(POW, input, exponent)  # type: ignore[no-any-return]


@expose()
def float_power(input: Any, exponent: Any) -> Tensor:
    """``pow`` in double precision."""
    found = result_dtype([a._type if isinstance(a, Tensor) else type(a) for a in (input, exponent)])
    wide = dtypes.complex128 if found.is_complex else dtypes.float64
    widened = [cast(a, wide) if isinstance(a, Tensor) else a for a in (input, exponent)]
    return bind(POW, *widened)  # type: ignore[no-any-return]


neg = unary("neg", np.negative, lambda t, y, x: -t, "negative", promote=meet, accepts=_numeric,
            doc="-x")  # fmt: skip


@expose()
def positive(input: Tensor) -> Tensor:
    """The tensor itself."""
    if input.dtype is dtypes.bool_:
        raise RuntimeError("The `+` operator, on a bool tensor is not supported.")
    return input


reciprocal = unary("reciprocal", np.reciprocal, lambda t, y, x: -t * (y * y), doc="1 / x")


# -- complex numbers ----------------------------------------------------------------------------


def conj(input: Tensor) -> Tensor:
    """The complex conjugate; real tensors as they are."""
    return bind(CONJ, input) if input.dtype.is_complex else input


CONJ = elementwise("conj", np.conjugate, (lambda t, y, x: conj(t),), holomorphic=False,
                   doc="The complex conjugate.")  # fmt: skip
expose("conj_physical", "resolve_conj")(conj)


def real(input: Tensor) -> Tensor:
    """The real part; real tensors as they are."""
    from evergrad.ops.complex_parts import real as real_part

    return real_part(input)


def _slope_of_abs(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return t * sgn(x)


def _abs_type(d: dtype) -> dtype:
    return d.to_real()


abs_real = elementwise("abs", np.absolute, (_slope_of_abs,), accepts=_real, doc="|x|")
ABS_COMPLEX: Op


def _complex_abs_rules() -> Op:
    """|z| maps complex to real: both derivatives are written for real directions."""

    def vjp(g: Tensor, out: Tensor, z: Tensor) -> Tensor:
        return sgn(z) * cast(g, z.dtype)

    def jvp(tangents: Any, out: Tensor, z: Tensor) -> Tensor:
        return real(conj(sgn(z)) * tangents[0])

    from evergrad.core.families import batch_elementwise, opaque

    return opaque(
        "abs_complex", np.absolute, lambda z: tensor_type(z.shape, z.dtype.to_real()), vjp, jvp=jvp,
        batch=batch_elementwise, doc="|z| of complex numbers.",
    )  # fmt: skip


@expose("absolute", inplace=True)
def abs(input: Tensor) -> Tensor:
    """The absolute value."""
    if input.dtype.is_complex:
        return bind(ABS_COMPLEX, input)  # type: ignore[no-any-return]
    if input.dtype is dtypes.bool_:
        return bind(CLONE, input)  # type: ignore[no-any-return]
    return bind(abs_real, input)  # type: ignore[no-any-return]


def _sign_eval(x: Any) -> Any:
    """NaN has no sign either: 0."""
    return x.copy() if x.dtype.kind == "b" else np.subtract((x > 0).astype(x.dtype), x < 0)


sign = unary("sign", _sign_eval, ZERO_SLOPE, promote=meet, accepts=_real, takes_out=False,
             doc="-1, 0 or 1.")  # fmt: skip


def _sgn_eval(z: Any) -> Any:
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
                  doc="z / |z|, and 0 at 0.")  # fmt: skip
sgn = expose_op(SGN, ("sgn",), inplace=True, params=("input",))
ABS_COMPLEX = _complex_abs_rules()


# -- powers, exponentials, logarithms -----------------------------------------------------------

sqrt = unary("sqrt", np.sqrt, lambda t, y, x: t / (y * 2), doc="The square root.")
rsqrt = unary("rsqrt", lambda x, **out: np.reciprocal(np.sqrt(x), **out),
              lambda t, y, x: t * (y * y * y) * -0.5, doc="1 / sqrt(x)")  # fmt: skip
exp = unary("exp", np.exp, lambda t, y, x: t * y, doc="e to the power of x.")
exp2 = unary("exp2", np.exp2, lambda t, y, x: t * (y * math.log(2)), doc="2 to the power of x.")
expm1 = unary("expm1", pieces.expm1, lambda t, y, x: t * (y + 1), doc="exp(x) - 1, exact near 0.")
log = unary("log", np.log, lambda t, y, x: t / x, doc="The natural logarithm.")
log2 = unary("log2", np.log2, lambda t, y, x: t / (x * math.log(2)), doc="The logarithm base 2.")
log10 = unary("log10", np.log10, lambda t, y, x: t / (x * math.log(10)),
              doc="The logarithm base 10.")  # fmt: skip
log1p = unary("log1p", pieces.log1p, lambda t, y, x: t / (x + 1), doc="log(1 + x), exact near 0.")

# -- trigonometric and hyperbolic ---------------------------------------------------------------

sin = unary("sin", np.sin, lambda t, y, x: t * cos(x), doc="The sine.")
cos: TensorFunction = unary("cos", np.cos, lambda t, y, x: -t * sin(x), doc="The cosine.")
tan = unary("tan", np.tan, lambda t, y, x: t * (y * y + 1), doc="The tangent.")
asin = unary("asin", np.arcsin, lambda t, y, x: t * rsqrt(1 - x * x), "arcsin",
             doc="The inverse sine.")  # fmt: skip
acos = unary("acos", np.arccos, lambda t, y, x: -t * rsqrt(1 - x * x), "arccos",
             doc="The inverse cosine.")  # fmt: skip
atan = unary("atan", np.arctan, lambda t, y, x: t / (x * x + 1), "arctan",
             doc="The inverse tangent.")  # fmt: skip
sinh = unary("sinh", np.sinh, lambda t, y, x: t * cosh(x), doc="The hyperbolic sine.")
cosh: TensorFunction = unary(
    "cosh", np.cosh, lambda t, y, x: t * sinh(x), doc="The hyperbolic cosine."
)
tanh = unary("tanh", np.tanh, lambda t, y, x: t * (1 - y * y), doc="The hyperbolic tangent.")
asinh = unary("asinh", np.arcsinh, lambda t, y, x: t * rsqrt(x * x + 1), "arcsinh",
              doc="The inverse hyperbolic sine.")  # fmt: skip


def _acosh_slope(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Of complex numbers the roots are taken apart, so that each is on the right branch."""
    if x.dtype.is_complex:
        return t * (rsqrt(x + 1) * rsqrt(x - 1))
    return t * rsqrt(x * x - 1)


acosh = unary("acosh", np.arccosh, _acosh_slope, "arccosh",
              doc="The inverse hyperbolic cosine.")  # fmt: skip
atanh = unary("atanh", np.arctanh, lambda t, y, x: t / (1 - x * x), "arctanh",
              doc="The inverse hyperbolic tangent.")  # fmt: skip


def _atan2_a(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return t * (b / _nonzero_square_sum(a, b))


def _atan2_b(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return -t * (a / _nonzero_square_sum(a, b))


def _nonzero_square_sum(a: Tensor, b: Tensor) -> Tensor:
    total = a * a + b * b
    return where(total == 0, 1, total)  # the slope at the origin is taken as 0


atan2 = binary("atan2", np.arctan2, (_atan2_a, _atan2_b), "arctan2", promote=meet_as_float,
               accepts=_real, doc="The angle of the point (b, a).")  # fmt: skip
hypot = binary(
    "hypot", np.hypot,
    (lambda t, y, a, b: t * (a / where(y == 0, 1, y)),
     lambda t, y, a, b: t * (b / where(y == 0, 1, y))),
    promote=meet_as_float, accepts=_real, doc="sqrt(a*a + b*b) without overflow.",
)  # fmt: skip


def _sigmoid_eval(x: Any, **out: Any) -> Any:
    total = np.exp(np.negative(x))
    total += 1
    return np.reciprocal(total, **out)


sigmoid = unary("sigmoid", _sigmoid_eval, lambda t, y, x: t * (y * (1 - y)),
                doc="1 / (1 + exp(-x))")  # fmt: skip
relu = unary("relu", lambda x, **out: np.maximum(x, 0, **out), lambda t, y, x: where(y <= 0, 0, t),
             promote=meet, accepts=_real, doc="max(x, 0); slope 0 at 0.")  # fmt: skip

# -- rounding -----------------------------------------------------------------------------------


def _rounding(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, **out: function(x, **out) if x.dtype.kind in "fV" else np.positive(x, **out)


floor = unary("floor", _rounding(np.floor), ZERO_SLOPE, promote=meet, accepts=_real,
              doc="Rounded downwards.")  # fmt: skip
ceil = unary("ceil", _rounding(np.ceil), ZERO_SLOPE, promote=meet, accepts=_real,
             doc="Rounded upwards.")  # fmt: skip
trunc = unary("trunc", _rounding(np.trunc), ZERO_SLOPE, "fix", promote=meet, accepts=_real,
              doc="Rounded towards zero.")  # fmt: skip
frac = unary("frac", lambda x, **out: np.subtract(x, np.trunc(x), **out), lambda t, y, x: t,
             promote=meet, accepts=_real, doc="x - trunc(x)")  # fmt: skip
ROUND = elementwise("round", _rounding(np.rint), ZERO_SLOPE, accepts=_real,
                    doc="Rounded to the nearest integer, ties to the even one.")  # fmt: skip


@expose(inplace=True)
def round(input: Tensor, *, decimals: int = 0) -> Tensor:
    """Rounded to ``decimals`` places, ties to even."""
    if decimals == 0:
        return bind(ROUND, input)  # type: ignore[no-any-return]
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return bind(ROUND, input * scale) / scale  # type: ignore[no-any-return]
    return bind(ROUND, input / scale) * scale  # type: ignore[no-any-return]


# -- choosing -----------------------------------------------------------------------------------


def _half_where_equal(t: Tensor, a: Tensor, b: Tensor, lost: Tensor) -> Tensor:
    """Equal ones share the slope; where one is NaN neither lost, and both have it."""
    return where(lost, 0, where(a == b, t / 2, t))


maximum = binary(
    "maximum", np.maximum,
    (lambda t, y, a, b: _half_where_equal(t, a, b, a < b),
     lambda t, y, a, b: _half_where_equal(t, a, b, a > b)),
    accepts=_real, inplace=False, doc="The larger of two; NaN if either is.",
)  # fmt: skip
minimum = binary(
    "minimum", np.minimum,
    (lambda t, y, a, b: _half_where_equal(t, a, b, a > b),
     lambda t, y, a, b: _half_where_equal(t, a, b, a < b)),
    accepts=_real, inplace=False, doc="The smaller of two; NaN if either is.",
)  # fmt: skip
fmax = binary(
    "fmax", np.fmax,
    (lambda t, y, a, b: where((a >= b) | (b != b), t, 0),
     lambda t, y, a, b: where((a >= b) | (b != b), 0, t)),
    accepts=_real, inplace=False, doc="The larger of two; NaN only if both are.",
)  # fmt: skip
fmin = binary(
    "fmin", np.fmin,
    (lambda t, y, a, b: where((a <= b) | (b != b), t, 0),
     lambda t, y, a, b: where((a <= b) | (b != b), 0, t)),
    accepts=_real, inplace=False, doc="The smaller of two; NaN only if both are.",
)  # fmt: skip


def _where_type(c: TensorType, a: TensorType, b: TensorType) -> TensorType:
    if c.dtype is not dtypes.bool_ and c.dtype is not dtypes.uint8:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{c.dtype.name}"
        )
    return tensor_type(broadcast_shapes(c.shape, a.shape, b.shape), a.dtype)


def _where_transpose(g: Tensor, c: Tensor, a: Tensor, b: Tensor) -> Any:
    from evergrad.ops.movement import sum_to_type

    return (
        None,
        sum_to_type(where(c, g, 0), a._type),
        sum_to_type(where(c, 0, g), b._type),
    )


def _batch_where(op: Op, args: Sequence[Any], dims: Sequence[Any], **attrs: Any) -> Any:
    from evergrad.core.families import batch_elementwise

    return batch_elementwise(op, args, dims, **attrs)


def _where_meet(types: Sequence[Any]) -> tuple[dtype, ...]:
    condition = types[0].dtype if isinstance(types[0], TensorType) else dtypes.bool_
    common = result_dtype(types[1:])
    return condition, common, common


WHERE = linear("where", lambda c, a, b: np.where(c, a, b), _where_type, _where_transpose,
               batch=_batch_where, arguments=(1, 2), promote=_where_meet,
               doc="a where the condition holds, else b.")  # fmt: skip
WHERE.chooses = True


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Tensor, input: Any, other: Any) -> Tensor: ...
@expose(method=False)
def where(condition: Tensor, input: Any = None, other: Any = None) -> Any:
    """``input`` where the condition holds, ``other`` elsewhere."""
    if input is None and other is None:
        from evergrad.ops.indexing import nonzero

        return nonzero(condition, as_tuple=True)
    return bind(WHERE, condition, input, other)


@expose("where", function=False)
def _where_method(self: Tensor, condition: Tensor, other: Any) -> Tensor:
    """The tensor where the condition holds, ``other`` elsewhere."""
    return where(condition, self, other)


@expose("clip", inplace=True)
def clamp(input: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Held between ``min`` and ``max``; the slope is 1 inside and on the bounds, else 0."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if min is not None and max is not None:
        if not isinstance(min, Tensor) and not isinstance(max, Tensor):
            return bind(CLAMP, input, min, max)  # type: ignore[no-any-return]
        return clamp(clamp(input, min=min), max=max)
    return bind(CLAMP_MAX, input, max) if min is None else bind(CLAMP_MIN, input, min)  # type: ignore[no-any-return]


CLAMP_MIN = elementwise(
    "clamp_min", np.maximum,
    (lambda t, y, x, low: where(x >= low, t, 0), lambda t, y, x, low: where(x < low, t, 0)),
    accepts=_real, doc="Held above a bound.",
)  # fmt: skip
CLAMP_MAX = elementwise(
    "clamp_max", np.minimum,
    (lambda t, y, x, high: where(x <= high, t, 0), lambda t, y, x, high: where(x > high, t, 0)),
    accepts=_real, doc="Held below a bound.",
)  # fmt: skip
CLAMP = elementwise(
    "clamp", lambda x, low, high, **out: np.minimum(np.maximum(x, low), high, **out),
    (lambda t, y, x, low, high: where((x >= low) & (x <= high), t, 0), None, None),
    accepts=_real, doc="Held between two numbers.",
)  # fmt: skip
clamp_min = expose_op(CLAMP_MIN, ("clamp_min",), inplace=True, params=("input", "min"))
clamp_max = expose_op(CLAMP_MAX, ("clamp_max",), inplace=True, params=("input", "max"))


# -- operators ----------------------------------------------------------------------------------

operator("__add__", ADD, reflected="__radd__", inplace="add_")
operator("__sub__", SUB, reflected="__rsub__", inplace="sub_")
operator("__mul__", MUL, reflected="__rmul__", inplace="mul_")
operator("__truediv__", DIV, reflected="__rtruediv__", inplace="div_")
operator("__floordiv__", floor_divide, reflected="__rfloordiv__", inplace="floor_divide_")
operator("__mod__", remainder, reflected="__rmod__", inplace="remainder_")
operator("__pow__", pow, reflected="__rpow__", inplace="pow_")
expose("__neg__", function=False)(neg)
expose("__pos__", function=False)(positive)
expose("__abs__", function=False)(abs)
