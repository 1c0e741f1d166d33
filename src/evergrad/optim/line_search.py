"""A step length along a direction: the strong Wolfe conditions, by cubic interpolation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from evergrad.core.tensor import Tensor

# The value and the gradient at a distance along the direction.
Objective = Callable[[float], tuple[float, Tensor]]

# How much the value must fall, and the slope flatten, for a step to be taken.
_ENOUGH_FALL = 1e-4
_ENOUGH_FLAT = 0.9


@dataclass
class Point:
    """A distance along the direction with the value, slope and gradient there."""

    at: float
    value: float
    slope: float
    gradient: Tensor | None = None


def lowest_between(a: Point, b: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with their slopes is lowest, within the bounds."""
    low, high = (min(a.at, b.at), max(a.at, b.at)) if bounds is None else bounds
    mixed = a.slope + b.slope - 3 * (a.value - b.value) / (a.at - b.at)
    square = mixed**2 - a.slope * b.slope
    if not square >= 0:
        return (low + high) / 2.0
    if a.at > b.at:
        a, b = b, a
    root = math.sqrt(square)
    denominator = b.slope - a.slope + 2 * root
    if denominator == 0:
        return (low + high) / 2.0
    lowest = b.at - (b.at - a.at) * ((b.slope + root - mixed) / denominator)
    return min(max(lowest, low), high)


class WolfeSearch:
    """One line search: first a bracket around a good step, then narrowing it down."""

    def __init__(
        self, objective: Objective, direction: Tensor, start: Point, tolerance: float, limit: int
    ) -> None:
        self.objective = objective
        self.direction = direction
        self.start = start
        self.tolerance = tolerance
        self.limit = limit
        self.evaluations: int = 0
        self.rounds: int = 0

    def _evaluate(self, at: float) -> Point:
        value, gradient = self.objective(at)
        self.evaluations += 1
        return Point(at, value, gradient.dot(self.direction).item(), gradient)

    def _too_high(self, point: Point) -> bool:
        start = self.start
        return point.value > start.value + _ENOUGH_FALL * point.at * start.slope

    def _flat(self, point: Point) -> bool:
        return abs(point.slope) <= -_ENOUGH_FLAT * self.start.slope

    def run(self, first: float) -> Point:
        """The point to step to."""
        bracket = self._bracket(first)
        if len(bracket) == 2:
            self._narrow(bracket)
        return min(bracket, key=lambda point: point.value)

    def _bracket(self, first: float) -> list[Point]:
        former, point = self.start, self._evaluate(first)
        while self.rounds < self.limit:
            rises = self.rounds > 1 and point.value >= former.value
            if self._too_high(point) or rises:
                return [former, point]
            if self._flat(point):
                return [point]
            if point.slope >= 0:
                return [former, point]
            bounds = (point.at + 0.01 * (point.at - former.at), point.at * 10)
            following = lowest_between(former, point, bounds)
            former, point = point, self._evaluate(following)
            self.rounds += 1
        return [self.start, point]

    def _narrow(self, bracket: list[Point]) -> None:
        """Replace the ends of the bracket until one satisfies both conditions."""
        reach = self.direction.abs().max().item()
        stuck = False
        while self.rounds < self.limit:
            low, high = sorted(range(2), key=lambda i: bracket[i].value)
            if abs(bracket[1].at - bracket[0].at) * reach < self.tolerance:
                return
            at, stuck = self._trial(bracket, stuck)
            point = self._evaluate(at)
            self.rounds += 1
            if self._too_high(point) or point.value >= bracket[low].value:
                bracket[high] = point
                continue
            done = self._flat(point)
            if not done and point.slope * (bracket[high].at - bracket[low].at) >= 0:
                bracket[high] = bracket[low]
            bracket[low] = point
            if done:
                return

    def _trial(self, bracket: list[Point], stuck: bool) -> tuple[float, bool]:
        """Where to look next: not so near an end that the bracket hardly shrinks twice."""
        near, far = sorted(point.at for point in bracket)
        at = lowest_between(bracket[0], bracket[1])
        margin = 0.1 * (far - near)
        if min(far - at, at - near) >= margin:
            return at, False
        if not stuck and near < at < far:
            return at, True
        return (far - margin if abs(at - far) < abs(at - near) else near + margin), False


def strong_wolfe(
    objective: Objective, direction: Tensor, first: float, value: float, gradient: Tensor,
    slope: float, tolerance: float, limit: int,
) -> tuple[float, float, Tensor, int]:  # fmt: skip
    """The distance to go, the value and gradient there, and how many evaluations it took."""
    search = WolfeSearch(objective, direction, Point(0.0, value, slope, gradient), tolerance, limit)
    found = search.run(first)
    assert found.gradient is not None
    return found.at, found.value, found.gradient, search.evaluations
