"""Split-K for gradients of small weights.

A weight's gradient is a product ``aᵀ b`` whose K dimension is the batch, and each tile of it reads
some columns of the whole batch, half of them from another core's cache. As two products over half
of the batch each and a sum, every thread multiplies what it computed itself. The sum is fused into
the consumer of the gradient, such as an update. Wider operands are packed, once for all threads,
and stay whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.compiler.kernels.gemm.tiling import UNPACKED_A_STRIDE, UNPACKED_B_STRIDE
from evergrad.compiler.native.target import machine
from evergrad.compiler.passes.rewriter import rewrite
from evergrad.core import dtypes
from evergrad.core.tensor import Tensor, fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.types import Args
from evergrad.ops.rows.matmul import MATMUL
from evergrad.ops.rows.movement.views import PERMUTE

if TYPE_CHECKING:
    from evergrad.compiler.passes.rewriter import Environment

# A smaller K has little to fetch. Halves are multiples of the tile's unrolling.
_DEEP = 512
_STEP = 32
# Fewer columns are multiplied by skinny kernels.
_FEW = 16
# Larger operands do not stay in the cache of the core that computed them.
_STAYING = 2 * machine().l2_bytes


def split_k(graph: Graph) -> Graph:
    """The graph with large-K products of two matrices whose K dimension is outermost split."""
    transposed = {e.outs[0]: e.args[0] for e in graph.equations if _is_transposition(e)}
    deep = {id(eqn) for eqn in graph.equations if _is_deep(eqn, transposed)}
    if not deep:
        return graph

    def replace(trace: Trace, eqn: Equation, args: Args, env: Environment) -> Any:
        if id(eqn) not in deep:
            return None
        a, b = _halves(env[transposed[eqn.args[0]]]), _halves(args[1])
        both = a.permute((0, 2, 1)) @ b
        return ((both[0] + both[1])._value,)

    return rewrite(graph, replace)


def _is_transposition(eqn: Equation) -> bool:
    return eqn.op is PERMUTE and eqn.attrs["order"] == (1, 0)


def _is_deep(eqn: Equation, transposed: dict[Var, Var]) -> bool:
    if eqn.op is not MATMUL or eqn.args[0] not in transposed:
        return False
    a, b, out = transposed[eqn.args[0]], eqn.args[1], eqn.outs[0].type
    if out.dtype not in (dtypes.float32, dtypes.float64) or len(b.type.shape) != 2:
        return False
    if not all(v.layout.flags.c_contiguous for v in (a, b)):
        return False
    depth, (narrow, wide) = b.type.shape[0], sorted(out.shape)
    is_near = _FEW <= narrow <= UNPACKED_A_STRIDE and wide <= UNPACKED_B_STRIDE
    is_near = is_near and a.type.nbytes + b.type.nbytes <= _STAYING
    return is_near and depth >= _DEEP and depth % (2 * _STEP) == 0


def _halves(var: Var) -> Tensor:
    rows, columns = var.type.shape
    found: Tensor = fresh(var, var.type).reshape((2, rows // 2, columns))
    return found
