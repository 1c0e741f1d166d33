"""A recurrent layer in one direction as one row: its whole loop over time.

``y, h, c, ... = lstm_layer(x, h, c, w_ih, w_hh, b_ih, b_hh)`` takes the input of all steps as rows,
in the order of a :class:`~evergrad.ops.rows.recurrent.steps.Course`. Its results after the last
state are residuals for ``lstm_layer_backward``, which goes back through time and returns the
gradients of the gates, of the first state, and of the hidden weight and bias.

The residuals are functions of the arguments, which the backward row takes as well; its derivative
is with respect to these arguments. So the derivative by a residual is never needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from evergrad.core import dtypes
from evergrad.core.bind import bind
from evergrad.core.families import opaque
from evergrad.core.op import TABLE, Op
from evergrad.core.row_facts import AutocastPolicy, EagerKernel, lowered
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.errors import ShapeError
from evergrad.extension import ExtensionPoint
from evergrad.ops.rows.creation.constants import zeros, zeros_like
from evergrad.ops.rows.matmul import linear, matmul
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.recurrent import evaluate
from evergrad.ops.rows.recurrent.steps import (
    Course,
    State,
    Step,
    gru_step,
    lstm_step,
    relu_step,
    tanh_step,
    unrolled,
)
from evergrad.ops.rows.reduce.sums import sum as total

_jvp: ExtensionPoint[..., Any] = ExtensionPoint("jvp")
_vjp: ExtensionPoint[..., Any] = ExtensionPoint("vjp")


class Cell(NamedTuple):
    """A kind of layer.

    ``gates`` are the numbers that are computed for each hidden one, ``state`` the parts of the
    state; ``kept`` says how many numbers for each hidden one the results behind it have, and
    ``wanted`` which results backward wants.
    """

    name: str
    step: Callable[[Tensor, Tensor | None], Step]
    gates: int
    state: int
    kept: tuple[int, ...]
    wanted: tuple[int, ...]


LSTM = Cell("lstm", lstm_step, 4, 2, (4, 1, 1), (3, 4, 5))
GRU = Cell("gru", gru_step, 3, 1, (4, 1), (2, 3))
RNN_TANH = Cell("rnn_tanh", tanh_step, 1, 1, (1,), (0, 2))
RNN_RELU = Cell("rnn_relu", relu_step, 1, 1, (1,), (0, 2))

_ROW_TYPES = (dtypes.float32, dtypes.float64)


def _layer_type(cell: Cell, *types: TensorType, course: Course) -> tuple[TensorType, ...]:
    x, h, *_ = types
    width = h.shape[-1]
    gates = cell.gates * width
    shapes: list[tuple[int, ...]] = [(sum(course.sizes), x.shape[-1])]
    shapes += [(course.batch, width)] * cell.state
    shapes += [(gates, x.shape[-1]), (gates, width), (gates,), (gates,)]
    for given, shape in zip(types, shapes, strict=True):
        if given.shape != shape:
            raise ShapeError(
                f"{cell.name}_layer: expected a tensor of size {list(shape)}, got "
                f"{list(given.shape)}"
            )
    rows = tensor_type((x.shape[0], width), x.dtype)
    kept = [tensor_type((x.shape[0], n * width), x.dtype) for n in cell.kept]
    return rows, *types[1 : 1 + cell.state], *kept


def _backward_type(cell: Cell, *types: TensorType, course: Course) -> tuple[TensorType, ...]:
    x, *state, w_ih, w_hh, _, b_hh = types[1 + cell.state + len(cell.wanted) :]
    return tensor_type((x.shape[0], w_ih.shape[0]), x.dtype), *state, w_hh, b_hh


# -- derivatives --------------------------------------------------------------------------------


def _layer_vjp(
    cell: Cell, backward: Op, g: Sequence[Tensor], out: Sequence[Tensor], *inputs: Tensor,
    course: Course,
) -> tuple[Tensor, ...]:  # fmt: skip
    kept = [out[place] for place in cell.wanted]
    found = bind(backward, *g[: 1 + cell.state], *kept, *inputs, course=course)
    g_gates, *g_state, g_w_hh, g_b_hh = found
    x, w_ih = inputs[0], inputs[-4]
    g_w_ih = matmul(g_gates.transpose(0, 1), x)
    return matmul(g_gates, w_ih), *g_state, g_w_ih, g_w_hh, _input_bias(cell, found), g_b_hh


def _input_bias(cell: Cell, found: Sequence[Tensor]) -> Tensor:
    """The gradient of the input's bias: where both biases are simply added, that of the other."""
    g_gates, g_b_hh = found[0], found[-1]
    if cell is not GRU:
        return g_b_hh
    reset_and_update = 2 * g_b_hh._type.numel // 3
    last = total(g_gates[:, reset_and_update:], 0)
    return cat([g_b_hh[:reset_and_update], last])


