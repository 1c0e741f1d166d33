"""Convolutions with what follows them element by element: kernels do it to what they write.

A pass makes one equation of a native convolution and of what alone reads its result: sums with and
products by a number for each channel (a bias, batch norm outside of training), and ``relu``. The
result of the convolution itself never lies anywhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.compiler.passes import rule_of
from evergrad.compiler.units import Values
from evergrad.compiler.vector_text import Text, is_native
from evergrad.core.op import NONDIFFERENTIABLE, TABLE, Op
from evergrad.core.shapes import TensorType
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.sliding import Windows

# What is done to a result, in its order: the names of ops. All but relu take another argument.
Then = tuple[str, ...]

_BY_CHANNEL = {"add": "fadd", "sub": "fsub", "mul": "fmul"}


# -- the op -------------------------------------------------------------------------------------


def _type(
    x: TensorType, w: TensorType, *others: TensorType, windows: Windows, groups: int, then: Then
) -> TensorType:
    found: TensorType = TABLE["conv"].type(x, w, windows=windows, groups=groups)
    return found


def _eval(x: Any, w: Any, *others: Any, windows: Windows, groups: int, then: Then) -> Any:
    result = TABLE["conv"].eval(x, w, windows=windows, groups=groups)
    given = iter(others)
    for name in then:
        result = TABLE[name].eval(result, *(() if name == "relu" else (next(given),)))
    return result


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
    """The equations behind each other that a kernel can do to the elements of a result."""
    found: list[Equation] = []
    while True:
        users = values.uses.get(out, ())
        if len(users) != 1 or out in values.outputs or not _can_follow(users[0], out):
            return found
        found.append(users[0])
        out = users[0].outs[0]


def _can_follow(eqn: Equation, out: Var) -> bool:
    if eqn.attrs or not eqn.outs[0].type.same(out.type):
        return False
    if eqn.op.name == "relu":
        return True
    if eqn.op.name not in _BY_CHANNEL or (eqn.op.name == "sub" and eqn.args[0] is not out):
        return False
    others = [arg for arg in eqn.args if arg is not out]
    return len(others) == 1 and _is_by_channel(others[0], out)


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
    args, out = list(eqn.args), eqn.outs[0]
    for step in followers:
        args += [arg for arg in step.args if arg is not out]
        out = step.outs[0]
    then = tuple(step.op.name for step in followers)
    rule = rule_of("conv_then", *args, **eqn.attrs, then=then)
    return Equation(rule, tuple(args), (out,), eqn.site)


# -- in kernels ---------------------------------------------------------------------------------


def pointers(then: Then) -> tuple[str, ...]:
    """What a kernel between x and y takes."""
    others = [f"{name}{n}" for n, name in enumerate(then) if name != "relu"]
    return ("x", "weight", *others, "y")


def then(text: Text, steps: Then, value: str, output: str) -> str:
    """Elements of an output, counted through all groups, after these steps."""
    many = text.vector.text
    for n, name in enumerate(steps):
        if name == "relu":
            below = text.op(f"fcmp olt {many} {value}, zeroinitializer")
            masks = text.vector.of("i1")
            value = text.op(f"select {masks} {below}, {many} zeroinitializer, {many} {value}")
        else:
            other = text.load(text.at(text[f"{name}{n}"], output))
            other = text.splat(other, text.vector.element)
            value = text.op(f"{_BY_CHANNEL[name]} {many} {value}, {other}")
    return value
