"""A transposed result of a product is the product of the transposed factors in the other order.

Transposes of factors are flags of a product. Where the result is transposed and copied, as the
gradient of a weight that is used as ``weight.t()``, the copy would read with strides; casts of
mixed precision may be between::

    clone(permute(cast(matmul(a, b))))          cast(matmul(permute(b), permute(a)))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from evergrad.compiler.kernels.gemm.pairs import PAIRED_MATMUL, can_pair
from evergrad.compiler.passes.rewriter import rewrite
from evergrad.compiler.schedule.def_use import DefUse, def_use_of
from evergrad.core.bind import bind
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.types import Args
from evergrad.ops.rows.elementwise.basic import CAST, CLONE
from evergrad.ops.rows.matmul import MATMUL
from evergrad.ops.rows.movement.views import PERMUTE, permute

if TYPE_CHECKING:
    from evergrad.compiler.passes.rewriter import Environment

# Of bfloat16 it is a product of pairs on processors that have one (``decompose.py``).
_PRODUCTS = (MATMUL, PAIRED_MATMUL)


def transpose_products(graph: Graph) -> Graph:
    """The graph with products in the layout that their transposed results are copied to."""
    if not any(_is_transposition(eqn) for eqn in graph.equations):
        return graph
    values = def_use_of(graph)
    kept = values.outputs | {var for _, var in graph.writes}
    copies = {id(e): found for e in graph.equations if (found := _source_of(e, values, kept))}
    if not copies:
        return graph
    transposed: dict[Var, Var] = {}

    def transposition(var: Var) -> Var:
        if var in transposed:
            return transposed[var]
        out: Var = permute(fresh(var, var.type), (1, 0))._value
        transposed[out] = var
        return out

    def replace(trace: Trace, eqn: Equation, args: Args, env: Environment) -> Any:
        if _is_transposition(eqn):
            return (transposition(args[0]),)
        if id(eqn) not in copies:
            return None
        product, chain = copies[id(eqn)]
        factors = [transposition(env[var]) for var in reversed(product.args)]
        result: Tensor = bind(product.op, *[fresh(var, var.type) for var in factors])
        for cast in chain:
            result = bind(CAST, result, **cast.attrs)
        return (result._value,)

    return rewrite(graph, replace)


class _Source(NamedTuple):
    """A product whose transposed result is copied, and the casts between."""

    product: Equation
    casts: list[Equation]


def _is_transposition(eqn: Equation) -> bool:
    return eqn.op is PERMUTE and eqn.attrs["order"] == (1, 0) and isinstance(eqn.args[0], Var)


def _source_of(eqn: Equation, values: DefUse, kept: set[Var]) -> _Source | None:
    """The product that a copy of a transposed matrix comes from, if nothing else reads it."""
    if eqn.op is not CLONE:
        return None
    step = values.producer.get(eqn.args[0])
    if step is None or not _is_transposition(step):
        return None
    casts: list[Equation] = []
    while _is_temporary(step, values, kept):
        step = values.producer.get(step.args[0])
        if step is None or step.op not in (CAST, *_PRODUCTS):
            return None
        if step.op is CAST:
            casts.append(step)
        elif _is_temporary(step, values, kept) and _can_transpose(step):
            return _Source(step, casts[::-1])
        else:
            return None
    return None


def _can_transpose(product: Equation) -> bool:
    """Whether it is of matrices whose transposes the same kernels multiply."""
    if not all(isinstance(a, Var) and len(a.type.shape) == 2 for a in product.args):
        return False
    a, b = product.args
    return product.op is MATMUL or can_pair(b.layout.T, a.layout.T)


def _is_temporary(eqn: Equation, values: DefUse, kept: set[Var]) -> bool:
    """Whether one equation reads its result, which is no result of the graph."""
    return eqn.outs[0] not in kept and len(values.uses.get(eqn.outs[0], [])) == 1
