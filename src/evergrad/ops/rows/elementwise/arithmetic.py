"""Elementwise arithmetic of several steps in one row, and of floats as they are represented.

In each formula ``t`` is the tangent and ``y`` the result.

At the edges: ``xlogy(0, b)`` is 0 unless ``b`` is NaN; ``copysign`` has slope 0 at 0;
``nan_to_num`` and ``threshold`` give replaced elements slope 0; ``heaviside`` has slope 0 in its
input everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import dtype, finfo
from evergrad.core.families import elementwise, meet_as_float, not_bool, not_complex, result_dtype
from evergrad.core.inplace import write_in_place
from evergrad.core.namespace import ops
from evergrad.core.op import ArgType
from evergrad.core.row_facts import Builder, Value, cheap, expensive, numpy_evaluates
from evergrad.core.shapes import TensorType
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.elementwise import blocked
from evergrad.ops.rows.elementwise.basic import CLONE, binary, log, mul, sigmoid, where, zeros_where
from evergrad.ops.rows.elementwise.basic import pow as power
from evergrad.ops.rows.elementwise.logic import isfinite, isinf, signbit
from evergrad.ops.rows.elementwise.rounding import floor
from evergrad.ops.rows.movement.complex_parts import imag, real
from evergrad.ops.surface.public import NUMBERS, expose

if TYPE_CHECKING:
    from evergrad.ops.surface.public import TensorFunction


def _floating(d: dtype) -> bool:
    return d.is_floating_point


def _inexact(d: dtype) -> bool:
    return d.category >= dtypes.FLOATING


def _first_decides(types: Sequence[ArgType]) -> dtype:
    first = types[0]
    assert isinstance(first, TensorType)
    return first.dtype


def _number_for(value: Any, target: dtype) -> Any:
    """A number as it meets tensors of this type: integers cut its fraction off."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, complex) and not target.is_complex:
        raise RuntimeError("value cannot be converted to type float without overflow")
    return int(value) if target.category <= dtypes.INTEGRAL else value


# -- steps towards, products and quotients added ------------------------------------------------


def _lerp_eval(start: Any, end: Any, weight: Any, **out: Any) -> object:
    """Reckoned from the nearer end, so that weights 0 and 1 give the ends exactly."""
    step = np.subtract(end, start)
    if type(weight) not in NUMBERS:
        near = np.absolute(weight) < 0.5
        step = step * np.where(near, -weight, 1 - weight)
        return np.subtract(np.where(near, start, end), step, **out)
    weight = start.dtype.type(weight)
    if abs(weight) < 0.5:
        step *= weight
        return np.add(start, step, **out)
    step *= 1 - weight
    return np.subtract(end, step, **out)


def _emit_lerp(b: Builder, start: Value, end: Value, weight: Value) -> Value:
    near = b.lt(b.abs(weight), b.number(0.5))
    step = b.sub(end, start)
    share = b.choose(near, b.neg(weight), b.sub(b.number(1), weight))
    return b.sub(b.choose(near, start, end), b.mul(step, share))


LERP = elementwise(
    "lerp", _lerp_eval,
    (lambda t, y, a, b, w: t * (1 - w), lambda t, y, a, b, w: t * w,
     lambda t, y, a, b, w: t * (b - a)),
    promote=_first_decides, accepts=_inexact, emit=cheap(_emit_lerp, floats=True), eager_loop=True,
    doc="a + weight * (b - a)",
)  # fmt: skip


def _lerp_operands(
    input: Tensor, end: Tensor, weight: object
) -> tuple[Tensor, Tensor, Tensor | float]:
    for name, value in (("end", end), ("weight", weight)):
        if not isinstance(value, Tensor) or (name == "weight" and not value.ndim):
            continue
        if value.dtype is not input.dtype:
            raise RuntimeError(
                f"expected dtype {input.dtype.name} for `{name}` but got dtype {value.dtype.name}"
            )
    return input, end, _number_for(weight, input.dtype)


@expose()
def lerp(input: Tensor, end: Tensor, weight: object) -> Tensor:
    """``input + weight * (end - input)``"""
    return bind(LERP, *_lerp_operands(input, end, weight))  # type: ignore[no-any-return]


