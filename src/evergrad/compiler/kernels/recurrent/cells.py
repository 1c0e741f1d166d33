"""The cells of recurrent layers, in LLVM IR: gates and states between two products.

Each function is a loop over the hidden units of one sequence. Its body is scalar, without branches,
and LLVM vectorizes it; for that the parts of a row (the gates) are ``noalias`` pointers of their
own.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.elementwise import constant
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.compiler.kernels.gemm.microkernel import Function
from evergrad.compiler.kernels.recurrent.tanh import tanh
from evergrad.compiler.native.jit import vector_bits
from evergrad.core import dtypes

# The arrays of a function, each with the number of its parts.
Arrays = dict[str, int]


class CellBuilder(KernelBuilder):
    """The builder of a cell function; ``index`` is the hidden unit."""

    def __init__(self, vector: Vector, arrays: Arrays) -> None:
        Code.__init__(self)
        self.vector = vector
        self.arrays = arrays
        self.index: str = ""

    # -- memory ---------------------------------------------------------------------------------

    def get(self, name: str, part: int = 0) -> str:
        return self.load(self.at(f"%{name}{part}", self.index))

    def put(self, value: str, name: str, part: int = 0) -> None:
        self.store(value, self.at(f"%{name}{part}", self.index))

    def input_share(self, name: str, gate: int) -> str:
        """The share of the input in a gate; its product is stored in the place of the gate."""
        return self.plus(self.get(name, gate), self.get("b_ih", gate))

    def hidden_share(self, gate: int) -> str:
        """The share of the state in a gate."""
        return self.plus(self.get("hidden", gate), self.get("b_hh", gate))

    def put_hidden_gradient(self, gradient: str, gate: int) -> None:
        """The gradient of the state's share in a gate: for the product with the weight, and
        accumulated for the bias."""
        self.put(gradient, "hidden", gate)
        self.put(self.plus(self.get("bias", gate), gradient), "bias", gate)

    # -- numbers --------------------------------------------------------------------------------

    def _calc(self, word: str, a: str, b: str) -> str:
        return self.op(f"{word} contract {self.vector.element} {a}, {b}")

    def plus(self, first: str, *others: str) -> str:
        for other in others:
            first = self._calc("fadd", first, other)
        return first

    def minus(self, a: str, b: str) -> str:
        return self._calc("fsub", a, b)

    def times(self, first: str, *others: str) -> str:
        for other in others:
            first = self._calc("fmul", first, other)
        return first

    @property
    def one(self) -> str:
        return constant(1.0, dtypes.float32)

    @property
    def zero(self) -> str:
        return constant(0.0, dtypes.float32)

    def tanh(self, x: str) -> str:
        return tanh(self, self.vector.element, x)

    def sigmoid(self, x: str) -> str:
        return self.call("vm_sigmoid", self.vector.element, x)

    def relu(self, x: str) -> str:
        return self.positive(x, x)

    def positive(self, x: str, value: str) -> str:
        """A value, or zero where ``x`` is not positive; NaN counts as positive."""
        element = self.vector.element
        below = self.op(f"fcmp ole {element} {x}, {self.zero}")
        return self.op(f"select i1 {below}, {element} {self.zero}, {element} {value}")

    def tanh_gradient(self, y: str) -> str:
        return self.minus(self.one, self.times(y, y))

    def sigmoid_gradient(self, y: str) -> str:
        return self.times(y, self.minus(self.one, y))

    # -- definition -----------------------------------------------------------------------------

    def function(self, name: str, body: Callable[[CellBuilder], None]) -> Function:
        with self.loop("%width") as index:
            self.index = index
            body(self)
        given = [f"ptr noalias %{n}{p}" for n, parts in self.arrays.items() for p in range(parts)]
        lines = "\n".join(self.lines)
        name = f"{name}_{self.vector.mangled}"
        ir = (
            f"define internal void @{name}({', '.join(given)}, i64 %width) noinline nounwind "
            f'"prefer-vector-width"="{vector_bits()}" {{\nentry:\n{lines}\n  ret void\n}}\n'
        )
        return Function(name, ir, self.helpers)


def _put_state(row: CellBuilder, h: str) -> None:
    """Store the new state, also as the output; the previous one is kept."""
    row.put(row.get("h"), "states")
    row.put(h, "h")
    row.put(h, "y")


# -- LSTM ---------------------------------------------------------------------------------------


def _lstm(row: CellBuilder) -> None:
    sums = [row.plus(row.input_share("gates", n), row.hidden_share(n)) for n in range(4)]
    i, f, o = (row.sigmoid(sums[n]) for n in (0, 1, 3))
    g = row.tanh(sums[2])
    for n, gate in enumerate((i, f, g, o)):
        row.put(gate, "gates", n)
    before = row.get("c")
    row.put(before, "cells")
    c = row.plus(row.times(f, before), row.times(i, g))
    row.put(c, "c")
    _put_state(row, row.times(o, row.tanh(c)))


def _lstm_backward(row: CellBuilder) -> None:
    i, f, g, o = (row.get("gates", n) for n in range(4))
    before = row.get("cells")
    activation = row.tanh(row.plus(row.times(f, before), row.times(i, g)))
    g_h = row.plus(row.get("g_h"), row.get("g_y"))
    g_c = row.plus(row.get("g_c"), row.times(g_h, o, row.tanh_gradient(activation)))
    row.put(row.times(g_c, f), "g_c")
    for n, gradient in enumerate((
        row.times(g_c, g, row.sigmoid_gradient(i)),
        row.times(g_c, before, row.sigmoid_gradient(f)),
        row.times(g_c, i, row.tanh_gradient(g)),
        row.times(g_h, activation, row.sigmoid_gradient(o)),
    )):  # fmt: skip
        row.put(gradient, "g_x", n)
        row.put_hidden_gradient(gradient, n)


# -- GRU ----------------------------------------------------------------------------------------


def _gru(row: CellBuilder) -> None:
    """The state's share of the last gate is kept after the gates."""
    r, z = (row.sigmoid(row.plus(row.input_share("gates", n), row.hidden_share(n))) for n in (0, 1))
    share = row.hidden_share(2)
    n = row.tanh(row.plus(row.input_share("gates", 2), row.times(r, share)))
    for place, gate in enumerate((r, z, n, share)):
        row.put(gate, "gates", place)
    _put_state(row, row.plus(n, row.times(z, row.minus(row.get("h"), n))))


