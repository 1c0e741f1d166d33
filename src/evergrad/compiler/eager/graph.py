"""A pure graph as native code that eager mode calls with arrays.

Arrays that do not lie in order are read where they lie: the program takes the memory they span and
looks at it through their strides. Each caller takes an idle program or has another one made, so
threads do not wait for each other and nothing is locked when a process is forked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from evergrad.compiler.eager.program import EagerProgram
from evergrad.compiler.kernels.registry import LOWERINGS
from evergrad.compiler.native import jit
from evergrad.compiler.passes.pipeline import Target, lift_captures, optimize
from evergrad.compiler.schedule.lower import Lowering
from evergrad.core.bind import bind
from evergrad.core.interpret import interpret
from evergrad.core.op import Op
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var
from evergrad.core.tracing import tracing
from evergrad.extension import provides
from evergrad.ops.rows.movement.strided import as_strided

Array = np.ndarray[Any, Any]
# The strides of an array in elements; None if it lies in order.
Layout = tuple[int, ...] | None

# Arrays that lie in yet other ways are copied.
_MOST_LAYOUTS = 8


@provides("native_graph")
class NativeGraph:
    """A graph without outside tensors, ready to run on arrays of its inputs' types."""

    __slots__ = ("graph", "idle")

    def __init__(self, graph: Graph) -> None:
        assert not graph.captures, f"an eager composite reads outside tensors: {graph}"
        self.graph = graph
        # Programs that nobody runs now, by how their arguments lie; None where these are copied.
        self.idle: dict[tuple[Layout, ...], list[EagerProgram] | None] = {}

    def is_native(self) -> bool:
        """Whether it runs without NumPy, if its arguments lie in order."""
        if not jit.makes_code():
            return False
        program = _program(self.graph)
        self.idle[(None,) * len(self.graph.inputs)] = [program]
        return _has_kernels_only(program)

    def run(self, arrays: Sequence[Any]) -> list[Any]:
        """The results, in memory of their own."""
        given = [_readable(a, v) for a, v in zip(arrays, self.graph.inputs, strict=True)]
        layouts = tuple([None if a.flags.c_contiguous else _layout(a) for a in given])
        try:
            idle = self.idle[layouts]
        except KeyError:
            idle = self.idle[layouts] = self.first_programs(layouts)
        if idle is None:
            return self.run([np.ascontiguousarray(a) for a in given])
        try:
            program = idle.pop()
        except IndexError:
            program = _program(_laid(self.graph, layouts))
        try:
            return program.run(  # type: ignore[no-any-return]
                [a if lies is None else _span(a) for a, lies in zip(given, layouts, strict=True)],
                (),
            )
        finally:
            idle.append(program)

    def result(self, *arrays: Any) -> Any:
        """The one result."""
        return self.run(arrays)[0]

    def results(self, *arrays: Any) -> tuple[Any, ...]:
        return tuple(self.run(arrays))

    def first_programs(self, layouts: tuple[Layout, ...]) -> list[EagerProgram] | None:
        """A list with a program for arguments that lie as told, if it is worth one."""
        in_order = not any(layouts)
        if not in_order and len(self.idle) >= _MOST_LAYOUTS:
            return None
        program = _program(_laid(self.graph, layouts))
        return [program] if in_order or _has_kernels_only(program) else None


def _program(graph: Graph) -> EagerProgram:
    optimized, constants = lift_captures(optimize(graph, Target.EAGER))
    return EagerProgram(
        Lowering(optimized, LOWERINGS, len(graph.inputs), 0, constants, len(graph.outputs), ())
    )


def _has_kernels_only(program: EagerProgram) -> bool:
    return all(instruction.kernel is not None for instruction in program.instructions)


def _readable(array: Any, var: Var) -> Array:
    """An array that kernels can read: numbers and 0-d results of NumPy are no arrays, and elements
    must not lie across their natural places in memory."""
    if array.__class__ is not np.ndarray:
        array = np.asarray(array, var.type.dtype.np)
    if array.flags.aligned and (array.flags.c_contiguous or min(array.strides) >= 0):
        return array  # type: ignore[no-any-return]
    return array.copy()  # type: ignore[no-any-return]


def _layout(array: Array) -> Layout:
    return tuple([stride // array.itemsize for stride in array.strides])


def _reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    """From the first element to behind the last one."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _span(array: Array) -> Array:
    """All memory between the first and the last element of an array."""
    layout = _layout(array)
    assert layout is not None
    length = _reach(array.shape, layout)
    return np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,))


def _laid(graph: Graph, layouts: tuple[Layout, ...]) -> Graph:
    """The graph with arguments that lie as told; such that do not lie in order come as spans."""
    if not any(layouts):
        return graph
    with using(autocast=None, trace=None), tracing() as tracer:
        given = [
            _seen(tracer, var.type, layout)
            for var, layout in zip(graph.inputs, layouts, strict=True)
        ]
        return tracer.finish(interpret(graph, *given)).without_dead_code()


def _seen(tracer: Any, type: TensorType, layout: Layout) -> Tensor:
    if layout is None:
        return tracer.input(type)  # type: ignore[no-any-return]
    span = tracer.input(tensor_type((_reach(type.shape, layout),), type.dtype))
    return as_strided(span, type.shape, layout)


@provides("graph_of_row")
def graph_of_row(op: Op, attrs: dict[str, Any], operands: Sequence[TensorType]) -> Graph:
    """A graph of one equation."""
    with using(autocast=None, trace=None), tracing() as tracer:
        found = bind(op, *map(tracer.input, operands), **attrs)
        return tracer.finish([found] if op.outputs == 1 else found)
