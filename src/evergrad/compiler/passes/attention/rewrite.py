"""Replacement of attentions: one equation for each, one for its derivative.

An attention is described by an :class:`Attended`, whether it was a composite or was matched in
elementary equations. Where a result is permuted afterwards (heads next to features, as a rule),
the kernel stores it in that order, and gradients in the layouts of queries, keys and values:
nothing has to be copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from evergrad.compiler.kernels.attention.rows import (
    ATTENTION,
    ATTENTION_BACKWARD,
    Order,
    Steps,
    batch_of,
    laid_out,
    way_back,
)
from evergrad.compiler.passes.attention.dropout import Noise
from evergrad.compiler.passes.attention.patterns import Facts, swapped
from evergrad.compiler.passes.rewriter import specialize, with_equations, with_layouts
from evergrad.core import dtypes
from evergrad.core.op import Op
from evergrad.core.shapes import Shape
from evergrad.core.source_location import SourceLocation
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.elementwise.basic import CAST, CLONE
from evergrad.ops.rows.movement.strided import AS_STRIDED
from evergrad.ops.rows.movement.views import PERMUTE, RESHAPE
from evergrad.ops.rows.reduce.sums import SUM


class Gradients(NamedTuple):
    """The gradients for one cotangent of the result (``None``: that one is not computed), emitted
    before the equation at a position."""

    position: int
    cotangent: Var
    dq: Var | None
    dk: Var | None
    dv: Var | None


class Attended(NamedTuple):
    """One attention of a graph, in the terms of :mod:`evergrad.compiler.kernels.attention.rows`;
    emitted before the equation at a position. Keys and their gradients have their last two
    dimensions swapped if they are ``transposed``. ``gone`` are the equations (``id``) that it
    replaces."""

    position: int
    location: SourceLocation | None
    q: Var
    k: Var
    v: Var
    transposed: bool
    result: Var
    steps: Steps
    groups: int
    masks: Sequence[Var]
    noise: Noise | None
    empty_is_zero: bool
    gradients: Sequence[Gradients]
    gone: set[int]


def replaced(graph: Graph, facts: Facts, found: Sequence[Attended]) -> Graph:
    """The graph with attentions as single equations."""
    new: dict[int, list[Equation]] = {}
    gone: set[int] = set()
    masks: dict[Var, Var] = {}
    for attention in found:
        gone |= attention.gone
        replacement = _Replacement(facts, attention, masks)
        new.setdefault(attention.position, []).extend(replacement.forward())
        for gradients in attention.gradients:
            new.setdefault(gradients.position, []).extend(replacement.backward(gradients))
    equations: list[Equation] = []
    for number, eqn in enumerate(graph.equations):
        equations += new.get(number, ())
        if id(eqn) not in gone:
            equations.append(eqn)
    return with_layouts(with_equations(graph, equations)).without_dead_code()


class _Replacement:
    """The equations that replace an attention. ``transposed`` holds masks stored key by key, shared
    by all attentions that read them."""

    def __init__(self, facts: Facts, attention: Attended, transposed: dict[Var, Var]) -> None:
        self.facts = facts
        self.attention = attention
        self.transposed = transposed
        self.equations: list[Equation] = []

    def emit(
        self, op: Op, args: Sequence[Var], outs: Sequence[Var | None] = (), **attrs: object
    ) -> tuple[Var, ...]:
        """Add an equation; its results are given values where these have its types, or new ones."""
        specialization = specialize(op, *args, **attrs)
        location, trace = self.attention.location, self.attention.result.trace
        given = [*outs, *[None] * (specialization.op.outputs - len(outs))]
        results = tuple(
            out if out is not None and out.type.same(type) else Var(type, trace)
            for out, type in zip(given, specialization.out_types, strict=True)
        )
        self.equations.append(Equation(specialization, tuple(args), results, location))
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

    def settle(self, var: Var, out: Var | None, order: Order) -> None:
        """Define a value of the graph by a new one, cast and permuted as needed, unless it is that
        value already. A gradient is summed over the batch that its operand was expanded to."""
        if out is None or out is var:
            return
        permutes = order != natural(var)
        if laid_out(var.type.shape, order) != out.type.shape:
            dims = _expanded(out.type.shape, var.type.shape)
            (total,) = self.emit(SUM, [var], dims=dims, keepdim=True)
            if total.type.dtype is not out.type.dtype:
                (total,) = self.emit(CAST, [total], dtype=out.type.dtype)
            self.emit(RESHAPE, [total], [out], shape=out.type.shape)
            return
        if var.type.dtype is not out.type.dtype:
            (var,) = self.emit(CAST, [var], [] if permutes else [out], dtype=out.type.dtype)
        if permutes:
            self.emit(PERMUTE, [var], [out], order=order)

    def as_stored(self, out: Var | None, order: Order) -> Var | None:
        """The value, if a kernel computes it without a cast or permutation."""
        if out is None or order != natural(out):
            return None
        return out if out.type.dtype is dtypes.float32 else None

    def drawn(self) -> tuple[Var, ...]:
        noise = self.attention.noise
        return () if noise is None else noise.drawn

    def attrs(self) -> dict[str, Any]:
        found = self.attention
        dropout = None if found.noise is None else found.noise.dropout
        return {"steps": tuple(found.steps), "groups": found.groups, "dropout": dropout}

    def may_permute(self, var: Var) -> bool:
        """Whether a result may have another layout."""
        return self.attention.groups == 1 and not self.facts.is_seen_by(var, AS_STRIDED)

    def order_wanted(self, y: Var) -> Order:
        """The order of dimensions in which a result is used."""
        own = natural(y)
        users = self.facts.users(y, PERMUTE) if self.may_permute(y) else ()
        orders = [eqn.attrs["order"] for eqn in users]
        return next((order for order in orders if order[-1] == own[-1]), own)

    def order_like(self, strides: Sequence[int], gradient: Var | None, shape: Shape) -> Order:
        """The order of dimensions that gives a gradient these strides, its operand's."""
        batch = batch_of(*(x.type for x in self.operands))
        own = tuple(range(len(batch) + 2))
        if gradient is None or not self.may_permute(gradient):
            return own
        if 0 in strides or batch != shape[:-2]:
            return own
        return (*sorted(own[:-1], key=lambda d: -strides[d]), own[-1])

    def forward(self) -> list[Equation]:
        found = self.attention
        for mask in found.masks:
            if mask not in self.transposed:
                self.transposed[mask] = self.by_key(mask)
        k = self.transpose(found.k) if found.transposed else found.k
        self.operands = [self.wide(found.q), self.wide(k), self.wide(found.v)]
        self.masks = [self.transposed[mask] for mask in found.masks]
        order = self.order_wanted(found.result)
        y, self.stats = self.emit(
            ATTENTION, [*self.operands, *self.masks, *self.drawn()],
            [self.as_stored(found.result, order)], **self.attrs(),
            empty_is_zero=found.empty_is_zero, order=order,
        )  # fmt: skip
        self.settle(y, found.result, way_back(order))
        return self.equations

    def backward(self, gradients: Gradients) -> list[Equation]:
        self.equations = []
        found = self.attention
        g, y = self.wide(gradients.cotangent), self.wide(found.result)
        args = [*self.operands, g, y, self.stats, *self.masks, *self.drawn()]
        orders = tuple(
            self.order_like(strides, gradient, shape)
            for (strides, shape), gradient in zip(self.layouts(), gradients[2:], strict=True)
        )
        wanted = (gradients.dq, None if found.transposed else gradients.dk, gradients.dv)
        given = [self.as_stored(out, order) for out, order in zip(wanted, orders, strict=True)]
        made = self.emit(ATTENTION_BACKWARD, args, given, **self.attrs(), orders=orders)
        for gradient, out, order in zip(made, wanted, orders, strict=True):
            self.settle(gradient, out, way_back(order))
        if found.transposed:
            dk, back = made[1], way_back(orders[1])
            self.settle(dk, gradients.dk, tuple(back[d] for d in swapped(dk)))
        return self.equations

    def layouts(self) -> list[tuple[Sequence[int], Shape]]:
        """The strides and shapes of queries, keys and values."""
        q, k, v = ((x.layout.strides, x.type.shape) for x in self.attention[2:5])
        if self.attention.transposed:
            (*lead, columns, rows), (*batch, width, keys) = k
            k = (*lead, rows, columns), (*batch, keys, width)
        return [q, k, v]


def _expanded(shape: Shape, full: Shape) -> tuple[int, ...]:
    """The dimensions of a full shape that another one is expanded in."""
    lead = len(full) - len(shape)
    return tuple(d for d, n in enumerate(full) if d < lead or shape[d - lead] != n)


def natural(var: Var) -> Order:
    return tuple(range(len(var.type.shape)))
