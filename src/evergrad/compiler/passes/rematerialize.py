"""Fitting a program into less memory by computing values again.

:func:`within` plans a graph; if the arena is larger than the limit, values that wait through the
moment of the most memory are dropped and computed again before their next use, the cheapest for
their size first, until the plan fits or nothing is left to drop.
"""

from __future__ import annotations

from collections.abc import Callable

from evergrad.compiler.passes.recompute_values import Dropped, computed_again
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.schedule.fusion import FAR
from evergrad.compiler.schedule.memory_plan import Buffer
from evergrad.compiler.schedule.nodes import Values
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
    """A buffer that could be given up for a while: the values that are computed again for it."""

    def __init__(self, nbytes: int, dropped: list[Dropped]) -> None:
        self.nbytes = nbytes
        self.dropped = dropped
        self.users = {id(eqn) for one in dropped for eqn in one.users}

    @property
    def price(self) -> float:
        """Work for each byte that is saved."""
        chains = {id(eqn): eqn for one in self.dropped for eqn in one.chain}
        return sum(_work(eqn) for eqn in chains.values()) / self.nbytes


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
    chosen: list[Dropped] = []
    taken: set[int] = set()
    for candidate in sorted(_Waiting(program, graph).candidates(), key=lambda c: c.price):
        if missing <= 0:
            break
        if taken.isdisjoint(candidate.users):
            chosen += candidate.dropped
            taken |= candidate.users
            missing -= candidate.nbytes
    return computed_again(graph, chosen, again, near=FAR) if chosen else None


class _Waiting:
    """What lies idle at the moment of the most memory."""

    def __init__(self, program: Program, graph: Graph) -> None:
        self.known = Values(graph)
        self.lowering, self.plan = program.lowering, program.plan
        alive = self.plan.timeline()
        self.peak = alive.index(max(alive))
        unit_waves = {
            id(instruction.unit): wave
            for wave, instructions in enumerate(program.waves)
            for instruction in instructions
        }
        # The lowering has its own copies of the equations, in the same order.
        pairs = zip(graph.equations, self.lowering.graph.equations, strict=True)
        self.wave_of = {
            id(eqn): unit_waves.get(id(self.lowering.unit_of.get(id(own))), -1)
            for eqn, own in pairs
        }

    def candidates(self) -> list[_Candidate]:
        values = self.lying()
        found = []
        for buffer in self.plan.at_peak():
            if buffer.number in values and buffer.first < self.peak < buffer.last:
                dropped = self.dropped_for(values[buffer.number])
                if dropped:
                    found.append(_Candidate(buffer.nbytes, dropped))
        return found

    def lying(self) -> dict[int, Var]:
        """The value that lies in each buffer at the moment: of those that take each other's place,
        the last one made by then."""
        found: dict[int, Var] = {}
        for var, place in self.lowering.homes.items():
            maker = self.known.maker.get(var)
            if maker is None or self.wave_of[id(maker)] <= self.peak:
                found[place.buffer.number] = var
        return found

    def dropped_for(self, var: Var) -> list[Dropped] | None:
        """All that has to be computed again if a value does not wait in memory."""
        found = []
        for value in self.carried(var):
            users = list(self.known.users(value))
            late = [e for e in users if self.wave_of[id(e)] > self.peak]
            if any(self.wave_of[id(e)] == self.peak for e in users):
                return None
            if not late:
                continue
            if self.known.maker[value].op.random or self.known.escapes(value):
                return None
            chain = self.chain(value, min(self.wave_of[id(e)] for e in late))
            if chain is None:
                return None
            found.append(Dropped(value, chain, late))
        return found

    def carried(self, var: Var) -> list[Var]:
        """The values for which one lies in memory: itself, and those that kernels compute from it
        as they go (a product, and what is more by a bias)."""
        found = [var] if var in self.known.maker else []
        for value in found:
            for eqn in self.known.users(value):
                out = eqn.outs[0]
                early = self.wave_of[id(eqn)] <= self.peak
                if early and out not in self.lowering.homes and out not in found:
                    found.append(out)
        return found

    def chain(self, var: Var, wave: int) -> list[Equation] | None:
        """The equations that make a value from what is there in a wave; ``None`` if too many."""
        known = self.known
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
                if isinstance(arg, Var) and not self.is_there(arg, wave):
                    waiting.append(arg)
        return sorted(chain.values(), key=lambda e: known.position[id(e)])

    def is_there(self, var: Var, wave: int) -> bool:
        """Whether a value lies in memory when a wave runs."""
        if var not in self.known.maker or var in self.known.literal:
            return True
        if self.known.view_of(var) is not None:
            return False  # the view is taken again
        place = self.lowering.homes.get(var)
        if place is None:
            return False
        buffer: Buffer = place.buffer
        if buffer.home == "arena":
            return buffer.last >= wave and not self.has_given_way(var, wave)
        return buffer.home == "outside"

    def has_given_way(self, var: Var, wave: int) -> bool:
        """Whether nobody needs a value any more when a wave runs: others may lie in its place."""
        if self.known.escapes(var):
            return False
        return all(self.wave_of[id(eqn)] < wave for eqn in self.known.users(var))
