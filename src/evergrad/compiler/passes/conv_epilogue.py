"""Epilogues of convolutions: elementwise ops that kernels apply before they store.

A pass fuses a native convolution with the elementwise ops on its result, values per channel and
constants, if nothing else reads the intermediates: a bias, batch norm outside of training,
activations. The result of the convolution itself is never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evergrad.compiler.codegen.elementwise_lanes import Lanes
from evergrad.compiler.codegen.ir_builder import KernelBuilder, is_native
from evergrad.compiler.passes.rewriter import specialize, with_equations
from evergrad.compiler.schedule.def_use import DefUse
from evergrad.core import dtypes
from evergrad.core.op import NONDIFFERENTIABLE, TABLE, Op
from evergrad.core.row_facts import Cost, lowered
from evergrad.core.shapes import TensorType
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.conv import CONV
from evergrad.ops.rows.pool.geometry import Windows

# Longer epilogues are separate loops.
_MOST_OPS = 16
# Activations are expensive, and images narrower than this leave many lanes empty.
_WIDE = 48


class EpilogueOp(NamedTuple):
    """An op and its operands: (``result``, n) is the result of op n (0: the convolution),
    (``channel``, n) the values per channel in further argument n, (``number``, x) a constant."""

    name: str
    operands: tuple[tuple[str, Any], ...]


Epilogue = tuple[EpilogueOp, ...]


# -- the op -------------------------------------------------------------------------------------


def _type(
    x: TensorType,
    w: TensorType,
    *others: TensorType,
    windows: Windows,
    groups: int,
    epilogue: Epilogue,
) -> TensorType:
    found: TensorType = CONV.type(x, w, windows=windows, groups=groups)
    return found


def _eval(
    x: object, w: object, *others: object, windows: Windows, groups: int, epilogue: Epilogue
) -> Any:
    results = [CONV.eval(x, w, windows=windows, groups=groups)]
    for op in epilogue:
        found = {"result": results, "channel": others}
        operands = [found[kind][n] if kind in found else n for kind, n in op.operands]
        results.append(TABLE[op.name].eval(*operands))
    return results[-1]


CONV_EPILOGUE = Op(
    "conv_epilogue", family="custom", type=_type, eval=_eval, vjp=NONDIFFERENTIABLE, jvp=None,
    batch=None, emit=lowered("kernels.conv"), doc="A convolution with an elementwise epilogue.",
)  # fmt: skip


def epilogue_of(eqn: Equation) -> Epilogue:
    """The epilogue of a convolution; empty if it has none."""
    found: Epilogue = eqn.attrs.get("epilogue", ())
    return found


# -- the pass -----------------------------------------------------------------------------------


def fits(eqn: Equation) -> bool:
    """Whether there are kernels for a convolution."""
    types = [a.type for a in eqn.args] + [eqn.outs[0].type]
    return (
        is_native(types[-1].dtype)
        and all(t.dtype is types[-1].dtype and 0 < t.numel < 1 << 31 for t in types)
        and len(eqn.attrs["windows"].size) <= 2
    )


def fuse_conv_epilogues(graph: Graph) -> Graph:
    """The graph with elementwise ops fused into convolutions as epilogues."""
    values = DefUse(graph)
    fused: dict[int, Equation] = {}
    removed: set[int] = set()
    for eqn in graph.equations:
        if eqn.op is not CONV or eqn.attrs["windows"].is_pointwise or not fits(eqn):
            continue
        followers = _followers(values, eqn.outs[0])
        if followers:
            removed.update(id(e) for e in (eqn, *followers))
            fused[id(followers[-1])] = _fused(eqn, followers)
    if not fused:
        return graph
    kept = [e for e in graph.equations if id(e) in fused or id(e) not in removed]
    return with_equations(graph, [fused.get(id(e), e) for e in kept])


def _followers(values: DefUse, out: Var) -> list[Equation]:
    """The elementwise users of a result that a kernel can apply, up to the last one before which no
    intermediate has another user."""
    inside = {out}
    followers: list[Equation] = []
    best = 0
    users = [*values.uses.get(out, ())]
    while users and len(followers) < _MOST_OPS:
        users.sort(key=lambda eqn: values.position[id(eqn)])
        eqn = users.pop(0)
        if eqn in followers:
            continue
        if not _can_follow(eqn, inside, out):
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
    """Whether the operands of an equation are results of the epilogue, values per channel and
    constants."""
    is_wide = out.type.dtype is dtypes.float32 and out.type.shape[-1] >= _WIDE
    emit = eqn.op.emit
    is_known = emit.lanes and (is_wide or emit.cost is Cost.CHEAP)
    if not is_known or eqn.attrs or not eqn.outs[0].type.same(out.type):
        return False
    others = [arg for arg in eqn.args if isinstance(arg, Var) and arg not in inside]
    return all(_is_per_channel(arg, out) for arg in others)


def _is_per_channel(arg: object, out: Var) -> bool:
    """Whether an argument has one value per channel."""
    if not isinstance(arg, Var) or arg.type.dtype is not out.type.dtype:
        return False
    if len(arg.type.shape) > len(out.type.shape):
        return False
    expanded = np.broadcast_to(arg.layout, out.type.shape)
    pixels = (0,) * (expanded.ndim - 2)
    return expanded.strides == (0, arg.layout.itemsize, *pixels)


def _fused(eqn: Equation, followers: list[Equation]) -> Equation:
    args, results = list(eqn.args), [eqn.outs[0]]
    epilogue = []
    for follower in followers:
        operands: list[tuple[str, Any]] = []
        for arg in follower.args:
            if not isinstance(arg, Var):
                operands.append(("number", arg))
            elif arg in results:
                operands.append(("result", results.index(arg)))
            else:
                operands.append(("channel", len(args) - len(eqn.args)))
                args.append(arg)
        epilogue.append(EpilogueOp(follower.op.name, tuple(operands)))
        results.append(follower.outs[0])
    specialization = specialize(CONV_EPILOGUE, *args, **eqn.attrs, epilogue=tuple(epilogue))
    return Equation(specialization, tuple(args), (results[-1],), eqn.location)


# -- in kernels ---------------------------------------------------------------------------------


def pointers(epilogue: Epilogue) -> tuple[str, ...]:
    """The pointer arguments of a kernel, from x to y."""
    others = [f"channel{n}" for op in epilogue for kind, n in op.operands if kind == "channel"]
    return ("x", "weight", *others, "y")


def emit_epilogue(ir: KernelBuilder, epilogue: Epilogue, value: str, output: str) -> str:
    """Elements of an output channel, counted over all groups, after the epilogue."""
    lanes = Lanes(ir)
    results = [value]

    def operand(kind: str, what: Any) -> str:
        if kind == "result":
            return results[int(what)]
        if kind == "number":
            return lanes.number(what)
        return ir.splat(ir.load(ir.at(ir[f"channel{what}"], output)), ir.vector.element)

    for op in epilogue:
        operands = [operand(kind, what) for kind, what in op.operands]
        emitted = TABLE[op.name].emit.function
        assert emitted is not None
        results.append(emitted(lanes, *operands))
    return results[-1]
