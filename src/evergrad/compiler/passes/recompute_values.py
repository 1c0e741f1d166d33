"""Recomputation of values: equations copied to shortly before late uses.

Which values is decided elsewhere: in :mod:`.recompute` where it costs no time, in
:mod:`.rematerialize` to fit a memory limit.
"""

from __future__ import annotations

from evergrad.compiler.passes.rewriter import with_equations
from evergrad.core.trace import Equation, Graph, Var


class Dropped:
    """A value that is recomputed: the equations of it, and the users that read the copy."""

    def __init__(self, var: Var, chain: list[Equation], users: list[Equation]) -> None:
        self.var = var
        self.chain = chain
        self.users = users


def with_recomputed(
    graph: Graph, chosen: list[Dropped], recomputed: frozenset[int] = frozenset(), near: int = 0
) -> tuple[Graph, frozenset[int]]:
    """The graph with copies of the chains before the late uses, which read these instead; and the
    ids of all equations that recompute a value. A copy is shared by chains at most ``near``
    equations further on."""
    position = {id(eqn): number for number, eqn in enumerate(graph.equations)}
    maker = {out: eqn for eqn in graph.equations for out in eqn.outs}
    before: dict[int, list[Equation]] = {}
    renamed: dict[int, dict[Var, Var]] = {}
    added: set[int] = set()
    latest: dict[Var, tuple[int, Var]] = {}  # the position of each value's last copy
    places = [min(position[id(eqn)] for eqn in dropped.users) for dropped in chosen]
    for place, dropped in sorted(zip(places, chosen, strict=True), key=lambda pair: pair[0]):
        copies = {var: copy for var, (at, copy) in latest.items() if place - at <= near}
        made = before.setdefault(place, [])
        for eqn in dropped.chain:
            if eqn.outs[0] not in copies:
                made.append(_copy(eqn, copies))
                added.add(id(made[-1]))
                latest.update({out: (place, copies[out]) for out in eqn.outs})
        for user in dropped.users:
            for arg in user.args:
                for view in _views_between(arg, dropped.var, maker):
                    if view.outs[0] not in copies:
                        made.append(_copy(view, copies))
            names = renamed.setdefault(id(user), {})
            names.update({arg: copies[arg] for arg in _of(dropped.var, user, maker)})
    equations: list[Equation] = []
    for number, eqn in enumerate(graph.equations):
        equations += before.get(number, ())
        equations.append(_with_names(eqn, renamed.get(id(eqn), {})))
        if id(eqn) in recomputed:
            added.add(id(equations[-1]))
    return with_equations(graph, equations), frozenset(added)


def _of(var: Var, user: Equation, maker: dict[Var, Equation]) -> list[Var]:
    """The arguments of an equation that are a value or views of it."""
    return [a for a in user.args if a is var or _views_between(a, var, maker)]


def _views_between(arg: object, var: Var, maker: dict[Var, Equation]) -> list[Equation]:
    """The chain of views from a value to an argument."""
    views: list[Equation] = []
    while isinstance(arg, Var) and arg is not var:
        eqn = maker.get(arg)
        if eqn is None or not eqn.op.alias:
            return []
        views.insert(0, eqn)
        arg = eqn.args[0]
    return views


def _with_names(eqn: Equation, names: dict[Var, Var]) -> Equation:
    if not names:
        return eqn
    args = tuple([names.get(a, a) if isinstance(a, Var) else a for a in eqn.args])
    return Equation(eqn.specialization, args, eqn.outs, eqn.location)


def _copy(eqn: Equation, copies: dict[Var, Var]) -> Equation:
    args = tuple([copies.get(a, a) if isinstance(a, Var) else a for a in eqn.args])
    outs = tuple([Var(out.type, out.trace, out._layout) for out in eqn.outs])
    copies.update(zip(eqn.outs, outs, strict=True))
    return Equation(eqn.specialization, args, outs, eqn.location)
