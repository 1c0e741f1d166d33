"""Def-use chains of a graph: producers, users, views and literals."""

from __future__ import annotations

from collections.abc import Iterable

from evergrad.compiler.codegen import elementwise
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.types import Args
from evergrad.ops.rows.creation.constants import FULL

# The graph that passes analysed last, with its chains: most passes leave a graph as it is.
_analysed: tuple[Graph, DefUse] | None = None


def def_use_of(graph: Graph) -> DefUse:
    """The def-use chains of a graph, not to be changed."""
    global _analysed
    known = _analysed
    if known is None or known[0] is not graph:
        known = _analysed = graph, DefUse(graph)
    return known[1]


def forget_def_use() -> None:
    """Release the graph that was analysed last."""
    global _analysed
    _analysed = None


class DefUse:
    """Def-use chains of a graph.

    ``literal`` holds the number of each value that ``full`` produces. Equations added later are
    kept alive in ``added``: their ``id`` is a key.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producer: dict[Var, Equation] = {}
        self.position: dict[int, int] = {}
        self.uses: dict[Var, list[Equation]] = {}
        self.literal: dict[Var, float] = {}
        self.views: dict[Var, Var] = {}  # the source of each
        self.added: list[Equation] = []
        for number, eqn in enumerate(graph.equations):
            self._enter(eqn, number)
            made = eqn.outs[0].type
            if eqn.op is FULL and made.dtype in elementwise.KINDS and made.numel:
                self.literal[eqn.outs[0]] = eqn.args[0]
        self.outputs: set[Var] = {o for o in graph.outputs if isinstance(o, Var)}

    def add(self, eqn: Equation, position: int) -> None:
        """Add an equation that is not in the graph."""
        self.added.append(eqn)
        self._enter(eqn, position)

    def _enter(self, eqn: Equation, position: int) -> None:
        self.position[id(eqn)] = position
        uses, producer = self.uses, self.producer
        for out in eqn.outs:
            producer[out] = eqn
        for arg in eqn.args:
            if isinstance(arg, Var):
                known = uses.get(arg)
                if known is None:
                    uses[arg] = [eqn]
                else:
                    known.append(eqn)
        if eqn.op.alias:
            self.views[eqn.outs[0]] = eqn.args[0]

    def remove(self, eqn: Equation) -> None:
        """Remove an equation whose result has no uses."""
        del self.producer[eqn.outs[0]]
        self.views.pop(eqn.outs[0], None)
        for arg in eqn.args:
            if isinstance(arg, Var):
                self.uses[arg].remove(eqn)

    def replace_arguments(self, eqn: Equation, args: Args) -> None:
        """Replace the arguments of an equation by others of equal value."""
        for before, after in zip(eqn.args, args, strict=True):
            if before is not after:
                self.uses[before] = [e for e in self.uses[before] if e is not eqn]
                self.uses.setdefault(after, []).append(eqn)
        eqn.args = args
        if eqn.op.alias:
            self.views[eqn.outs[0]] = args[0]

    def view_of(self, var: Var) -> Var | None:
        """The value that a view is taken of; ``None`` if it is not a view."""
        return self.views.get(var)

    def root(self, var: Var) -> Var:
        """The value whose memory a chain of views aliases."""
        views = self.views
        source = views.get(var)
        while source is not None:
            var, source = source, views.get(source)
        return var

    def users(self, var: Var) -> Iterable[Equation]:
        """The equations that use a value or a view of it."""
        for eqn in self.uses.get(var, ()):
            if eqn.op.alias:
                yield from self.users(eqn.outs[0])
            else:
                yield eqn

    def escapes(self, var: Var) -> bool:
        """Whether a value or a view of it is an output of the graph."""
        if var in self.outputs:
            return True
        return any(self.escapes(eqn.outs[0]) for eqn in self.uses.get(var, ()) if eqn.op.alias)
