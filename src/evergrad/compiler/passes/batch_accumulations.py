"""Batching of gradient accumulations: sums of many small products or reductions as one large one.

An unrolled loop over time accumulates a weight's gradient as ``a0ᵀ b0 + a1ᵀ b1 + ...``, and a
bias's as ``sum(a0) + sum(a1) + ...``. The concatenated operands give the same as one product
``[a0; a1; ...]ᵀ [b0; b1; ...]`` and one sum, at the speed of large ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.compiler.passes.rewriter import rewrite
from evergrad.core.tensor import fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.ops.rows.elementwise.basic import ADD
from evergrad.ops.rows.matmul import MATMUL
from evergrad.ops.rows.movement.joining import cat
from evergrad.ops.rows.movement.views import PERMUTE, RESHAPE
from evergrad.ops.rows.reduce.sums import SUM

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor
    from evergrad.core.types import Leaves

# Sums of fewer terms stay as they are, ...
_FEWEST = 4
# and so do terms of so many rows or elements: they are fast by themselves, and batched they would
# all be live until the last one (the gradients of micro-batches).
_MANY_ROWS = 256
_MANY_ELEMENTS = 1 << 16


def batch_accumulations(graph: Graph) -> Graph:
    """The graph with such accumulations batched."""
    finder = _Finder(graph)
    found = {id(e): parts for e in graph.equations if (parts := finder.terms(e)) is not None}
    if not found:
        return graph

    def replace(
        trace: Trace, eqn: Equation, args: tuple[object, ...], env: Any
    ) -> tuple[Var] | None:
        return (found[id(eqn)](env),) if id(eqn) in found else None

    return rewrite(graph, replace)


class _Finder:
    """Finds sums whose terms are alike."""

    def __init__(self, graph: Graph) -> None:
        self.maker = {out: eqn for eqn in graph.equations for out in eqn.outs}
        self.uses: dict[Var, int] = {}
        for eqn in graph.equations:
            for arg in eqn.args:
                if isinstance(arg, Var):
                    self.uses[arg] = self.uses.get(arg, 0) + 1
        for out in graph.outputs:
            if isinstance(out, Var):
                self.uses[out] = self.uses.get(out, 0) + 1
        self.inner: set[int] = set()
        for eqn in graph.equations:
            if eqn.op is ADD:
                self.inner.update(id(e) for e in self.added(eqn))

    def added(self, eqn: Equation) -> list[Equation]:
        """The additions among an addition's operands that have no other user."""
        makers = [self.maker.get(a) for a in eqn.args if isinstance(a, Var) and self.uses[a] == 1]
        shape = eqn.outs[0].type
        return [m for m in makers if m is not None and m.op is ADD and m.outs[0].type.same(shape)]

    def leaves(self, eqn: Equation) -> list[Var | float]:
        """The leaves of a tree of additions, from the left."""
        found: Leaves = []
        pending: Leaves = [eqn]
        while pending:
            node = pending.pop()
            if isinstance(node, Equation) and node.op is ADD:
                inside = {id(m) for m in self.added(node)}
                for arg in reversed(node.args):
                    maker = self.maker.get(arg) if isinstance(arg, Var) else None
                    whole = maker is not None and id(maker) in inside
                    pending.append(maker if whole else arg)
            else:
                found.append(node)
        return found

    def terms(self, eqn: Equation) -> Callable[[dict[Var, Any]], Var] | None:
        """A function that computes a sum with many like terms; ``None`` if it has few."""
        if eqn.op is not ADD or id(eqn) in self.inner:
            return None
        leaves = self.leaves(eqn)
        kinds: dict[Any, Leaves] = {}
        for leaf in leaves:
            kinds.setdefault(self.kind(leaf), []).append(leaf)
        kind, alike = max(kinds.items(), key=lambda item: -1 if item[0] is None else len(item[1]))
        if kind is None or len(alike) < _FEWEST:
            return None
        others = [leaf for leaf in leaves if self.kind(leaf) != kind]
        batched = self.product if kind[0] == "matmul" else self.total

        def compute(env: dict[Var, object]) -> Var:
            found = batched(alike, env)
            for other in others:
                value = env[other] if isinstance(other, Var) else other
                found = found + (fresh(value, value.type) if isinstance(value, Var) else value)
            return found._value  # type: ignore[no-any-return]

        return compute

    def kind(self, leaf: object) -> Any:
        """What terms must have in common to be batched; ``None`` for other terms."""
        if not isinstance(leaf, Var) or self.uses[leaf] != 1:
            return None
        eqn = self.behind_reshape(leaf)
        if eqn is None or eqn.op not in (SUM, MATMUL):
            return None
        if eqn.args[0].type.numel > _MANY_ELEMENTS:
            return None
        if eqn.op is SUM and 0 in eqn.attrs["dims"]:
            return "sum", leaf.type, eqn.args[0].type, tuple(eqn.attrs.items())
        if eqn.op is not MATMUL or eqn.outs[0] is not leaf:
            return None
        transposed = self.maker.get(eqn.args[0])
        if transposed is None or transposed.op is not PERMUTE or len(eqn.args[1].type.shape) != 2:
            return None
        if eqn.args[1].type.shape[0] > _MANY_ROWS:
            return None
        return "matmul", transposed.args[0].type, eqn.args[1].type

    def behind_reshape(self, leaf: Var) -> Equation | None:
        eqn = self.maker.get(leaf)
        if eqn is not None and eqn.op is RESHAPE and self.uses[eqn.args[0]] == 1:
            return self.maker.get(eqn.args[0])
        return eqn

    def product(self, leaves: list[Var], env: dict[Var, Any]) -> Any:
        """``a0ᵀ b0 + a1ᵀ b1 + ...``"""
        makers = [self.maker[leaf] for leaf in leaves]
        a = _joined([env[self.maker[e.args[0]].args[0]] for e in makers])
        return a.t() @ _joined([env[e.args[1]] for e in makers])

    def total(self, leaves: list[Var], env: dict[Var, Any]) -> Any:
        """``sum(a0) + sum(a1) + ...``"""
        makers = [self.behind_reshape(leaf) for leaf in leaves]
        first = makers[0]
        assert first is not None
        whole = _joined([env[e.args[0]] for e in makers if e is not None])
        reduced = whole.sum(first.attrs["dims"], first.attrs["keepdim"])
        return reduced.reshape(leaves[0].type.shape)


def _joined(values: list[Var]) -> Tensor:
    """The terms concatenated, the last first: backward computes them in that order, and a gradient
    of a sequence is concatenated in the order of time, so that one ``cat`` serves both."""
    parts = [fresh(v, v.type).reshape(1, *v.type.shape) for v in reversed(values)]
    return cat(parts, 0).reshape(-1, *values[0].type.shape[1:])
