"""Patterns of subgraphs, and those of softmax and its derivative.

A pattern is the name of a value, a number, or an op and the patterns of its arguments; a system
maps names of values to patterns. :class:`Match` unifies systems with a graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from evergrad.core.op import Op
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.creation.constants import FULL
from evergrad.ops.rows.elementwise.basic import ADD, EXP, MUL, NEG, RECIPROCAL, SUB, WHERE
from evergrad.ops.rows.elementwise.logic import BITWISE_AND, EQ, ISNAN
from evergrad.ops.rows.matmul import MATMUL
from evergrad.ops.rows.movement.diagonals import TRIL
from evergrad.ops.rows.movement.views import EXPAND, PERMUTE
from evergrad.ops.rows.reduce.extrema import AMAX
from evergrad.ops.rows.reduce.softmax import SOFTMAX
from evergrad.ops.rows.reduce.sums import SUM
from evergrad.ops.surface.handles import DETACH

Pattern = Any
System = tuple[tuple[str, Pattern], ...]

INFINITY = float("inf")


def unless_lost(value: str, source: str, product: str) -> System:
    """A product in which zero times infinity is zero."""
    lost = (BITWISE_AND, (EQ, source, 0), (ISNAN, product))
    return ((value, (WHERE, lost, 0, product)),)


# Softmax, with its derivative: from `x` to `p`, from `dp` to `dx`.
_SOFTMAX: System = (("p", (SOFTMAX, "x")),)
_SOFTMAX_BACK: System = (
    ("dx", (SUB, "weighted", (MUL, "p", (SUM, "weighted")))),
    ("weighted", (MUL, "dp", "p")),
)
# The same with zeros for a query whose keys are all masked.
_SOFTMAX_OR_ZERO: System = (
    ("p", (MUL, "powers", "factor")),
    ("factor", (RECIPROCAL, (WHERE, "empty", 1, "total"))),
    ("empty", (EQ, "total", 0)),
    ("total", (SUM, "powers")),
    ("powers", (EXP, (SUB, "x", (WHERE, (EQ, "top", -INFINITY), 0, "top")))),
    ("top", (AMAX, "x")),
)
_LOSS = (MUL, (NEG, (SUM, (MUL, "dp", "powers"))), (MUL, "factor", "factor"))
_SOFTMAX_OR_ZERO_BACK: System = (
    *unless_lost("dx", "rise", "product"),
    ("product", (MUL, "rise", "powers")),
    ("rise", (ADD, (MUL, "dp", "factor"), (EXPAND, (WHERE, "empty", 0, _LOSS)))),
)
SOFTMAXES = ((_SOFTMAX, _SOFTMAX_BACK, False), (_SOFTMAX_OR_ZERO, _SOFTMAX_OR_ZERO_BACK, True))

# The derivative of a softmax is found within this many equations from the cotangent of its result.
_NEAR = 24


class Facts:
    """The def-use chains of a graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.maker: dict[Var, Equation] = {out: eqn for eqn in graph.equations for out in eqn.outs}
        self.position: dict[int, int] = {id(eqn): n for n, eqn in enumerate(graph.equations)}
        self.outputs: set[Var] = {o for o in graph.outputs if isinstance(o, Var)}
        self.uses: dict[Var, list[Equation]] = {}
        for eqn in graph.equations:
            for arg in eqn.args:
                if isinstance(arg, Var):
                    self.uses.setdefault(arg, []).append(eqn)

    def made_by(self, value: object, *rows: Op) -> Equation | None:
        eqn = self.maker.get(value) if isinstance(value, Var) else None
        return eqn if eqn is not None and eqn.op in rows else None

    def users(self, var: Var, *rows: Op) -> Iterator[Equation]:
        return (eqn for eqn in self.uses.get(var, ()) if eqn.op in rows)

    def is_seen_by(self, var: Var, row: Op) -> bool:
        """Whether a value, or a view of it, has a user of this op."""
        return any(
            eqn.op is row or self.is_seen_by(eqn.outs[0], row)
            for eqn in self.uses.get(var, ())
            if eqn.op.alias
        )

    def number(self, value: object) -> Any:
        """A number, whether literal or a 0-d ``full``; else ``None``."""
        if isinstance(value, Var):
            full = self.made_by(value, FULL)
            return None if full is None or full.attrs["size"] else full.args[0]
        return value

    def is_transposed(self, var: Var, other: Var) -> bool:
        """Whether one value is the transpose of the other, in the last two dimensions."""
        return self.is_transpose_of(var, other) or self.is_transpose_of(other, var)

    def is_transpose_of(self, var: Var, source: Var) -> bool:
        eqn = self.made_by(var, PERMUTE)
        return eqn is not None and eqn.args[0] is source and eqn.attrs["order"] == swapped(source)

    def is_triangle(self, var: Any, shape: Shape) -> bool:
        """Whether a mask of this shape is causal: the lower triangle."""
        eqn = self.made_by(var, TRIL)
        whole = None if eqn is None else self.made_by(eqn.args[0], FULL)
        return (
            eqn is not None and whole is not None
            and eqn.attrs["diagonal"] == 0 and whole.args[0] is True
            and var.type.shape[-2:] == shape
        )  # fmt: skip


