"""Elements held between bounds: ``clamp`` and its halves.

At the edges: the slope is 1 on a bound.
"""

from __future__ import annotations

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.families import elementwise, not_complex
from evergrad.core.inplace import write_in_place, write_result
from evergrad.core.node import next_sequence
from evergrad.core.row_facts import Builder, Value, cheap
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.elementwise.basic import fitting, where
from evergrad.ops.surface.public import expose

_BOUNDS = frozenset({int, float})


def _clamp_in_place(self: Tensor, min: object = None, max: object = None) -> Tensor:
    """``clamp_`` between two numbers without a temporary."""
    bounds = fitting(min, self), fitting(max, self)
    if min.__class__ in _BOUNDS and max.__class__ in _BOUNDS:
        return write_in_place(CLAMP, self, *bounds)
    since = next_sequence()
    return write_result("clamp", self, clamp(self, min, max), since)


@expose("clip", inplace=_clamp_in_place)
def clamp(input: Tensor, min: object = None, max: object = None) -> Tensor:
    """Held between ``min`` and ``max``; the slope is 1 inside and on the bounds, else 0."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    if min is not None and max is not None:
        if not isinstance(min, Tensor) and not isinstance(max, Tensor):
            return bind(CLAMP, input, fitting(min, input), fitting(max, input))  # type: ignore[no-any-return]
        return clamp_max(clamp_min(input, min), max)
    return clamp_max(input, max) if min is None else clamp_min(input, min)


def _emit_clamp_min(b: Builder, x: Value, low: Value) -> Value:
    return b.maximum(x, low)


def _emit_clamp_max(b: Builder, x: Value, high: Value) -> Value:
    return b.minimum(x, high)


def emit_clamp(b: Builder, x: Value, low: Value, high: Value) -> Value:
    return _emit_clamp_max(b, _emit_clamp_min(b, x, low), high)


CLAMP_MIN = elementwise(
    "clamp_min", np.maximum,
    (lambda t, y, x, low: where(x >= low, t, 0), lambda t, y, x, low: where(x < low, t, 0)),
    accepts=not_complex, emit=cheap(_emit_clamp_min, integers=True), eager_loop=True,
    doc="Held above a bound.",
)  # fmt: skip
CLAMP_MAX = elementwise(
    "clamp_max", np.minimum,
    (lambda t, y, x, high: where(x <= high, t, 0), lambda t, y, x, high: where(x > high, t, 0)),
    accepts=not_complex, emit=cheap(_emit_clamp_max, integers=True), eager_loop=True,
    doc="Held below a bound.",
)  # fmt: skip
CLAMP = elementwise(
    "clamp", lambda x, low, high, **out: np.minimum(np.maximum(x, low), high, **out),
    (lambda t, y, x, low, high: where((x >= low) & (x <= high), t, 0), None, None),
    emit=cheap(emit_clamp, integers=True),
    accepts=not_complex, eager_loop=True, doc="Held between two numbers.",
)  # fmt: skip


@expose(inplace=True)
def clamp_min(input: Tensor, min: object) -> Tensor:
    """Held above ``min``; the slope is 1 there and on the bound, else 0."""
    return bind(CLAMP_MIN, input, fitting(min, input))  # type: ignore[no-any-return]


@expose(inplace=True)
def clamp_max(input: Tensor, max: object) -> Tensor:
    """Held below ``max``; the slope is 1 there and on the bound, else 0."""
    return bind(CLAMP_MAX, input, fitting(max, input))  # type: ignore[no-any-return]
