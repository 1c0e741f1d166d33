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

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from evergrad.core.eager.generic import SMALL_ELEMENTS, generic_evaluator
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.trace import Equation, Var
from evergrad.core.vjp_program import VjpProgram, call_into, reusable_arguments, shared_call
from evergrad.memory.ledger import LEDGER_MIN_BYTES

if TYPE_CHECKING:
    from evergrad.core.op import Specialization

Extents = tuple[int, ...]

# Structures kept; at the limit all are evicted, and those in use are traced again.
_STRUCTURE_LIMIT = 1 << 12
# Structures whose traces did not generalize so often are always traced.
_MOST_FAILURES = 4
# Smaller integers among the attributes are numbers of dimensions, steps, flags: structure.
_LEAST_EXTENT = 8

_HOLE = object()


class _Product(NamedTuple):
    """A number of a graph that follows from extents: their product, as an integer, as a float, or
    its reciprocal."""

    positions: tuple[int, ...]
    form: Callable[[int], Any]

    def of(self, extents: Extents) -> Any:
        product = 1
        for i in self.positions:
            product *= extents[i]
        return self.form(product)


def _reciprocal(product: int) -> float:
    return 1.0 / product if product else math.inf


_FORMS: tuple[Callable[[int], Any], ...] = (int, float, _reciprocal)


class _UnlikeError(Exception):
    """Two traces differ in more than what follows from extents."""


class _Call(NamedTuple):
    """One equation: an argument is the slot of a value (``is_slot``) or a number. ``shapes`` are
    those of its results; ``reusable`` is the argument that it may overwrite if that is large."""

    op: Any
    is_slot: tuple[bool, ...]
    args: tuple[Any, ...]
    attrs: tuple[tuple[str, Any], ...]
    shapes: tuple[Any, ...]
    reusable: int | None


class _Description(NamedTuple):
    """What a vjp program does, in slots: inputs, then results of equations."""

    calls: tuple[_Call, ...]
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


def _structure(specialization: Specialization, needs: int, nan_safe: bool) -> tuple[Any, Extents]:
    """The key of a structure, and its extents: those of arguments, results and attributes."""
    extents: list[int] = []
    kinds: list[Any] = []
    for operand, type in zip(specialization.operands, specialization.types, strict=True):
        extents += operand.shape
        kinds.append((operand.dtype, len(operand.shape), type.__class__ is TensorType or type))
    for out in specialization.out_types:
        extents += out.shape
        kinds.append((out.dtype, len(out.shape)))
    attrs: Any = None
    if specialization.attrs:
        attrs = tuple([(n, _skeleton(v, extents)) for n, v in specialization.attrs.items()])
    # One and zero stand for themselves, other extents for the first that is equal.
    pattern = tuple([n if n < 2 else extents.index(n) + 2 for n in extents])
    return (specialization.op, needs, nan_safe, tuple(kinds), attrs, pattern), tuple(extents)


def _skeleton(value: Any, extents: list[int]) -> Any:
    """An attribute with a hole in the place of each extent, which is appended to ``extents``."""
    if value.__class__ is int:
        if value < _LEAST_EXTENT:
            return value
        extents.append(value)
        return _HOLE
    if value.__class__ is tuple:
        return tuple([_skeleton(v, extents) for v in value])
    return value


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
            except _UnlikeError:
                self.failures += 1
        self.samples = [*self.samples[-1:], found]


_structures: dict[Any, _Structure] = {}


def _describe(program: VjpProgram) -> _Description:
    graph = program.graph.inlined()
    slot: dict[Any, int] = {var: i for i, var in enumerate(graph.inputs)}
    calls = []
    for eqn, reusable in zip(graph.equations, reusable_arguments(graph), strict=True):
        is_slot = tuple([isinstance(a, Var) for a in eqn.args])
        args = tuple([slot[a] if isinstance(a, Var) else a for a in eqn.args])
        shapes = tuple([out.type.shape for out in eqn.outs])
        calls.append(_Call(eqn.op, is_slot, args, tuple(eqn.attrs.items()), shapes, reusable))
        for out in eqn.outs:
            slot[out] = len(slot)
    outputs = tuple([None if out is None else slot[out] for out in graph.outputs])
    return _Description(
        tuple(calls), outputs, program.saves, program.edges, program.unread,
        program.scatter_index is not None,
    )  # fmt: skip


