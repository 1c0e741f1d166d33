"""The gradient of ``max_pool`` as one op: the passes that fuse it and its reductions.

The derivative is traced as two equations: the argmax of each pooling window, and a scatter-add of
gradients into zeros. A kernel that recomputes the argmax needs no memory for it. If ``x`` is the
output of ``relu``, whose gradient is zero where ``x`` is not positive, the kernel applies that too,
since it reads ``x``. Reductions of such a gradient over whole images (the gradient of a bias) are
reductions over pooling windows, of which there are fewer.
"""

from __future__ import annotations

from typing import Any

from evergrad.compiler.kernels.pooling.reduce import is_supported
from evergrad.compiler.kernels.pooling.rows import MAX_POOL_INPUT
from evergrad.compiler.passes.rewriter import rewrite, specialize, with_equations
from evergrad.compiler.schedule.def_use import DefUse
from evergrad.core.tensor import fresh
from evergrad.core.trace import Equation, Graph, Trace, Var
from evergrad.ops.rows.elementwise.basic import WHERE, where
from evergrad.ops.rows.elementwise.logic import LE
from evergrad.ops.rows.indexing.scatter import SCATTER_SUM
from evergrad.ops.rows.movement.views import RESHAPE
from evergrad.ops.rows.pool.windows import MAX_POOL, MAX_POOL_PLACES
from evergrad.ops.rows.reduce.sums import SUM


def fuse_pool_gradients(graph: Graph) -> Graph:
    """The graph with each gradient of ``max_pool`` as one equation."""
    matcher = _Matcher(graph)
    fused = {id(last): made for eqn in graph.equations for last, made in matcher.matched(eqn)}
    if not fused:
        return graph
    equations = [fused.get(id(eqn), eqn) for eqn in graph.equations]
    return with_equations(graph, equations).without_dead_code()


class _Matcher:
    """Matches the equations of the gradient of ``max_pool``."""

    def __init__(self, graph: Graph) -> None:
        self.values = DefUse(graph)

    def matched(self, eqn: Equation) -> list[tuple[Equation, Equation]]:
        """If an equation scatters gradients to argmax positions: the equation that returns them in
        the shape of x, or after relu's gradient, and its replacement."""
        if eqn.op is not SCATTER_SUM:
            return []
        g, index = eqn.args
        argmax = self.values.producer.get(self.values.root(index))
        if argmax is None or argmax.op is not MAX_POOL_PLACES or not is_supported(argmax):
            return []
        x, windows = argmax.args[0], argmax.attrs["windows"]
        if not _are_flat(argmax, eqn) or g.type.dtype is not x.type.dtype:
            return []
        shaped = self.only_user(eqn.outs[0])
        if shaped is None or shaped.op is not RESHAPE or shaped.outs[0].type != x.type:
            return []
        masked = self.only_user(shaped.outs[0])
        of_relu = masked is not None and self.is_relu_gradient(masked, x, shaped.outs[0])
        last = masked if masked is not None and of_relu else shaped
        specialization = specialize(MAX_POOL_INPUT, g, x, windows=windows, of_relu=of_relu)
        return [(last, Equation(specialization, (g, x), last.outs, eqn.location))]

    def only_user(self, var: Var) -> Equation | None:
        """The only user of a value."""
        users = self.values.uses.get(var, ())
        return users[0] if len(users) == 1 and var not in self.values.outputs else None

    def is_relu_gradient(self, eqn: Equation, x: Var, gradient: Var) -> bool:
        """Whether an equation is ``where(x <= 0, 0, gradient)``."""
        if eqn.op is not WHERE or eqn.args[1] != 0 or eqn.args[2] is not gradient:
            return False
        condition = self.values.producer.get(eqn.args[0])
        return (
            condition is not None
            and condition.op is LE
            and condition.args[0] is x
            and not isinstance(condition.args[1], Var)
            and condition.args[1] == 0
        )


def _are_flat(argmax: Equation, scatter: Equation) -> bool:
    """Whether argmax positions index the dimension that is scattered over."""
    index, shape = scatter.args[1].type.shape, scatter.attrs["shape"]
    lead = len(index) - 1
    found = argmax.outs[0].type.shape
    is_last = scatter.attrs["dim"] == lead
    return bool(is_last and index[:-1] == shape[:-1] == found[:lead])


# -- sums ---------------------------------------------------------------------------------------


def sum_pool_gradients(graph: Graph) -> Graph:
    """The graph in which gradients that are summed over whole images are summed over pooling
    windows instead."""
    if not any(eqn.op is MAX_POOL_INPUT for eqn in graph.equations):
        return graph
    values = DefUse(graph)
    largest = {
        (eqn.args[0], eqn.attrs["windows"]): eqn.outs[0]
        for eqn in graph.equations if eqn.op is MAX_POOL
    }  # fmt: skip

    def replace(trace: Trace, eqn: Equation, args: tuple[object, ...], env: Any) -> Any:
        gradient = _summed(values, eqn)
        if gradient is None:
            return None
        (g, x), windows = gradient.args, gradient.attrs["windows"]
        lead = x.type.shape[: len(x.type.shape) - len(windows.size)]
        by_window = fresh(env[g], g.type).reshape(*lead, *windows.counts)
        if gradient.attrs["of_relu"]:
            best = env.get(largest.get((x, windows)))
            if best is None:
                return None
            by_window = where(fresh(best, best.type) <= 0, 0, by_window)
        return (by_window.sum(eqn.attrs["dims"], eqn.attrs["keepdim"])._value,)

    return rewrite(graph, replace)


def _summed(values: DefUse, eqn: Equation) -> Equation | None:
    """The gradient of ``max_pool`` that an equation reduces over whole images."""
    if eqn.op is not SUM:
        return None
    found = values.producer.get(eqn.args[0])
    if found is None or found.op is not MAX_POOL_INPUT:
        return None
    rank = len(eqn.args[0].type.shape)
    planes = range(rank - len(found.attrs["windows"].size), rank)
    return found if set(eqn.attrs["dims"]).issuperset(planes) else None
