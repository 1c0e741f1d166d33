"""Fitting a program into less memory by computing values again.

:func:`within` plans a graph; if the arena is larger than the limit, values that wait through the
moment of the most memory are dropped and computed again before their next use, the cheapest for
their size first, until the plan fits or nothing is left to drop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evergrad.compiler.lowering import Lowering
from evergrad.compiler.plan import Buffer
from evergrad.compiler.program import Program
from evergrad.compiler.units import Values
from evergrad.core.trace import Equation, Graph, Var
from evergrad.errors import MemoryLimitError

_IDLE_ROUNDS = 3
_LONGEST_CHAIN = 12

Build = Callable[[Graph, frozenset[int]], Program]


def within(limit: int, graph: Graph, build: Build) -> Program:
    """The program of a graph whose arena has at most ``limit`` bytes. ``build(graph, again)`` makes
    one; ``again`` are the equations that were added to compute values again."""
    program = build(graph, frozenset())
    smallest = program.plan.peak
    for eagerness in (1, 2, 4):
        fitted = _fitted(limit, graph, build, program, eagerness)
        if fitted.plan.peak <= limit:
            return fitted
        smallest = min(smallest, fitted.plan.peak)
    raise MemoryLimitError(
        f"the program needs {smallest:,} bytes even if values are computed again; the limit is "
        f"{limit:,}, which is {smallest - limit:,} too few.\n"
        "  fix: a smaller batch, or a larger memory_limit."
    )


def _fitted(limit: int, graph: Graph, build: Build, program: Program, eagerness: int) -> Program:
    """The smallest program found by dropping ``eagerness`` times the missing bytes at a time."""
    best = program
    again: frozenset[int] = frozenset()
    idle = 0
    while program.plan.peak > limit and idle < _IDLE_ROUNDS:
        found = _drop(program, graph, eagerness * (program.plan.peak - limit), again)
        if found is None:
            break
        graph, again = found
        program = build(graph, again)
        if program.plan.peak < best.plan.peak:
            best, idle = program, 0
        else:
            idle += 1
    return best


class _Candidate:
    """A value that could be dropped: the equations that make it again, and who uses it then."""

    def __init__(self, var: Var, chain: list[Equation], users: list[Equation]) -> None:
        self.var = var
        self.chain = chain
        self.users = users

    @property
    def price(self) -> float:
        """Work for each byte that is saved."""
        return sum(_work(eqn) for eqn in self.chain) / self.var.type.nbytes


def _work(eqn: Equation) -> int:
    size = sum(out.type.numel for out in eqn.outs)
    if eqn.op.family == "bilinear":
        shape = eqn.args[0].type.shape
        return size * (shape[-1] if shape else 1)
    return size


def _drop(
    program: Program, graph: Graph, missing: int, again: frozenset[int]
) -> tuple[Graph, frozenset[int]] | None:
    """Drop values worth the missing bytes; gives the new graph and what it computes again."""
    candidates = sorted(_candidates(program, graph), key=lambda c: c.price)
    chosen: list[_Candidate] = []
    taken: set[int] = set()
    for candidate in candidates:
        if missing <= 0:
            break
        if any(id(eqn) in taken for eqn in candidate.users):
            continue
        chosen.append(candidate)
        taken |= {id(eqn) for eqn in candidate.users}
        missing -= candidate.var.type.nbytes
    if not chosen:
        return None
    return _computed_again(graph, chosen, again)


def _candidates(program: Program, graph: Graph) -> list[_Candidate]:
    lowering, plan = program.lowering, program.plan
    known = Values(graph)
    alive = plan.timeline()
    peak = alive.index(max(alive))
    values = {place.buffer.number: var for var, place in lowering.homes.items()}
    wave_of = {
        id(instruction.unit): wave
        for wave, instructions in enumerate(program.waves)
        for instruction in instructions
    }
    # The lowering has its own copies of the equations, in the same order.
    own = dict(zip(map(id, graph.equations), lowering.graph.equations, strict=True))
    found = []
    for buffer in plan.at_peak():
        var = values.get(buffer.number)
        maker = None if var is None else known.maker.get(var)
        if var is None or maker is None or maker.op.random or known.escapes(var):
            continue
        if not buffer.first < peak < buffer.last:
            continue
        waves = {
            id(e): wave_of.get(id(lowering.unit_of.get(id(own[id(e)]))), -1)
            for e in known.users(var)
        }
        if any(wave == peak for wave in waves.values()):
            continue
        late = [e for e in known.users(var) if waves[id(e)] > peak]
        if not late:
            continue
        chain = _chain(known, lowering, var, min(waves[id(e)] for e in late))
        if chain is not None:
            found.append(_Candidate(var, chain, late))
    return found


def _chain(known: Values, lowering: Lowering, var: Var, wave: int) -> list[Equation] | None:
    """The equations that make a value from what is there in a wave; ``None`` if too many."""
    chain: dict[int, Equation] = {}
    waiting = [var]
    while waiting:
        eqn = known.maker[waiting.pop()]
        if id(eqn) in chain:
            continue
        if eqn.op.random or len(chain) >= _LONGEST_CHAIN:
            return None
        chain[id(eqn)] = eqn
        for arg in eqn.args:
            if isinstance(arg, Var) and not _is_there(known, lowering, arg, wave):
                waiting.append(arg)
    return sorted(chain.values(), key=lambda e: known.position[id(e)])


def _is_there(known: Values, lowering: Lowering, var: Var, wave: int) -> bool:
    """Whether a value lies in memory when a wave runs."""
    if var not in known.maker or var in known.literal:
        return True
    if known.view_of(var) is not None:
        return False  # the view is taken again
    place = lowering.homes.get(var)
    if place is None:
        return False
    buffer: Buffer = place.buffer
    return buffer.home == "outside" or (buffer.home == "arena" and buffer.last >= wave)


def _computed_again(
    graph: Graph, chosen: list[_Candidate], again: frozenset[int]
) -> tuple[Graph, frozenset[int]]:
    """The graph with copies of the chains before the late uses, which use these instead; and all
    its equations that compute something again."""
    position = {id(eqn): number for number, eqn in enumerate(graph.equations)}
    maker = {out: eqn for eqn in graph.equations for out in eqn.outs}
    before: dict[int, list[Equation]] = {}
    renamed: dict[int, dict[Var, Var]] = {}
    added: set[int] = set()
    for candidate in chosen:
        copies: dict[Var, Var] = {}
        place = min(position[id(eqn)] for eqn in candidate.users)
        made = before.setdefault(place, [])
        for eqn in candidate.chain:
            made.append(_copy(eqn, copies))
            added.add(id(made[-1]))
        for user in candidate.users:
            for arg in user.args:
                for view in _views_between(arg, candidate.var, maker):
                    if view.outs[0] not in copies:
                        made.append(_copy(view, copies))
            renamed.setdefault(id(user), {}).update(copies)
    equations: list[Equation] = []
    for number, eqn in enumerate(graph.equations):
        equations += before.get(number, ())
        equations.append(_with_names(eqn, renamed.get(id(eqn), {})))
        if id(eqn) in again:
            added.add(id(equations[-1]))
    return Graph(graph.inputs, (), equations, graph.outputs), frozenset(added)


def _views_between(arg: Any, var: Var, maker: dict[Var, Equation]) -> list[Equation]:
    """The views that lead from a value to an argument, the first one first."""
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
    return Equation(eqn.rule, args, eqn.outs, eqn.site)


def _copy(eqn: Equation, copies: dict[Var, Var]) -> Equation:
    args = tuple([copies.get(a, a) if isinstance(a, Var) else a for a in eqn.args])
    outs = tuple([Var(out.type, out.trace, out._layout) for out in eqn.outs])
    copies.update(zip(eqn.outs, outs, strict=True))
    return Equation(eqn.rule, args, outs, eqn.site)