class _Template:
    """A vjp program in which numbers follow from extents.

    Small arrays run through calls that all its programs share, with evaluators for any extents and
    with attributes that depend on extents among the constants. For large ones each call is resolved
    for its types.
    """

    __slots__ = (
        "allocated", "below", "calls", "constants", "edges", "fixed", "sample", "shared", "values",
    )  # fmt: skip

    def __init__(
        self, first: tuple[_Description, Extents], second: tuple[_Description, Extents],
        program: VjpProgram,
    ) -> None:  # fmt: skip
        (a, m), (b, n) = first, second
        if a[1:] != b[1:] or len(a.calls) != len(b.calls):
            raise _UnlikeError
        same = tuple([i for i, (p, q) in enumerate(zip(m, n, strict=True)) if p == q])
        # The extents that are not replaced, and what they must be.
        self.fixed = _several(same)
        self.values = self.fixed(m)
        unify = _Unifier(m, n, program)
        self.calls = [unify.call(p, q) for p, q in zip(a.calls, b.calls, strict=True)]
        self.sample = b
        self.below = 0

    def applies(self, extents: Extents) -> bool:
        return bool(self.fixed(extents) == self.values)

    def confirm(self, description: _Description, extents: Extents) -> None:
        """Raise unless the template gives this description for these extents."""
        calls = tuple(
            call._replace(
                args=_filled(call.args, extents), attrs=_filled(call.attrs, extents),
                shapes=_filled(call.shapes, extents),
            )
            for call in self.calls
        )  # fmt: skip
        if description != self.sample._replace(calls=calls):
            raise _UnlikeError

    def share_calls(self, equations: Sequence[Equation], inputs: int) -> None:
        """Prepare the calls on small arrays, given the equations of one program."""
        constants: list[Any] = []
        below = SMALL_ELEMENTS
        pairs = []
        for eqn, call in zip(equations, self.calls, strict=True):
            knows_attrs = not _has_product(call.attrs)
            found = generic_evaluator(eqn.specialization, knows_attrs)
            if found is None:
                return
            below = min(below, found.below)
            given: list[Any] = []
            for arg, is_slot in zip(call.args, call.is_slot, strict=True):
                given.append(arg if is_slot else _Constant(len(constants)))
                if not is_slot:
                    constants.append(arg)
            if not knows_attrs:
                given.append(_Constant(len(constants)))
                constants.append(_Attributes(call.attrs))
            pairs.append((found.run, given))
        shift = len(constants)

        def slot(value: Any) -> int:
            if value.__class__ is _Constant:
                return inputs + int(value)
            return int(value) if value < inputs else int(value) + shift

        outputs = self.sample.outputs
        self.shared = [shared_call(run, [slot(v) for v in given]) for run, given in pairs]
        self.edges = tuple([(i, slot(outputs[i]), source) for i, _, source in self.sample.edges])
        self.constants = tuple(constants)
        self.allocated = [
            (call.shapes[0], eqn.outs[0].type.dtype.itemsize)
            for eqn, call in zip(equations, self.calls, strict=True)
            if not call.op.alias
        ]
        self.below = below

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
        if scratch is not None:
            program.edges = self.edges
            program._calls = self.shared
            program._constants = [_filled(value, extents) for value in self.constants]
            program.scratch = scratch
        else:
            program.edges = sample.edges
            types: list[Any] = [given[i] for i in sample.saves]
            types += specialization.out_types
            self.build_calls(program, types, extents)
        if sample.scatters:
            (call,) = self.calls
            attrs = dict(_filled(call.attrs, extents))
            whole = tensor_type(_filled(call.shapes[0], extents), given[0].dtype)
            program.scatter_index = call.op.scatter_index(**attrs), whole
        return program

    def scratch(self, given: tuple[TensorType, ...], extents: Extents) -> int | None:
        """The bytes that the shared calls allocate; ``None`` where values are too large."""
        below = self.below
        if max([t.numel for t in given]) >= below:
            return None
        total = 0
        for shape, itemsize in self.allocated:
            numel = math.prod(_filled(shape, extents))
            if numel >= below:
                return None
            total += numel * itemsize
        return total

    def build_calls(self, program: VjpProgram, types: list[Any], extents: Extents) -> None:
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
                    operands.append(_filled(arg, extents).__class__)
                    slots.append(next_number)
                    next_number += 1
            key: Any = tuple(operands)
            items = _filled(attrs, extents)
            found = op.specializations.get((key, items) if items else key)
            if found is None:
                found = op.resolve((key, items) if items else key, key, dict(items))
            types += found.out_types
            into = None if found.out_types[0].nbytes < LEDGER_MIN_BYTES else reusable
            if into is None and not op.alias:
                scratch += sum([t.nbytes for t in found.out_types])
            calls.append(call_into(found, slots, into))
        program._calls = calls
        program._constants = list(_filled(tuple(numbers), extents))
        program.scratch = scratch


