"""Vjp programs for shapes not met before, made from those of other shapes without a trace.

Tracing a formula takes longer than running it on a small batch. Where batches change their size
the programs of one row differ in extents alone. The first three shapes of a structure (row,
element types, which extents are equal, one or zero) are traced: the first two say how each number
in the graph follows from the extents, the third has to confirm it. Programs for further shapes are
copies with these numbers replaced.

Rows state in ``shape_generic`` that their formula depends on extents only through that structure.
An extent that was the same in both traces is a part of the template: another value is traced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from evergrad.core.eager.generic import ANY_ELEMENTS
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
    several,
    share_calls,
    skeleton,
)
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.trace import Equation
from evergrad.core.vjp_program import VjpProgram, call_into
from evergrad.memory.ledger import LEDGER_MIN_BYTES

if TYPE_CHECKING:
    from evergrad.core.op import Specialization
    from evergrad.core.types import Leaves

# Structures kept; at the limit all are evicted, and those in use are traced again.
_STRUCTURE_LIMIT = 1 << 12
# Structures whose traces did not generalize so often are always traced.
_MOST_FAILURES = 4


class _Description(NamedTuple):
    """What a vjp program does, in slots: inputs, then results of equations."""

    calls: tuple[Call, ...]
    outputs: tuple[int | None, ...]
    saves: tuple[int, ...]
    edges: tuple[tuple[int, int, int], ...]
    unread: frozenset[int]
    scatters: bool


def vjp_program(specialization: Specialization, needs: int, nan_safe: bool = False) -> VjpProgram:
    """The vjp of a specialization: from a template if there is one, else traced."""
    if not specialization.op.shape_generic or specialization.casts is not None:
        return VjpProgram(specialization, needs, nan_safe)
    key, extents = _structure(specialization, needs, nan_safe)
    known = _structures.get(key)
    if known is None:
        if len(_structures) >= _STRUCTURE_LIMIT:
            _structures.clear()
        known = _structures[key] = _Structure()
    template = known.template
    if template is not None and template.applies(extents):
        return template.instantiate(specialization, needs, nan_safe, extents)
    program = VjpProgram(specialization, needs, nan_safe)
    known.learn(program, extents)
    return program


def clear_templates() -> None:
    """Evict all templates; structures in use are traced again."""
    _structures.clear()


def _structure(
    specialization: Specialization, needs: int, nan_safe: bool
) -> tuple[object, Extents]:
    """The key of a structure, and its extents: those of arguments, results and attributes."""
    extents: list[int] = []
    kinds: list[object] = []
    for operand, type in zip(specialization.operands, specialization.types, strict=True):
        extents += operand.shape
        kinds.append((operand.dtype, len(operand.shape), type.__class__ is TensorType or type))
    for out in specialization.out_types:
        extents += out.shape
        kinds.append((out.dtype, len(out.shape)))
    attrs: Any = None
    if specialization.attrs:
        attrs = tuple([(n, skeleton(v, extents)) for n, v in specialization.attrs.items()])
    key = specialization.op, needs, nan_safe, tuple(kinds), attrs, pattern(extents)
    return key, tuple(extents)


class _Structure:
    """The traces of one structure so far, and the template that they confirm."""

    __slots__ = ("failures", "samples", "template")

    def __init__(self) -> None:
        self.samples: list[tuple[_Description, Extents]] = []
        self.template: _Template | None = None
        self.failures = 0

    def learn(self, program: VjpProgram, extents: Extents) -> None:
        """Add a trace; a template of the two before it is used from now on if it agrees."""
        if self.failures >= _MOST_FAILURES:
            return
        found = _describe(program), extents
        if len(self.samples) >= 2:
            try:
                candidate = _Template(self.samples[-2], self.samples[-1], program)
                if candidate.applies(extents):
                    candidate.confirm(*found)
                    graph = program.graph.inlined()
                    candidate.share_calls(graph.equations, len(graph.inputs))
                    self.template = candidate
            except UnlikeError as error:
                self.failures += not isinstance(error, AmbiguousError)
        self.samples = [*self.samples[-1:], found]


_structures: dict[object, _Structure] = {}


def _describe(program: VjpProgram) -> _Description:
    calls, outputs = calls_of(program.graph.inlined())
    return _Description(
        calls, outputs, program.saves, program.edges, program.unread,
        program.scatter_index is not None,
    )  # fmt: skip


class _Template:
    """A vjp program in which numbers follow from extents.

    Small arrays run through calls that all its programs share, with evaluators for any extents and
    with attributes that depend on extents among the constants. For large ones each call is resolved
    for its types.
    """

    __slots__ = ("calls", "edges", "fixed", "sample", "shared", "values")

    def __init__(
        self, first: tuple[_Description, Extents], second: tuple[_Description, Extents],
        program: VjpProgram,
    ) -> None:  # fmt: skip
        (a, m), (b, n) = first, second
        if a[1:] != b[1:]:
            raise UnlikeError
        same = tuple([i for i, (p, q) in enumerate(zip(m, n, strict=True)) if p == q])
        # The extents that are not replaced, and what they must be.
        self.fixed = several(same)
        self.values = self.fixed(m)
        specialization = program.specialization
        shapes = [t.shape for t in (*specialization.operands, *specialization.out_types)]
        self.calls: list[Call] = Unifier(m, n, shapes).calls(a.calls, b.calls)
        self.sample = b
        self.shared: SharedCalls | None = None
        self.edges: tuple[tuple[int, int, int], ...] = ()

    def applies(self, extents: Extents) -> bool:
        return bool(self.fixed(extents) == self.values)

    def confirm(self, description: _Description, extents: Extents) -> None:
        """Raise unless the template gives this description for these extents."""
        if description != self.sample._replace(calls=filled_calls(self.calls, extents)):
            raise UnlikeError

    def share_calls(self, equations: Sequence[Equation], inputs: int) -> None:
        """Prepare the calls on small arrays, given the equations of one program."""
        shared = self.shared = share_calls(equations, self.calls, inputs, ANY_ELEMENTS)
        if shared is not None:
            outputs = self.sample.outputs
            self.edges = tuple(
                [
                    (i, shared.slot(_present(outputs[i])), source)
                    for i, _, source in self.sample.edges
                ]
            )

    def instantiate(
        self, specialization: Specialization, needs: int, nan_safe: bool, extents: Extents
    ) -> VjpProgram:
        """The program for other extents."""
        sample = self.sample
        program = VjpProgram.__new__(VjpProgram)
        program.specialization = specialization
        program.needs = needs
        program.single = specialization.single
        program.is_nan_safe = program.is_traced_nan_safe = nan_safe
        program.saves = sample.saves
        program.unread = sample.unread
        program.scatter_index = None
        program._graph = None
        program._fused = None
        given = (*specialization.operands, *specialization.out_types)
        scratch = self.scratch(given, extents)
        if scratch is not None and self.shared is not None:
            program.edges = self.edges
            program._calls = self.shared.calls
            program._constants = self.shared.numbers(extents)
            program.scratch = scratch
        else:
            program.edges = sample.edges
            types: Leaves = [given[i] for i in sample.saves]
            types += specialization.out_types
            self.build_calls(program, types, extents)
        if sample.scatters:
            (call,) = self.calls
            attrs = dict(filled(call.attrs, extents))
            whole = tensor_type(filled(call.shapes[0], extents), given[0].dtype)
            program.scatter_index = call.op.scatter_index(**attrs), whole
        return program

    def scratch(self, given: tuple[TensorType, ...], extents: Extents) -> int | None:
        """The bytes that the shared calls allocate; ``None`` where values are too large."""
        shared = self.shared
        if shared is None or max([t.numel for t in given]) >= shared.below:
            return None
        return shared.scratch(extents)

    def build_calls(self, program: VjpProgram, types: list[object], extents: Extents) -> None:
        """Resolve the specialization of each call; ``types`` are those of the inputs."""
        numbers = [
            a for call in self.calls for a, s in zip(call.args, call.is_slot, strict=True) if not s
        ]
        count, shift, next_number = len(types), len(numbers), len(types)
        calls = []
        scratch = 0
        for op, is_slot, args, attrs, _, reusable in self.calls:
            slots = []
            operands = []
            for arg, is_value in zip(args, is_slot, strict=True):
                if is_value:
                    operands.append(types[arg])
                    slots.append(arg if arg < count else arg + shift)
                else:
                    operands.append(filled(arg, extents).__class__)
                    slots.append(next_number)
                    next_number += 1
            key: Any = tuple(operands)
            items = filled(attrs, extents)
            found = op.specializations.get((key, items) if items else key)
            if found is None:
                found = op.resolve((key, items) if items else key, key, dict(items))
            types += found.out_types
            into = None if found.out_types[0].nbytes < LEDGER_MIN_BYTES else reusable
            if into is None and not op.alias:
                scratch += sum([t.nbytes for t in found.out_types])
            calls.append(call_into(found, slots, into))
        program._calls = calls
        program._constants = list(filled(tuple(numbers), extents))
        program.scratch = scratch


def _present(slot: int | None) -> int:
    assert slot is not None
    return slot
