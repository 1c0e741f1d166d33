"""Recurrent layers as kernels: a loop over time for some sequences of the batch.

A chunk takes its sequences through all time steps, so that no step synchronizes threads. Its state
is stored in the results, where it ends; the weight is packed in panels that stay in L2. The order
of time steps is a table of numbers: first row and running sequences of each.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.compiler.kernels.gemm.microkernel import (
    UNFINISHED,
    Tile,
    copy_rows,
    microkernel,
    transpose,
    use,
)
from evergrad.compiler.kernels.recurrent.cells import arrays_of, cell_function
from evergrad.compiler.native.target import machine

_LINE = machine().line_bytes
NUMBERS = ("batch", "per_chunk", "steps", "width")


class Layer(NamedTuple):
    """The kernel of an op; arrays have the names of those of its cell function.

    ``reads`` are arrays with a row for each step, ``results`` those it writes; ``states`` are the
    parts of the state, with where they come from. Forward, the state times the weight goes to
    ``hidden``, in scratch memory; backward ``hidden`` times the weight goes to the state, or if
    ``adds`` is added to it.
    """

    op: str
    reads: tuple[str, ...]
    states: tuple[tuple[str, str], ...]
    results: tuple[str, ...]
    backward: bool = False
    adds: bool = False

    @property
    def pointers(self) -> tuple[list[str], list[str]]:
        """The names of the pointers that the kernel reads and writes."""
        read = ["weight", *self.reads, *(first for _, first in self.states)]
        written = [*self.results, *(state for state, _ in self.states)]
        if self.backward:
            return read, [*written, "bias"]
        return [*read, "b_ih", "b_hh"], written

    @property
    def gates(self) -> int:
        """The gates of the hidden weight."""
        return arrays_of(self.op)["hidden"]


_LSTM_BACK = (("g_h", "g_h0"), ("g_c", "g_c0"))
_BACK = (("g_h", "g_h0"),)
LAYERS = {
    layer.op: layer
    for layer in (
        Layer("lstm_layer", (), (("h", "h0"), ("c", "c0")), ("gates", "y", "cells", "states")),
        Layer("lstm_layer_backward", ("g_y", "gates", "cells"), _LSTM_BACK, ("g_x",), True),
        Layer("gru_layer", (), (("h", "h0"),), ("gates", "y", "states")),
        Layer("gru_layer_backward", ("g_y", "gates", "states"), _BACK, ("g_x", "g_hidden"), True,
              adds=True),
        Layer("rnn_tanh_layer", (), (("h", "h0"),), ("y", "states")),
        Layer("rnn_tanh_layer_backward", ("g_y", "y"), _BACK, ("g_x",), True),
        Layer("rnn_relu_layer", (), (("h", "h0"),), ("y", "states")),
        Layer("rnn_relu_layer_backward", ("g_y", "y"), _BACK, ("g_x",), True),
    )
}  # fmt: skip


@cache
def layer_kernel(op: str, tile: Tile) -> Kernel:
    """The kernel of an op, without numbers."""
    return _LayerBuilder(LAYERS[op], tile).write()


class _LayerBuilder(KernelBuilder):
    def __init__(self, layer: Layer, tile: Tile) -> None:
        read, written = layer.pointers
        super().__init__(tile.vector, [*read, *written], NUMBERS)
        self.layer = layer
        self.tile = tile
        self.width = self["width"]
        self.length = self.mul(self.width, layer.gates)

    def write(self) -> Kernel:
        top = self.mul("%chunk", self["per_chunk"])
        count = self.least(self["per_chunk"], self.sub(self["batch"], top))
        self.begin(top, count)
        with self.loop(self["steps"]) as step:
            if self.layer.backward:
                step = self.sub(self.sub(self["steps"], 1), step)
            table = self.table()
            first = self.number(table, self.mul(step, 2))
            running = self.number(table, self.add(self.mul(step, 2), 1))
            rows = self.least(count, self.sub(running, top))
            place = self.add(first, top)
            if self.layer.backward:
                self.compute_cells(place, top, rows)
                self.multiply(self.scratch, self.length, self.state(top), self.width, rows)
            else:
                self.multiply(self.state(top), self.width, self.scratch, self.length, rows)
                self.compute_cells(place, top, rows)
        return self.kernel(self.layer.op)

    def begin(self, top: str, count: str) -> None:
        """Initialize the state, and the gradient of the bias with zeros."""
        start, length = self.mul(top, self.width), self.mul(count, self.width)
        for state, first in self.layer.states:
            with self.loop(length) as n:
                value = self.load(self.at(self[first], start, n))
                self.store(value, self.at(self[state], start, n))
        if self.layer.backward:
            self.bias = self.at(self["bias"], self.mul("%chunk", self.length))
            with self.loop(self.length) as n:
                self.store("0.0", self.at(self.bias, n))

    # -- rows -----------------------------------------------------------------------------------

    def compute_cells(self, place: str, top: str, rows: str) -> None:
        """Compute the cells of all running sequences."""
        function = cell_function(self.layer.op, self.vector)
        arrays = arrays_of(self.layer.op)
        with self.loop(rows) as row:
            self.prefetch_row(self.add(row, 1), place, top)
            pointers = []
            for name, parts in arrays.items():
                start = self.row_of(name, parts, row, place, top)
                pointers += [self.at(start, self.mul(self.width, n)) for n in range(parts)]
            use(self, function, *(f"ptr {p}" for p in pointers), f"i64 {self.width}")

    def prefetch_row(self, row: str, place: str, top: str) -> None:
        """Prefetch a row while the one before it is computed; after the last one this has no
        effect."""
        arrays = arrays_of(self.layer.op)
        for name in (*self.layer.reads, *self.layer.results):
            start = self.row_of(name, arrays[name], row, place, top)
            to_write = int(name in self.layer.results)
            with self.loop(self.mul(self.width, arrays[name]), _LINE // self.vector.size) as n:
                prefetch = "llvm.prefetch.p0"
                self.helpers[prefetch] = f"declare void @{prefetch}(ptr, i32, i32, i32)"
                at = self.at(start, n)
                self.do(f"call void @{prefetch}(ptr {at}, i32 {to_write}, i32 3, i32 1)")

    def row_of(self, name: str, parts: int, row: str, place: str, top: str) -> str:
        """The address of the row of a sequence."""
        if name in ("b_ih", "b_hh"):
            return self[name]
        if name == "bias":
            return self.bias
        if name == "hidden":
            return self.at(self.scratch, self.mul(row, self.length))
        number = self.add(top, row)
        if name not in dict(self.layer.states):
            number = self.add(place, row)
        return self.at(self[name], self.mul(number, self.width, parts))

    # -- products -------------------------------------------------------------------------------

    def state(self, top: str) -> str:
        """The address of the state that is multiplied."""
        (name, _), *_ = self.layer.states
        return self.at(self[name], self.mul(top, self.width))

    def multiply(self, a: str, depth: str, c: str, columns: str, rows: str) -> None:
        """``C [+]= A W`` panel by panel; A and C are contiguous."""
        tile, more = self.tile, str(self.layer.adds).lower()
        with self.loop(columns, tile.panel) as column:
            width = self.least(str(tile.panel), self.sub(columns, column))
            panel = self.at(self["weight"], self.mul(column, depth))
            following = self.at(panel, self.mul(depth, tile.panel))
            registers = self.op(f"udiv i64 {self.add(width, tile.lanes - 1)}, {tile.lanes}")
            for count in range(1, tile.vectors + 1):
                with self.when(self.op(f"icmp eq i64 {registers}, {count}")):
                    use(
                        self, microkernel(tile, count, True, padded=True), f"ptr {a}",
                        f"i64 {depth}",
                        f"i64 {depth}", f"ptr {panel}", f"i64 {tile.panel}",
                        f"ptr {self.at(c, column)}", f"i64 {columns}", f"i64 {depth}",
                        f"i64 {rows}", f"i64 {width}", f"i1 {more}", *UNFINISHED,
                        f"ptr {following}",
                        f"i64 {tile.lanes}", "i64 1",
                    )  # fmt: skip


# -- weights ------------------------------------------------------------------------------------


@cache
def weight_kernel(tile: Tile, transposed: bool) -> Kernel:
    """The kernel that packs a weight in panels, one for each chunk: of its columns, or if
    ``transposed`` of its rows."""
    ir = KernelBuilder(tile.vector, ("weight", "panels"), ("rows", "columns"))
    rows, columns = ir["rows"], ir["columns"]
    first = ir.mul("%chunk", tile.panel)
    depth, extent = (columns, rows) if transposed else (rows, columns)
    width = ir.least(str(tile.panel), ir.sub(extent, first))
    target = ir.at(ir["panels"], ir.mul(first, depth))
    start = ir.mul(first, columns) if transposed else first
    source = ir.at(ir["weight"], start)
    function, extents = (
        (transpose(tile), (width, columns, tile.panel))
        if transposed
        else (copy_rows(tile), (rows, width))
    )
    use(
        ir, function, f"ptr {source}", f"i64 {columns}", f"ptr {target}", f"i64 {tile.panel}",
        *(f"i64 {extent}" for extent in extents),
    )  # fmt: skip
    return ir.kernel("recurrent_weight")
