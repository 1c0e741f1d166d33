"""A pure graph as native code that eager mode calls with arrays.

Arrays that are not contiguous are read without a copy: the program takes the memory they span as a
flat array and a strided view of it. Each caller takes an idle program or makes another one, so
threads do not block each other and no lock is held across a fork.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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
from evergrad.core.types import Array
from evergrad.extension import provides
from evergrad.ops.rows.movement.strided import as_strided

if TYPE_CHECKING:
    from evergrad.core.tracing import Tracer
    from evergrad.core.types import Args, Leaves

# The strides of an array in bytes; None if it is contiguous.
Layout = tuple[int, ...] | None

# Arrays with further layouts are copied.
_LAYOUT_LIMIT = 8


@provides("native_graph")
class NativeGraph:
    """A graph without captures, ready to run on arrays of its inputs' types."""

    __slots__ = ("contiguous", "graph", "idle")

    def __init__(self, graph: Graph) -> None:
        assert not graph.captures, f"an eager composite reads outside tensors: {graph}"
        self.graph: Graph = graph
        # Idle programs by the layouts of their arguments; None for layouts that are copied.
        self.contiguous: tuple[Layout, ...] = (None,) * len(graph.inputs)
        self.idle: dict[tuple[Layout, ...], list[EagerProgram] | None] = {self.contiguous: []}

    def is_native(self) -> bool:
        """Whether contiguous arguments need no NumPy call."""
        if not jit.can_jit():
            return False
        program = _program(self.graph)
        self.idle[self.contiguous] = [program]
        return _has_kernels_only(program)

    def run(self, arrays: Sequence[object]) -> Leaves:
        """The results, in memory of their own."""
        for array in arrays:
            if array.__class__ is not np.ndarray:
                return self.run_strided(arrays)
            flags = array.flags
            if not (flags.c_contiguous and flags.aligned):
                return self.run_strided(arrays)
        idle = self.idle[self.contiguous]
        try:
            program = idle.pop()  # type: ignore[union-attr]
        except IndexError:
            program = _program(self.graph)
        try:
            prepared = program.prepared
            return prepared(arrays) if prepared else program.call(arrays)
        finally:
            idle.append(program)  # type: ignore[union-attr]

    def run_strided(self, arrays: Sequence[Any]) -> list[object]:
        """The same for arrays of any strides."""
        given = [_readable(a, v) for a, v in zip(arrays, self.graph.inputs, strict=True)]
        layouts = tuple([None if a.flags.c_contiguous else a.strides for a in given])
        try:
            idle = self.idle[layouts]
        except KeyError:
            idle = self.idle[layouts] = self.first_programs(layouts)
        if idle is None:
            return self.run([np.ascontiguousarray(a) for a in given])
        try:
            program = idle.pop()
        except IndexError:
            program = self.strided_program(layouts)
        try:
            prepared = program.prepared
            if prepared:
                return prepared(given)
            return program.call(
                [
                    a if layout is None else _span(a)
                    for a, layout in zip(given, layouts, strict=True)
                ]
            )
        finally:
            idle.append(program)

    def result(self, *arrays: object) -> Any:
        """The one result."""
        return self.run(arrays)[0]

    def results(self, *arrays: object) -> Args:
        return tuple(self.run(arrays))

    def first_programs(self, layouts: tuple[Layout, ...]) -> list[EagerProgram] | None:
        """A list with a program for arguments with these layouts; ``None`` if a copy is better."""
        contiguous = not any(layouts)
        if not contiguous and len(self.idle) >= _LAYOUT_LIMIT:
            return None
        program = self.strided_program(layouts)
        return [program] if contiguous or _has_kernels_only(program) else None

    def strided_program(self, layouts: tuple[Layout, ...]) -> EagerProgram:
        """A program for arguments with these layouts, of which a prepared call reads addresses."""
        strided = frozenset([i for i, layout in enumerate(layouts) if layout is not None])
        return _program(_with_layouts(self.graph, layouts), strided)


def _program(graph: Graph, strided: frozenset[int] = frozenset()) -> EagerProgram:
    optimized, constants = lift_captures(optimize(graph, Target.EAGER))
    count = len(graph.inputs)
    return EagerProgram(
        Lowering(optimized, LOWERINGS, count, 0, constants, len(graph.outputs), ()), strided
    )


def _has_kernels_only(program: EagerProgram) -> bool:
    return all(instruction.kernel is not None for instruction in program.instructions)


def _readable(array: Array, var: Var) -> Array:
    """An array that kernels can read: an aligned ndarray with non-negative strides."""
    if array.__class__ is not np.ndarray:
        array = np.asarray(array, var.type.dtype.np)
    if array.flags.aligned and (array.flags.c_contiguous or min(array.strides) >= 0):
        return array
    return array.copy()


def _in_elements(strides: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return tuple([stride // itemsize for stride in strides])


def _span_length(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements from the first to the last, inclusive."""
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))


def _span(array: Array) -> Array:
    """The memory from the first to the last element of an array, as a flat array."""
    length = _span_length(array.shape, _in_elements(array.strides, array.itemsize))
    return np.lib.stride_tricks.as_strided(array, (length,), (array.itemsize,))


def _with_layouts(graph: Graph, layouts: tuple[Layout, ...]) -> Graph:
    """The graph for arguments with these layouts; non-contiguous ones are passed as spans."""
    if not any(layouts):
        return graph
    with using(autocast=None, trace=None), tracing() as tracer:
        given = [
            _strided_input(tracer, var.type, layout)
            for var, layout in zip(graph.inputs, layouts, strict=True)
        ]
        return tracer.finish(interpret(graph, *given)).without_dead_code()


def _strided_input(tracer: Tracer, type: TensorType, layout: Layout) -> Tensor:
    if layout is None:
        return tracer.input(type)
    strides = _in_elements(layout, type.dtype.itemsize)
    span = tracer.input(tensor_type((_span_length(type.shape, strides),), type.dtype))
    return as_strided(span, type.shape, strides)


@provides("graph_of_row")
def graph_of_row(op: Op, attrs: dict[str, object], operands: Sequence[TensorType]) -> Graph:
    """A graph of one equation, a row of the op table."""
    with using(autocast=None, trace=None), tracing() as tracer:
        found = bind(op, *map(tracer.input, operands), **attrs)
        return tracer.finish([found] if op.outputs == 1 else found)
