"""Rows of 16-bit floats whose kernels compute in float32: their arguments and results are cast.

Such a row rounds its result once, as its NumPy evaluation does; the casts fuse with the loops that
are next to them. Elementwise rows and products have rules of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from evergrad.compiler.passes.rewriter import rewrite
from evergrad.core import dtypes
from evergrad.core.bind import bind, cast
from evergrad.core.op import TABLE
from evergrad.core.tensor import fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.core.types import Args

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor


_NARROW = (dtypes.bfloat16, dtypes.float16)
_ROWS = {
    TABLE[name]
    for name in (
        "conv", "conv_input", "conv_weight", "max_pool", "max_pool_places", "window_sum",
        "window_spread", "mean", "norm", "power_norm", "var", "std", "scatter_sum", "scatter_add",
        "index_sum", "cumsum", "cumprod", "cummax_places", "logcumsumexp", "recur", "prod",
        "adaptive_mean", "adaptive_spread",
    )
}  # fmt: skip


def widen_narrow(graph: Graph) -> Graph:
    """The graph with rows that kernels compute in float32 as such rows between casts."""
    if not any(map(_is_narrow, graph.equations)):
        return graph

    def replace(trace: Trace, eqn: Equation, args: Args, env: dict[Var, Var]) -> Any:
        if not _is_narrow(eqn):
            return None
        found = bind(eqn.op, *map(_widened, args), **eqn.attrs)
        out = eqn.outs[0].type.dtype
        return ((found if found.dtype is out else cast(found, out))._value,)

    return rewrite(graph, replace)


def _is_narrow(eqn: Equation) -> bool:
    if eqn.op not in _ROWS or len(eqn.outs) != 1:
        return False
    values = [v for v in (*eqn.args, *eqn.outs) if isinstance(v, Var)]
    return any(v.type.dtype in _NARROW for v in values) and all(v.type.numel for v in values)


def _widened(value: Any) -> Tensor | int:
    if not isinstance(value, Var):
        result: Tensor | int = value
        return result
    tensor = fresh(value, value.type)
    return cast(tensor, dtypes.float32) if value.type.dtype in _NARROW else tensor