@expose(function=False)
def lerp_(self: Tensor, end: Tensor, weight: object) -> Tensor:
    """In-place form of ``lerp``."""
    return write_in_place(LERP, *_lerp_operands(self, end, weight))


def _tensors_decide(types: Sequence[ArgType]) -> dtype:
    return result_dtype(types[:3])


def _scaled(a: Array, value: float | Array) -> Array:
    return a if type(value) in NUMBERS and value == 1 else np.multiply(a, value)


def _addcmul_eval(x: Array, a: Array, b: Array, value: float | Array, **out: Any) -> object:
    return np.add(x, np.multiply(_scaled(a, value), b), **out)


def _addcdiv_eval(x: Array, a: Array, b: Array, value: float, **out: Any) -> object:
    return np.add(x, np.divide(_scaled(a, value), b), **out)


ADDCMUL = elementwise(
    "addcmul", _addcmul_eval,
    (lambda t, y, x, a, b, value: t, lambda t, y, x, a, b, value: t * (b * value),
     lambda t, y, x, a, b, value: t * (a * value), lambda t, y, x, a, b, value: t * (a * b)),
    promote=_tensors_decide, accepts=not_bool, eager_loop=True,
    emit=cheap(lambda e, x, a, b, value: e.add(x, e.mul(e.mul(a, value), b)), floats=True),
    doc="x + value * a * b",
)  # fmt: skip
ADDCDIV = elementwise(
    "addcdiv", _addcdiv_eval,
    (lambda t, y, x, a, b, value: t, lambda t, y, x, a, b, value: t * (value / b),
     lambda t, y, x, a, b, value: -t * (a / (b * b) * value),
     lambda t, y, x, a, b, value: t * (a / b)),
    promote=_tensors_decide, accepts=not_bool, eager_loop=True,
    emit=cheap(lambda e, x, a, b, value: e.add(x, e.div(e.mul(a, value), b)), floats=True),
    doc="x + value * a / b",
)  # fmt: skip


def _three_and_value(name: str, tensors: tuple[Tensor, ...], value: object) -> tuple[Any, ...]:
    for x in tensors:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name}(): the arguments must be Tensors, not {type(x).__name__}")
    return (*tensors, _number_for(value, result_dtype([x._type for x in tensors])))


def _addcdiv_operands(input: Tensor, a: Tensor, b: Tensor, value: object) -> tuple[Any, ...]:
    operands = _three_and_value("addcdiv", (input, a, b), value)
    if max(a.dtype.category, b.dtype.category) <= dtypes.INTEGRAL:
        raise RuntimeError(
            "Integer division with addcdiv is not supported. Write input + value * "
            "trunc(tensor1 / tensor2), or convert one of tensor1 and tensor2 to a float."
        )
    return operands


@expose()
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: object = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``"""
    return bind(ADDCMUL, *_three_and_value("addcmul", (input, tensor1, tensor2), value))  # type: ignore[no-any-return]


@expose(function=False)
def addcmul_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: object = 1) -> Tensor:
    """In-place form of ``addcmul``."""
    return write_in_place(ADDCMUL, *_three_and_value("addcmul", (self, tensor1, tensor2), value))


@expose()
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: object = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``"""
    return bind(ADDCDIV, *_addcdiv_operands(input, tensor1, tensor2, value))  # type: ignore[no-any-return]


@expose(function=False)
def addcdiv_(self: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: object = 1) -> Tensor:
    """In-place form of ``addcdiv``."""
    return write_in_place(ADDCDIV, *_addcdiv_operands(self, tensor1, tensor2, value))


# -- logarithms of sums and products ------------------------------------------------------------


def _logaddexp_single(a: Array, b: Array) -> Array:
    """The larger of both, and what the other adds to it."""
    apart = a - b
    more = blocked.softplus_of_negative(blocked.where(a == b, 0, apart))  # also of two infinities
    more += np.maximum(a, b)
    return more


_logaddexp_in_pieces = blocked.in_pieces(_logaddexp_single)


