"""Special functions: error functions, gamma functions, Bessel functions and their relatives.

How they are evaluated is the business of :mod:`evergrad.ops.rows.special.evaluate`. As in PyTorch,
some are functions of ``evergrad`` and methods of tensors, others (``SPECIAL``) only of
``evergrad.special``.

The order of ``zeta`` is a constant to differentiation: as in PyTorch, no derivative with respect to
it is known here. That by the order of ``igamma`` and ``igammac`` is known once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.families import elementwise, meet_as_float, not_complex
from evergrad.core.namespace import ops
from evergrad.core.op import Op
from evergrad.core.row_facts import ITERATED, UNWRITTEN, Builder, Emit, Value, elementary, expensive
from evergrad.core.tensor import Array, Tensor
from evergrad.ops.rows.creation.constants import arange
from evergrad.ops.rows.elementwise.basic import exp, log, log1p, unary, where
from evergrad.ops.rows.elementwise.clamp import clamp
from evergrad.ops.rows.elementwise.magnitude import sign
from evergrad.ops.rows.elementwise.trigonometry import cos
from evergrad.ops.rows.movement.views import unsqueeze
from evergrad.ops.rows.special import evaluate
from evergrad.ops.surface.public import TensorFunction, expose, expose_op

SPECIAL: dict[str, Callable[..., object]] = {}

_TWO_OVER_SQRT_PI = 2 / math.sqrt(math.pi)


def _row(
    name: str, function: Callable[..., object], d: Any, doc: str, emit: Emit = UNWRITTEN
) -> Op:
    return elementwise(
        name, function, d, promote=meet_as_float, accepts=not_complex, takes_out=False, emit=emit,
        doc=doc,
    )  # fmt: skip


def _common(
    name: str, function: Callable[..., object], d: object, doc: str, emit: Emit = UNWRITTEN
) -> Callable[..., Tensor]:
    """A row of one argument, public as function, method and in-place method."""
    return unary(name, function, d, accepts=not_complex, takes_out=False, emit=emit, doc=doc)


def _special(
    name: str, function: Callable[..., object], d: object, doc: str, emit: Emit = UNWRITTEN
) -> Callable[[Tensor], Tensor]:
    """A row of one argument that only ``evergrad.special`` offers."""
    op = _row(name, function, d, doc, emit)

    def public(input: Tensor) -> Tensor:
        return bind(op, input)  # type: ignore[no-any-return]

    public.__name__ = public.__qualname__ = name
    public.__doc__ = doc
    return expose(method=False, into=SPECIAL)(public)


# -- error functions ----------------------------------------------------------------------------

erf: Any = _common(
    "erf", evaluate.erf, lambda t, y, x: t * (exp(-x * x) * _TWO_OVER_SQRT_PI),
    "The integral of 2 / sqrt(pi) * exp(-x * x) from 0.",
    elementary("erf"),
)  # fmt: skip
erfc: Any = _common(
    "erfc", evaluate.erfc, lambda t, y, x: t * (exp(-x * x) * -_TWO_OVER_SQRT_PI),
    "1 - erf(x), exact where erf is near 1.", elementary("erfc"),
)  # fmt: skip
erfinv: Any = _common(
    "erfinv", evaluate.erfinv, lambda t, y, x: t * (exp(y * y) / _TWO_OVER_SQRT_PI),
    "The inverse of the error function.", elementary("erfinv", single=True),
)  # fmt: skip
erfcx: Any = _special(
    "erfcx", evaluate.erfcx, lambda t, y, x: t * (x * y * 2 - _TWO_OVER_SQRT_PI),
    "exp(x * x) * erfc(x), without underflow.",
)  # fmt: skip
ndtr: Any = _special(
    "ndtr", evaluate.ndtr, lambda t, y, x: t * (exp(x * x * -0.5) * (0.5 / math.pi) ** 0.5),
    "The distribution function of the standard normal distribution.",
    elementary("ndtr"),
)  # fmt: skip
log_ndtr: Any = _special(
    "log_ndtr", evaluate.log_ndtr,
    lambda t, y, x: t * (math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5))),
    "log(ndtr(x)), also far to the left.",
)  # fmt: skip
ndtri: Any = _special(
    "ndtri", evaluate.ndtri, lambda t, y, x: t * (exp(y * y * 0.5) * math.sqrt(2 * math.pi)),
    "The inverse of ndtr.",
)  # fmt: skip


# -- gamma functions ----------------------------------------------------------------------------


def _digamma_slope(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return t * polygamma(1, x)


def _polygamma_slope(t: Tensor, y: Tensor, x: Tensor, *, n: int) -> Tensor:
    return t * polygamma(n + 1, x)


digamma: Any = _common("digamma", evaluate.digamma, _digamma_slope, "The slope of lgamma.",
                  elementary("digamma", single=True))  # fmt: skip
POLYGAMMA = _row("polygamma", evaluate.polygamma, _polygamma_slope, "A slope of digamma.", ITERATED)
lgamma: Any = _common("lgamma", evaluate.lgamma, lambda t, y, x: t * digamma(x),
                 "The logarithm of the absolute value of the gamma function.",
                 elementary("lgamma", single=True))  # fmt: skip


@expose(method=False)
def polygamma(n: int, input: Tensor) -> Tensor:
    """The ``n``-th derivative of digamma."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n, but got n={n}")
    return digamma(input) if n == 0 else bind(POLYGAMMA, input, n=int(n))  # type: ignore[no-any-return]


