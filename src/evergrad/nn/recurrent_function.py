"""Recurrent layers and cells as functions of their weights: ``evergrad.lstm`` and its kin.

PyTorch's two forms: a padded batch with ``batch_first``, and the rows of a packed sequence with
``batch_sizes``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evergrad.core.tensor import Tensor
from evergrad.ops.composite.dropout import dropout as drop
from evergrad.ops.rows.matmul import linear
from evergrad.ops.rows.movement.joining import cat, stack
from evergrad.ops.rows.recurrent.layer import recurrent_layer
from evergrad.ops.rows.recurrent.steps import (
    Course,
    State,
    Step,
    gru_step,
    lstm_step,
    relu_step,
    tanh_step,
)

Weights = Sequence[Tensor | None]  # of input and state, their biases, the projection


def stacked_layers(
    kind: str, x: Tensor, course: Course, first: State, weights: Sequence[Weights],
    directions: int, dropout: float,
) -> tuple[Tensor, State]:  # fmt: skip
    """All layers, one after the other, each in its one or two directions."""
    lasts: list[State] = []
    for start in range(0, len(weights), directions):
        outputs = []
        for way in range(directions):
            state = tuple(s[start + way] for s in first)
            own = course._replace(reverse=bool(way))
            output, last = recurrent_layer(kind, x, state, weights[start + way], own)
            outputs.append(output)
            lasts.append(last)
        x = outputs[0] if directions == 1 else cat(outputs, -1)
        if dropout and start + directions < len(weights):
            x = drop(x, dropout, True)
    return x, tuple(stack(parts) for parts in zip(*lasts, strict=True))


def _split_weights(params: Sequence[Tensor], has_biases: bool, hx: State) -> list[list[Tensor]]:
    """The flat list of weights, by layer and direction; states of two widths have projections."""
    has_projections = len(hx) == 2 and hx[0].shape[2] != hx[1].shape[2]
    size = 2 + 2 * has_biases + has_projections
    rows: list[list[Any]] = [list(params[i : i + size]) for i in range(0, len(params), size)]
    for row in rows:
        projection = row.pop() if has_projections else None
        row += [None] * (4 - len(row)) + [projection]
    return rows


def _states(hx: Tensor | State) -> State:
    return (hx,) if isinstance(hx, Tensor) else tuple(hx)


def _padded(
    kind: str, input: Tensor, hx: Tensor | State, params: Sequence[Tensor], has_biases: bool,
    num_layers: int, dropout: float, train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, State]:  # fmt: skip
    hx = _states(hx)
    x = input.transpose(0, 1) if batch_first else input
    weights = _split_weights(params, has_biases, hx)
    course = Course((x.shape[1],) * x.shape[0])
    share = dropout if train else 0.0
    rows = x.flatten(0, 1)
    output, last = stacked_layers(kind, rows, course, hx, weights, 1 + bidirectional, share)
    output = output.unflatten(0, x.shape[:2])
    return (output.transpose(0, 1) if batch_first else output), last


def _packed(
    kind: str, data: Tensor, batch_sizes: Tensor, hx: Tensor | State, params: Sequence[Tensor],
    has_biases: bool, num_layers: int, dropout: float, train: bool, bidirectional: bool,
) -> tuple[Tensor, State]:  # fmt: skip
    hx = _states(hx)
    weights = _split_weights(params, has_biases, hx)
    course = Course(tuple(int(n) for n in batch_sizes.tolist()))
    share = dropout if train else 0.0
    return stacked_layers(kind, data, course, hx, weights, 1 + bidirectional, share)


def _layers(kind: str, packed: bool, args: Any, kwargs: Any) -> tuple[Tensor, State]:
    form = _packed if packed or "batch_sizes" in kwargs else _padded
    return form(kind, *args, **kwargs)


def lstm(*args: object, **kwargs: object) -> tuple[Tensor, Tensor, Tensor]:
    """Layers of long short-term memory: outputs, last hidden state, last cell state.

    ``lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional,
    batch_first)``, or ``lstm(data, batch_sizes, hx, params, ..., bidirectional)``; ``hx`` is the
    pair of first states.
    """
    packed = len(args) > 1 and isinstance(args[1], Tensor)
    output, last = _layers("lstm", packed, args, kwargs)
    return output, last[0], last[1]


def _layers_of(kind: str, name: str, doc: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def layers(*args: object, **kwargs: object) -> tuple[Tensor, Tensor]:
        packed = len(args) > 2 and isinstance(args[2], Tensor)
        output, last = _layers(kind, packed, args, kwargs)
        return output, last[0]

    layers.__name__ = layers.__qualname__ = name
    layers.__doc__ = doc
    return layers


gru: Callable[..., tuple[Tensor, Tensor]] = _layers_of(
    "gru", "gru", "Layers of gated recurrent units: outputs and last state."
)
rnn_tanh: Callable[..., tuple[Tensor, Tensor]] = _layers_of(
    "rnn_tanh", "rnn_tanh", "Layers of ``h = tanh(W x + U h)``."
)
rnn_relu: Callable[..., tuple[Tensor, Tensor]] = _layers_of(
    "rnn_relu", "rnn_relu", "Layers of ``h = relu(W x + U h)``."
)


# -- one step ------------------------------------------------------------------------------------


def lstm_cell(
    input: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One step of long short-term memory: the hidden and the cell state."""
    h, c = lstm_step(w_hh, b_hh)(linear(input, w_ih, b_ih), tuple(hx))
    return h, c


def _cell_of(
    make: Callable[[Tensor, Tensor | None], Step], name: str, doc: str
) -> Callable[..., Tensor]:
    def cell(
        input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        return make(w_hh, b_hh)(linear(input, w_ih, b_ih), (hx,))[0]

    cell.__name__ = cell.__qualname__ = name
    cell.__doc__ = doc
    return cell


gru_cell: Callable[..., Tensor] = _cell_of(
    gru_step, "gru_cell", "One step of gated recurrent units."
)
rnn_tanh_cell: Callable[..., Tensor] = _cell_of(tanh_step, "rnn_tanh_cell", "``tanh(W x + U h)``")
rnn_relu_cell: Callable[..., Tensor] = _cell_of(relu_step, "rnn_relu_cell", "``relu(W x + U h)``")
