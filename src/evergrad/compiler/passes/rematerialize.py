"""Rematerialization: fits a program into a memory limit by recomputing values.

:func:`fit_memory` plans a graph; if the arena exceeds the limit, values that are live but idle at
the peak are recomputed before their next use, the cheapest for their size first, until the plan
fits or no candidate is left.
"""

from __future__ import annotations

from collections.abc import Callable

from evergrad import config
from evergrad.compiler.passes.recompute_values import Dropped, with_recomputed
from evergrad.compiler.passes.verify import Verifier
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.schedule.buffers import Buffer
from evergrad.compiler.schedule.def_use import DefUse
from evergrad.compiler.schedule.fusibility import MAX_FUSION_DISTANCE
from evergrad.core.trace import Equation, Graph, Var
from evergrad.errors import MemoryLimitError

_IDLE_ROUNDS = 3
_LONGEST_CHAIN = 12

Build = Callable[[Graph, frozenset[int]], Program]


def fit_memory(limit: int, graph: Graph, build: Build) -> Program:
    """The program of a graph whose arena has at most ``limit`` bytes. ``build(graph, recomputed)``
    makes one; ``recomputed`` are the ids of equations that recompute a value."""
    program = build(graph, frozenset())
    smallest = program.plan.peak
    verifier = Verifier(graph) if len(graph.equations) <= config.VERIFY_EQUATIONS else None
    for eagerness in (1, 2, 4):
        fitted = _fitted(limit, graph, build, program, eagerness, verifier)
        if fitted.plan.peak <= limit:
            return fitted
        smallest = min(smallest, fitted.plan.peak)
    raise MemoryLimitError(
        f"the program needs {smallest:,} bytes even if values are recomputed; the limit is "
        f"{limit:,}, which is {smallest - limit:,} too few.\n"
        "  fix: a smaller batch, or a larger memory_limit."
    )


def _fitted(
    limit: int, graph: Graph, build: Build, program: Program, eagerness: int,
    verifier: Verifier | None,
) -> Program:  # fmt: skip
    """The smallest program found by dropping ``eagerness`` times the missing bytes at a time."""
    best = program
    recomputed: frozenset[int] = frozenset()
    idle = 0
    while program.plan.peak > limit and idle < _IDLE_ROUNDS:
        found = _drop(program, graph, eagerness * (program.plan.peak - limit), recomputed)
        if found is None:
            break
        graph, recomputed = found
        if verifier is not None:
            verifier.check("rematerialize", graph)
        program = build(graph, recomputed)
        if program.plan.peak < best.plan.peak:
            best, idle = program, 0
        else:
            idle += 1
    return best


class _Candidate:
    """A buffer that could be freed at the peak, and the values to recompute for it."""

    def __init__(self, nbytes: int, dropped: list[Dropped]) -> None:
        self.nbytes = nbytes
        self.dropped = dropped
        self.users = {id(eqn) for one in dropped for eqn in one.users}

    @property
    def price(self) -> float:
        """Work per byte saved."""
        chains = {id(eqn): eqn for one in self.dropped for eqn in one.chain}
        return sum(_work(eqn) for eqn in chains.values()) / self.nbytes


def _work(eqn: Equation) -> int:
    size = sum(out.type.numel for out in eqn.outs)
    if eqn.op.family == "bilinear":
        shape = eqn.args[0].type.shape
        return size * (shape[-1] if shape else 1)
    return size


def _drop(
    program: Program, graph: Graph, missing: int, recomputed: frozenset[int]
) -> tuple[Graph, frozenset[int]] | None:
    """Recompute values of the missing bytes; the new graph and its recomputing equations."""
    chosen: list[Dropped] = []
    taken: set[int] = set()
    for candidate in sorted(_Idle(program, graph).candidates(), key=lambda c: c.price):
        if missing <= 0:
            break
        if taken.isdisjoint(candidate.users):
            chosen += candidate.dropped
            taken |= candidate.users
            missing -= candidate.nbytes
    return with_recomputed(graph, chosen, recomputed, near=MAX_FUSION_DISTANCE) if chosen else None


