"""Lowering of recurrent layers to kernels: numbers, packed weights, and chunks.

The input's share of all gates is one product, stored in the place of the gates; then one kernel
loops over time. Backward, one kernel loops back over time, and the gradient of the hidden weight
is one product over all time steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.compiler.codegen.ir_builder import is_native, vector_for
from evergrad.compiler.codegen.kernel_builder import ENOUGH_CHUNKS, with_numbers
from evergrad.compiler.codegen.reductions import combine_partials
from evergrad.compiler.kernels.gemm.microkernel import Tile, tile_for
from evergrad.compiler.kernels.gemm.select import Product, add_product
from evergrad.compiler.kernels.recurrent.layers import LAYERS, layer_kernel, weight_kernel
from evergrad.compiler.native.jit import has_fma
from evergrad.compiler.native.target import machine
from evergrad.compiler.schedule.buffers import full_view
from evergrad.compiler.schedule.lower import Lowering
from evergrad.compiler.schedule.lowering_registry import lowers
from evergrad.core.row_facts import Combine
from evergrad.core.shapes import Shape, tensor_type
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.recurrent.layer import BACKWARD_ROWS, ROWS
from evergrad.ops.rows.recurrent.steps import Course

if TYPE_CHECKING:
    from evergrad.core.types import Array

# The names of arguments (those that kernels read) and of results.
_LSTM = ("x h0 c0 w_ih w_hh b_ih b_hh", "y h c gates cells states")
_GRU = ("x h0 w_ih w_hh b_ih b_hh", "y h gates states")
_RNN = ("x h0 w_ih w_hh b_ih b_hh", "y h states")
_LSTM_BACKWARD = (
    "g_y g_h0 g_c0 gates cells states x h0 c0 w_ih w_hh b_ih b_hh",
    "g_x g_h g_c g_w_hh g_b_hh",
)
_GRU_BACKWARD = ("g_y g_h0 gates states x h0 w_ih w_hh b_ih b_hh", "g_x g_h g_w_hh g_b_hh")
_RNN_BACKWARD = ("g_y g_h0 y states x h0 w_ih w_hh b_ih b_hh", "g_x g_h g_w_hh g_b_hh")
_NAMES = {
    "lstm_layer": _LSTM,
    "gru_layer": _GRU,
    "rnn_tanh_layer": _RNN,
    "rnn_relu_layer": _RNN,
    "lstm_layer_backward": _LSTM_BACKWARD,
    "gru_layer_backward": _GRU_BACKWARD,
    "rnn_tanh_layer_backward": _RNN_BACKWARD,
    "rnn_relu_layer_backward": _RNN_BACKWARD,
}


# A weight of more bytes does not stay in L2 beside everything else.
_WEIGHT_IN_L2 = machine().l2_bytes // 2


def _min_sequences(weight: Var, tile: Tile) -> int:
    """The fewest sequences of a chunk: more of them if the weight comes from beyond L2."""
    return tile.rows if weight.type.nbytes <= _WEIGHT_IN_L2 else 2 * tile.rows


class _Call:
    """An equation of a recurrent layer: its values by name, all of them contiguous."""

    def __init__(self, lowering: Lowering, eqn: Equation) -> None:
        self.lowering = lowering
        self.op = eqn.op.name
        self.layer = LAYERS[self.op]
        self.course: Course = eqn.attrs["course"]
        arguments, results = (names.split() for names in _NAMES[self.op])
        self.arguments = dict(zip(arguments, eqn.args, strict=True))
        self.named: dict[str, object] = dict(zip(results, eqn.outs, strict=True))
        weight = self.arguments["w_hh"]
        self.trace = weight.trace
        self.dtype = weight.type.dtype
        self.width: int = weight.type.shape[1]
        self.tile = tile_for(vector_for(self.dtype))
        wanted = max(-(-self.course.batch // ENOUGH_CHUNKS), _min_sequences(weight, self.tile))
        self.per_chunk = -(-wanted // self.tile.rows) * self.tile.rows
        self.chunks = -(-self.course.batch // self.per_chunk)

    def __getitem__(self, name: str) -> Any:
        """A value; an argument that is not contiguous is copied."""
        if name not in self.named:
            var = self.arguments[name]
            self.named[name] = var if var.layout.flags.c_contiguous else self.copy(var)
        return self.named[name]

    def copy(self, var: Var) -> Var:
        made = self.value(var.type.shape, f"rows of {var.type}")
        self.lowering.copy(var, self.lowering.buffer_view(made))
        return made

    def value(self, shape: Shape, label: str) -> Var:
        """A value in the arena that is no output of an equation."""
        made = Var(tensor_type(shape, self.dtype), self.trace)
        buffer = self.lowering.new_buffer(made.type.nbytes, "arena", label)
        self.lowering.buffer_views[made] = full_view(buffer, made)
        return made

    def product(self, a: Array, b: Array, factors: list[Var], out: Var) -> None:
        """Multiply two values, seen as given, into the first columns of another."""
        product = Product(a, b, ())
        label = f"matmul {product.m}x{product.n}x{product.k}"
        add_product(self.lowering, label, product, factors, out, out.type.shape[1])

    def pack_weight(self) -> None:
        """Pack the hidden weight in panels for the product of a time step."""
        weight, panel = self["w_hh"], self.tile.panel
        transposed = not self.layer.backward
        extent, depth = weight.type.shape if transposed else weight.type.shape[::-1]
        chunks = -(-extent // panel)
        nbytes = chunks * panel * depth * self.dtype.itemsize
        self.named["weight"] = self.lowering.scratch(nbytes, f"panels of {weight.type}")
        kernel = with_numbers(weight_kernel(self.tile, transposed), weight.type.shape, (), chunks)
        label = f"pack for {self.op}"
        self.lowering.add_kernel(label, kernel, [weight], [self["weight"]], weight.type.numel)

    def add_time_loop(self) -> None:
        self.pack_weight()
        course, gates = self.course, self.layer.gates * self.width
        numbers = (course.batch, self.per_chunk, len(course.sizes), self.width)
        table = [number for place in course.places() for number in place]
        scratch = self.per_chunk * gates * self.dtype.itemsize
        made = layer_kernel(self.op, self.tile)
        kernel = with_numbers(made, numbers, table, self.chunks, scratch)
        work = sum(course.sizes) * gates * self.width // 8
        reads, writes = ([self[name] for name in names] for names in self.layer.pointers)
        self.lowering.add_kernel(self.op, kernel, reads, writes, work)


def _has_kernel(eqn: Equation) -> bool:
    values = (*eqn.args, *eqn.outs)
    found = eqn.outs[0].type.dtype
    return is_native(found) and has_fma() and all(v.type.numel for v in values)


@lowers(*ROWS.values())
def lower_layer(lowering: Lowering, eqn: Equation) -> bool:
    if not _has_kernel(eqn):
        return False
    call = _Call(lowering, eqn)
    x, weight, gates = call["x"], call["w_ih"], call[call.layer.results[0]]
    call.product(x.layout, weight.layout.swapaxes(0, 1), [x, weight], gates)
    call.add_time_loop()
    return True


@lowers(*BACKWARD_ROWS.values())
def lower_layer_backward(lowering: Lowering, eqn: Equation) -> bool:
    if not _has_kernel(eqn):
        return False
    call = _Call(lowering, eqn)
    bias, gates = call["g_b_hh"], call["g_x"]
    if "g_hidden" in call.layer.results:
        call.named["g_hidden"] = call.value(gates.type.shape, f"gradients of gates {gates.type}")
    call.named["bias"] = lowering.scratch(call.chunks * bias.type.nbytes, "parts of a bias")
    call.add_time_loop()
    total = combine_partials(Combine.SUM, call.dtype, call.chunks, bias.type.numel)
    lowering.add_kernel("combine sum", total, [call["bias"]], [bias])
    states, hidden = call["states"], call[call.layer.results[-1]]
    call.product(hidden.layout.swapaxes(0, 1), states.layout, [hidden, states], call["g_w_hh"])
    return True
