"""Eager composites on shapes that get no program of their own: one node, calls that shapes share.

Where batches change their size, planning a program for each takes longer than running it. Further
shapes are evaluated by NumPy calls and native loops with run-time extents. Function and derivative
are traced together and partitioned: residuals of the second graph are hidden results of the first.
The first three shapes of a structure are traced; further ones take their numbers from the extents
(:mod:`evergrad.core.graph_template`). A shape is evaluated by the same calls either way, so its
results have the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from evergrad.compiler.frontend.partition import leading_to, reads_of, with_recomputed
from evergrad.core import dtypes
from evergrad.core.composite import Structure
from evergrad.core.eager.fusion import EagerComposite
from evergrad.core.eager.generic import COMPOSITE_ELEMENTS, composite_evaluator
from evergrad.core.graph_template import (
    AmbiguousError,
    Call,
    Extents,
    SharedCalls,
    Unifier,
    UnlikeError,
    calls_of,
    filled,
    filled_calls,
    pattern,
    run_calls,
    several,
    share_calls,
    skeleton,
)
from evergrad.core.op import Attrs, Op, Specialization
from evergrad.core.recording import record
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.state import State
from evergrad.core.tensor import Tensor, current_node, new_result
from evergrad.core.trace import Graph, Var
from evergrad.core.vjp_program import FRESH, VjpProgram, sources_of
from evergrad.memory import pool
from evergrad.memory.ledger import LEDGER, LEDGER_MIN_BYTES

if TYPE_CHECKING:
    from evergrad.core.row_facts import AtenName
    from evergrad.core.tensor import Array
    from evergrad.core.types import Args, Key, Leaves

# Structures whose traces did not generalize so often run row by row.
_MOST_FAILURES = 4


class EagerCompositeOp:
    """The attributes of an op that autograd nodes, messages and the backward pass read."""

    family = "reduction"  # elements may be left out behind it: see evergrad.core.recording
    alias = ""
    random = False
    selects = False
    nan_safe_vjp = None

    def __init__(self, function: EagerComposite, outputs: int) -> None:
        self.name: str = function.name
        self.aten: AtenName = function.aten
        self.outputs = outputs


def call_any_extents(
    function: EagerComposite, state: State, args: Args, types: Key,
    attrs: Attrs, of_shape: dict[int, Any],
) -> object:  # fmt: skip
    """Call a composite on arrays of these types; row by row where that is not possible.

    ``of_shape`` caches what is run by the bit set of the arguments that require grad.
    """
    tensors = tuple([a for a in args if a is not None])
    needs = _needs(tensors) if state.grad else 0
    found = of_shape.get(needs)
    if found is None:
        found = of_shape[needs] = _specialize(function, types, attrs, needs)
    if found is False:
        return function.function(*args, **attrs)
    return found.call(state, tensors)


def _needs(tensors: Sequence[Tensor]) -> int:
    """The bit set of the tensors that require grad."""
    needs = 0
    for i, tensor in enumerate(tensors):
        node = tensor._node if tensor._view is None else current_node(tensor)
        if node is not None:
            needs |= 1 << i
    return needs


def _specialize(
    function: EagerComposite, types: Key, attrs: Attrs, needs: int
) -> AnyExtentSpecialization | Literal[False]:
    structure = Structure(function.function, types, attrs)
    if max([t.numel for t in structure.types]) >= COMPOSITE_ELEMENTS:
        return False
    extents: list[int] = []
    for type in structure.types:
        extents += type.shape
    kinds = tuple([None if t is None else (t.dtype, len(t.shape)) for t in types])
    known_attrs = tuple([(name, skeleton(value, extents)) for name, value in attrs.items()])
    key = kinds, needs, known_attrs, pattern(extents)
    known: _Samples = function.any_extents.structures.setdefault(key, _Samples())
    description = known.description(structure, needs, tuple(extents))
    if description is None:
        return False
    return AnyExtentSpecialization(function, structure, needs, description)


class _Half(NamedTuple):
    """The forward or the backward graph, in slots. ``shapes`` and ``types`` are those of its
    outputs, ``sources`` where their memory comes from (:func:`sources_of`)."""

    calls: tuple[Call, ...]
    outputs: tuple[int, ...]
    shapes: tuple[object, ...]
    types: tuple[dtypes.dtype, ...]
    sources: tuple[int, ...]


class _Joint(NamedTuple):
    """A composite and its derivative: ``visible`` of the forward results are the function's,
    ``saves`` and ``unread`` are as in :class:`VjpProgram`, ``wanted`` the arguments with a
    gradient."""

    forward: _Half
    backward: _Half
    visible: int
    saves: tuple[int, ...]
    wanted: tuple[int, ...]
    unread: frozenset[int]


class Shared(NamedTuple):
    """A joint graph for extents: the calls that run it, and the bytes that these allocate."""

    joint: _Joint
    forward: SharedCalls
    backward: SharedCalls | None
    extents: Extents
    forward_bytes: int
    backward_bytes: int


class _Samples:
    """The traces of one structure so far, and the template that they confirm."""

    __slots__ = ("failures", "fixed", "samples", "template", "values")

    def __init__(self) -> None:
        self.samples: list[tuple[_Joint, Extents]] = []
        self.template: tuple[_Joint, SharedCalls, SharedCalls | None] | None = None
        self.fixed: Callable[[Extents], Any] = several(())
        self.values: Any = None
        self.failures = 0

    def description(self, structure: Structure, needs: int, extents: Extents) -> Shared | None:
        """What a shape runs; ``None`` if it is to run row by row."""
        if self.template is not None and self.fixed(extents) == self.values:
            return _for_extents(*self.template, extents)
        if self.failures >= _MOST_FAILURES:
            return None
        joint, first, second = _traced(structure, needs)
        if any(call.op.has_effect for call in (*joint.forward.calls, *joint.backward.calls)):
            self.failures = _MOST_FAILURES
            return None
        shared = _shared(joint, first, second)
        if shared is None:
            self.failures = _MOST_FAILURES
            return None
        self.learn(joint, extents, structure, first, second)
        return _for_extents(joint, *shared, extents)

    def learn(
        self, joint: _Joint, extents: Extents, structure: Structure, first: Graph, second: Graph
    ) -> None:
        """Add a trace; a template of the two before it is used from now on if it agrees."""
        if len(self.samples) >= 2:
            (a, m), (b, n) = self.samples
            same = [i for i, (p, q) in enumerate(zip(m, n, strict=True)) if p == q]
            fixed = several(same)
            try:
                if fixed(extents) == fixed(m):
                    unify = Unifier(m, n, [t.shape for t in structure.types])
                    found = _unified(unify, a, b)
                    if _filled(found, extents) != joint:
                        raise UnlikeError
                    shared = _shared(found, first, second)
                    assert shared is not None
                    self.template = found, *shared
                    self.fixed, self.values = fixed, fixed(m)
            except UnlikeError as error:
                self.failures += not isinstance(error, AmbiguousError)
        self.samples = [*self.samples[-1:], (joint, extents)]


def _unified(unify: Unifier, a: _Joint, b: _Joint) -> _Joint:
    if a[2:] != b[2:]:
        raise UnlikeError

    def half(p: _Half, q: _Half) -> _Half:
        if (p.outputs, p.types, p.sources) != (q.outputs, q.types, q.sources):
            raise UnlikeError
        calls = tuple(unify.calls(p.calls, q.calls))
        return p._replace(calls=calls, shapes=unify.value(p.shapes, q.shapes))

    return a._replace(forward=half(a.forward, b.forward), backward=half(a.backward, b.backward))


def _filled(joint: _Joint, extents: Extents) -> _Joint:
    """A joint graph with numbers for these extents."""

    def half(given: _Half) -> _Half:
        shapes = filled(given.shapes, extents)
        return given._replace(calls=filled_calls(given.calls, extents), shapes=shapes)

    return joint._replace(forward=half(joint.forward), backward=half(joint.backward))


def _shared(
    joint: _Joint, first: Graph, second: Graph
) -> tuple[SharedCalls, SharedCalls | None] | None:
    """The calls that run both halves; ``None`` if a row cannot be evaluated for any extents."""
    shared = []
    for half, graph in ((joint.forward, first), (joint.backward, second)):
        found = share_calls(
            graph.equations, half.calls, len(graph.inputs), COMPOSITE_ELEMENTS, composite_evaluator
        )
        if found is None:
            return None
        shared.append(found)
    return shared[0], shared[1] if joint.wanted else None


def _for_extents(
    joint: _Joint, forward: SharedCalls, backward: SharedCalls | None, extents: Extents
) -> Shared | None:
    """``None`` where a value is too large."""
    first = forward.scratch(extents)
    second = 0 if backward is None else backward.scratch(extents)
    if first is None or second is None:
        return None
    return Shared(joint, forward, backward, extents, first, second)


# -- traces -------------------------------------------------------------------------------------


def _traced(structure: Structure, needs: int) -> tuple[_Joint, Graph, Graph]:
    """Function and derivative, traced together and partitioned."""
    if not needs:
        graph = structure.traced().inlined()
        nothing = Graph((), (), (), ())
        results = len(graph.outputs)
        joint = _Joint(_half(graph, ()), _half(nothing, ()), results, (), (), frozenset())
        return joint, graph, nothing
    arguments, cotangents, traced = structure.derivative(needs, with_results=True)
    whole = traced.inlined()
    results = len(whole.outputs) - len(arguments)
    own, grads = whole.outputs[:results], whole.outputs[results:]
    wanted = tuple([i for i, out in enumerate(grads) if out is not None])
    outputs = [grads[i] for i in wanted]
    kept = leading_to(own, whole.equations)
    needed = leading_to(outputs, whole.equations)
    rest = [e for e in whole.equations if id(e) in needed and id(e) not in kept]
    recomputed, reads = with_recomputed(reads_of(rest, outputs), whole)
    given = set(cotangents)
    residuals = [var for var in reads if var not in given]
    hidden = [var for var in residuals if var not in arguments and var not in own]
    equations = [e for e in whole.equations if id(e) in kept]
    forward = Graph(arguments, (), equations, [*own, *hidden])
    # The derivative that is differentiated again reads arguments only: those are saved, too.
    gradient = [e for e in whole.equations if id(e) in needed]
    used = set(reads_of(gradient, outputs))
    residuals += [var for var in arguments if var in used and var not in residuals]
    number = {var: i for i, var in enumerate([*arguments, *forward.outputs])}
    saves = tuple([number[var] for var in residuals])
    unread = [Var(var.type, var.trace) for var in hidden]
    backward = Graph([*residuals, *cotangents, *unread], (), [*recomputed, *rest], outputs)
    read = set(reads_of([*recomputed, *rest], outputs))
    unread_cotangents = [k for k, var in enumerate([*cotangents, *unread]) if var not in read]
    joint = _Joint(
        _half(forward, ()), _half(backward, backward.inputs[len(residuals) :]), results, saves,
        wanted, frozenset(unread_cotangents),
    )  # fmt: skip
    return joint, forward, backward


def _half(graph: Graph, cotangents: Sequence[Var]) -> _Half:
    calls, outputs = calls_of(graph)
    shapes = tuple([out.type.shape for out in graph.outputs])
    types = tuple([out.type.dtype for out in graph.outputs])
    sources = tuple(sources_of(graph, tuple(cotangents)))
    return _Half(calls, cast("tuple[int, ...]", outputs), shapes, types, sources)


# -- calls --------------------------------------------------------------------------------------


class AnyExtentSpecialization(Specialization):
    """A composite on given types, evaluated by calls that shapes share. The first ``visible``
    results are the function's, the others residuals."""

    operands: tuple[TensorType, ...]
    types: tuple[TensorType, ...]

    __slots__ = ("calls", "constants", "copied", "outputs", "scratch", "structure", "visible")

    def __init__(
        self, function: EagerComposite, structure: Structure, needs: int, shared: Shared
    ) -> None:
        joint, extents = shared.joint, shared.extents
        forward = joint.forward
        self.structure: Structure = structure
        self.attrs: Attrs = structure.attrs
        self.types = self.operands = structure.types
        self.casts: tuple[dtypes.dtype | None, ...] | None = None
        self.selects = False
        self.always_contiguous = True
        shapes = filled(forward.shapes, extents)
        self.out_types: tuple[TensorType, ...] = tuple(
            [tensor_type(s, t) for s, t in zip(shapes, forward.types, strict=True)]
        )
        self.visible: int = joint.visible
        self.single: bool = len(self.out_types) == 1
        self.op: Op = cast(Op, EagerCompositeOp(function, len(self.out_types)))
        self.differentiable: bool = bool(joint.wanted)
        self.calls: Leaves = shared.forward.calls
        self.constants: list[object] = shared.forward.numbers(extents)
        self.outputs: list[int] = [shared.forward.slot(slot) for slot in forward.outputs]
        # Results that alias an argument or one another.
        self.copied: list[int] = [i for i, s in enumerate(forward.sources) if s != FRESH]
        self.scratch: int = shared.forward_bytes
        self.vjp_programs: dict[int, VjpProgram] = {}
        if shared.backward is not None:
            self.vjp_programs[needs] = AnyExtentVjpProgram(self, needs, shared, shared.backward)

    def call(self, state: State, tensors: tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
        """Run on arrays, as one autograd node."""
        values = [t._value for t in tensors]
        values += self.constants
        run_calls(self.calls, values)
        if self.scratch >= LEDGER_MIN_BYTES:
            LEDGER.transient(self.scratch)
        found = [values[slot] for slot in self.outputs]
        for i in self.copied:
            found[i] = pool.copy(found[i])
        inference = state.inference
        outs = tuple(
            [
                new_result(_contiguous(array), type, inference)
                for array, type in zip(found, self.out_types, strict=True)
            ]
        )
        if state.grad and self.differentiable:
            record(state, self, tensors, outs)
        return outs[0] if self.visible == 1 else outs[: self.visible]

    def nan_safe_program(self, program: VjpProgram) -> VjpProgram:
        found = self.vjp_programs.get(~program.needs)
        if found is None:
            found = self.vjp_programs[~program.needs] = copy(program)
            found.is_nan_safe = True
        return found


def _contiguous(array: Array) -> Array:
    return array if array.flags.c_contiguous else pool.copy(array)


class AnyExtentVjpProgram(VjpProgram):
    """Its vjp: calls that shapes share; ``graph`` is traced where it is differentiated again."""

    __slots__ = ()

    specialization: AnyExtentSpecialization

    def __init__(
        self, specialization: AnyExtentSpecialization, needs: int, shared: Shared,
        calls: SharedCalls,
    ) -> None:  # fmt: skip
        joint, extents = shared.joint, shared.extents
        self.specialization = specialization
        self.needs = needs
        self.single: bool = specialization.single
        self.is_nan_safe = self.is_traced_nan_safe = False
        self.scatter_index: tuple[object, TensorType] | None = None
        self._fused = None
        self._graph = None
        self.unread: frozenset[int] = joint.unread
        self.saves: tuple[int, ...] = joint.saves
        self._calls = calls.calls
        self._constants = calls.numbers(extents)
        self.scratch: int = shared.backward_bytes
        found = zip(joint.wanted, joint.backward.outputs, joint.backward.sources, strict=True)
        self.edges: tuple[tuple[int, int, int], ...] = tuple(
            [(i, calls.slot(slot), source) for i, slot, source in found]
        )

    def restricted(self, needs: int) -> tuple[VjpProgram, tuple[int, ...]]:
        """Itself: its calls give all cotangents."""
        return self, tuple(range(len(self.saves)))

    def run(self, values: Leaves) -> None:
        values += self._constants
        run_calls(self._calls, values)
        if self.scratch >= LEDGER_MIN_BYTES:
            LEDGER.transient(self.scratch)

    @property
    def graph(self) -> Graph:
        """The derivative from the arguments, as ops; residuals are passed but not read."""
        if self._graph is None:
            specialization = self.specialization
            hidden = specialization.out_types[specialization.visible :]
            found = specialization.structure.derivative(self.needs, hidden)
            arguments, cotangents, graph = found
            count = len(arguments)
            values = [
                arguments[i] if i < count else _unread(specialization.out_types[i - count])
                for i in self.saves
            ]
            self._graph = Graph([*values, *cotangents], (), graph.equations, graph.outputs)
        return self._graph


def _unread(type: TensorType) -> Var:
    return Var(type, None)  # type: ignore[arg-type]
