"""Gradients of small weights, summed over halves of the rows.

A weight's gradient is a product ``aᵀ b`` as deep as there are rows, and each piece of it reads all
rows of a part of the columns: those that another thread has just made have to come from its cache.
Said as two products over half of the rows each, and a sum, every thread multiplies the rows that it
made itself. The sum is the work of the loop that reads the gradient, such as an update. Wider
factors are laid out anew before they are multiplied, once for all threads, and stay whole.
"""

from __future__ import annotations

from typing import Any

from evergrad.compiler.kernels.gemm.tiling import NEAR_COLUMNS, NEAR_ROWS
from evergrad.compiler.passes.rewriter import copied
from evergrad.core import dtypes
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var

# With fewer rows there is little to fetch. Halves are whole steps of tiles.
_DEEP = 512
_STEP = 32
# With fewer columns other kernels multiply.
_FEW = 16
# Of factors with more bytes little has stayed in the caches of those who made them.
_STAYING = 1 << 21


def halve_products(graph: Graph) -> Graph:
    """The graph with deep products of two matrices that have the depth in rows cut in two."""
    turned = {e.outs[0]: e.args[0] for e in graph.equations if _is_transposition(e)}
    deep = {id(eqn) for eqn in graph.equations if _is_deep(eqn, turned)}
    if not deep:
        return graph

    def replace(trace: Trace, eqn: Equation, args: tuple[Any, ...], env: Any) -> Any:
        if id(eqn) not in deep:
            return None
        a, b = _halves(env[turned[eqn.args[0]]]), _halves(args[1])
        both = a.permute((0, 2, 1)) @ b
        return ((both[0] + both[1])._value,)

    return copied(graph, replace)


def _is_transposition(eqn: Equation) -> bool:
    return eqn.op.name == "permute" and eqn.attrs["order"] == (1, 0)


def _is_deep(eqn: Equation, turned: dict[Var, Var]) -> bool:
    if eqn.op.name != "matmul" or eqn.args[0] not in turned:
        return False
    a, b, out = turned[eqn.args[0]], eqn.args[1], eqn.outs[0].type
    if out.dtype not in (dtypes.float32, dtypes.float64) or len(b.type.shape) != 2:
        return False
    if not all(v.layout.flags.c_contiguous for v in (a, b)):
        return False
    depth, (narrow, wide) = b.type.shape[0], sorted(out.shape)
    is_near = _FEW <= narrow <= NEAR_COLUMNS and wide <= NEAR_ROWS
    is_near = is_near and a.type.nbytes + b.type.nbytes <= _STAYING
    return is_near and depth >= _DEEP and depth % (2 * _STEP) == 0


def _halves(var: Var) -> Tensor:
    rows, columns = var.type.shape
    found: Tensor = fresh(var, var.type).reshape((2, rows // 2, columns))
    return found