def _logaddexp_eval(a: Array, b: float | Array, **out: Any) -> object:
    if not (np.iscomplexobj(a) or np.iscomplexobj(b)):
        single = np.float32 in (getattr(a, "dtype", None), getattr(b, "dtype", None))
        return (_logaddexp_in_pieces if single else np.logaddexp)(a, b, **out)
    top = np.where(a.real > b.real, a, b)
    return np.add(np.log(np.exp(a - top) + np.exp(b - top)), top, **out)


def _logaddexp_emit(b: Builder, x: Value, y: Value) -> Value:
    apart = b.neg(b.abs(b.sub(x, y)))
    apart = b.choose(b.eq(x, y), b.number(0), apart)  # also of two infinities
    return b.add(b.maximum(x, y), b.math("log1p", b.math("exp", apart)))


def _share(a: Tensor, b: Tensor) -> Tensor:
    """How much of ``exp(a) + exp(b)`` is ``exp(a)``: half where both are the same infinity."""
    return sigmoid(where((a == b) & isinf(a), 0, a - b))


logaddexp: TensorFunction = binary(
    "logaddexp", _logaddexp_eval,
    (lambda t, y, a, b: t * _share(a, b), lambda t, y, a, b: t * _share(b, a)),
    accepts=_inexact, inplace=False, emit=expensive(_logaddexp_emit, floats=True),
    doc="log(exp(a) + exp(b))",
)  # fmt: skip
_LN2 = math.log(2)


def _logaddexp2_emit(b: Builder, x: Value, y: Value) -> Value:
    apart = b.neg(b.abs(b.sub(x, y)))
    apart = b.choose(b.eq(x, y), b.number(0), apart)  # also of two infinities
    more = b.mul(b.math("log1p", b.math("exp2", apart)), b.number(1 / _LN2))
    return b.add(b.maximum(x, y), more)


logaddexp2: TensorFunction = binary(
    "logaddexp2", np.logaddexp2,
    (lambda t, y, a, b: t * _share(a * _LN2, b * _LN2),
     lambda t, y, a, b: t * _share(b * _LN2, a * _LN2)),
    accepts=_floating, inplace=False, emit=expensive(_logaddexp2_emit), eager_loop=True,
    doc="log2(2**a + 2**b)",
)  # fmt: skip


def _xlogy_eval(a: Array, b: Array) -> Array:
    return np.where(np.equal(a, 0) & ~np.isnan(b), 0, a * np.log(b))


def _xlogy_emit(b: Builder, x: Value, y: Value) -> Value:
    at_zero = b.choose(b.is_nan(y), y, b.number(0))
    return b.choose(b.eq(x, b.number(0)), at_zero, b.mul(x, b.math("log", y)))


