"""Rows that answer questions: comparisons, logic, bits, what kind of number an element is.

Their results are booleans or integers, so none of them has a derivative.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.dtypes import dtype
from evergrad.core.families import elementwise, meet, not_complex, opaque
from evergrad.core.namespace import late_bound
from evergrad.core.op import NONDIFFERENTIABLE
from evergrad.core.row_facts import AutocastPolicy, Builder, Emit, Value, cheap, numpy_evaluates
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, detached
from evergrad.ops.rows.creation.constants import ones_like
from evergrad.ops.rows.movement.complex_parts import imag
from evergrad.ops.surface.public import NUMBERS, TensorFunction, expose, expose_op, operator, row_of


def _integral(d: dtype) -> bool:
    return d.category <= dtypes.INTEGRAL


def _integral_not_bool(d: dtype) -> bool:
    return d.category == dtypes.INTEGRAL


def _as_bool(d: dtype) -> dtype:
    return dtypes.bool_


def question(
    name: str, function: Callable[..., object], *aliases: str, inplace: bool = False, **options: Any
) -> TensorFunction:
    """A row of one argument with boolean results, public as function and method."""
    op = elementwise(name, function, NONDIFFERENTIABLE, result=_as_bool, **options)
    return expose_op(op, (name, *aliases), inplace=inplace, params=("input",))


def relation(
    name: str, function: Callable[..., object], *aliases: str, **options: Any
) -> TensorFunction:
    """A row of two arguments with boolean results, public in all forms."""
    op = elementwise(name, function, NONDIFFERENTIABLE, result=_as_bool, **options)
    return expose_op(op, (name, *aliases), inplace=True, params=("input", "other"))


# -- comparisons --------------------------------------------------------------------------------

_BFLOAT16 = dtypes.bfloat16.np


def _comparing(function: Callable[..., object]) -> Callable[..., object]:
    """A number takes the type of the tensor it is compared with.

    NumPy sees to that, except for bfloat16, which it does not know."""

    def compare(a: object, b: Any, **out: object) -> object:
        if type(b) in NUMBERS:
            if getattr(a, "dtype", None) == _BFLOAT16:
                b = _BFLOAT16.type(b)
        elif type(a) in NUMBERS and b.dtype == _BFLOAT16:
            a = _BFLOAT16.type(a)
        return function(a, b, **out)

    return compare


eq: Callable[..., Tensor] = relation("eq", _comparing(np.equal), upcast=False,
              emit=cheap(lambda b, x, y: b.eq(x, y)), commutative=True, doc="a == b")  # fmt: skip
ne: Callable[..., Tensor] = relation("ne", _comparing(np.not_equal), "not_equal", upcast=False,
              emit=cheap(lambda b, x, y: b.ne(x, y)), commutative=True, doc="a != b")  # fmt: skip
lt: Callable[..., Tensor] = relation(
    "lt", _comparing(np.less), "less", upcast=False, accepts=not_complex,
              emit=cheap(lambda b, x, y: b.lt(x, y)), doc="a < b")  # fmt: skip
le: Callable[..., Tensor] = relation(
    "le", _comparing(np.less_equal), "less_equal", upcast=False, accepts=not_complex,
              emit=cheap(lambda b, x, y: b.le(x, y)), doc="a <= b")  # fmt: skip
gt: Callable[..., Tensor] = relation(
    "gt", _comparing(np.greater), "greater", upcast=False, accepts=not_complex,
              emit=cheap(lambda b, x, y: b.gt(x, y)), doc="a > b")  # fmt: skip
ge: Callable[..., Tensor] = relation(
    "ge", _comparing(np.greater_equal), "greater_equal", upcast=False,
              accepts=not_complex, emit=cheap(lambda b, x, y: b.ge(x, y)),
              doc="a >= b")  # fmt: skip

EQ, LE = row_of(eq), row_of(le)

operator("__eq__", eq)
operator("__ne__", ne)
operator("__lt__", lt)
operator("__le__", le)
operator("__gt__", gt)
operator("__ge__", ge)


# -- logic --------------------------------------------------------------------------------------

logical_and: object = relation("logical_and", np.logical_and,
                       emit=cheap(lambda b, x, y: b.logical_and(b.truth(x), b.truth(y))),
                      eager_loop=True,
                       commutative=True,
                       doc="Both are nonzero.")  # fmt: skip
logical_or: object = relation("logical_or", np.logical_or,
                      emit=cheap(lambda b, x, y: b.logical_or(b.truth(x), b.truth(y))),
                      eager_loop=True,
                      commutative=True,
                      doc="At least one is nonzero.")  # fmt: skip
logical_xor: object = relation("logical_xor", np.logical_xor,
                       emit=cheap(lambda b, x, y: b.logical_xor(b.truth(x), b.truth(y))),
                      eager_loop=True,
                       commutative=True,
                       doc="Exactly one is nonzero.")  # fmt: skip
logical_not: object = question("logical_not", np.logical_not, inplace=True,
                       emit=cheap(lambda b, x: b.logical_not(b.truth(x))),
                       eager_loop=True, doc="It is zero.")  # fmt: skip


# -- bits ---------------------------------------------------------------------------------------


def _bitwise(
    name: str,
    function: Callable[..., object],
    accepts: Callable[[dtype], bool],
    emit: Emit,
    doc: str,
    commutative: bool = True,
) -> Callable[..., Tensor]:
    op = elementwise(
        name, function, NONDIFFERENTIABLE, promote=meet, accepts=accepts, emit=emit,
        commutative=commutative, doc=doc,
    )  # fmt: skip
    return expose_op(op, (name,), inplace=True, params=("input", "other"))


def _emit_shift(b: Builder, x: Value, y: Value, shifted: Value, beyond: Value) -> Value:
    """In LLVM IR a shift by fewer than no bits, or by more than there are, is undefined."""
    inside = b.lt(y, b.number(b.width))
    if b.is_signed:
        inside = b.logical_and(inside, b.ge(y, b.number(0)))
    return b.choose(inside, shifted, beyond)


def _emit_left(b: Builder, x: Value, y: Value) -> Value:
    return _emit_shift(b, x, y, b.shift_left(x, y), b.number(0))


def _emit_right(b: Builder, x: Value, y: Value) -> Value:
    beyond = b.number(0)
    if b.is_signed:
        beyond = b.choose(b.lt(x, beyond), b.number(-1), beyond)
    return _emit_shift(b, x, y, b.shift_right(x, y), beyond)


bitwise_and: Callable[..., Tensor] = _bitwise("bitwise_and", np.bitwise_and, _integral,
                       cheap(lambda b, x, y: b.bit_and(x, y)), "Bits set in both.")  # fmt: skip
bitwise_or: Callable[..., Tensor] = _bitwise("bitwise_or", np.bitwise_or, _integral,
                      cheap(lambda b, x, y: b.bit_or(x, y)), "Bits set in either.")  # fmt: skip
bitwise_xor: Callable[..., Tensor] = _bitwise("bitwise_xor", np.bitwise_xor, _integral,
                       cheap(lambda b, x, y: b.bit_xor(x, y)),
                       "Bits set in exactly one.")  # fmt: skip
bitwise_left_shift: Callable[..., Tensor] = _bitwise(
    "bitwise_left_shift", np.left_shift, _integral_not_bool, cheap(_emit_left), "a << b",
    commutative=False,
)  # fmt: skip
bitwise_right_shift: Callable[..., Tensor] = _bitwise(
    "bitwise_right_shift", np.right_shift, _integral_not_bool, cheap(_emit_right), "a >> b",
    commutative=False,
)  # fmt: skip
BITWISE_NOT = elementwise("bitwise_not", np.invert, NONDIFFERENTIABLE, accepts=_integral,
                          emit=cheap(lambda b, x: b.bit_not(x)),
                          doc="All bits flipped; for booleans, not.")  # fmt: skip
bitwise_not: TensorFunction = expose_op(
    BITWISE_NOT, ("bitwise_not",), inplace=True, params=("input",)
)

BITWISE_AND = row_of(bitwise_and)

operator("__and__", bitwise_and, reflected="__rand__", inplace="bitwise_and_")
operator("__or__", bitwise_or, reflected="__ror__", inplace="bitwise_or_")
operator("__xor__", bitwise_xor, reflected="__rxor__", inplace="bitwise_xor_")
operator("__lshift__", bitwise_left_shift, reflected="__rlshift__", inplace="bitwise_left_shift_")
operator("__rshift__", bitwise_right_shift, reflected="__rrshift__", inplace="bitwise_right_shift_")


@expose("__invert__", function=False)
def _invert(self: Tensor) -> Tensor:
    if self.dtype.category > dtypes.INTEGRAL:
        raise TypeError(
            "~ (operator.invert) is only implemented on integer and Boolean-type tensors"
        )
    return bind(BITWISE_NOT, self)  # type: ignore[no-any-return]


# -- what kind of number ------------------------------------------------------------------------

isnan: Any = late_bound(
    question("isnan", np.isnan, emit=cheap(lambda b, x: b.is_nan(x)), doc="Not a number.")
)
ISNAN = row_of(isnan)
isinf: Callable[..., Tensor] = question("isinf", np.isinf, emit=cheap(lambda b, x: b.is_inf(x)),
                 doc="Infinite; complex numbers in either part.")  # fmt: skip
isfinite: Any = question("isfinite", np.isfinite, emit=cheap(lambda b, x: b.is_finite(x)),
                    doc="Neither infinite nor NaN.")  # fmt: skip


def _emit_equals(b: Builder, x: Value, value: float) -> Value:
    return b.eq(x, b.number(value)) if b.is_float else "false"


def _emit_signbit(b: Builder, x: Value) -> Value:
    return b.sign_bit(x) if b.is_float else b.lt(x, b.number(0))


isposinf: TensorFunction = question(
    "isposinf", lambda x, **out: np.equal(x, np.inf, **out), accepts=not_complex,
                    emit=cheap(lambda b, x: _emit_equals(b, x, math.inf)),
                    doc="Equal to inf.")  # fmt: skip
isneginf: TensorFunction = question(
    "isneginf", lambda x, **out: np.equal(x, -np.inf, **out), accepts=not_complex,
                    emit=cheap(lambda b, x: _emit_equals(b, x, -math.inf)),
                    doc="Equal to -inf.")  # fmt: skip
signbit: Callable[..., Tensor] = question(
    "signbit", np.signbit, accepts=not_complex, emit=cheap(_emit_signbit),
                   doc="Negative, or -0.0.")  # fmt: skip


@expose(out=False)
def isreal(input: Tensor) -> Tensor:
    """Whether each element has no imaginary part."""
    if not input.dtype.is_complex:
        return ones_like(input, dtype=dtypes.bool_)
    return eq(imag(input), 0)


# -- questions about whole tensors --------------------------------------------------------------


@expose(out=False)
def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """``|input - other| <= atol + rtol * |other|``; equal infinities are close."""
    if input.dtype is not other.dtype:
        raise RuntimeError(f"{input.dtype.name} did not match {other.dtype.name}")
    for name, bound in (("rtol", rtol), ("atol", atol)):
        if bound < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {bound}")
    a, b = detached(input), detached(other)
    close = eq(a, b)
    if equal_nan and a.dtype.category >= dtypes.FLOATING:
        close = close | (isnan(a) & isnan(b))
    if rtol == 0 and atol == 0:
        return close
    if a.dtype.category < dtypes.FLOATING:
        a, b = (cast(x, dtypes.get_default_dtype()) for x in (a, b))
    error = abs(a - b)
    return close | (isfinite(error) & (error <= abs(b * rtol) + atol))  # type: ignore[no-any-return]


@expose(out=False)
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether :func:`isclose` holds everywhere."""
    return bool(isclose(input, other, rtol, atol, equal_nan).all())


