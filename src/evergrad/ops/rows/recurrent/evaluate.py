"""Recurrent layers and their derivatives in NumPy, in buffers that are made once.

The state is updated in place: sequences that have ended, or not begun, keep theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.core import blas
from evergrad.core.types import Array
from evergrad.memory import pool
from evergrad.ops.rows.recurrent.steps import Course

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction


def _sigmoid(x: Array) -> None:
    np.multiply(x, -1, out=x)  # ``negative`` in NumPy reads wrong elements of strided arrays
    np.exp(x, out=x)
    x += 1
    np.reciprocal(x, out=x)


def _parts(gates: Array, count: int) -> list[Array]:
    return np.split(gates, count, 1)


def _rows(count: int, width: int, like: Array) -> Array:
    """A row for each step of each sequence, not filled yet."""
    return pool.empty((count, width), like.dtype)


# -- LSTM ---------------------------------------------------------------------------------------


def lstm(
    x: Array, h: Array, c: Array, w_ih: Array, w_hh: Array, b_ih: Array, b_hh: Array, *,
    course: Course,
) -> tuple[Array, ...]:  # fmt: skip
    """Gives outputs, the last state, and for backward gates and the states before each step."""
    h, c = h.copy(), c.copy()
    gates = blas.matmul(x, w_ih.T)
    gates += b_ih + b_hh
    outputs, cells, states = (_rows(len(x), h.shape[1], x) for _ in range(3))
    for rows, count in course.slices():
        now, state, cell = gates[rows], h[:count], c[:count]
        states[rows], cells[rows] = state, cell
        now += blas.matmul(state, w_hh.T)
        i, f, g, o = _parts(now, 4)
        for gate in (i, f, o):
            _sigmoid(gate)
        np.tanh(g, out=g)
        cell *= f
        cell += i * g
        np.multiply(o, np.tanh(cell), out=state)
        outputs[rows] = state
    return outputs, h, c, gates, cells, states


def lstm_backward(
    g_y: Array, g_h: Array, g_c: Array, gates: Array, cells: Array, states: Array,
    *inputs: Array, course: Course,
) -> tuple[Array, ...]:  # fmt: skip
    w_hh = inputs[-3]
    g_h, g_c = g_h.copy(), g_c.copy()
    g_x = _rows(len(gates), gates.shape[1], gates)
    for rows, count in reversed(course.slices()):
        i, f, g, o = _parts(gates[rows], 4)
        g_i, g_f, g_g, g_o = _parts(g_x[rows], 4)
        state, cell, before = g_h[:count], g_c[:count], cells[rows]
        state += g_y[rows]
        curve = np.tanh(f * before + i * g)
        cell += state * o * (1 - curve * curve)
        g_o[...] = state * curve * (o * (1 - o))
        g_i[...] = cell * g * (i * (1 - i))
        g_f[...] = cell * before * (f * (1 - f))
        g_g[...] = cell * i * (1 - g * g)
        cell *= f
        state[...] = blas.matmul(g_x[rows], w_hh)
    return g_x, g_h, g_c, blas.matmul(g_x.T, states), g_x.sum(0)


# -- GRU ----------------------------------------------------------------------------------------


def gru(
    x: Array, h: Array, w_ih: Array, w_hh: Array, b_ih: Array, b_hh: Array, *, course: Course
) -> tuple[Array, ...]:
    """Gives outputs, the last state, and for backward gates, the hidden share of the last of them,
    and the state before each step."""
    h = h.copy()
    width = h.shape[1]
    gates = _rows(len(x), 4 * width, x)
    blas.matmul(x, w_ih.T, out=gates[:, : 3 * width])
    gates[:, : 3 * width] += b_ih
    outputs, states = (_rows(len(x), width, x) for _ in range(2))
    for rows, count in course.slices():
        now, state = gates[rows], h[:count]
        states[rows] = state
        hidden = blas.matmul(state, w_hh.T)
        hidden += b_hh
        both = now[:, : 2 * width]
        both += hidden[:, : 2 * width]
        _sigmoid(both)
        r, z, n, share = _parts(now, 4)
        share[...] = hidden[:, 2 * width :]
        n += r * share
        np.tanh(n, out=n)
        state -= n
        state *= z
        state += n
        outputs[rows] = state
    return outputs, h, gates, states


def gru_backward(
    g_y: Array, g_h: Array, gates: Array, states: Array, *inputs: Array, course: Course
) -> tuple[Array, ...]:
    w_hh = inputs[-3]
    width = w_hh.shape[1]
    g_h = g_h.copy()
    g_x, g_hidden = (_rows(len(gates), 3 * width, gates) for _ in range(2))
    for rows, count in reversed(course.slices()):
        r, z, n, share = _parts(gates[rows], 4)
        g_r, g_z, g_n = _parts(g_x[rows], 3)
        state = g_h[:count]
        state += g_y[rows]
        g_n[...] = state * (1 - z) * (1 - n * n)
        g_r[...] = g_n * share * (r * (1 - r))
        g_z[...] = state * (states[rows] - n) * (z * (1 - z))
        g_hidden[rows] = g_x[rows]
        g_hidden[rows][:, 2 * width :] *= r
        state *= z
        state += blas.matmul(g_hidden[rows], w_hh)
    return g_x, g_h, blas.matmul(g_hidden.T, states), g_hidden.sum(0)


# -- RNN ----------------------------------------------------------------------------------------


def _rnn(
    curve: AnyFunction, x: Array, h: Array, w_ih: Array, w_hh: Array, b_ih: Array, b_hh: Array, *,
    course: Course,
) -> tuple[Array, ...]:  # fmt: skip
    """Gives outputs, the last state, and for backward the state before each step."""
    h = h.copy()
    outputs = blas.matmul(x, w_ih.T)
    outputs += b_ih + b_hh
    states = _rows(len(x), h.shape[1], x)
    for rows, count in course.slices():
        now, state = outputs[rows], h[:count]
        states[rows] = state
        now += blas.matmul(state, w_hh.T)
        curve(now)
        state[...] = now
    return outputs, h, states


def rnn_tanh(*inputs: Array, course: Course) -> tuple[Array, ...]:
    return _rnn(lambda x: np.tanh(x, out=x), *inputs, course=course)


def rnn_relu(*inputs: Array, course: Course) -> tuple[Array, ...]:
    return _rnn(lambda x: np.maximum(x, 0, out=x), *inputs, course=course)


def _rnn_backward(
    slope: Any, g_y: Array, g_h: Array, outputs: Array, states: Array, *inputs: Array,
    course: Course,
) -> tuple[Array, ...]:  # fmt: skip
    w_hh = inputs[-3]
    g_h = g_h.copy()
    g_x = _rows(len(outputs), outputs.shape[1], outputs)
    for rows, count in reversed(course.slices()):
        state = g_h[:count]
        state += g_y[rows]
        g_x[rows] = slope(state, outputs[rows])
        state[...] = blas.matmul(g_x[rows], w_hh)
    return g_x, g_h, blas.matmul(g_x.T, states), g_x.sum(0)


def rnn_tanh_backward(*args: Array, course: Course) -> tuple[Array, ...]:
    return _rnn_backward(lambda g, y: g * (1 - y * y), *args, course=course)


def rnn_relu_backward(*args: Array, course: Course) -> tuple[Array, ...]:
    return _rnn_backward(lambda g, y: np.where(y <= 0, 0, g), *args, course=course)
