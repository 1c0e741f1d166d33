"""Softmax and its logarithm, as rows.

Composed of five ops they would keep four arrays for backward; as rows they keep their result. On
small inputs this is four times as fast, and the derivative is one short formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.composite import composite
from evergrad.core.eager.softmax import softmax, softmax_evaluator
from evergrad.core.families import opaque
from evergrad.core.op import Op
from evergrad.core.row_facts import AutocastPolicy, EagerKernel, lowered
from evergrad.core.tensor import Array, Tensor
from evergrad.memory import pool
from evergrad.ops.rows.elementwise.basic import exp
from evergrad.ops.rows.movement.views import to_front
from evergrad.ops.rows.reduce.pairwise import pairwise_sum
from evergrad.ops.rows.reduce.sums import sum as total

# Rows of this many elements altogether are worked on at a time, so that passes stay in cache.
_BLOCK = 1 << 15


def _along_lanes(
    function: Callable[[Array, Array, int], None], is_log: bool
) -> Callable[..., Array]:
    """Evaluate along one dimension: by a native loop, or by ``function(x, out, axis)``, the last
    a few rows at a time, others at once, since rows of lanes side by side are what NumPy goes
    through."""

    def run(x: Array, *, dim: int) -> Array:
        found = softmax(x, dim, is_log)
        if found is not None:
            return found
        out = pool.empty(x.shape, x.dtype)
        columns = x.shape[-1]
        if not x.size:
            return out
        if dim != x.ndim - 1 or x.size <= _BLOCK:
            function(x, out, dim)
            return out
        rows, results = x.reshape(-1, columns), out.reshape(-1, columns)
        step = max(1, _BLOCK // columns)
        for start in range(0, len(rows), step):
            function(rows[start : start + step], results[start : start + step], 1)
        return out

    return run


def _softmax_eval(x: Array, out: Array, axis: int) -> None:
    np.subtract(x, np.maximum.reduce(x, axis, keepdims=True), out=out)
    np.exp(out, out=out)
    np.divide(out, pairwise_sum(out, (axis,), True), out=out)


def _log_softmax_eval(x: Array, out: Array, axis: int) -> None:
    np.subtract(x, np.maximum.reduce(x, axis, keepdims=True), out=out)
    np.subtract(out, np.log(pairwise_sum(np.exp(out), (axis,), True)), out=out)


@composite("softmax_backward", derivative=False)
def _softmax_slope(t: Tensor, y: Tensor, *, dim: int) -> Tensor:
    """The derivative is symmetric: it serves tangents and cotangents."""
    weighed = t * y
    return weighed - y * total(weighed, dim, True)


@composite("log_softmax_backward", derivative=False)
def _log_softmax_slope(g: Tensor, y: Tensor, *, dim: int) -> Tensor:
    return g - exp(y) * total(g, dim, True)


def _log_softmax_jvp(tangents: Sequence[Tensor], y: Tensor, x: Tensor, *, dim: int) -> Tensor:
    (t,) = tangents
    return t - total(exp(y) * t, dim, True)


def _batch(op: Op, args: Sequence[Tensor], dims: Sequence[int], *, dim: int) -> tuple[Tensor, int]:
    return bind(op, to_front(args[0], dims[0]), dim=dim + 1), 0


SOFTMAX = opaque(
    "softmax", _along_lanes(_softmax_eval, False), lambda x, *, dim: x,
    lambda g, y, x, *, dim: _softmax_slope(g, y, dim=dim),
    jvp=lambda tangents, y, x, *, dim: _softmax_slope(tangents[0], y, dim=dim),
    batch=_batch,
    emit=lowered("passes.decompose"), autocast=AutocastPolicy.KEEP,
    eager=EagerKernel(1 << 16, copies=True),
    shape_generic=True, aten="_softmax",
    doc="Exponentials along a dimension, divided by their sum.",
)  # fmt: skip
LOG_SOFTMAX = opaque(
    "log_softmax", _along_lanes(_log_softmax_eval, True), lambda x, *, dim: x,
    lambda g, y, x, *, dim: _log_softmax_slope(g, y, dim=dim),
    jvp=_log_softmax_jvp, batch=_batch,
    emit=lowered("passes.decompose"), autocast=AutocastPolicy.KEEP,
    eager=EagerKernel(1 << 16, copies=True),
    shape_generic=True, aten="_log_softmax",
    doc="The logarithm of softmax, without its rounding.",
)  # fmt: skip
SOFTMAX.prepare_for = lambda plain, x, *, dim: softmax_evaluator(x, dim, False, plain)
LOG_SOFTMAX.prepare_for = lambda plain, x, *, dim: softmax_evaluator(x, dim, True, plain)
