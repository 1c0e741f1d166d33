"""Activation functions that are rows of their own: one pass forward, one formula back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from evergrad.core.families import elementwise
from evergrad.core.row_facts import Builder, Value, cheap, expensive
from evergrad.ops.rows.elementwise.basic import exp, sigmoid, where
from evergrad.ops.rows.elementwise.blocked import (
    expm1_of_negative,
    in_pieces,
    pick,
    positive_part,
    softplus_of_negative,
)
from evergrad.ops.rows.elementwise.blocked import where as choose
from evergrad.ops.rows.elementwise.clamp import emit_clamp

if TYPE_CHECKING:
    from evergrad.core.tensor import Array, Tensor


def _elu(x: Array, alpha: object, reach: object, scale: object) -> Array:
    below = expm1_of_negative(x / reach)
    below *= alpha
    return pick(x <= 0, below, x * scale)


def _elu_slope(
    t: Tensor, y: Tensor, x: Tensor, alpha: Tensor, reach: Tensor, scale: Tensor
) -> Tensor:
    # From x: y + alpha would cancel.
    falling = exp(where(x <= 0, x, 0) / reach) * (alpha / reach)
    return t * where(x <= 0, falling, scale)


def _emit_elu(b: Builder, x: Value, alpha: Value, reach: Value, scale: Value) -> Value:
    grown = b.math("expm1", b.minimum(b.div(x, reach), b.number(0)))
    below = b.mul(grown, alpha)
    return b.choose(b.le(x, b.number(0)), below, b.mul(x, scale))


ELU = elementwise(
    "elu", in_pieces(_elu), (_elu_slope, None, None, None),
    emit=expensive(_emit_elu, floats=True),
    doc="scale * x above 0, alpha * (exp(x / reach) - 1) below.",
)  # fmt: skip


def _softplus(x: Array, beta: object, threshold: object) -> Array:
    scaled = x * beta
    curve = (positive_part(scaled) + softplus_of_negative(scaled)) / beta
    return pick(scaled > threshold, x, curve)


def _emit_softplus_of_negative(b: Builder, x: Value) -> Value:
    """``log(1 + exp(-|x|))``"""
    return b.math("log1p", b.math("exp", b.neg(b.abs(x))))


def _emit_softplus(b: Builder, x: Value, beta: Value, threshold: Value) -> Value:
    scaled = b.mul(x, beta)
    curve = b.add(b.maximum(scaled, b.number(0)), _emit_softplus_of_negative(b, scaled))
    is_straight = b.gt(scaled, threshold)
    return b.choose(is_straight, x, b.div(curve, beta))


SOFTPLUS = elementwise(
    "softplus", in_pieces(_softplus),
    (lambda t, y, x, beta, threshold: where(x * beta > threshold, t, t * sigmoid(x * beta)),
     None, None),
    emit=expensive(_emit_softplus, floats=True),
    doc="log(1 + exp(beta * x)) / beta, and x where beta * x exceeds the threshold.",
)  # fmt: skip

LOGSIGMOID = elementwise(
    "logsigmoid", in_pieces(lambda x: np.minimum(x, 0) - softplus_of_negative(x)),
    (lambda t, y, x: t * sigmoid(-x),),
    emit=expensive(
        lambda b, x: b.sub(b.minimum(x, b.number(0)), _emit_softplus_of_negative(b, x)), floats=True
    ),
    doc="The logarithm of the sigmoid.",
)  # fmt: skip


def _emit_ramp(b: Builder, x: Value) -> Value:
    """``min(max(x + 3, 0), 6)``"""
    return emit_clamp(b, b.add(x, b.number(3)), b.number(0), b.number(6))


def _emit_hardswish(b: Builder, x: Value) -> Value:
    ramp = _emit_ramp(b, x)
    return b.div(b.mul(x, ramp), b.number(6))


HARDSWISH = elementwise(
    "hardswish", in_pieces(lambda x: x * np.clip(x + 3, 0, 6) / 6),
    (lambda t, y, x: where(x <= -3, 0, where(x < 3, t * ((x + 1.5) / 3), t)),),
    eager_loop=True,
    emit=cheap(_emit_hardswish, floats=True), doc="x * min(max(x + 3, 0), 6) / 6",
)  # fmt: skip

SOFTSHRINK = elementwise(
    "softshrink", in_pieces(lambda x, edge: x - np.clip(x, -edge, edge)),
    (lambda t, y, x, edge: where(y == 0, 0, t), None),
    eager_loop=True,
    emit=cheap(lambda b, x, edge: b.sub(x, emit_clamp(b, x, b.neg(edge), edge)), floats=True),
    doc="x moved towards 0 by a number, or onto it.",
)  # fmt: skip

HARDSHRINK = elementwise(
    "hardshrink", in_pieces(lambda x, edge: choose(np.abs(x) <= edge, 0, x)),
    (lambda t, y, x, edge: where(y == 0, 0, t), None),
    eager_loop=True,
    emit=cheap(lambda b, x, edge: b.choose(b.le(b.abs(x), edge), b.number(0), x), floats=True),
    doc="x beyond a number on either side, 0 between.",
)  # fmt: skip

LEAKY_RELU = elementwise(
    "leaky_relu", in_pieces(lambda x, slope: pick(x > 0, x, x * slope)),
    (lambda t, y, x, slope: where(x > 0, t, t * slope), None),
    eager_loop=True,
    emit=cheap(
        lambda b, x, slope: b.choose(b.gt(x, b.number(0)), x, b.mul(x, slope)),
        floats=True,
    ),
    doc="x above 0, a multiple of it below.",
)  # fmt: skip

HARDTANH = elementwise(
    "hardtanh", np.clip,
    (lambda t, y, x, low, high: where((x <= low) | (x >= high), 0, t), None, None),
    emit=cheap(emit_clamp, floats=True), eager_loop=True,
    doc="Held between two numbers, with slope 0 on them as beyond them.",
)  # fmt: skip

HARDSIGMOID = elementwise(
    "hardsigmoid", in_pieces(lambda x: np.clip(x + 3, 0, 6) / 6),
    (lambda t, y, x: where((x > -3) & (x < 3), t / 6, 0),),
    eager_loop=True,
    emit=cheap(lambda b, x: b.div(_emit_ramp(b, x), b.number(6)), floats=True),
    doc="min(max(x + 3, 0), 6) / 6",
)  # fmt: skip
