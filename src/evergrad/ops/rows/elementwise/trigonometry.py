"""Trigonometric and hyperbolic functions and their inverses, angles and distances.

In each formula ``t`` is the tangent and ``y`` the result. ``atan2`` and ``hypot`` have slope 0 at
the origin.
"""

from __future__ import annotations

import numpy as np

from evergrad.core.families import meet_as_float, not_complex
from evergrad.core.row_facts import elementary
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.elementwise.basic import binary, rsqrt, unary, where
from evergrad.ops.surface.public import TensorFunction

sin: TensorFunction = unary("sin", np.sin, lambda t, y, x: t * cos(x), emit=elementary("sin"),
            eager_loop=True, doc="The sine.")  # fmt: skip
cos: TensorFunction = unary("cos", np.cos, lambda t, y, x: -t * sin(x),
                            emit=elementary("cos"), eager_loop=True, doc="The cosine.")  # fmt: skip
tan: TensorFunction = unary(
    "tan", np.tan, lambda t, y, x: t * (y * y + 1), emit=elementary("tan"), doc="The tangent."
)
asin: TensorFunction = unary("asin", np.arcsin, lambda t, y, x: t * rsqrt(1 - x * x), "arcsin",
             emit=elementary("asin"), doc="The inverse sine.")  # fmt: skip
acos: TensorFunction = unary("acos", np.arccos, lambda t, y, x: -t * rsqrt(1 - x * x), "arccos",
             emit=elementary("acos"), doc="The inverse cosine.")  # fmt: skip
atan: TensorFunction = unary("atan", np.arctan, lambda t, y, x: t / (x * x + 1), "arctan",
             emit=elementary("atan"), doc="The inverse tangent.")  # fmt: skip
sinh: TensorFunction = unary("sinh", np.sinh, lambda t, y, x: t * cosh(x), emit=elementary("sinh"),
             doc="The hyperbolic sine.")  # fmt: skip
cosh: TensorFunction = unary("cosh", np.cosh, lambda t, y, x: t * sinh(x),
                             emit=elementary("cosh"), doc="The hyperbolic cosine.")  # fmt: skip
tanh: TensorFunction = unary("tanh", np.tanh, lambda t, y, x: t * (1 - y * y),
             emit=elementary("tanh"),
             doc="The hyperbolic tangent.")  # fmt: skip
asinh: TensorFunction = unary("asinh", np.arcsinh, lambda t, y, x: t * rsqrt(x * x + 1), "arcsinh",
              emit=elementary("asinh"), doc="The inverse hyperbolic sine.")  # fmt: skip


def _acosh_slope(t: Tensor, y: Tensor, x: Tensor) -> Tensor:
    """Of complex numbers the roots are taken apart, so that each is on the right branch."""
    if x.dtype.is_complex:
        return t * (rsqrt(x + 1) * rsqrt(x - 1))
    return t * rsqrt(x * x - 1)


acosh: TensorFunction = unary("acosh", np.arccosh, _acosh_slope, "arccosh",
              emit=elementary("acosh"), doc="The inverse hyperbolic cosine.")  # fmt: skip
atanh: TensorFunction = unary("atanh", np.arctanh, lambda t, y, x: t / (1 - x * x), "arctanh",
              emit=elementary("atanh"), eager_loop=True,
              doc="The inverse hyperbolic tangent.")  # fmt: skip


def _atan2_a(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return t * (b / _nonzero_square_sum(a, b))


def _atan2_b(t: Tensor, y: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return -t * (a / _nonzero_square_sum(a, b))


def _nonzero_square_sum(a: Tensor, b: Tensor) -> Tensor:
    total = a * a + b * b
    return where(total == 0, 1, total)  # the slope at the origin is taken as 0


atan2: TensorFunction = binary(
    "atan2", np.arctan2, (_atan2_a, _atan2_b), "arctan2", promote=meet_as_float,
               accepts=not_complex, emit=elementary("atan2"),
               doc="The angle of the point (b, a).")  # fmt: skip
hypot: TensorFunction = binary(
    "hypot", np.hypot,
    (lambda t, y, a, b: t * (a / where(y == 0, 1, y)),
     lambda t, y, a, b: t * (b / where(y == 0, 1, y))),
    promote=meet_as_float, accepts=not_complex, emit=elementary("hypot"), eager_loop=True,
    doc="sqrt(a*a + b*b) without overflow.",
)  # fmt: skip