class _Constant(int):
    """The number of a constant, where a slot is expected."""


class _Attributes(NamedTuple):
    """Attributes that depend on extents, as a constant of the shared calls."""

    items: tuple[tuple[str, Any], ...]


def _has_product(value: Any) -> bool:
    if value.__class__ is tuple:
        return any(map(_has_product, value))
    return value.__class__ is _Product


def _several(positions: Sequence[int]) -> Callable[[Extents], Any]:
    """The extents at some positions, to be compared."""
    return itemgetter(*positions) if positions else lambda extents: None


def _filled(value: Any, extents: Extents) -> Any:
    """A value of the template with numbers for these extents."""
    if value.__class__ is _Product:
        return value.of(extents)
    if value.__class__ is tuple and value:
        return tuple([_filled(v, extents) for v in value])
    if value.__class__ is _Attributes:
        return dict(_filled(value.items, extents))
    return value


class _Unifier:
    """Finds what the numbers of two traces are, given the extents of both."""

    def __init__(self, first: Extents, second: Extents, program: VjpProgram) -> None:
        self.first, self.second = first, second
        ranges = [(i, i + 1) for i in range(len(first))]
        specialization = program.specialization
        start = 0
        for type in (*specialization.operands, *specialization.out_types):
            rank = len(type.shape)
            ranges += [(start + i, start + j) for i in range(rank) for j in range(i + 2, rank + 1)]
            start += rank
        self.products = [tuple(range(*found)) for found in ranges]

    def call(self, a: _Call, b: _Call) -> _Call:
        if a.op is not b.op or a.is_slot != b.is_slot or a.reusable != b.reusable:
            raise _UnlikeError
        if any(x != y for x, y, s in zip(a.args, b.args, a.is_slot, strict=True) if s):
            raise _UnlikeError
        return a._replace(
            args=self.value(a.args, b.args), attrs=self.value(a.attrs, b.attrs),
            shapes=self.value(a.shapes, b.shapes),
        )  # fmt: skip

    def value(self, a: Any, b: Any) -> Any:
        if a.__class__ is not b.__class__:
            raise _UnlikeError
        if a.__class__ is tuple:
            if len(a) != len(b):
                raise _UnlikeError
            return tuple([self.value(x, y) for x, y in zip(a, b, strict=True)])
        if a is b or a == b:
            return a
        if a.__class__ in (int, float):
            for positions in self.products:
                for form in _FORMS:
                    found = _Product(positions, form)
                    x, y = found.of(self.first), found.of(self.second)
                    if x.__class__ is a.__class__ and x == a and y == b:
                        return found
        raise _UnlikeError
