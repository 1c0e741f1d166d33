"""Samples of recurrent layers, in both directions and with sequences of different lengths."""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.core.bind import bind
from evergrad.core.op import TABLE
from evergrad.ops.rows.recurrent.layer import CELLS, Cell
from evergrad.ops.rows.recurrent.steps import Course
from evergrad.testing.samples import Array, normal, sample

_INPUTS, _HIDDEN = 2, 2
_COURSES = {
    "packed": Course((2, 1)),
    "reverse": Course((2, 2), reverse=True),
    "no-sequences": Course((0,)),
}
_BACKWARD_COURSES = {"packed": Course((2, 1), reverse=True)}


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _step(cell: Cell, x: Array, hidden: Array, state: list[Array]) -> list[Array]:
    """One step of one sequence, from the shares of the input and of the state."""
    if cell.name == "lstm":
        i, f, g, o = np.split(x + hidden, 4)
        c = _sigmoid(f) * state[1] + _sigmoid(i) * np.tanh(g)
        return [_sigmoid(o) * np.tanh(c), c]
    if cell.name == "gru":
        (x_r, x_z, x_n), (h_r, h_z, h_n) = np.split(x, 3), np.split(hidden, 3)
        z = _sigmoid(x_z + h_z)
        return [(1 - z) * np.tanh(x_n + _sigmoid(x_r + h_r) * h_n) + z * state[0]]
    return [np.tanh(x + hidden) if cell.name == "rnn_tanh" else np.maximum(x + hidden, 0)]


def _reference(cell: Cell, course: Course, *inputs: Array) -> tuple[Array, ...]:
    """A layer sequence by sequence, each by itself."""
    x, *state, w_ih, w_hh, b_ih, b_hh = inputs
    y, lasts = np.zeros((len(x), _HIDDEN)), [s.copy() for s in state]
    for sequence in range(course.batch):
        now = [s[sequence] for s in state]
        for first, running in course.places():
            if sequence < running:
                row = first + sequence
                now = _step(cell, w_ih @ x[row] + b_ih, w_hh @ now[0] + b_hh, now)
                y[row] = now[0]
        for last, s in zip(lasts, now, strict=True):
            last[sequence] = s
    return y, *lasts


def _inputs(cell: Cell, course: Course) -> list[Array]:
    gates = cell.gates * _HIDDEN
    shapes: list[tuple[int, ...]] = [(sum(course.sizes), _INPUTS)]
    shapes += [(course.batch, _HIDDEN)] * cell.state
    shapes += [(gates, _INPUTS), (gates, _HIDDEN), (gates,), (gates,)]
    return [0.5 * normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]


def _layer(cell: Cell, course: Course, label: str) -> None:
    row = TABLE[f"{cell.name}_layer"]

    def call(ns: object, *inputs: object) -> Any:
        return bind(row, *inputs, course=course)[: 1 + cell.state]

    sample(row.name, call, *_inputs(cell, course), torch=False, dtypes=("float32",), label=label,
           reference=lambda *arrays: _reference(cell, course, *arrays))  # fmt: skip


def _layer_backward(cell: Cell, course: Course, label: str) -> None:
    row, backward = TABLE[f"{cell.name}_layer"], TABLE[f"{cell.name}_layer_backward"]
    results = 1 + cell.state

    def call(ns: object, *args: object) -> Any:
        inputs = args[results:]
        made = bind(row, *inputs, course=course)
        kept = [made[place].detach() for place in cell.wanted]
        return bind(backward, *args[:results], *kept, *inputs, course=course)

    cotangents = [normal(sum(course.sizes), _HIDDEN, seed=11)]
    cotangents += [normal(course.batch, _HIDDEN, seed=12 + part) for part in range(cell.state)]
    sample(backward.name, call, *cotangents, *_inputs(cell, course), torch=False,
           dtypes=("float32",), label=label)  # fmt: skip


for _cell in CELLS.values():
    for _label, _course in _COURSES.items():
        _layer(_cell, _course, _label)
    for _label, _course in _BACKWARD_COURSES.items():
        _layer_backward(_cell, _course, _label)
