"""Def-use chains of a graph: producers, users, views and literals."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from evergrad.compiler.codegen import elementwise
from evergrad.core.trace import Equation, Graph, Var
from evergrad.ops.rows.creation.constants import FULL


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
        self.literal: dict[Var, Any] = {}
        self.added: list[Equation] = []
        for number, eqn in enumerate(graph.equations):
            self.position[id(eqn)] = number
            for out in eqn.outs:
                self.producer[out] = eqn
            for arg in eqn.args:
                if isinstance(arg, Var):
                    self.uses.setdefault(arg, []).append(eqn)
            made = eqn.outs[0].type
            if eqn.op is FULL and made.dtype in elementwise.KINDS and made.numel:
                self.literal[eqn.outs[0]] = eqn.args[0]
        self.outputs = {o for o in graph.outputs if isinstance(o, Var)}

    def add(self, eqn: Equation, position: int) -> None:
        """Add an equation that is not in the graph."""
        self.position[id(eqn)] = position
        self.added.append(eqn)
        self.producer[eqn.outs[0]] = eqn
        for arg in eqn.args:
            if isinstance(arg, Var):
                self.uses.setdefault(arg, []).append(eqn)

    def remove(self, eqn: Equation) -> None:
        """Remove an equation whose result has no uses."""
        del self.producer[eqn.outs[0]]
        for arg in eqn.args:
            if isinstance(arg, Var):
                self.uses[arg].remove(eqn)

    def replace_arguments(self, eqn: Equation, args: tuple[Any, ...]) -> None:
        """Replace the arguments of an equation by others of equal value."""
        for before, after in zip(eqn.args, args, strict=True):
            if before is not after:
                self.uses[before] = [e for e in self.uses[before] if e is not eqn]
                self.uses.setdefault(after, []).append(eqn)
        eqn.args = args

    def view_of(self, var: Var) -> Var | None:
        """The value that a view is taken of; ``None`` if it is not a view."""
        eqn = self.producer.get(var)
        return eqn.args[0] if eqn is not None and eqn.op.alias else None

    def root(self, var: Var) -> Var:
        """The value whose memory a chain of views aliases."""
        source = self.view_of(var)
        while source is not None:
            var, source = source, self.view_of(source)
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
        views = [eqn.outs[0] for eqn in self.uses.get(var, ()) if eqn.op.alias]
        return any(map(self.escapes, views))
