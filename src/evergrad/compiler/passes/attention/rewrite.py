"""Replacement of matched attentions: one equation for each, one for its derivative.

Where a result is permuted afterwards (heads next to features, as a rule), the kernel stores it in
that order, and gradients in the layouts of queries, keys and values: nothing has to be copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.kernels.attention.rows import (
    ATTENTION,
    ATTENTION_BACKWARD,
    Order,
    batch_of,
    way_back,
)
from evergrad.compiler.passes.attention.patterns import Facts, swapped
from evergrad.compiler.passes.rewriter import specialize, with_equations, with_layouts
from evergrad.core import dtypes
from evergrad.core.op import Op
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.elementwise.basic import CAST, CLONE
from evergrad.ops.rows.movement.strided import AS_STRIDED
from evergrad.ops.rows.movement.views import PERMUTE, RESHAPE

if TYPE_CHECKING:
    from evergrad.compiler.passes.attention.match import Attention, Backward


def replaced(graph: Graph, facts: Facts, found: Sequence[Attention]) -> Graph:
    """The graph with matched attentions as single equations."""
    new: dict[int, list[Equation]] = {}
    gone: set[int] = set()
    transposed: dict[Var, Var] = {}
    for attention in found:
        gone |= {id(eqn) for eqn in (*attention.match.region, *attention.targets())}
        rewriter = _Replacement(attention, transposed)
        new[facts.position[id(attention.result)]] = rewriter.forward()
        for backward in attention.backwards:
            first = min(facts.position[id(eqn)] for eqn in backward.targets())
            new[first] = rewriter.backward(backward)
    equations: list[Equation] = []
    for number, eqn in enumerate(graph.equations):
        equations += new.get(number, ())
        if id(eqn) not in gone:
            equations.append(eqn)
    return with_layouts(with_equations(graph, equations)).without_dead_code()


class _Replacement:
    """The equations that replace an attention. ``transposed`` holds masks stored key by key, shared
    by all attentions that read them."""

    def __init__(self, attention: Attention, transposed: dict[Var, Var]) -> None:
        self.attention = attention
        self.transposed = transposed
        self.location = attention.result.location
        self.equations: list[Equation] = []

    def emit(
        self, op: Op, args: Sequence[Var], outs: Sequence[Equation | None] = (), **attrs: Any
    ) -> tuple[Var, ...]:
        """Add an equation; its results are those of equations it replaces, or new ones."""
        specialization = specialize(op, *args, **attrs)
        trace = self.attention.result.outs[0].trace
        given = [*outs, *[None] * (specialization.op.outputs - len(outs))]
        results = tuple(
            Var(type, trace) if eqn is None else eqn.outs[0]
            for eqn, type in zip(given, specialization.out_types, strict=True)
        )
        self.equations.append(Equation(specialization, tuple(args), results, self.location))
        return results

    def transpose(self, var: Var) -> Var:
        return self.emit(PERMUTE, [var], order=swapped(var))[0]

    def by_key(self, mask: Var) -> Var:
        """A mask stored key by key."""
        if len(mask.type.shape) < 2:
            shape = (1,) * (2 - len(mask.type.shape)) + mask.type.shape
            mask = self.emit(RESHAPE, [mask], shape=shape)[0]
        if mask.type.dtype is not dtypes.bool_:
            mask = self.wide(mask)
        return self.emit(CLONE, [self.transpose(mask)])[0]

    def wide(self, var: Var) -> Var:
        """A value in the kernels' element type."""
        if var.type.dtype is dtypes.float32:
            return var
        return self.emit(CAST, [var], dtype=dtypes.float32)[0]

    def settle(self, var: Var, eqn: Equation | None, order: Order) -> None:
        """Define an equation's result by a new one, cast and permuted as needed, unless it is that
        result already."""
        if eqn is None or eqn.outs[0] is var:
            return
        dtype = eqn.outs[0].type.dtype
        permutes = order != natural(var)
        if var.type.dtype is not dtype:
            (var,) = self.emit(CAST, [var], [] if permutes else [eqn], dtype=dtype)
        if permutes:
            self.emit(PERMUTE, [var], [eqn], order=order)

    def as_stored(self, eqn: Equation | None, order: Order) -> Equation | None:
        """The equation, if a kernel computes its result without a cast or permutation."""
        if eqn is None or order != natural(eqn.outs[0]):
            return None
        return eqn if eqn.outs[0].type.dtype is dtypes.float32 else None

    def drawn(self) -> tuple[Var, ...]:
        noise = self.attention.noise
        return () if noise is None else noise.drawn

    def attrs(self) -> dict[str, Any]:
        found = self.attention
        dropout = None if found.noise is None else found.noise.dropout
        return {"steps": tuple(found.steps), "groups": found.groups, "dropout": dropout}

    def may_permute(self, var: Var) -> bool:
        """Whether a result may have another layout."""
        facts = self.attention.facts
        return self.attention.groups == 1 and not facts.is_seen_by(var, AS_STRIDED)

    def order_wanted(self, y: Var) -> Order:
        """The order of dimensions in which a result is used."""
        own = natural(y)
        users = self.attention.facts.users(y, PERMUTE) if self.may_permute(y) else ()
        orders = [eqn.attrs["order"] for eqn in users]
        return next((order for order in orders if order[-1] == own[-1]), own)

    def order_like(self, strides: Sequence[int], gradient: Equation | None, shape: Shape) -> Order:
        """The order of dimensions that gives a gradient these strides, its operand's."""
        batch = batch_of(*(x.type for x in self.operands))
        own = tuple(range(len(batch) + 2))
        if gradient is None or not self.may_permute(gradient.outs[0]):
            return own
        if 0 in strides or batch != shape[:-2]:
            return own
        return (*sorted(own[:-1], key=lambda d: -strides[d]), own[-1])

    def forward(self) -> list[Equation]:
        found = self.attention
        for mask in found.masks:
            if mask not in self.transposed:
                self.transposed[mask] = self.by_key(mask)
        self.operands = [
            self.wide(found.q),
            self.wide(self.transpose(found.k_transposed)),
            self.wide(found.v),
        ]
        self.masks = [self.transposed[mask] for mask in found.masks]
        order = self.order_wanted(found.result.outs[0])
        y, self.stats = self.emit(
            ATTENTION, [*self.operands, *self.masks, *self.drawn()],
            [self.as_stored(found.result, order)], **self.attrs(),
            empty_is_zero=found.empty_is_zero, order=order,
        )  # fmt: skip
        self.settle(y, found.result, way_back(order))
        return self.equations

    def backward(self, backward: Backward) -> list[Equation]:
        self.equations = []
        found = self.attention
        g, y = self.wide(backward.cotangent), self.wide(found.result.outs[0])
        args = [*self.operands, g, y, self.stats, *self.masks, *self.drawn()]
        *lead, columns, rows = found.k_transposed.layout.strides
        *batch, width, keys = found.k_transposed.type.shape
        orders = (
            self.order_like(found.q.layout.strides, backward.dq, found.q.type.shape),
            self.order_like((*lead, rows, columns), backward.dk_transposed, (*batch, keys, width)),
            self.order_like(found.v.layout.strides, backward.dv, found.v.type.shape),
        )
        wanted = (backward.dq, None, backward.dv)
        given = [self.as_stored(eqn, order) for eqn, order in zip(wanted, orders, strict=True)]
        gradients = self.emit(ATTENTION_BACKWARD, args, given, **self.attrs(), orders=orders)
        for gradient, eqn, order in zip(gradients, wanted, orders, strict=True):
            self.settle(gradient, eqn, way_back(order))
        dk, back = gradients[1], way_back(orders[1])
        self.settle(dk, backward.dk_transposed, tuple(back[d] for d in swapped(dk)))
        return self.equations


def natural(var: Var) -> Order:
    return tuple(range(len(var.type.shape)))
