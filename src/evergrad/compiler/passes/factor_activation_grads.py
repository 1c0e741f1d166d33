"""Activation derivatives: factored out of gradients, and in small programs hoisted into forward.

The gradient through an activation such as ``x * f(x)`` is traced as a sum, ``t * f(x) + t * x *
f'(x)``, in which all but ``t`` is available in the forward pass. It is factored into ``t * (f(x) +
x * f'(x))``. The second factor, the activation's derivative, can then be computed with the
activation, with which it shares the expensive part, and be saved instead of ``x``: backward only
multiplies. But the activation must be saved as well, which is otherwise recomputed from ``x`` (see
:mod:`.recompute`), so this is done only where all derivatives together are small.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from evergrad.compiler.passes.rewriter import Environment, rewrite, with_equations
from evergrad.compiler.schedule.def_use import DefUse, def_use_of
from evergrad.compiler.schedule.fusibility import MAX_FUSION_DISTANCE, is_elementwise
from evergrad.core import dtypes
from evergrad.core.row_facts import Cost
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.ops.rows.elementwise.basic import ADD, MUL

# All hoisted derivatives together, in bytes.
_LITTLE = 1 << 22
# Values of so many times fewer bytes do not count.
_SMALL = 16


class _Sum(NamedTuple):
    """The sum of two products of factors."""

    first: tuple[_Factor, ...]
    second: tuple[_Factor, ...]


_Factor = Var | float | _Sum


def factor_activation_grads(graph: Graph) -> Graph:
    """The graph with sums of products that share a factor of backward factored."""
    known = def_use_of(graph)
    found = _Factored(known, _ready(known)).products
    if not found:
        return graph

    def replace(
        trace: Trace, eqn: Equation, args: tuple[object, ...], env: Environment
    ) -> tuple[Var] | None:
        if id(eqn) not in found:
            return None
        factor, derivative = found[id(eqn)]
        whole = _tensor(env[factor]) * _product(derivative, env)
        return (whole._value,)

    return rewrite(graph, replace)


def hoist_activation_grads(graph: Graph) -> Graph:
    """The graph with activation derivatives computed in the forward pass, if they are small."""
    known = def_use_of(graph)
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
    return with_equations(graph, equations)


def _values(eqn: Equation) -> Iterator[Var]:
    return (arg for arg in eqn.args if isinstance(arg, Var))


def _ready(known: DefUse) -> dict[Var, int]:
    """For each value the earliest equation after which it could be computed, if elementwise ones
    were scheduled as early as possible."""
    ready: dict[Var, int] = {}
    for number, eqn in enumerate(known.graph.equations):
        place = number
        if is_elementwise(known, eqn):
            place = max((ready.get(arg, -1) for arg in _values(eqn)), default=-1)
        ready.update(dict.fromkeys(eqn.outs, place))
    return ready


class _Factored:
    """The equations that are products of a factor of backward and a derivative with a sum in it."""

    def __init__(self, known: DefUse, ready: dict[Var, int]) -> None:
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
        if eqn.op not in (MUL, ADD) or eqn.attrs:
            return None
        type = eqn.outs[0].type
        # In 16-bit types the factored form rounds differently.
        if type.dtype not in (dtypes.float32, dtypes.float64):
            return None
        if any(not value.type.same(type) for value in _values(eqn)):
            return None
        first, second = eqn.args
        if eqn.op is MUL:
            if self._is_early(first, number):
                first, second = second, first
            if self._is_early(first, number) or not self._is_early(second, number):
                return None
            factor, derivative = self.factors.get(first, (first, ()))
            return factor, (*derivative, second)
        if first not in self.factors or second not in self.factors:
            return None
        (factor, derivative), (other, more) = self.factors[first], self.factors[second]
        return (factor, (_Sum(derivative, more),)) if factor is other else None

    def _is_early(self, value: object, number: int) -> bool:
        """Whether a value is available long before an equation."""
        return (
            not isinstance(value, Var) or number - self.ready.get(value, -1) > MAX_FUSION_DISTANCE
        )


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
    """Equations of backward with operands that are available early, and derivatives among them."""

    def __init__(self, known: DefUse, ready: dict[Var, int]) -> None:
        self.known = known
        self.equations = {
            id(eqn): eqn
            for number, eqn in enumerate(known.graph.equations)
            if is_elementwise(known, eqn) and number - ready[eqn.outs[0]] > MAX_FUSION_DISTANCE
        }

    def moved(self) -> set[int]:
        """The equations (by ``id``) that compute derivatives; none if these are large."""
        chains = {}
        for eqn in self.equations.values():
            chain = self._chain(eqn) if self._is_end(eqn) else None
            if chain:
                chains[eqn.outs[0]] = chain
        if sum(derivative.type.nbytes for derivative in chains) > _LITTLE:
            return set()
        return set().union(*chains.values())

    def _is_end(self, eqn: Equation) -> bool:
        out = eqn.outs[0]
        if self.known.escapes(out):
            return False
        return any(id(user) not in self.equations for user in self.known.users(out))

    def _chain(self, end: Equation) -> set[int] | None:
        """The early equations of a value, if they are the last users of their operands and share
        something expensive with the activation, or contain it."""
        chain: set[int] = set()
        sources: set[Var] = set()
        pending = [end]
        while pending:
            eqn = pending.pop()
            if id(eqn) in chain:
                continue
            chain.add(id(eqn))
            for arg in _values(eqn):
                maker = self.known.producer.get(arg)
                if maker is not None and id(maker) in self.equations:
                    pending.append(maker)
                elif arg.type.nbytes * _SMALL > end.outs[0].type.nbytes:
                    sources.add(arg)
        makers = [self.known.producer.get(source) for source in sources]
        costs = {self.equations[one].op.emit.cost for one in chain}
        costs |= {maker.op.emit.cost for maker in makers if maker is not None}
        is_worth = None not in makers and Cost.EXPENSIVE in costs
        return chain if is_worth and all(self._ends(s, chain) for s in sources) else None

    def _ends(self, source: Var, chain: set[int]) -> bool:
        """Whether a value has no other late user."""
        made = self.known.position[id(self.known.producer[source])]
        return not self.known.escapes(source) and all(
            id(user) in chain or self.known.position[id(user)] - made <= MAX_FUSION_DISTANCE
            for user in self.known.users(source)
        )