@expose("polygamma", function=False, inplace=True)
def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """The ``n``-th derivative of digamma."""
    return polygamma(n, self)


@expose(inplace=True)
def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the gamma function of dimension ``p``."""
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")
    shifts = arange(p, dtype=meet_as_float((input._type,))) * -0.5
    constant = p * (p - 1) / 4 * math.log(math.pi)
    return lgamma(unsqueeze(input, -1) + shifts).sum(-1) + constant  # type: ignore[no-any-return]


def _zeta_slope(t: Tensor, y: Tensor, x: Tensor, q: Tensor) -> Tensor:
    return t * (-x * zeta(x + 1, q))


ZETA = _row("zeta", evaluate.zeta, (None, _zeta_slope), "The sum of (q + k) ** -x over k >= 0.",
            ITERATED)  # fmt: skip


@expose(method=False, into=SPECIAL)
def zeta(input: object, other: object) -> Tensor:
    """The Hurwitz zeta function: the sum of ``(other + k) ** -input`` over k >= 0."""
    return bind(ZETA, input, other)  # type: ignore[no-any-return]


def _gamma_density(a: Tensor, x: Tensor) -> Tensor:
    return exp(log(x) * (a - 1) - x - lgamma(a))


def _upper_by_order(t: Tensor, a: Tensor, x: Tensor) -> Tensor:
    """What passes from below ``x`` to above it as the order grows."""
    return t * (ops.standard_gamma_grad(a, x) * _gamma_density(a, x))


IGAMMA = _row(
    "igamma", evaluate.gammainc,
    (lambda t, y, a, x: -_upper_by_order(t, a, x), lambda t, y, a, x: t * _gamma_density(a, x)),
    "The lower incomplete gamma function of order a, from 0 to 1.", ITERATED,
)  # fmt: skip
IGAMMAC = _row(
    "igammac", evaluate.gammaincc,
    (lambda t, y, a, x: _upper_by_order(t, a, x), lambda t, y, a, x: -t * _gamma_density(a, x)),
    "The upper incomplete gamma function of order a, from 1 to 0.", ITERATED,
)  # fmt: skip
igamma: TensorFunction = expose_op(IGAMMA, ("igamma",), inplace=True, params=("input", "other"))
igammac: TensorFunction = expose_op(IGAMMAC, ("igammac",), inplace=True, params=("input", "other"))


# -- modified Bessel functions of the first kind ------------------------------------------------


def _i0_slope(t: Tensor, y: Tensor, x: Tensor) -> object:
    return t * i1(x)


def _i0e_slope(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    result: Tensor = t * (i1e(x) - sign(x) * y)
    return result


def _i1_slope(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    zero = x == 0
    return t * where(zero, 0.5, i0(x) - y / where(zero, 1, x))


def _i1e_slope(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    zero = x == 0
    return t * where(zero, 0.5, i0e(x) - y * (sign(x) + 1 / where(zero, 1, x)))


i0: Any = _common("i0", evaluate.i0, _i0_slope, "The Bessel function I0.")
i0e: Any = _special("i0e", evaluate.i0e, _i0e_slope, "exp(-|x|) * I0(x)")
i1: Any = _special("i1", evaluate.i1, _i1_slope, "The Bessel function I1.")
i1e: Any = _special("i1e", evaluate.i1e, _i1e_slope, "exp(-|x|) * I1(x)")


# -- relatives of the logarithm and the sine ----------------------------------------------------


def _sinc_slope(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    zero = x == 0
    slope = (cos(x * math.pi) - y) / where(zero, 1, x)
    return t * where(zero, x * (-math.pi * math.pi / 3), slope)


def _emit_sinc(b: Builder, x: Value) -> Value:
    angle = b.mul(x, b.number(math.pi))
    return b.choose(b.eq(x, b.number(0)), b.number(1), b.div(b.math("sin", angle), angle))


sinc: object = unary("sinc", lambda x: np.sinc(x), _sinc_slope, takes_out=False,
             emit=expensive(_emit_sinc), doc="sin(pi x) / (pi x), and 1 at 0.")  # fmt: skip


def _logit_slope(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    return where((x < 0) | (x > 1), math.nan, t / (x * (1 - x)))


LOGIT = _row("logit", lambda x: np.log(x / (1 - x)), _logit_slope, "log(x / (1 - x))",
             expensive(lambda b, x: b.math("log", b.div(x, b.sub(b.number(1), x)))))  # fmt: skip


@expose(inplace=True)
def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """``log(input / (1 - input))``, the inverse of the sigmoid; with ``eps``, of what is clamped to
    between ``eps`` and ``1 - eps``."""
    if eps is not None:
        input = clamp(input, eps, 1 - eps)
    return bind(LOGIT, input)  # type: ignore[no-any-return]


def _entr_eval(x: Array) -> Array:
    inside = np.where(x > 0, x, 1)
    return np.where(
        x > 0, -inside * np.log(inside), np.where(x == 0, 0, np.where(x < 0, -np.inf, x))
    )


def _emit_entr(b: Builder, x: Value) -> Value:
    zero = b.number(0)
    value = b.choose(b.lt(x, zero), b.number(-math.inf), b.neg(b.mul(x, b.math("log", x))))
    return b.choose(b.eq(x, zero), zero, value)


entr: object = _special("entr", _entr_eval, lambda t, y, x: t * (-log(x) - 1),
                "-x * log(x): 0 at 0, -inf below.", expensive(_emit_entr))  # fmt: skip


def _xlog1py_eval(a: Array, b: Array) -> Array:
    return np.where(np.equal(a, 0) & ~np.isnan(b), 0, a * np.log1p(b))


def _xlog1py_slope(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    dead = (a == 0) & (b <= -1)
    return where(dead, 0, t * log1p(where(dead, 0, b)))


def _emit_xlog1py(b: Builder, x: Value, y: Value) -> Value:
    at_zero = b.choose(b.is_nan(y), y, b.number(0))
    return b.choose(b.eq(x, b.number(0)), at_zero, b.mul(x, b.math("log1p", y)))


XLOG1PY = _row("xlog1py", _xlog1py_eval,
               (_xlog1py_slope, lambda t, y, a, b: t * (a / (b + 1))),
               "a * log1p(b), and 0 where a is 0.", expensive(_emit_xlog1py))  # fmt: skip


@expose(method=False, into=SPECIAL)
def xlog1py(input: object, other: object) -> Tensor:
    """``input * log1p(other)``, and 0 where ``input`` is 0."""
    return bind(XLOG1PY, input, other)  # type: ignore[no-any-return]
