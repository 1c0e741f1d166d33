"""Eager composites as kernels: one autograd node per call, one program for each direction.

A call of given types and attributes has a :class:`CompositeSpecialization`: it evaluates with a
program compiled from the traced function, and its vjp is a :class:`CompositeVjpProgram`. Nodes,
residuals, hooks and the backward pass are the same as for rows of the op table.

The backward program recomputes what it needs of the forward pass from the arguments: these kernels
are memory-bound, and a node saves nothing but arguments. Where that does not pay off the forward
program returns residuals as further, hidden results (:mod:`evergrad.compiler.eager.residuals`).
Where a gradient is itself differentiated the backward pass runs the traced derivative op by op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, cast

from evergrad import config
from evergrad.compiler.eager.any_extents import EagerCompositeOp, call_any_extents
from evergrad.compiler.eager.graph import NativeGraph
from evergrad.compiler.eager.residuals import Partition, partition_composite
from evergrad.core import dtypes
from evergrad.core.composite import Structure
from evergrad.core.eager.fusion import (
    EagerComposite,
    Uses,
    clear_composite_kernels,
    specializations_kept,
)
from evergrad.core.op import Attrs, Op, Specialization
from evergrad.core.recording import record
from evergrad.core.state import State
from evergrad.core.tensor import new_result
from evergrad.core.trace import Graph, Var
from evergrad.core.vjp_program import FRESH, VjpProgram
from evergrad.extension import provides
from evergrad.memory.ledger import LEDGER, LEDGER_MIN_BYTES

if TYPE_CHECKING:
    from evergrad.core.shapes import TensorType
    from evergrad.core.tensor import Tensor
    from evergrad.core.types import AnyFunction, Args, Key

# Specializations kept over all functions; at the limit all are evicted.
_SPECIALIZATION_LIMIT = 256


@provides("native_composite")
def call(
    function: EagerComposite, state: State, args: Args, types: Key,
    attrs: Attrs,
) -> Any:  # fmt: skip
    """Call a composite on arrays of these types, as one autograd node."""
    key = (types, tuple(attrs.items())) if attrs else types
    specialization = function.specializations.get(key)
    if specialization is None:
        of_shape = function.any_extents.shapes.get(key)
        if of_shape is None:
            uses = function.uses(args, attrs)
            if uses.are_many() or not function.plans:
                of_shape = function.any_extents.of_shape(key)
        if of_shape is not None:
            return call_any_extents(function, state, args, types, attrs, of_shape)
        specialization = _new_specialization(
            function, key, Structure(function.traced, types, attrs), uses
        )
    if not specialization.is_native:
        return function.function(*args, **attrs)
    return specialization.call(state, args)


def _new_specialization(
    function: EagerComposite, key: object, structure: Structure, uses: Uses
) -> CompositeSpecialization:
    specialization = CompositeSpecialization(function, structure)
    uses.kernels += 1
    if specializations_kept() >= _SPECIALIZATION_LIMIT:
        clear_composite_kernels()
    function.specializations[key] = specialization
    return specialization


class CompositeSpecialization(Specialization):
    """A composite resolved for given types.

    ``is_native`` is whether kernels compute all of it, ``is_usual`` whether these were chosen
    without regard to a threshold that tests set. The first ``visible`` results are the
    function's, the others residuals.
    """

    operands: tuple[TensorType, ...]
    types: tuple[TensorType, ...]

    __slots__ = ("has_gaps", "is_native", "is_usual", "native", "partition", "structure", "visible")

    def __init__(self, function: EagerComposite, structure: Structure) -> None:
        self.structure: Structure = structure
        self.has_gaps: bool = False in structure.present
        self.attrs: Attrs = structure.attrs
        self.types = self.operands = structure.types
        self.casts: tuple[dtypes.dtype | None, ...] | None = None
        self.selects = False
        self.always_contiguous = True
        self.vjp_programs: dict[int, VjpProgram] = {}
        graph = structure.traced()
        self.visible: int = len(graph.outputs)
        self.partition: Partition | None = (
            partition_composite(structure, function.keeps) if function.keeps else None
        )
        if self.partition is not None:
            graph = self.partition.forward
        self.out_types: tuple[TensorType, ...] = tuple(out.type for out in graph.outputs)
        self.single: bool = len(self.out_types) == 1
        self.op: Op = cast(Op, EagerCompositeOp(function, len(self.out_types)))
        self.differentiable: bool = any(t.dtype.category >= dtypes.FLOATING for t in self.out_types)
        self.native: NativeGraph = NativeGraph(graph)
        self.is_native: bool = self.native.is_native()
        self.is_usual: bool = self.is_native and config.EAGER_KERNEL_ELEMENTS is None
        self.run: AnyFunction = self.native.run

    def call(self, state: State, args: Args) -> Tensor | tuple[Tensor, ...]:
        """Run on arrays, as one autograd node."""
        tensors = tuple([a for a in args if a is not None]) if self.has_gaps else args
        found = self.native.run([t._value for t in tensors])
        inference = state.inference
        if self.single:
            out = new_result(found[0], self.out_types[0], inference)
            if state.grad:
                record(state, self, tensors, (out,))
            return out
        pairs = zip(found, self.out_types, strict=True)
        outs = tuple([new_result(a, t, inference) for a, t in pairs])
        if state.grad:
            record(state, self, tensors, outs)
        return outs[0] if self.visible == 1 else outs[: self.visible]

    def evaluator(self) -> Callable[..., object]:
        return self.native.result

    def partition_for(self, needs: int) -> Partition | None:
        """The partition, if it is for a derivative with respect to these arguments."""
        found = self.partition
        return found if found is not None and found.needs == needs else None

    def vjp_program(self, needs: int) -> VjpProgram:
        program = self.vjp_programs.get(needs)
        if program is None:
            program = self.vjp_programs[needs] = CompositeVjpProgram(self, needs)
        return program

    def nan_safe_program(self, program: VjpProgram) -> VjpProgram:
        found = self.vjp_programs.get(~program.needs)
        if found is None:
            found = self.vjp_programs[~program.needs] = copy(program)
            found.is_nan_safe = True
        return found


class CompositeVjpProgram(VjpProgram):
    """The vjp of a composite: ``run`` is a native program, ``graph`` its ops."""

    __slots__ = ("native",)

    def __init__(self, specialization: CompositeSpecialization, needs: int) -> None:
        self.specialization: CompositeSpecialization = specialization
        self.needs = needs
        self.single: bool = specialization.single
        self.is_nan_safe = self.is_traced_nan_safe = False
        self.scatter_index: tuple[object, TensorType] | None = None
        self._fused = None
        self.unread: frozenset[int] = frozenset()
        hidden = specialization.out_types[specialization.visible :]
        arguments, cotangents, graph = specialization.structure.derivative(needs, hidden)
        kept = specialization.partition_for(needs)
        self.saves: tuple[int, ...] = _used(arguments, graph) if kept is None else kept.reads
        values = [
            arguments[i] if i < len(arguments) else _unread(specialization, i - len(arguments))
            for i in self.saves
        ]
        self._graph = Graph([*values, *cotangents], (), graph.equations, graph.outputs)
        wanted = [i for i, out in enumerate(graph.outputs) if out is not None]
        outputs = [graph.outputs[i] for i in wanted]
        recomputing = Graph(self.graph.inputs, (), graph.equations, outputs)
        self.native: NativeGraph = NativeGraph(recomputing if kept is None else kept.backward)
        self.scratch: int = sum(out.type.nbytes for out in outputs)
        first = len(self.graph.inputs)
        self.edges: tuple[tuple[int, int, int], ...] = tuple(
            (i, first + n, FRESH) for n, i in enumerate(wanted)
        )

    def run(self, values: list[object]) -> None:
        values += self.native.run(values)
        if self.scratch >= LEDGER_MIN_BYTES:
            LEDGER.transient(self.scratch)


def _used(arguments: Sequence[Var], graph: Graph) -> tuple[int, ...]:
    """The arguments that a graph reads, by index."""
    used = {arg for eqn in graph.equations for arg in eqn.args if isinstance(arg, Var)}
    used |= {out for out in graph.outputs if isinstance(out, Var)}
    return tuple(i for i, var in enumerate(arguments) if var in used)


def _unread(specialization: CompositeSpecialization, result: int) -> Var:
    """A placeholder for a residual that the op-by-op derivative does not read."""
    return Var(specialization.out_types[result], None)  # type: ignore[arg-type]
