"""Keeping less between forward and backward where it costs no time.

An elementwise value that waits long for its next use (the output of a norm or of an activation,
until the gradient of the layer behind it) is dropped and computed again if that takes only values
which are kept anyway: the kernel of the derivative reads those already, and what is saved in writes
and reads pays for the few operations.
"""

from __future__ import annotations

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.passes.recompute_values import Dropped, computed_again
from evergrad.compiler.schedule.fusion import FAR, is_elementwise
from evergrad.compiler.schedule.nodes import Values
from evergrad.core.trace import Equation, Graph, Var

# Smaller values are not worth another operation.
_LEAST_BYTES = 1 << 16
_LONGEST_CHAIN = 10
_MOST_EXPENSIVE = 1
# Values of so many times fewer bytes (statistics of rows) may be kept for it.
_SMALL = 16
# What is used so many equations before is still there.
_NEAR = 8


def lighten(graph: Graph) -> Graph:
    """The graph with cheap values computed again instead of kept."""
    return computed_again(graph, _Choice(Values(graph)).dropped, near=FAR)[0]


class _Choice:
    """What is dropped, decided in the order of the program: a later value may be made of what an
    earlier one is made of."""

    def __init__(self, known: Values) -> None:
        self.known = known
        self.last = {out: self._last_use(out) for out in known.maker}
        self.gone: set[Var] = set()
        self.dropped: list[Dropped] = []
        for eqn in known.graph.equations:
            if not self._is_worth(eqn):
                continue
            var = eqn.outs[0]
            late = self._late_users(eqn)
            chain = self._chain(var, min(map(self._position, late))) if late else None
            if chain:
                self.gone.add(var)
                self.dropped.append(Dropped(var, chain, late))

    def _position(self, eqn: Equation) -> int:
        return self.known.position[id(eqn)]

    def _last_use(self, var: Var) -> int:
        return max(map(self._position, self.known.users(var)), default=-1)

    def _is_worth(self, eqn: Equation) -> bool:
        return self._is_cheap(eqn) and eqn.outs[0].type.nbytes >= _LEAST_BYTES

    def _is_cheap(self, eqn: Equation) -> bool:
        """Whether an equation is computed element by element, for the program alone."""
        return is_elementwise(self.known, eqn) and not self.known.escapes(eqn.outs[0])

    def _late_users(self, eqn: Equation) -> list[Equation]:
        made = self._position(eqn)
        users = list(self.known.users(eqn.outs[0]))
        return [user for user in users if self._position(user) - made > FAR]

    def _chain(self, var: Var, place: int) -> list[Equation] | None:
        """The equations that make a value again from what is kept until a place."""
        known = self.known
        chain: dict[int, Equation] = {}
        expensive = 0
        waiting = [var]
        while waiting:
            eqn = known.maker[waiting.pop()]
            if id(eqn) in chain:
                continue
            chain[id(eqn)] = eqn
            if not eqn.op.alias:
                expensive += eqn.op.name in elementwise.EXPENSIVE
                if not self._is_cheap(eqn):
                    return None
            if expensive > _MOST_EXPENSIVE or len(chain) > _LONGEST_CHAIN:
                return None
            waiting += [
                arg for arg in eqn.args
                if isinstance(arg, Var) and not self._is_kept(arg, var, place)
            ]  # fmt: skip
        return sorted(chain.values(), key=self._position)

    def _is_kept(self, arg: Var, var: Var, place: int) -> bool:
        """Whether an argument is there at a place without being kept for it (or is small)."""
        known = self.known
        if arg not in known.maker or arg in known.literal:
            return True
        if known.view_of(arg) is not None:
            return False  # the view is taken again
        if arg.type.nbytes * _SMALL <= var.type.nbytes:
            return True
        return arg is not var and arg not in self.gone and self.last[arg] >= place - _NEAR
