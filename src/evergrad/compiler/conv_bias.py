"""Convolutions with a bias: kernels add it to what they write.

A pass makes one equation of a native convolution and of the addition of its bias: ``conv`` with a
third argument, which :mod:`.conv` takes.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from evergrad.compiler.units import Values
from evergrad.compiler.vector_text import is_native
from evergrad.core.trace import Equation, Graph, Var


def fits(eqn: Equation) -> bool:
    """Whether there are kernels for a convolution."""
    types = [a.type for a in eqn.args] + [eqn.outs[0].type]
    return (
        is_native(types[-1].dtype)
        and all(t.dtype is types[-1].dtype and 0 < t.numel < 1 << 31 for t in types)
        and len(eqn.attrs["windows"].size) <= 2
    )


def join_biases(graph: Graph) -> Graph:
    """The graph with biases as arguments of convolutions."""
    values = Values(graph)
    joined: dict[int, Equation] = {}
    gone: set[int] = set()
    for eqn in graph.equations:
        if eqn.op.name != "conv" or eqn.attrs["windows"].is_pointwise or not fits(eqn):
            continue
        found = _added(values, eqn.outs[0])
        if found is not None:
            addition, bias = found
            gone.add(id(addition))
            joined[id(eqn)] = Equation(eqn.rule, (*eqn.args, bias), addition.outs, eqn.site)
    if not joined:
        return graph
    equations = [joined.get(id(eqn), eqn) for eqn in graph.equations if id(eqn) not in gone]
    return Graph(graph.inputs, (), equations, graph.outputs)


def _added(values: Values, out: Var) -> tuple[Equation, Var] | None:
    """The equation that adds a bias to the result of a convolution, if that is all the result is
    for, and the bias."""
    users = list(values.users(out))
    if len(users) != 1 or users[0].op.name != "add" or values.escapes(out):
        return None
    others = [arg for arg in users[0].args if arg is not out]
    if len(others) != 1 or not _is_bias(values, others[0], out):
        return None
    return users[0], others[0]


def _is_bias(values: Values, given: Any, out: Var) -> bool:
    """Whether an argument is an input of the graph with a number for each channel."""
    if not isinstance(given, Var) or values.root(given) in values.maker:
        return False
    if given.type.dtype is not out.type.dtype or len(given.type.shape) > len(out.type.shape):
        return False
    laid = np.broadcast_to(given.layout, out.type.shape)
    pixels = (0,) * (laid.ndim - 2)
    return laid.strides == (0, given.layout.itemsize, *pixels)
