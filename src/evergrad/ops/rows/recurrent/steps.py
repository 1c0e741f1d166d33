"""Recurrence in ops: single steps, and a layer's steps one after the other.

What the rows of :mod:`evergrad.ops.rows.recurrent.layer` are said in where they are differentiated
again, and what layers without a row (projections, 16-bit numbers) run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from evergrad.core.eager.fusion import eager_composite
from evergrad.core.tensor import Tensor
from evergrad.ops.rows.matmul import linear
from evergrad.ops.rows.movement.joining import cat

State = tuple[Tensor, ...]
Step = Callable[[Tensor, State], State]


class Course(NamedTuple):
    """How a layer goes through the rows of its input: at each time so many sequences run, longer
    ones before shorter ones.

    The rows of one time lie behind those of the time before.
    """

    sizes: tuple[int, ...]
    reverse: bool = False

    @property
    def batch(self) -> int:
        return self.sizes[0]

    def places(self) -> list[tuple[int, int]]:
        """The first row of each time and how many there are, in the order of the steps.

        What a sequence that does not run has as its state stays as it is: this is its last state,
        or in reverse its first one.
        """
        first, places = 0, []
        for size in self.sizes:
            places.append((first, size))
            first += size
        return places[::-1] if self.reverse else places

    def slices(self) -> list[tuple[slice, int]]:
        """The same as slices of the rows."""
        return [(slice(f, f + n), n) for f, n in self.places()]


# -- one step -----------------------------------------------------------------------------------
# Each takes the input's share of the gates, (B, gates), and the state; weights are closed over.


def tanh_step(weight: Tensor, bias: Tensor | None) -> Step:
    return lambda x, s: ((x + linear(s[0], weight, bias)).tanh(),)


def relu_step(weight: Tensor, bias: Tensor | None) -> Step:
    return lambda x, s: ((x + linear(s[0], weight, bias)).relu(),)


def lstm_step(weight: Tensor, bias: Tensor | None, projection: Tensor | None = None) -> Step:
    def step(x: Tensor, state: State) -> State:
        h, c = state
        h, c = _lstm_gates(x + linear(h, weight, bias), c)
        return (h if projection is None else linear(h, projection)), c

    return step


@eager_composite(least=16)
def _lstm_gates(gates: Tensor, c: Tensor) -> State:
    i, f, g, o = gates.chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def gru_step(weight: Tensor, bias: Tensor | None) -> Step:
    def step(x: Tensor, state: State) -> State:
        (h,) = state
        return (_gru_gates(x, linear(h, weight, bias), h),)

    return step


@eager_composite(least=16)
def _gru_gates(x: Tensor, hidden: Tensor, h: Tensor) -> Tensor:
    x_r, x_z, x_n = x.chunk(3, 1)
    h_r, h_z, h_n = hidden.chunk(3, 1)
    r, z = (x_r + h_r).sigmoid(), (x_z + h_z).sigmoid()
    n = (x_n + r * h_n).tanh()
    return n + z * (h - n)


# -- over time ----------------------------------------------------------------------------------


def unrolled(step: Step, x: Tensor, state: State, course: Course) -> tuple[Tensor, State]:
    """What all steps give, in the order of the rows ``x``, and the last state."""
    outputs = []
    for rows, count in course.slices():
        if count == course.batch:
            state = step(x[rows], state)
            outputs.append(state[0])
        else:
            new = step(x[rows], tuple(s[:count] for s in state))
            state = tuple(cat([n, s[count:]]) for n, s in zip(new, state, strict=True))
            outputs.append(new[0])
    if course.reverse:
        outputs.reverse()
    return cat(outputs), state
