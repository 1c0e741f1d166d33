"""Reuse of reductions: sums that follow from other sums by linearity are not computed.

The derivative of a norm sums ``dz`` and ``dz * centered`` for its parameters and then, for the
input's gradient, linear combinations of these: ``a * dz + b * centered`` with ``a`` and ``b``
constant along the reduced dimensions, and ``centered`` a value less its mean. Those sums are the
same combinations of the first ones. Each reduction saved is a pass over the data, or a kernel.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from evergrad.compiler.passes.rewriter import rewrite
from evergrad.compiler.schedule.def_use import def_use_of
from evergrad.core import dtypes
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.types import Args
from evergrad.ops.rows.elementwise.basic import ADD, DIV, MUL, NEG, SUB
from evergrad.ops.rows.movement.views import EXPAND, RESHAPE
from evergrad.ops.rows.reduce.sums import SUM

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# Sums of fewer elements, or with fewer per result, take no time.
_LEAST = 1 << 14
_LEAST_REDUCED = 16
# How many equations are traced back from a sum.
_DEEPEST = 8

Dims = tuple[int, ...]
# One or two values whose product is reduced, in the order in which they were met; a square has its
# value twice.
Core = tuple[Var, ...]


def reuse_reductions(graph: Graph) -> Graph:
    """The graph without sums that follow from others by linearity."""
    sums = [eqn for eqn in graph.equations if _is_worth(eqn)]
    if len(sums) < 2:
        return graph
    return rewrite(graph, _Sums(graph, sums).replace)


def _is_worth(eqn: Equation) -> bool:
    if eqn.op is not SUM or not isinstance(eqn.args[0], Var):
        return False
    given, out = eqn.args[0].type, eqn.outs[0].type
    is_float = out.dtype is given.dtype and given.dtype in (dtypes.float32, dtypes.float64)
    return is_float and given.numel >= max(_LEAST, _LEAST_REDUCED * out.numel)


class _Sums:
    """DefUse are those of the graph before the pass; sums are tensors of the graph after it."""

    def __init__(self, graph: Graph, sums: list[Equation]) -> None:
        self.maker = def_use_of(graph).producer
        self.worth = {id(eqn) for eqn in sums}
        self.met: dict[Var, int] = {}
        self.known: dict[tuple[Core, Dims], Tensor] = {}
        wanted = [(self.core(e.args[0], e.attrs["dims"])[0], e.attrs["dims"]) for e in sums]
        # Products that more than one sum reduces.
        self.shared = {
            (core, dims) for core, dims in wanted
            if len(core) > 1 and sum(core == other for other, _ in wanted) > 1
        }  # fmt: skip

    def replace(self, trace: Trace, eqn: Equation, args: Args, env: Any) -> Any:
        if id(eqn) not in self.worth:
            return None
        x, dims = eqn.args[0], eqn.attrs["dims"]
        total = self.total(x, dims, env)
        if total is None:
            core, factors = self.core(x, dims)
            if (core, dims) in self.shared:
                total = _tensor(env[core[0]]) * _tensor(env[core[-1]])
                total = self.known[core, dims] = total.sum(dims, True)
                total = self.times(total, factors, env)
            else:
                total = self.known[(x,), dims] = _tensor(args[0]).sum(dims, True)
        shape = eqn.outs[0].type.shape
        return ((total if total._type.shape == shape else total.reshape(shape))._value,)

    # -- linearity ------------------------------------------------------------------------------

    def total(self, x: Var, dims: Dims, env: object, depth: int = 0) -> Tensor | None:
        """The sum of a value with kept dimensions, if it follows from known ones."""
        found = self.known.get(((x,), dims))
        eqn = self.maker.get(x)
        if found is not None or eqn is None or depth > _DEEPEST:
            return found
        core, factors = self.core(x, dims)
        if core != (x,):
            found = self.known.get((core, dims))
            if found is None and len(core) == 1:
                found = self.total(core[0], dims, env, depth + 1)
            return None if found is None else self.times(found, factors, env)
        if eqn.op is NEG and not depth:
            found = self.total(eqn.args[0], dims, env, depth + 1)
            return None if found is None else -found
        if eqn.op not in (ADD, SUB):
            return None
        return self.added(eqn, dims, env, depth)

    def added(self, eqn: Equation, dims: Dims, env: Any, depth: int) -> Tensor | None:
        """The sum of a value less its mean, as a term of another sum, or of an addition with such a
        value. Other terms may cancel, and then their sums have lost the digits that remain: so has
        the sum of a value less its mean itself, which is what the mean's rounding has left."""
        shape = eqn.outs[0].type.shape
        if self.is_centered(eqn):
            if not depth:
                return None
            value, mean = eqn.args
            total = self.total(value, dims, env, depth + 1)
            if total is None or not self.is_constant(mean, shape, dims):
                return None
            count = prod(shape[d] for d in dims)
            return total - _tensor(env[self.behind_expand(mean)]) * count
        if eqn.op is not ADD or any(not _has_shape(arg, shape) for arg in eqn.args):
            return None
        makers = [self.maker.get(self.without_factors(arg, dims)[0]) for arg in eqn.args]
        if not any(maker is not None and self.is_centered(maker) for maker in makers):
            return None
        first, second = (self.total(arg, dims, env, depth + 1) for arg in eqn.args)
        return None if first is None or second is None else first + second

    def is_centered(self, eqn: Equation) -> bool:
        """Whether an equation subtracts from a value its mean along any dimensions."""
        if eqn.op is not SUB or not all(isinstance(arg, Var) for arg in eqn.args):
            return False
        value, mean = eqn.args
        for _ in range(_DEEPEST):
            maker = self.maker.get(mean)
            if maker is None or maker.op not in (SUM, DIV, MUL, RESHAPE, EXPAND):
                return False
            if any(isinstance(arg, Var) for arg in maker.args[1:]):
                return False
            mean = maker.args[0]
            if mean is value:
                return maker.op is SUM
        return False

    def core(self, x: Var, dims: Dims) -> tuple[Core, list[object]]:
        """One or two values whose product is reduced, and the constant factors."""
        core, factors = self.without_factors(x, dims)
        eqn = self.maker.get(core)
        if eqn is None or eqn.op is not MUL:
            return (core,), factors
        if any(not isinstance(a, Var) or a.type.shape != x.type.shape for a in eqn.args):
            return (core,), factors
        pair = [self.without_factors(arg, dims) for arg in eqn.args]
        values = [value for value, _ in pair]
        values.sort(key=lambda value: self.met.setdefault(value, len(self.met)))
        return tuple(values), [*factors, *pair[0][1], *pair[1][1]]

    def without_factors(self, x: Var, dims: Dims) -> tuple[Var, list[object]]:
        factors: list[object] = []
        while len(factors) < _DEEPEST:
            eqn = self.maker.get(x)
            if eqn is None or eqn.op is not MUL:
                break
            shape = x.type.shape
            constant = [a for a in eqn.args if self.is_constant(a, shape, dims)]
            others = [a for a in eqn.args if isinstance(a, Var) and a.type.shape == shape]
            others = [a for a in others if a not in constant]
            if len(constant) != 1 or len(others) != 1:
                break
            factors.append(constant[0])
            x = others[0]
        return x, factors

    def is_constant(self, arg: object, shape: tuple[int, ...], dims: Dims) -> bool:
        """Whether an operand that broadcasts to a shape is constant along these dimensions."""
        if not isinstance(arg, Var):
            return True
        own = self.behind_expand(arg).type.shape
        missing = len(shape) - len(own)
        return all(d < missing or own[d - missing] == 1 for d in dims) and len(dims) > 0

    def behind_expand(self, var: Var) -> Var:
        eqn = self.maker.get(var)
        return eqn.args[0] if eqn is not None and eqn.op is EXPAND else var

    def times(self, total: Tensor, factors: Leaves, env: Any) -> Tensor:
        for factor in factors:
            given = _tensor(env[self.behind_expand(factor)]) if isinstance(factor, Var) else factor
            total = total * given
        return total


def _has_shape(arg: object, shape: tuple[int, ...]) -> bool:
    return isinstance(arg, Var) and arg.type.shape == shape


def _tensor(var: Var) -> Tensor:
    return fresh(var, var.type)