def by_steps(cell: Cell, course: Course, gates: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
    """What a layer gives and its last state, in ops, from the input's share of the gates on."""
    *state, w_hh, b_hh = others
    y, ended = unrolled(cell.step(w_hh, b_hh), gates, tuple(state), course)
    return y, *ended


def _layer_jvp(
    cell: Cell, tangents: Sequence[Tensor | None], out: object, *inputs: Tensor, course: Course
) -> tuple[Tensor | None, ...]:
    moving = [place for place, tangent in enumerate(tangents) if tangent is not None]

    def of_moving(*moved: Tensor) -> tuple[Tensor, ...]:
        given = dict(enumerate(inputs)) | dict(zip(moving, moved, strict=True))
        x, *state, w_ih, w_hh, b_ih, b_hh = given.values()
        return by_steps(cell, course, linear(x, w_ih, b_ih), *state, w_hh, b_hh)

    directions = tuple(tangents[place] for place in moving)
    _, found = _jvp(of_moving, tuple(inputs[place] for place in moving), directions)
    return *found, *[None] * len(cell.kept)


def _backward_vjp(
    cell: Cell, g: Sequence[Tensor], out: object, *args: Tensor, course: Course
) -> tuple[Tensor, ...]:
    """By the derivative of the steps one after the other."""
    first, last = 1 + cell.state, 1 + cell.state + len(cell.wanted)

    def gradients(*args: Tensor) -> Any:
        cotangents, (x, *state, w_ih, w_hh, b_ih, b_hh) = args[:first], args[first:]
        steps = partial(by_steps, cell, course)
        _, pull = _vjp(steps, linear(x, w_ih, b_ih), *state, w_hh, b_hh)
        return pull(cotangents, create_graph=True)

    _, pull = _vjp(gradients, *args[:first], *args[last:])
    found = pull(tuple(g), create_graph=True)
    return *found[:first], *map(zeros_like, args[first:last]), *found[first:]


# -- rows ---------------------------------------------------------------------------------------


def _work(rows: TensorType, *others: TensorType) -> int:
    """Products of a step's rows with the hidden weight."""
    return rows.shape[0] * others[-3].numel


def _enter(cell: Cell, doc: str) -> Op:
    """The rows of a kind of layer; gives the first."""
    kernel = EagerKernel(1 << 13, _work)
    backward = opaque(
        f"{cell.name}_layer_backward", getattr(evaluate, f"{cell.name}_backward"),
        partial(_backward_type, cell), partial(_backward_vjp, cell), outputs=3 + cell.state,
        emit=lowered("kernels.recurrent"), autocast=AutocastPolicy.KEEP, eager=kernel,
        doc=f"The gradients of {cell.name}_layer by gates, first state, hidden weight and bias.",
    )  # fmt: skip
    return opaque(
        f"{cell.name}_layer", getattr(evaluate, cell.name), partial(_layer_type, cell),
        partial(_layer_vjp, cell, backward), jvp=partial(_layer_jvp, cell),
        outputs=1 + cell.state + len(cell.kept), emit=lowered("kernels.recurrent"),
        autocast=AutocastPolicy.KEEP, eager=kernel, doc=doc,
    )  # fmt: skip


ROWS = {
    LSTM.name: _enter(LSTM, "Long short-term memory over all steps."),
    GRU.name: _enter(GRU, "Gated recurrent units over all steps."),
    RNN_TANH.name: _enter(RNN_TANH, "h = tanh(W x + U h) over all steps."),
    RNN_RELU.name: _enter(RNN_RELU, "h = relu(W x + U h) over all steps."),
}
BACKWARD_ROWS = {name: TABLE[f"{name}_layer_backward"] for name in ROWS}
CELLS = {cell.name: cell for cell in (LSTM, GRU, RNN_TANH, RNN_RELU)}


def recurrent_layer(
    kind: str, x: Tensor, state: State, weights: Sequence[Tensor | None], course: Course
) -> tuple[Tensor, State]:
    """What a layer gives for all rows of its input, and its last state.

    ``weights`` are those of the input and of the state, their biases, and the projection of what
    is given. Layers with a projection, and those that round after every step (16-bit numbers and
    autocast), go step by step.
    """
    cell = CELLS[kind]
    w_ih, w_hh, b_ih, b_hh, projection = weights
    assert w_ih is not None and w_hh is not None
    given = [x, *state, *(w for w in weights if w is not None)]
    has_row = x.dtype in _ROW_TYPES and all(t.dtype is x.dtype for t in given)
    if projection is None and has_row and STATE.get().autocast is None:
        if b_ih is None:
            b_ih = b_hh = zeros(w_ih._type.shape[0], dtype=x.dtype)
        y, *rest = bind(ROWS[kind], x, *state, w_ih, w_hh, b_ih, b_hh, course=course)
        return y, tuple(rest[: cell.state])
    step = cell.step(w_hh, b_hh) if projection is None else lstm_step(w_hh, b_hh, projection)
    return unrolled(step, linear(x, w_ih, b_ih), state, course)
