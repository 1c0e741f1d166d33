"""Graphs of one structure for any extents: how their numbers follow from the extents.

Two traces of one structure (rows, element types, which extents are equal, one or zero) differ in
numbers alone. :class:`Unifier` finds what each of them is: a product of extents, or its reciprocal.
:class:`SharedCalls` are the calls of such a graph on arrays, which all shapes share; numbers and
attributes that depend on extents are among their constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from evergrad.core.eager.generic import Generic, generic_evaluator
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.vjp_program import reusable_arguments, shared_call

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Args, Leaves

Extents = tuple[int, ...]

# Smaller integers among the attributes are numbers of dimensions, steps, flags: structure.
_LEAST_EXTENT = 8

_HOLE = object()


class Product(NamedTuple):
    """A number of a graph that follows from extents: their product, as an integer, as a float, or
    its reciprocal."""

    positions: tuple[int, ...]
    form: Callable[[int], object]

    def of(self, extents: Extents) -> Any:
        product = 1
        for i in self.positions:
            product *= extents[i]
        return self.form(product)


def _reciprocal(product: int) -> float:
    return 1.0 / product if product else math.inf


_FORMS: tuple[Callable[[int], object], ...] = (int, float, _reciprocal)


class UnlikeError(Exception):
    """Two traces differ in more than what follows from extents."""


class AmbiguousError(UnlikeError):
    """A number is the same in two traces, as is a product of extents that are not."""


class Call(NamedTuple):
    """One equation: an argument is the slot of a value (``is_slot``) or a number. ``shapes`` are
    those of its results; ``reusable`` is the argument that it may overwrite if that is large."""

    op: Any
    is_slot: tuple[bool, ...]
    args: Args
    attrs: tuple[tuple[str, Any], ...]
    shapes: tuple[object, ...]
    reusable: int | None


def calls_of(graph: Graph) -> tuple[tuple[Call, ...], tuple[int | None, ...]]:
    """The equations of a graph as calls, and the slots of its outputs. Slots are numbered: inputs,
    then results of equations."""
    slot: dict[object, int] = {var: i for i, var in enumerate(graph.inputs)}
    calls = []
    for eqn, reusable in zip(graph.equations, reusable_arguments(graph), strict=True):
        is_slot = tuple([isinstance(a, Var) for a in eqn.args])
        args = tuple([slot[a] if isinstance(a, Var) else a for a in eqn.args])
        shapes = tuple([out.type.shape for out in eqn.outs])
        calls.append(Call(eqn.op, is_slot, args, tuple(eqn.attrs.items()), shapes, reusable))
        for out in eqn.outs:
            slot[out] = len(slot)
    return tuple(calls), tuple([None if out is None else slot[out] for out in graph.outputs])


def skeleton(value: object, extents: list[int]) -> object:
    """An attribute with a hole in the place of each extent, which is appended to ``extents``."""
    if value.__class__ is int:
        if value < _LEAST_EXTENT:
            return value
        extents.append(value)
        return _HOLE
    if value.__class__ is tuple:
        return tuple([skeleton(v, extents) for v in value])
    return value


def pattern(extents: Sequence[int]) -> tuple[int, ...]:
    """Which extents are equal: one and zero stand for themselves, others for the first equal."""
    return tuple([n if n < 2 else extents.index(n) + 2 for n in extents])


def several(positions: Sequence[int]) -> Callable[[Extents], object]:
    """The extents at some positions, to be compared."""
    return itemgetter(*positions) if positions else lambda extents: None


class Unifier:
    """Finds what the numbers of two traces are, given the extents of both; these begin with those
    of values of the given ``shapes``."""

    def __init__(self, first: Extents, second: Extents, shapes: Sequence[Shape]) -> None:
        self.first: Extents = first
        self.second: Extents = second
        # Single extents, neighbours, and all of a value but one in between (as in batch norm).
        products: list[tuple[int, ...]] = [(i,) for i in range(len(first))]
        start = 0
        for shape in shapes:
            own = tuple(range(start, start + len(shape)))
            rank = len(own)
            products += [own[i:j] for i in range(rank) for j in range(i + 2, rank + 1)]
            products += [(*own[:k], *own[k + 1 :]) for k in range(1, rank - 1)]
            start += rank
        self.products = products
        # Products that are the same for both, of extents that are not.
        self.unchanged: set[object] = set()
        for positions in self.products:
            if all(first[i] == second[i] for i in positions):
                continue
            for form in _FORMS:
                x, y = (Product(positions, form).of(e) for e in (first, second))
                if x == y:
                    self.unchanged.add((x.__class__, x))

    def calls(self, a: Sequence[Call], b: Sequence[Call]) -> list[Call]:
        if len(a) != len(b):
            raise UnlikeError
        return [self.call(p, q) for p, q in zip(a, b, strict=True)]

    def call(self, a: Call, b: Call) -> Call:
        if a.op is not b.op or a.is_slot != b.is_slot or a.reusable != b.reusable:
            raise UnlikeError
        if any(x != y for x, y, s in zip(a.args, b.args, a.is_slot, strict=True) if s):
            raise UnlikeError
        return a._replace(
            args=tuple(
                [x if s else self.value(x, y)
                 for x, y, s in zip(a.args, b.args, a.is_slot, strict=True)]
            ),
            attrs=self.value(a.attrs, b.attrs), shapes=self.value(a.shapes, b.shapes),
        )  # fmt: skip

    def value(self, a: Any, b: Any) -> Any:
        if a.__class__ is not b.__class__:
            raise UnlikeError
        if a.__class__ is tuple:
            if len(a) != len(b):
                raise UnlikeError
            return tuple([self.value(x, y) for x, y in zip(a, b, strict=True)])
        if a is b or a == b:
            if a.__class__ in (int, float) and (a.__class__, a) in self.unchanged:
                raise AmbiguousError
            return a
        if a.__class__ in (int, float):
            for positions in self.products:
                for form in _FORMS:
                    found = Product(positions, form)
                    x, y = found.of(self.first), found.of(self.second)
                    if x.__class__ is a.__class__ and x == a and y == b:
                        return found
        raise UnlikeError


def filled_calls(calls: Sequence[Call], extents: Extents) -> tuple[Call, ...]:
    """The calls with numbers for these extents."""
    return tuple(
        call._replace(
            args=filled(call.args, extents), attrs=filled(call.attrs, extents),
            shapes=filled(call.shapes, extents),
        )
        for call in calls
    )  # fmt: skip


class Attributes(NamedTuple):
    """Attributes that depend on extents, as a constant of the shared calls."""

    items: tuple[tuple[str, Any], ...]


def filled(value: object, extents: Extents) -> Any:
    """A value of a template with numbers for these extents."""
    if value.__class__ is Product:
        return value.of(extents)
    if value.__class__ is tuple and value:
        return tuple([filled(v, extents) for v in value])
    if value.__class__ is Attributes:
        return dict(filled(value.items, extents))
    return value


def _has_product(value: object) -> bool:
    if value.__class__ is tuple:
        return any(map(_has_product, value))
    return value.__class__ is Product


class _Constant(int):
    """The number of a constant, where a slot is expected."""


class SharedCalls:
    """The calls of a graph with evaluators for any extents, below so many elements (``below``).

    Slots are numbered: inputs, constants, results.
    """

    __slots__ = ("allocated", "below", "calls", "constants", "inputs", "varying")

    def __init__(
        self, calls: Leaves, constants: Sequence[object], inputs: int, below: int,
        allocated: Sequence[tuple[Any, int]],
    ) -> None:  # fmt: skip
        """``allocated`` are the shapes and element sizes of the results that are no views."""
        self.calls = calls
        self.constants = list(constants)
        self.varying: list[tuple[int, object]] = [
            (i, v)
            for i, v in enumerate(constants)
            if _has_product(v.items if v.__class__ is Attributes else v)
        ]
        self.inputs: int = inputs
        self.below: int = below
        # Bytes per element of the results that have as many elements: a number times a product.
        self.allocated: dict[tuple[int, tuple[int, ...]], int] = {}
        for shape, itemsize in allocated:
            size = _size(shape)
            self.allocated[size] = self.allocated.get(size, 0) + itemsize

    def slot(self, value: int) -> int:
        """The slot of a value that :func:`calls_of` has numbered."""
        return value if value < self.inputs else value + len(self.constants)

    def numbers(self, extents: Extents) -> Leaves:
        """The constants for these extents."""
        found = self.constants.copy()
        for i, value in self.varying:
            found[i] = filled(value, extents)
        return found

    def scratch(self, extents: Extents) -> int | None:
        """The bytes that the calls allocate; ``None`` where a value is too large for them."""
        total = 0
        for (numel, positions), nbytes in self.allocated.items():
            for i in positions:
                numel *= extents[i]
            if numel >= self.below:
                return None
            total += numel * nbytes
        return total


def _size(shape: tuple[Any, ...]) -> tuple[int, tuple[int, ...]]:
    """The elements of a shape: a number, and the positions of the extents that it is multiplied
    by."""
    number = math.prod([n for n in shape if n.__class__ is not Product])
    return number, tuple([i for n in shape if n.__class__ is Product for i in n.positions])


def share_calls(
    equations: Sequence[Equation], calls: Sequence[Call], inputs: int, below: int,
    evaluator: Callable[..., Generic | None] = generic_evaluator,
) -> SharedCalls | None:  # fmt: skip
    """The calls on arrays of any extents, given the equations of one graph of the structure;
    ``None`` if a row has no such evaluator."""
    constants: list[object] = []
    pairs: list[tuple[AnyFunction, list[Any]]] = []
    for eqn, call in zip(equations, calls, strict=True):
        knows_attrs = not _has_product(call.attrs)
        found = evaluator(eqn.specialization, knows_attrs)
        if found is None:
            return None
        below = min(below, found.below)
        given: Leaves = []
        for arg, is_slot in zip(call.args, call.is_slot, strict=True):
            given.append(arg if is_slot else _Constant(len(constants)))
            if not is_slot:
                constants.append(arg)
        if not knows_attrs:
            given.append(_Constant(len(constants)))
            constants.append(Attributes(call.attrs))
        pairs.append((found.run, given))
    allocated = [
        (call.shapes[0], eqn.outs[0].type.dtype.itemsize)
        for eqn, call in zip(equations, calls, strict=True)
        if not call.op.alias
    ]
    made = SharedCalls([], constants, inputs, below, allocated)
    for run, given in pairs:
        slots = [inputs + v if v.__class__ is _Constant else made.slot(v) for v in given]
        made.calls.append(shared_call(run, slots))
    return made


def run_calls(calls: Sequence[Any], values: list[object]) -> None:
    """Run calls on slots; results are appended."""
    append = values.append
    for call, a, b in calls:
        if b >= 0:
            append(call(values[a], values[b]))
        elif b == -1:
            append(call(values[a]))
        else:
            append(call(*[values[i] for i in a]))