def _gru_backward(row: CellBuilder) -> None:
    r, z, n, share = (row.get("gates", place) for place in range(4))
    g_h = row.plus(row.get("g_h"), row.get("g_y"))
    g_n = row.times(g_h, row.minus(row.one, z), row.tanh_gradient(n))
    g_r = row.times(g_n, share, row.sigmoid_gradient(r))
    g_z = row.times(g_h, row.minus(row.get("states"), n), row.sigmoid_gradient(z))
    for place, gradient in enumerate((g_r, g_z, g_n)):
        row.put(gradient, "g_x", place)
    for place, gradient in enumerate((g_r, g_z, row.times(g_n, r))):
        row.put(gradient, "g_hidden", place)
        row.put_hidden_gradient(gradient, place)
    row.put(row.times(g_h, z), "g_h")


# -- RNN ----------------------------------------------------------------------------------------


def _rnn(activation: Callable[[CellBuilder, str], str]) -> Callable[[CellBuilder], None]:
    return lambda row: _put_state(
        row, activation(row, row.plus(row.input_share("y", 0), row.hidden_share(0)))
    )


def _rnn_backward(
    derivative: Callable[[CellBuilder, str, str], str],
) -> Callable[[CellBuilder], None]:
    def body(row: CellBuilder) -> None:
        g_h = row.plus(row.get("g_h"), row.get("g_y"))
        gradient = derivative(row, row.get("y"), g_h)
        row.put(gradient, "g_x")
        row.put_hidden_gradient(gradient, 0)

    return body


_RNN: Arrays = {"y": 1, "h": 1, "states": 1, "hidden": 1, "b_ih": 1, "b_hh": 1}
_RNN_BACKWARD: Arrays = {"g_y": 1, "y": 1, "g_x": 1, "g_h": 1, "hidden": 1, "bias": 1}

_FUNCTIONS: dict[str, tuple[Arrays, Callable[[CellBuilder], None]]] = {
    "lstm_layer": (
        {"gates": 4, "y": 1, "h": 1, "c": 1, "cells": 1, "states": 1, "hidden": 4, "b_ih": 4,
         "b_hh": 4},
        _lstm,
    ),
    "lstm_layer_backward": (
        {"g_y": 1, "gates": 4, "cells": 1, "g_x": 4, "g_h": 1, "g_c": 1, "hidden": 4, "bias": 4},
        _lstm_backward,
    ),
    "gru_layer": (
        {"gates": 4, "y": 1, "h": 1, "states": 1, "hidden": 3, "b_ih": 3, "b_hh": 3}, _gru
    ),
    "gru_layer_backward": (
        {"g_y": 1, "gates": 4, "states": 1, "g_x": 3, "g_hidden": 3, "g_h": 1, "hidden": 3,
         "bias": 3},
        _gru_backward,
    ),
    "rnn_tanh_layer": (_RNN, _rnn(CellBuilder.tanh)),
    "rnn_relu_layer": (_RNN, _rnn(CellBuilder.relu)),
    "rnn_tanh_layer_backward": (
        _RNN_BACKWARD,
        _rnn_backward(lambda row, y, g: row.times(g, row.tanh_gradient(y))),
    ),
    "rnn_relu_layer_backward": (_RNN_BACKWARD, _rnn_backward(CellBuilder.positive)),
}  # fmt: skip


def arrays_of(op: str) -> Arrays:
    """The arrays of the cell function of an op."""
    return _FUNCTIONS[op][0]


@cache
def cell_function(op: str, vector: Vector) -> Function:
    """The cell function of an op: one sequence in one time step."""
    arrays, body = _FUNCTIONS[op]
    return CellBuilder(vector, arrays).function(f"{op}_row", body)
