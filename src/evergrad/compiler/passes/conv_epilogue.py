"""Fusion of elementwise ops into convolutions, as epilogues of their kernels.

A native convolution is fused with the elementwise ops on its result, values per channel, images of
the same shape and constants, if nothing else reads the intermediates: a bias, batch norm outside of
training, a residual, activations. The result of the convolution itself is never stored.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import numpy as np

from evergrad.compiler.codegen.elementwise_lanes import has_lanes
from evergrad.compiler.codegen.epilogue import MOST_STEPS, Along, Epilogue, Operand, Source, Step
from evergrad.compiler.kernels.conv.epilogue import CONV_EPILOGUE, fits
from evergrad.compiler.passes.rewriter import specialize, with_equations
from evergrad.compiler.schedule.def_use import DefUse
from evergrad.core import dtypes
from evergrad.core.row_facts import Cost
from evergrad.core.shapes import contiguous_strides
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.conv import CONV

# Activations are expensive, and images narrower than this leave many lanes empty.
_WIDE = 48


def fuse_conv_epilogues(graph: Graph) -> Graph:
    """The graph with elementwise ops fused into convolutions as epilogues."""
    values = DefUse(graph)
    fused: dict[int, Equation] = {}
    removed: set[int] = set()
    for eqn in graph.equations:
        if eqn.op is not CONV or eqn.attrs["windows"].is_pointwise or not fits(eqn):
            continue
        followers = _followers(values, eqn.outs[0], removed)
        if followers:
            removed.update(id(e) for e in (eqn, *followers))
            fused[id(followers[-1])] = _fused(eqn, followers)
    if not fused:
        return graph
    kept = [e for e in graph.equations if id(e) in fused or id(e) not in removed]
    return with_equations(graph, [fused.get(id(e), e) for e in kept])


def _followers(values: DefUse, out: Var, taken: Set[int]) -> list[Equation]:
    """The elementwise users of a result that a kernel can apply, up to the last one before which no
    intermediate has another user. Those ``taken`` are of the epilogue of another convolution, which
    reads this one's result (a sum of two convolutions)."""
    inside = {out}
    followers: list[Equation] = []
    best = 0
    users = [*values.uses.get(out, ())]
    while users and len(followers) < MOST_STEPS:
        users.sort(key=lambda eqn: values.position[id(eqn)])
        eqn = users.pop(0)
        if eqn in followers:
            continue
        if id(eqn) in taken or not _can_follow(eqn, inside, out):
            break
        followers.append(eqn)
        inside.add(eqn.outs[0])
        users += values.uses.get(eqn.outs[0], ())
        if _is_closed(values, [out, *(e.outs[0] for e in followers)], followers):
            best = len(followers)
    return followers[:best]


def _is_closed(values: DefUse, results: Sequence[Var], followers: Sequence[Equation]) -> bool:
    """Whether no result but the last has a user outside of the epilogue."""
    known = {id(e) for e in followers}
    return not any(
        var in values.outputs or any(id(e) not in known for e in values.uses.get(var, ()))
        for var in results[:-1]
    )


def _can_follow(eqn: Equation, inside: set[Var], out: Var) -> bool:
    """Whether an equation is elementwise over the result, on results of the epilogue, constants and
    operands that kernels read."""
    is_wide = out.type.dtype is dtypes.float32 and out.type.shape[-1] >= _WIDE
    is_known = has_lanes(eqn.op) and (is_wide or eqn.op.emit.cost is Cost.CHEAP)
    types = [t.dtype for t in (*eqn.specialization.operands, *eqn.specialization.out_types)]
    if not is_known or not eqn.outs[0].type.same(out.type) or set(types) != {out.type.dtype}:
        return False
    others = [arg for arg in eqn.args if isinstance(arg, Var) and arg not in inside]
    return all(_along(arg, out) is not None for arg in others)


def _along(arg: Var, out: Var) -> Along | None:
    """The index map of an operand: one value per channel, one in all, or one per element."""
    if arg.type.dtype is not out.type.dtype or len(arg.type.shape) > len(out.type.shape):
        return None
    shape, size = out.type.shape, arg.layout.itemsize
    strides = np.broadcast_to(arg.layout, shape).strides
    pixels = (0,) * (len(shape) - 2)
    full = tuple(size * stride for stride in contiguous_strides(shape))
    for along, wanted in (
        (Along.SCALAR, (0, 0, *pixels)), (Along.ROW, (0, size, *pixels)), (Along.FULL, full),
    ):  # fmt: skip
        if all(n == 1 or s == w for n, s, w in zip(shape, strides, wanted, strict=True)):
            return along
    return None


def _fused(eqn: Equation, followers: list[Equation]) -> Equation:
    out = eqn.outs[0]
    values, others = {out: 0}, dict[Var, int]()

    def source(arg: Any) -> Source:
        if not isinstance(arg, Var):
            return Source("number", arg)
        if arg in values:
            return Source("value", values[arg])
        return Source("operand", others.setdefault(arg, len(others)))

    steps = []
    for follower in followers:
        made = follower.specialization
        types = tuple(t.dtype for t in made.operands)
        attrs = tuple(sorted(follower.attrs.items()))
        sources = tuple(source(arg) for arg in follower.args)
        steps.append(Step(follower.op, types, made.out_types[0].dtype, attrs, sources))
        values[follower.outs[0]] = len(steps)
    operands = [Operand(arg.type.dtype, _along(arg, out) or Along.FULL) for arg in others]
    epilogue = Epilogue(out.type.dtype, tuple(operands), (), tuple(steps), (len(steps),))
    args = [*eqn.args, *others]
    specialization = specialize(CONV_EPILOGUE, *args, **eqn.attrs, epilogue=epilogue)
    return Equation(specialization, tuple(args), followers[-1].outs, eqn.location)
