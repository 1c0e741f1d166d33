"""Convolutions with what follows them element by element: kernels do it to what they write.

A pass makes one equation of a native convolution and of what is made of its result, numbers for
each channel and constants alone, if nothing else reads what lies between: a bias, batch norm
outside of training, activations. The result of the convolution itself never lies anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from evergrad.compiler.codegen.elementwise import ELEMENTWISE
from evergrad.compiler.codegen.elementwise_lanes import CURVES, PLAIN, Lanes
from evergrad.compiler.codegen.ir_builder import Text, is_native
from evergrad.compiler.passes.rewriter import rule_of
from evergrad.compiler.schedule.nodes import Values
from evergrad.core import dtypes
from evergrad.core.op import NONDIFFERENTIABLE, TABLE, Op
from evergrad.core.shapes import TensorType
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.pool.geometry import Windows

# More steps than this are left to a loop.
_MOST_STEPS = 16
# Curves take long, and rows that are shorter than this leave many lanes empty.
_WIDE = 48


class Step(NamedTuple):
    """An op and what it is given: the result after so many steps (0: that of the convolution), the
    numbers for each channel in so many further arguments, or a constant."""

    name: str
    given: tuple[tuple[str, Any], ...]


# What is done to a result, in its order.
Then = tuple[Step, ...]


# -- the op -------------------------------------------------------------------------------------


def _type(
    x: TensorType, w: TensorType, *others: TensorType, windows: Windows, groups: int, then: Then
) -> TensorType:
    found: TensorType = TABLE["conv"].type(x, w, windows=windows, groups=groups)
    return found


def _eval(x: Any, w: Any, *others: Any, windows: Windows, groups: int, then: Then) -> Any:
    results = [TABLE["conv"].eval(x, w, windows=windows, groups=groups)]
    for step in then:
        found = {"result": results, "channel": others}
        given = [found[kind][n] if kind in found else n for kind, n in step.given]
        results.append(TABLE[step.name].eval(*given))
    return results[-1]


CONV_THEN = Op(
    "conv_then", family="custom", type=_type, eval=_eval, vjp=NONDIFFERENTIABLE, jvp=None,
    batch=None, doc="A convolution and what is done to each element of its result.",
)  # fmt: skip


def then_of(eqn: Equation) -> Then:
    """What is done to the result of an equation's convolution."""
    found: Then = eqn.attrs.get("then", ())
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


def join_followers(graph: Graph) -> Graph:
    """The graph with convolutions that do what follows them."""
    values = Values(graph)
    joined: dict[int, Equation] = {}
    gone: set[int] = set()
    for eqn in graph.equations:
        if eqn.op.name != "conv" or eqn.attrs["windows"].is_pointwise or not fits(eqn):
            continue
        followers = _followers(values, eqn.outs[0])
        if followers:
            gone.update(id(step) for step in (eqn, *followers))
            joined[id(followers[-1])] = _joined(eqn, followers)
    if not joined:
        return graph
    kept = [e for e in graph.equations if id(e) in joined or id(e) not in gone]
    return Graph(graph.inputs, (), [joined.get(id(e), e) for e in kept], graph.outputs)


def _followers(values: Values, out: Var) -> list[Equation]:
    """The equations that a kernel can do to the elements of a result, up to the last one of which
    nothing before is read by anybody else."""
    inside = {out}
    steps: list[Equation] = []
    best = 0
    users = [*values.uses.get(out, ())]
    while users and len(steps) < _MOST_STEPS:
        users.sort(key=lambda eqn: values.position[id(eqn)])
        eqn = users.pop(0)
        if eqn in steps:
            continue
        if not _can_follow(eqn, inside, out):
            break
        steps.append(eqn)
        inside.add(eqn.outs[0])
        users += values.uses.get(eqn.outs[0], ())
        if _is_closed(values, [out, *(e.outs[0] for e in steps)], steps):
            best = len(steps)
    return steps[:best]


def _is_closed(values: Values, made: Sequence[Var], steps: Sequence[Equation]) -> bool:
    """Whether nobody but the steps reads any result but the last."""
    known = {id(step) for step in steps}
    return not any(
        var in values.outputs or any(id(e) not in known for e in values.uses.get(var, ()))
        for var in made[:-1]
    )


def _can_follow(eqn: Equation, inside: set[Var], out: Var) -> bool:
    """Whether an equation is made of results that are inside, numbers for each channel and
    constants."""
    is_wide = out.type.dtype is dtypes.float32 and out.type.shape[-1] >= _WIDE
    is_known = eqn.op.name in PLAIN or (eqn.op.name in CURVES and is_wide)
    if not is_known or eqn.attrs or not eqn.outs[0].type.same(out.type):
        return False
    others = [arg for arg in eqn.args if isinstance(arg, Var) and arg not in inside]
    return all(_is_by_channel(arg, out) for arg in others)


def _is_by_channel(given: Any, out: Var) -> bool:
    """Whether an argument has a number for each channel."""
    if not isinstance(given, Var) or given.type.dtype is not out.type.dtype:
        return False
    if len(given.type.shape) > len(out.type.shape):
        return False
    laid = np.broadcast_to(given.layout, out.type.shape)
    pixels = (0,) * (laid.ndim - 2)
    return laid.strides == (0, given.layout.itemsize, *pixels)


def _joined(eqn: Equation, followers: list[Equation]) -> Equation:
    args, results = list(eqn.args), [eqn.outs[0]]
    steps = []
    for follower in followers:
        given: list[tuple[str, Any]] = []
        for arg in follower.args:
            if not isinstance(arg, Var):
                given.append(("number", arg))
            elif arg in results:
                given.append(("result", results.index(arg)))
            else:
                given.append(("channel", len(args) - len(eqn.args)))
                args.append(arg)
        steps.append(Step(follower.op.name, tuple(given)))
        results.append(follower.outs[0])
    specialization = rule_of("conv_then", *args, **eqn.attrs, then=tuple(steps))
    return Equation(specialization, tuple(args), (results[-1],), eqn.location)


# -- in kernels ---------------------------------------------------------------------------------


def pointers(then: Then) -> tuple[str, ...]:
    """What a kernel between x and y takes."""
    others = [f"channel{n}" for step in then for kind, n in step.given if kind == "channel"]
    return ("x", "weight", *others, "y")


def then(text: Text, steps: Then, value: str, output: str) -> str:
    """Elements of an output, counted through all groups, after these steps."""
    lanes = Lanes(text)
    results = [value]

    def operand(kind: str, what: Any) -> str:
        if kind == "result":
            return results[int(what)]
        if kind == "number":
            return lanes.number(what)
        return text.splat(text.load(text.at(text[f"channel{what}"], output)), text.vector.element)

    for step in steps:
        given = [operand(kind, what) for kind, what in step.given]
        results.append(ELEMENTWISE[step.name](lanes, *given))
    return results[-1]