class _Idle:
    """The values that are live but idle at the peak."""

    def __init__(self, program: Program, graph: Graph) -> None:
        self.known = DefUse(graph)
        self.lowering, self.plan = program.lowering, program.plan
        alive = self.plan.timeline()
        self.peak = alive.index(max(alive))
        node_waves = {
            id(instruction.node): wave
            for wave, instructions in enumerate(program.waves)
            for instruction in instructions
        }
        # The lowering has its own copies of the equations, in the same order.
        pairs = zip(graph.equations, self.lowering.graph.equations, strict=True)
        self.wave_of = {
            id(eqn): node_waves.get(id(self.lowering.node_of.get(id(own))), -1)
            for eqn, own in pairs
        }

    def candidates(self) -> list[_Candidate]:
        values = self.resident()
        found = []
        for buffer in self.plan.at_peak():
            if buffer.number in values and buffer.first < self.peak < buffer.last:
                dropped = self.dropped_for(values[buffer.number])
                if dropped:
                    found.append(_Candidate(buffer.nbytes, dropped))
        return found

    def resident(self) -> dict[int, Var]:
        """The value in each buffer at the peak: of those that reuse it in place, the last one
        computed by then."""
        found: dict[int, Var] = {}
        for var, place in self.lowering.buffer_views.items():
            maker = self.known.producer.get(var)
            if maker is None or self.wave_of[id(maker)] <= self.peak:
                found[place.buffer.number] = var
        return found

    def dropped_for(self, var: Var) -> list[Dropped] | None:
        """Everything to recompute if a value is not kept live; ``None`` if that cannot be."""
        found = []
        for value in self.carried(var):
            users = list(self.known.users(value))
            late = [e for e in users if self.wave_of[id(e)] > self.peak]
            if any(self.wave_of[id(e)] == self.peak for e in users):
                return None
            if not late:
                continue
            if self.known.producer[value].op.random or self.known.escapes(value):
                return None
            chain = self.chain(value, min(self.wave_of[id(e)] for e in late))
            if chain is None:
                return None
            found.append(Dropped(value, chain, late))
        return found

    def carried(self, var: Var) -> list[Var]:
        """The values that one in memory serves: itself, and those that kernels compute from it on
        the fly (a product plus its bias)."""
        found = [var] if var in self.known.producer else []
        for value in found:
            for eqn in self.known.users(value):
                out = eqn.outs[0]
                early = self.wave_of[id(eqn)] <= self.peak
                if early and out not in self.lowering.buffer_views and out not in found:
                    found.append(out)
        return found

    def chain(self, var: Var, wave: int) -> list[Equation] | None:
        """The equations that recompute a value in a wave; ``None`` if too many."""
        known = self.known
        chain: dict[int, Equation] = {}
        pending = [var]
        while pending:
            eqn = known.producer[pending.pop()]
            if id(eqn) in chain:
                continue
            if eqn.op.random or eqn.op.communicates or len(chain) >= _LONGEST_CHAIN:
                return None
            chain[id(eqn)] = eqn
            for arg in eqn.args:
                if isinstance(arg, Var) and not self.is_live(arg, wave):
                    pending.append(arg)
        return sorted(chain.values(), key=lambda e: known.position[id(e)])

    def is_live(self, var: Var, wave: int) -> bool:
        """Whether a value is in memory when a wave runs."""
        if var not in self.known.producer or var in self.known.literal:
            return True
        if self.known.view_of(var) is not None:
            return False  # the view is recomputed
        place = self.lowering.buffer_views.get(var)
        if place is None:
            return False
        buffer: Buffer = place.buffer
        if buffer.kind == "arena":
            return buffer.last >= wave and not self.is_dead(var, wave)
        return buffer.kind == "outside"

    def is_dead(self, var: Var, wave: int) -> bool:
        """Whether a value is dead when a wave runs: its buffer may have been reused."""
        if self.known.escapes(var):
            return False
        return all(self.wave_of[id(eqn)] < wave for eqn in self.known.users(var))
