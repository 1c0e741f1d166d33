"""Checks of derivatives: against slopes, and of the two modes against each other.

All of them look at the derivative in random directions: an error in any element shows in almost
every direction, at the price of one evaluation instead of one for each element.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evergrad.core.tensor import Tensor
from evergrad.func import jvp, vjp
from evergrad.testing.samples import Sample
from evergrad.testing.subject import (
    Array,
    Function,
    Subject,
    arrays_of,
    as_tensors,
    ensure_near,
    inner,
    random_like,
    rounding_unit,
    size_of,
    wide,
)

# The truncation error of a central difference in float64 is below this for functions whose third
# derivative is at most 1e5 times their size; its rounding error is 1e-10.
_SLOPE_TOLERANCE = 1e-6

# Forward and reverse mode compute the same sum in another order.
_SAME_SUM = 1e-9


def _precision(arrays: Sequence[Array]) -> float:
    """The coarsest rounding unit among these numbers."""
    return max((rounding_unit(a.dtype) for a in arrays), default=0.0)


def _slope(
    function: Function, points: list[Tensor], direction: list[Array], step: float
) -> list[Array]:
    """The change of the results per step along a direction, by central differences."""
    sides = []
    for sign in (1, -1):
        moved = [p.array() + sign * step * d for p, d in zip(points, direction, strict=True)]
        sides.append(arrays_of(function, *as_tensors(moved)))
    with np.errstate(invalid="ignore"):  # NaN is reported as a difference
        return [(wide(up) - wide(down)) / (2 * step) for up, down in zip(*sides, strict=True)]


def _pull(function: Function, points: list[Tensor], cotangents: list[Array]) -> list[Array]:
    _, pullback = vjp(function, *points)
    return [np.array(g.array()) for g in pullback(tuple(as_tensors(cotangents)))]


def _push(function: Function, points: list[Tensor], direction: list[Array]) -> list[Array]:
    _, moved = jvp(function, tuple(points), tuple(as_tensors(direction)))
    return [np.array(t.array()) for t in moved]


def _check_slopes(what: str, function: Function, points: list[Tensor]) -> None:
    """Reverse and forward mode against central differences, in one random direction per input."""
    values = arrays_of(function, *points)
    if not values:
        return
    cotangents = random_like(values, seed=1)
    gradients = _pull(function, points, cotangents)
    precision = _precision([*values, *(p.array() for p in points)])
    # Numbers of fewer bits than float64 are differenced with a larger step and error.
    tolerance = max(_SLOPE_TOLERANCE, 10 * precision ** (2 / 3))
    for k, point in enumerate(points):
        direction = [np.zeros_like(p.array()) for p in points]
        direction[k] = random_like([point.array()], seed=2 + k)[0]
        slope = _slope(function, points, direction, step=precision ** (1 / 3))
        scale = 1 + size_of(cotangents) * (size_of(slope) + size_of(values))
        expected = inner(cotangents, slope)
        ensure_near(
            f"{what}: the gradient by input {k}",
            inner(gradients, direction), expected, tolerance * scale,
        )  # fmt: skip
        ensure_near(
            f"{what}: the forward derivative by input {k}",
            inner(cotangents, _push(function, points, direction)), expected, tolerance * scale,
        )  # fmt: skip


def check_gradient(sample: Sample) -> None:
    """The first derivative is the slope."""
    subject = Subject(sample)
    _check_slopes(f"{sample}", subject.function, subject.points())


def gradient_function(function: Function, count: int) -> Function:
    """From ``count`` points and the cotangents of the results to the gradients by the points."""

    def gradients(*values: Tensor) -> tuple[Tensor, ...]:
        _, pullback = vjp(function, *values[:count])
        return tuple(pullback(tuple(values[count:])))

    return gradients


def first_gradient(subject: Subject) -> tuple[Function, list[Tensor]]:
    """The gradient as a function of points and cotangents, and where to look at it."""
    points = subject.points()
    cotangents = as_tensors(random_like(arrays_of(subject.function, *points), seed=3))
    return gradient_function(subject.function, len(points)), [*points, *cotangents]


def check_second_gradient(sample: Sample) -> None:
    """The derivative of the gradient is the slope of the gradient."""
    function, points = first_gradient(Subject(sample))
    _check_slopes(f"{sample} (second order)", function, points)


def check_transpose(sample: Sample) -> None:
    """Forward and reverse mode are each other's transpose: <J v, u> = <v, J' u>."""
    subject = Subject(sample)
    _check_transpose(f"{sample}", subject.function, subject.points())


def check_mixed_orders(sample: Sample) -> None:
    """Forward over reverse and reverse over reverse give the same second derivative."""
    function, points = first_gradient(Subject(sample))
    _check_transpose(f"{sample} (second order)", function, points)


def _check_transpose(what: str, function: Function, points: list[Tensor]) -> None:
    values = arrays_of(function, *points)
    direction = random_like([p.array() for p in points], seed=4)
    cotangents = random_like(values, seed=5)
    pushed = _push(function, points, direction)
    pulled = _pull(function, points, cotangents)
    scale = size_of(direction) * size_of(pulled) + size_of(cotangents) * size_of(pushed)
    # Numbers of fewer bits than float64 carry their own rounding.
    tolerance = max(_SAME_SUM, 4 * _precision([*values, *direction]))
    ensure_near(
        f"{what}: <J v, u> and <v, J' u>",
        inner(pushed, cotangents), inner(direction, pulled), tolerance * scale,
    )  # fmt: skip
