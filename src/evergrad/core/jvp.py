"""Forward mode: the jvp of a graph, equation by equation."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.bind import as_operand_tensor
from evergrad.core.interpret import write_back
from evergrad.core.namespace import ops
from evergrad.core.node import next_sequence
from evergrad.core.op import Op
from evergrad.core.state import STATE, using, without_autocast
from evergrad.core.tensor import Tensor, current_node
from evergrad.core.trace import Graph, Var
from evergrad.core.types import Attrs
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

_grad: ExtensionPoint[..., tuple[Tensor, ...]] = ExtensionPoint("grad")

Tangent = Tensor | None


@without_autocast
def jvp_graph(
    graph: Graph, primals: Sequence[Tensor], tangents: Sequence[Tangent]
) -> tuple[list[Tensor], list[Tangent]]:
    """The outputs of a graph and their tangents; ``None`` is a tangent of zero."""
    graph = graph.inlined()
    since = next_sequence()
    env: dict[Var, Tensor] = dict(zip(graph.inputs, primals, strict=True))
    env.update(graph.captures)
    tangent_of: dict[Var, Tensor] = {
        var: t for var, t in zip(graph.inputs, tangents, strict=True) if t is not None
    }
    for eqn in graph.equations:
        args = [env[a] if isinstance(a, Var) else a for a in eqn.args]
        out = eqn.apply(*args)
        single = eqn.op.outputs == 1
        env.update(zip(eqn.outs, (out,) if single else out, strict=True))
        given = [tangent_of.get(a) if isinstance(a, Var) else None for a in eqn.args]
        if all(t is None for t in given) or not eqn.op.differentiable:
            continue
        typed = [
            as_operand_tensor(a, t) for a, t in zip(args, eqn.specialization.operands, strict=True)
        ]
        with using(grad=False, no_grad=True) if eqn.no_grad else nullcontext():
            found = op_jvp(eqn.op, given, out, typed, eqn.attrs)
        for var, t in zip(eqn.outs, (found,) if single else found, strict=True):
            if t is not None:
                tangent_of[var] = t
    for handle, var in graph.writes:
        write_back(handle, env[var], since)
    outs = [env[o] if isinstance(o, Var) else o for o in graph.outputs]
    return outs, [tangent_of.get(o) if isinstance(o, Var) else None for o in graph.outputs]


def op_jvp(
    op: Op,
    tangents: Sequence[Tangent],
    out: object,
    args: Sequence[object],
    attrs: dict[str, object],
) -> Any:
    """The tangent of one op's result: by its jvp, or as the transpose of its vjp."""
    if op.jvp is not None:
        return op.jvp(tangents, out, *args, **attrs)
    return _transposed_vjp(op, tangents, out, args, attrs)


def _transposed_vjp(
    op: Op, tangents: Sequence[Tangent], out: Any, args: Sequence[object], attrs: Attrs
) -> object:
    """The jvp as the transpose of the vjp, which is linear in the cotangent."""
    assert callable(op.vjp)
    recording = STATE.get().grad and any(
        isinstance(t, Tensor) and current_node(t) is not None for t in (*args, *tangents)
    )
    outs = (out,) if op.outputs == 1 else out
    with using(grad=True, saved_hooks=None):
        probes = [
            ops.zeros_like(o).requires_grad_()
            if o.dtype.category >= dtypes.FLOATING
            else ops.zeros_like(o)
            for o in outs
        ]
        grads = op.vjp(probes[0] if op.outputs == 1 else tuple(probes), out, *args, **attrs)
        grads = grads if isinstance(grads, tuple) else (grads,)
        pairs = [
            (g, t)
            for g, t in zip(grads, tangents, strict=True)
            if t is not None and g is not None and g.requires_grad
        ]
        wanted = [p for p in probes if p.requires_grad]
        found: Leaves = [None] * len(wanted)
        if pairs and wanted:
            found = list(
                _grad(
                    [g for g, _ in pairs], wanted, [t for _, t in pairs],
                    create_graph=recording, allow_unused=True,
                )
            )  # fmt: skip
    moved = iter(found)
    result = tuple(next(moved) if p.requires_grad else None for p in probes)
    return result[0] if op.outputs == 1 else result
