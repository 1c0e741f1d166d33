"""Bessel and Airy functions and orthogonal polynomials of ``evergrad.special``.

As in PyTorch they have no derivative and are not known for 16-bit floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.dtypes import dtype
from evergrad.core.families import elementwise, meet_as_float
from evergrad.core.op import NONDIFFERENTIABLE, Op
from evergrad.core.row_facts import UNWRITTEN
from evergrad.core.tensor import Tensor
from evergrad.core.types import Array
from evergrad.ops.rows.special import bessel_evaluate, evaluate
from evergrad.ops.rows.special.functions import SPECIAL
from evergrad.ops.surface.public import TensorFunction, expose

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction

# -- rows ---------------------------------------------------------------------------------------


def _is_wide(found: dtype) -> bool:
    return found in (dtypes.float32, dtypes.float64)


def _row(name: str, function: Callable[..., object], doc: str) -> Op:
    return elementwise(
        name, function, NONDIFFERENTIABLE, promote=meet_as_float, accepts=_is_wide,
        takes_out=False, emit=UNWRITTEN, doc=doc,
    )  # fmt: skip


def _named(name: str, function: TensorFunction, doc: str) -> TensorFunction:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return expose(method=False, into=SPECIAL)(function)


def _function(name: str, evaluate: Callable[..., object], doc: str) -> TensorFunction:
    op = _row(name, evaluate, doc)

    def public(input: Tensor) -> Tensor:
        return bind(op, input)  # type: ignore[no-any-return]

    return _named(name, public, doc)


airy_ai: Callable[..., Tensor] = _function(
    "airy_ai", bessel_evaluate.airy_ai, "The Airy function Ai."
)
bessel_j0: TensorFunction = _function(
    "bessel_j0", bessel_evaluate.bessel_j0, "The Bessel function J0."
)
bessel_j1: TensorFunction = _function(
    "bessel_j1", bessel_evaluate.bessel_j1, "The Bessel function J1."
)
bessel_y0: TensorFunction = _function(
    "bessel_y0", bessel_evaluate.bessel_y0, "The Bessel function Y0."
)
bessel_y1: TensorFunction = _function(
    "bessel_y1", bessel_evaluate.bessel_y1, "The Bessel function Y1."
)
modified_bessel_i0: TensorFunction = _function(
    "modified_bessel_i0", evaluate.i0, "The Bessel function I0."
)
modified_bessel_i1: TensorFunction = _function(
    "modified_bessel_i1", evaluate.i1, "The Bessel function I1."
)
modified_bessel_k0: TensorFunction = _function(
    "modified_bessel_k0", bessel_evaluate.modified_bessel_k0, "The Bessel function K0."
)
modified_bessel_k1: TensorFunction = _function(
    "modified_bessel_k1", bessel_evaluate.modified_bessel_k1, "The Bessel function K1."
)
scaled_modified_bessel_k0: TensorFunction = _function(
    "scaled_modified_bessel_k0", bessel_evaluate.scaled_modified_bessel_k0, "exp(x) * K0(x)"
)
scaled_modified_bessel_k1: TensorFunction = _function(
    "scaled_modified_bessel_k1", bessel_evaluate.scaled_modified_bessel_k1, "exp(x) * K1(x)"
)
spherical_bessel_j0: TensorFunction = _function(
    "spherical_bessel_j0", bessel_evaluate.spherical_bessel_j0, "sin(x) / x, and 1 at 0."
)


# -- orthogonal polynomials ---------------------------------------------------------------------

Step = Callable[[int, Any, Any, Any], Any]  # degree k, x, the polynomials of degree k and k - 1


def _by_recurrence(first: AnyFunction, step: Step) -> Callable[[float | Array, int | Array], Array]:
    """The polynomial of degree ``n`` at ``x``, from those of degree 0 and 1; 0 for n < 0."""

    def evaluate(x: float | Array, n: int | Array) -> Array:
        x, n = np.broadcast_arrays(x, n)
        degree = np.trunc(n)
        largest = int(np.max(degree, initial=0, where=np.isfinite(degree)))
        below, current = np.ones_like(x), first(x)
        out = np.where(degree == 0, below, np.where(degree == 1, current, 0))
        for k in range(1, largest):
            below, current = current, step(k, x, current, below)
            np.copyto(out, current, where=degree == k + 1)
        return out

    return evaluate


def _polynomial(name: str, first: Callable[[Any], object], step: Step, doc: str) -> TensorFunction:
    op = _row(name, _by_recurrence(first, step), doc)

    def public(input: object, n: object) -> Tensor:
        return bind(op, input, n)  # type: ignore[no-any-return]

    return _named(name, public, doc)


def _shift(x: Array) -> Array:
    return 2 * x - 1


def _chebyshev(
    letter: str, kind: str, first: Callable[[Any], object]
) -> tuple[TensorFunction, TensorFunction]:
    """The polynomials on [-1, 1], and those moved to [0, 1]."""
    doc = f"Chebyshev's polynomial of the {kind} kind, of degree ``n``"
    return (
        _polynomial(
            f"chebyshev_polynomial_{letter}", first, lambda k, x, p, q: 2 * x * p - q, f"{doc}."
        ),
        _polynomial(
            f"shifted_chebyshev_polynomial_{letter}", lambda x: first(_shift(x)),
            lambda k, x, p, q: 2 * _shift(x) * p - q, f"{doc}, at ``2 * input - 1``.",
        ),
    )  # fmt: skip


chebyshev_polynomial_t: TensorFunction
shifted_chebyshev_polynomial_t: TensorFunction
chebyshev_polynomial_t, shifted_chebyshev_polynomial_t = _chebyshev("t", "first", lambda x: x)
chebyshev_polynomial_u: TensorFunction
shifted_chebyshev_polynomial_u: TensorFunction
chebyshev_polynomial_u, shifted_chebyshev_polynomial_u = _chebyshev("u", "second", lambda x: 2 * x)
chebyshev_polynomial_v: TensorFunction
shifted_chebyshev_polynomial_v: TensorFunction
chebyshev_polynomial_v, shifted_chebyshev_polynomial_v = _chebyshev("v", "third", _shift)
chebyshev_polynomial_w: TensorFunction
shifted_chebyshev_polynomial_w: TensorFunction
chebyshev_polynomial_w, shifted_chebyshev_polynomial_w = _chebyshev(
    "w", "fourth", lambda x: 2 * x + 1
)
hermite_polynomial_h: TensorFunction = _polynomial(
    "hermite_polynomial_h", lambda x: 2 * x, lambda k, x, p, q: 2 * x * p - 2 * k * q,
    "The physicists' Hermite polynomial of degree ``n``.",
)  # fmt: skip
hermite_polynomial_he: TensorFunction = _polynomial(
    "hermite_polynomial_he", lambda x: x, lambda k, x, p, q: x * p - k * q,
    "The probabilists' Hermite polynomial of degree ``n``.",
)  # fmt: skip
laguerre_polynomial_l: TensorFunction = _polynomial(
    "laguerre_polynomial_l", lambda x: 1 - x,
    lambda k, x, p, q: ((2 * k + 1 - x) * p - k * q) / (k + 1),
    "The Laguerre polynomial of degree ``n``.",
)  # fmt: skip
legendre_polynomial_p: TensorFunction = _polynomial(
    "legendre_polynomial_p", lambda x: x,
    lambda k, x, p, q: ((2 * k + 1) * x * p - k * q) / (k + 1),
    "The Legendre polynomial of degree ``n``.",
)  # fmt: skip