@expose(out=False)
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and the same elements."""
    if not isinstance(other, Tensor):
        raise TypeError(f"equal(): argument 'other' must be Tensor, not {type(other).__name__}")
    if input._type is other._type and not STATE.get().intercepted:
        mine, theirs = input._value, other._value
        if mine.__class__ is np.ndarray and theirs.__class__ is np.ndarray:
            return bool(np.logical_and.reduce(mine == theirs, axis=None))
    return input._type.shape == other._type.shape and bool(eq(input, other).all())


def _isin_type(elements: TensorType, test_elements: TensorType, *, invert: bool) -> TensorType:
    if elements.dtype is dtypes.bool_:
        raise RuntimeError("Unsupported input type encountered for isin(): Bool")
    return tensor_type(elements.shape, dtypes.bool_)


ISIN = opaque(
    "isin", lambda x, among, *, invert: np.isin(x, among, invert=invert), _isin_type,
    NONDIFFERENTIABLE, promote=meet, emit=numpy_evaluates("sorting and selection"),
    autocast=AutocastPolicy.KEEP,
    doc="Elements that occur in another tensor.",
)  # fmt: skip


@expose(method=False, keywords={"element": "elements", "test_element": "test_elements"})
def isin(
    elements: object, test_elements: object, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each element occurs among ``test_elements``."""
    if not isinstance(elements, Tensor) and not isinstance(test_elements, Tensor):
        raise TypeError("isin(): at least one of elements and test_elements must be a Tensor")
    return bind(ISIN, elements, test_elements, invert=bool(invert))  # type: ignore[no-any-return]