def _xlogy_slope_in_a(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    dead = (a == 0) & (b <= 0)
    return where(dead, 0, t * log(where(dead, 1, b)))


xlogy: TensorFunction = binary(
    "xlogy", _xlogy_eval, (_xlogy_slope_in_a, lambda t, y, a, b: t * (a / b)),
    promote=meet_as_float, accepts=not_complex, takes_out=False,
    emit=expensive(_xlogy_emit, floats=True), doc="a * log(b), and 0 where a is 0.",
)  # fmt: skip


# -- signs and neighbours -----------------------------------------------------------------------


def _copysign_slope(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return where(a == 0, 0, where(signbit(a) == signbit(y), t, -t))


def _no_slope(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return zeros_where(t)


copysign: TensorFunction = binary(
    "copysign", np.copysign, (_copysign_slope, _no_slope), promote=meet_as_float,
                  accepts=not_complex, emit=cheap(lambda b, x, y: b.copysign(x, y)),
                  eager_loop=True,
                  doc="|a| with the sign of b.")  # fmt: skip
nextafter: TensorFunction = binary(
    "nextafter", np.nextafter, (lambda t, y, a, b: where(a == b, 0, t), _no_slope),
    accepts=_floating, upcast=False,
    emit=numpy_evaluates("neighbours in the type of storage, not in that of computation"),
    doc="The float after a on the way to b.",
)  # fmt: skip


def _require_tensor(function: str, name: str, value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{function}(): argument '{name}' (position 2) must be Tensor, not "
            f"{type(value).__name__}"
        )


@expose(inplace=True)
def ldexp(input: Tensor, other: Tensor) -> Tensor:
    """``input * 2**other``"""
    _require_tensor("ldexp", "other", other)
    target = meet_as_float((input._type, other._type))
    if target.is_complex:
        return mul(input, power(2.0, cast(other, target)))
    # In double no power that matters overflows, and the product is rounded once. A half of the
    # exponent at a time: its power alone may overflow where the product does not.
    number, exponent = (cast(x, dtypes.float64) for x in (input, other))
    half = floor(exponent * 0.5)
    found = mul(mul(number, power(2.0, half)), power(2.0, exponent - half))
    return found if target is dtypes.float64 else cast(found, target)


def _emit_heaviside(b: Builder, x: Value, at_zero: Value) -> Value:
    zero = b.number(0)
    return b.choose(b.eq(x, zero), at_zero, b.choose(b.gt(x, zero), b.number(1), zero))


HEAVISIDE = elementwise(
    "heaviside", lambda x, at_zero: np.where(x == 0, at_zero, x > 0),
    (_no_slope, lambda t, y, x, at_zero: where(x == 0, t, 0)),
    accepts=not_complex, takes_out=False, emit=cheap(_emit_heaviside),
    doc="0 below zero, 1 above, a given value at zero.",
)  # fmt: skip


@expose(inplace=True)
def heaviside(input: Tensor, values: Tensor) -> Tensor:
    """0 where ``input`` is negative, 1 where it is positive, ``values`` where it is 0."""
    _require_tensor("heaviside", "values", values)
    if input.dtype is not values.dtype:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")
    return bind(HEAVISIDE, input, values)  # type: ignore[no-any-return]


# -- replaced elements --------------------------------------------------------------------------


def _nan_to_num_eval(x: Array, nan: float, posinf: float, neginf: float) -> Array:
    return np.nan_to_num(x, nan=nan, posinf=posinf, neginf=neginf)


def _emit_nan_to_num(b: Builder, x: Value, nan: Value, above: Value, below: Value) -> Value:
    value = b.choose(b.is_nan(x), nan, x)
    value = b.choose(b.eq(x, b.number(math.inf)), above, value)
    return b.choose(b.eq(x, b.number(-math.inf)), below, value)


NAN_TO_NUM = elementwise(
    "nan_to_num", _nan_to_num_eval,
    (lambda t, y, x, nan, posinf, neginf: where(isfinite(x), t, 0), None, None, None),
    promote=_first_decides, takes_out=False, eager_loop=True,
    emit=cheap(_emit_nan_to_num, floats=True),
    doc="NaN and infinities replaced by numbers.",
)  # fmt: skip


@expose(inplace=True)
def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """NaN and infinities replaced: by 0 and the largest finite numbers unless others are given."""
    if input.dtype.category < dtypes.FLOATING:
        return bind(CLONE, input)  # type: ignore[no-any-return]
    if input.dtype.is_complex:
        parts = (nan_to_num(part(input), nan, posinf, neginf) for part in (real, imag))
        return ops.complex(*parts)
    limits = finfo(input.dtype)
    return bind(  # type: ignore[no-any-return]
        NAN_TO_NUM, input, 0.0 if nan is None else float(nan),
        limits.max if posinf is None else float(posinf),
        limits.min if neginf is None else float(neginf),
    )  # fmt: skip


THRESHOLD = elementwise(
    "threshold", lambda x, threshold, value: np.where(x <= threshold, value, x),
    (lambda t, y, x, threshold, value: where(x <= threshold, 0, t), None, None),
    promote=_first_decides, accepts=not_complex, takes_out=False,
    eager_loop=True,
    emit=cheap(lambda b, x, edge, value: b.choose(b.le(x, edge), value, x), floats=True),
    doc="x, or a value where x is small.",
)  # fmt: skip


@expose(method=False)
def threshold(input: Tensor, threshold: float, value: float) -> Tensor:
    """``input`` where it is greater than ``threshold``, ``value`` elsewhere."""
    threshold, value = (_number_for(v, input.dtype) for v in (threshold, value))
    return bind(THRESHOLD, input, threshold, value)  # type: ignore[no-any-return]
