"""Recomputation of cheap activations, where it costs no time.

An elementwise value with a long gap before its next use (the output of a norm or an activation,
until the gradient of the layer after it) is recomputed if that takes only values which are live
anyway: the kernel of the derivative reads those already, and the loads and stores saved pay for the
few operations. Of a value cast from a narrower type the narrow one is kept live instead.
"""

from __future__ import annotations

from evergrad.compiler.passes.recompute_values import Dropped, with_recomputed
from evergrad.compiler.schedule.def_use import DefUse, def_use_of
from evergrad.compiler.schedule.fusibility import MAX_FUSION_DISTANCE, is_elementwise
from evergrad.core.row_facts import Cost
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.elementwise.basic import CAST

# Smaller values are not worth another operation.
_LEAST_BYTES = 1 << 16
_LONGEST_CHAIN = 10
_MOST_EXPENSIVE = 1
# Values of so many times fewer bytes (statistics of a norm) may be kept live for it.
_SMALL = 16
# A value used so many equations before is still live.
_NEAR = 8


def recompute_cheap(graph: Graph) -> Graph:
    """The graph with cheap values recomputed before late uses instead of kept live."""
    dropped = _Choice(def_use_of(graph)).dropped
    return with_recomputed(graph, dropped, near=MAX_FUSION_DISTANCE)[0] if dropped else graph


def _is_widening(eqn: Equation) -> bool:
    """Whether it casts a value to a type of at least twice the bytes."""
    source = eqn.args[0]
    return (
        eqn.op is CAST and isinstance(source, Var)
        and 2 * source.type.nbytes <= eqn.outs[0].type.nbytes
    )  # fmt: skip


class _Choice:
    """The values to recompute, chosen in program order: the operands of one may be the operands of
    a later one."""

    def __init__(self, known: DefUse) -> None:
        self.known = known
        self.last = {out: self._last_use(out) for out in known.producer}
        self.recomputed: set[Var] = set()
        self.dropped: list[Dropped] = []
        for eqn in known.graph.equations:
            if not self._is_worth(eqn):
                continue
            var = eqn.outs[0]
            late = self._late_users(eqn)
            chain = self._chain(var, min(map(self._position, late))) if late else None
            if late and not chain and _is_widening(eqn):
                chain = [eqn]
                self._keep(eqn.args[0], max(map(self._position, late)))
            if chain:
                self.recomputed.add(var)
                self.dropped.append(Dropped(var, chain, late))

    def _keep(self, var: Var, position: int) -> None:
        """Note that a value, with those it is a view of, is live up to a position."""
        source: Var | None = var
        while source is not None and source in self.last:
            self.last[source] = max(self.last[source], position)
            source = self.known.view_of(source)

    def _position(self, eqn: Equation) -> int:
        return self.known.position[id(eqn)]

    def _last_use(self, var: Var) -> int:
        return max(map(self._position, self.known.users(var)), default=-1)

    def _is_worth(self, eqn: Equation) -> bool:
        return self._is_cheap(eqn) and eqn.outs[0].type.nbytes >= _LEAST_BYTES

    def _is_cheap(self, eqn: Equation) -> bool:
        """Whether an equation is elementwise and its result does not escape."""
        return is_elementwise(self.known, eqn) and not self.known.escapes(eqn.outs[0])

    def _late_users(self, eqn: Equation) -> list[Equation]:
        made = self._position(eqn)
        users = list(self.known.users(eqn.outs[0]))
        return [user for user in users if self._position(user) - made > MAX_FUSION_DISTANCE]

    def _chain(self, var: Var, position: int) -> list[Equation] | None:
        """The equations that recompute a value from what is live at a position."""
        known = self.known
        chain: dict[int, Equation] = {}
        expensive = 0
        pending = [var]
        while pending:
            eqn = known.producer[pending.pop()]
            if id(eqn) in chain:
                continue
            chain[id(eqn)] = eqn
            if not eqn.op.alias:
                expensive += eqn.op.emit.cost is Cost.EXPENSIVE
                if not self._is_cheap(eqn):
                    return None
            if expensive > _MOST_EXPENSIVE or len(chain) > _LONGEST_CHAIN:
                return None
            pending += [
                arg for arg in eqn.args
                if isinstance(arg, Var) and not self._is_kept(arg, var, position)
            ]  # fmt: skip
        return sorted(chain.values(), key=self._position)

    def _is_kept(self, arg: Var, var: Var, position: int) -> bool:
        """Whether an argument is live at a position anyway, or is small."""
        known = self.known
        if arg not in known.producer or arg in known.literal:
            return True
        if known.view_of(arg) is not None:
            return False  # the view is recomputed
        if arg.type.nbytes * _SMALL <= var.type.nbytes:
            return True
        return arg is not var and arg not in self.recomputed and self.last[arg] >= position - _NEAR