def swapped(var: Var) -> tuple[int, ...]:
    rank = len(var.type.shape)
    return (*range(rank - 2), rank - 1, rank - 2)


class Match:
    """Values bound to names, and the equations between them."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.bound: dict[str, Any] = {}
        self.region: list[Equation] = []

    def copy(self) -> Match:
        other = Match(self.facts)
        other.bound, other.region = dict(self.bound), list(self.region)
        return other

    def adopt(self, other: Match) -> None:
        self.bound, self.region = other.bound, other.region

    def solves(self, system: System) -> bool:
        return all(self.unify(pattern, self.bound[name]) for name, pattern in system)

    def unify(self, pattern: Pattern, value: object) -> bool:
        while (passed := self.facts.made_by(value, DETACH)) is not None:
            self.region.append(passed)
            value = passed.args[0]
        if isinstance(pattern, str):
            return self.bound.setdefault(pattern, value) is value
        if not isinstance(pattern, tuple):
            found = self.facts.number(value)
            return found is not None and bool(found == pattern)
        eqn = self.facts.made_by(value, pattern[0])
        if eqn is None or not _is_along_rows(eqn):
            return False
        orders = [eqn.args, eqn.args[::-1]] if eqn.op.commutative else [eqn.args]
        return any(self.unify_all(pattern[1:], args, eqn) for args in orders)

    def unify_all(self, patterns: Sequence[Pattern], args: Sequence[object], eqn: Equation) -> bool:
        tried = self.copy()
        if len(args) != len(patterns):
            return False
        if not all(tried.unify(p, a) for p, a in zip(patterns, args, strict=True)):
            return False
        self.adopt(tried)
        self.region.append(eqn)
        return True

    def find(self, name: str, near: Var, *systems: System) -> bool:
        """Bind a name to a value, among those computed from another, that solves the first solvable
        one of some systems."""
        near_by = list(self.made_of(near))
        for system in systems:
            for var in near_by:
                tried = self.copy()
                tried.bound[name] = var
                if tried.solves(system):
                    self.adopt(tried)
                    return True
        return False

    def made_of(self, var: Var) -> Iterable[Var]:
        found = [var]
        for source in found:
            for eqn in self.facts.uses.get(source, ()):
                if eqn.op.outputs == 1 and eqn.op is not MATMUL and eqn.outs[0] not in found:
                    found.append(eqn.outs[0])
            if len(found) > _NEAR:
                break
        return found[1:]


def _is_along_rows(eqn: Equation) -> bool:
    """Whether a reduction or a softmax runs along the last dimension."""
    last = len(eqn.outs[0].type.shape) - 1
    if eqn.op.combine:
        return bool(eqn.attrs["dims"] == (last,) and eqn.attrs["keepdim"])
    return eqn.op is not SOFTMAX or bool(eqn.attrs["dim"] == last)
