"""The slope of a curve: said as one factor, and in small programs computed where the curve is.

The gradient through an activation such as ``x * f(x)`` comes as a sum, ``t * f(x) + t * x *
f'(x)``, in which all but ``t`` was known when the curve itself was computed. It is said as ``t *
(f(x) + x * f'(x))``. The second factor, the slope, can then be worked out beside the curve, with
which it shares the expensive part, and be kept instead of ``x``: backward only multiplies. But the
curve's values must be kept as well, which otherwise are made of ``x`` again (see `lighten`), so
this is done only where all slopes together are small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.passes.rewriter import Environment, copied
from evergrad.compiler.schedule.fusion import FAR, is_elementwise
from evergrad.compiler.schedule.nodes import Values
from evergrad.core import dtypes
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var

# All slopes together, in bytes.
_LITTLE = 1 << 22
# Values of so many times fewer bytes do not count.
_SMALL = 16


class _Sum(NamedTuple):
    """The sum of two products of factors."""

    first: tuple[_Factor, ...]
    second: tuple[_Factor, ...]


_Factor = Var | float | _Sum


def collect_slopes(graph: Graph) -> Graph:
    """The graph with sums of products that have a factor of backward in common said as one."""
    known = Values(graph)
    found = _Collected(known, _ready(known)).products
    if not found:
        return graph

    def replace(
        trace: Trace, eqn: Equation, args: tuple[object, ...], env: Environment
    ) -> tuple[Var] | None:
        if id(eqn) not in found:
            return None
        factor, slope = found[id(eqn)]
        whole = _tensor(env[factor]) * _product(slope, env)
        return (whole._value,)

    return copied(graph, replace)


def slopes_with_curves(graph: Graph) -> Graph:
    """The graph with slopes computed where the curves are, if they are small."""
    known = Values(graph)
    moved = _Early(known, _ready(known)).moved()
    if not moved:
        return graph
    place = {out: number for number, e in enumerate(graph.equations) for out in e.outs}
    after: dict[int, list[Equation]] = {}
    for eqn in graph.equations:
        if id(eqn) in moved:
            (out,) = eqn.outs
            place[out] = max((place.get(arg, -1) for arg in _values(eqn)), default=-1)
            after.setdefault(place[out], []).append(eqn)
    equations = after.get(-1, [])
    for number, eqn in enumerate(graph.equations):
        if id(eqn) not in moved:
            equations.append(eqn)
        equations += after.get(number, [])
    return Graph(graph.inputs, (), equations, graph.outputs)


def _values(eqn: Equation) -> Iterator[Var]:
    return (arg for arg in eqn.args if isinstance(arg, Var))


def _ready(known: Values) -> dict[Var, int]:
    """For each value the equation after which it could be computed, if elementwise ones were
    computed as early as possible."""
    ready: dict[Var, int] = {}
    for number, eqn in enumerate(known.graph.equations):
        place = number
        if is_elementwise(known, eqn):
            place = max((ready.get(arg, -1) for arg in _values(eqn)), default=-1)
        ready.update(dict.fromkeys(eqn.outs, place))
    return ready


class _Collected:
    """Which equations are products of a factor of backward and of a slope, with a sum in it."""

    def __init__(self, known: Values, ready: dict[Var, int]) -> None:
        self.known = known
        self.ready = ready
        self.factors: dict[Var, tuple[Var, tuple[_Factor, ...]]] = {}
        self.products: dict[int, tuple[Var, tuple[_Factor, ...]]] = {}
        for number, eqn in enumerate(known.graph.equations):
            found = self._product_of(number, eqn)
            if found is not None:
                self.factors[eqn.outs[0]] = found
                if any(isinstance(factor, _Sum) for factor in found[1]):
                    self.products[id(eqn)] = found

    def _product_of(self, number: int, eqn: Equation) -> tuple[Var, tuple[_Factor, ...]] | None:
        if eqn.op.name not in ("mul", "add") or eqn.attrs:
            return None
        type = eqn.outs[0].type
        # What is rounded to few digits would be another value, said differently.
        if type.dtype not in (dtypes.float32, dtypes.float64):
            return None
        if any(not value.type.same(type) for value in _values(eqn)):
            return None
        first, second = eqn.args
        if eqn.op.name == "mul":
            if self._was_known(first, number):
                first, second = second, first
            if self._was_known(first, number) or not self._was_known(second, number):
                return None
            factor, slope = self.factors.get(first, (first, ()))
            return factor, (*slope, second)
        if first not in self.factors or second not in self.factors:
            return None
        (factor, slope), (other, more) = self.factors[first], self.factors[second]
        return (factor, (_Sum(slope, more),)) if factor is other else None

    def _was_known(self, value: object, number: int) -> bool:
        """Whether a value could be computed long before an equation."""
        return not isinstance(value, Var) or number - self.ready.get(value, -1) > FAR


def _tensor(var: Var) -> Tensor:
    return fresh(var, var.type)


def _product(factors: tuple[_Factor, ...], env: Environment) -> Tensor | float:
    first, *others = (_made(factor, env) for factor in factors)
    for factor in others:
        first = first * factor
    return first


def _made(factor: _Factor, env: Environment) -> Tensor | float:
    if isinstance(factor, _Sum):
        return _product(factor.first, env) + _product(factor.second, env)
    return _tensor(env[factor]) if isinstance(factor, Var) else factor


class _Early:
    """What backward computes of values that were known long before, and which of it is a slope."""

    def __init__(self, known: Values, ready: dict[Var, int]) -> None:
        self.known = known
        self.equations = {
            id(eqn): eqn
            for number, eqn in enumerate(known.graph.equations)
            if is_elementwise(known, eqn) and number - ready[eqn.outs[0]] > FAR
        }

    def moved(self) -> set[int]:
        """The equations (by ``id``) that make slopes; none if these are large."""
        chains = {}
        for eqn in self.equations.values():
            chain = self._chain(eqn) if self._is_end(eqn) else None
            if chain:
                chains[eqn.outs[0]] = chain
        if sum(slope.type.nbytes for slope in chains) > _LITTLE:
            return set()
        return set().union(*chains.values())

    def _is_end(self, eqn: Equation) -> bool:
        out = eqn.outs[0]
        if self.known.escapes(out):
            return False
        return any(id(user) not in self.equations for user in self.known.users(out))

    def _chain(self, end: Equation) -> set[int] | None:
        """The early equations that make a value, if they end with what they are made of and have
        something expensive in common with the curve, or in them."""
        chain: set[int] = set()
        sources: set[Var] = set()
        waiting = [end]
        while waiting:
            eqn = waiting.pop()
            if id(eqn) in chain:
                continue
            chain.add(id(eqn))
            for arg in _values(eqn):
                maker = self.known.maker.get(arg)
                if maker is not None and id(maker) in self.equations:
                    waiting.append(maker)
                elif arg.type.nbytes * _SMALL > end.outs[0].type.nbytes:
                    sources.add(arg)
        makers = [self.known.maker.get(source) for source in sources]
        names = {self.equations[one].op.name for one in chain}
        names |= {maker.op.name for maker in makers if maker is not None}
        is_worth = None not in makers and not names.isdisjoint(elementwise.EXPENSIVE)
        return chain if is_worth and all(self._ends(s, chain) for s in sources) else None

    def _ends(self, source: Var, chain: set[int]) -> bool:
        """Whether a value is used by nobody else so much later."""
        made = self.known.position[id(self.known.maker[source])]
        return not self.known.escapes(source) and all(
            id(user) in chain or self.known.position[id(user)] - made <= FAR
            for user in self.known.users(source)
        )
