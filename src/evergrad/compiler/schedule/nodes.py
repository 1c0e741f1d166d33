"""What a graph says about its values, the units it is cut into, and in which order these run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from evergrad.compiler.codegen import elementwise
from evergrad.core.shapes import Shape
from evergrad.core.trace import Equation, Graph, Var

# So many equations further on is another part of the program.
FAR = 48


class Values:
    """What a graph says about its values: who makes them, who uses them, which are views."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.maker: dict[Var, Equation] = {}
        self.position: dict[int, int] = {}
        self.uses: dict[Var, list[Equation]] = {}
        self.literal: dict[Var, Any] = {}
        self.kept: list[Equation] = []
        for number, eqn in enumerate(graph.equations):
            self.position[id(eqn)] = number
            for out in eqn.outs:
                self.maker[out] = eqn
            for arg in eqn.args:
                if isinstance(arg, Var):
                    self.uses.setdefault(arg, []).append(eqn)
            made = eqn.outs[0].type
            if eqn.op.name == "full" and made.dtype in elementwise.KINDS and made.numel:
                self.literal[eqn.outs[0]] = eqn.args[0]
        self.outputs = {o for o in graph.outputs if isinstance(o, Var)}

    def enter(self, eqn: Equation, position: int) -> None:
        """Add an equation that was made later."""
        self.position[id(eqn)] = position
        self.kept.append(eqn)
        self.maker[eqn.outs[0]] = eqn
        for arg in eqn.args:
            if isinstance(arg, Var):
                self.uses.setdefault(arg, []).append(eqn)

    def leave(self, eqn: Equation) -> None:
        """Take out an equation that nobody uses."""
        del self.maker[eqn.outs[0]]
        for arg in eqn.args:
            if isinstance(arg, Var):
                self.uses[arg].remove(eqn)

    def give_arguments(self, eqn: Equation, args: tuple[Any, ...]) -> None:
        """Let an equation use other values that are equal to its own."""
        for before, after in zip(eqn.args, args, strict=True):
            if before is not after:
                self.uses[before] = [e for e in self.uses[before] if e is not eqn]
                self.uses.setdefault(after, []).append(eqn)
        eqn.args = args

    def view_of(self, var: Var) -> Var | None:
        """The value a view looks at, or ``None`` if it is none."""
        eqn = self.maker.get(var)
        return eqn.args[0] if eqn is not None and eqn.op.alias else None

    def root(self, var: Var) -> Var:
        """The value in whose memory a view lies."""
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
        """Whether a value or a view of it is a result of the graph."""
        if var in self.outputs:
            return True
        views = [eqn.outs[0] for eqn in self.uses.get(var, ()) if eqn.op.alias]
        return any(map(self.escapes, views))


class Unit:
    """Something that runs at once. ``needs`` is a bit set of the units it depends on."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.bit = 1 << number
        self.needs = 0
        self.order = 0


class Single(Unit):
    """One equation."""

    def __init__(self, number: int, eqn: Equation) -> None:
        super().__init__(number)
        self.eqn = eqn


class Group(Unit):
    """Equations over one space of indices."""

    def __init__(self, number: int, shape: Shape) -> None:
        super().__init__(number)
        self.shape = shape
        self.members: list[Equation] = []
        # The dimensions of the space along which each dimension of a value runs; -1: none.
        self.axes: dict[Var, tuple[int, ...]] = {}
        self.inner: frozenset[int] | None = None
        self.late: set[Var] = set()
        # Into how many equal blocks rows are cut: late values are folded over one of them, or all.
        self.blocks = 1
        # For each member the dimensions of the space along which its result's dimensions run.
        self.maps: dict[int, tuple[int, ...]] = {}
        self.reads: set[Var] = set()
        # The product whose rows it takes over as they are computed.
        self.product: Equation | None = None

    @property
    def dims(self) -> frozenset[int]:
        """The dimensions along which anything varies at all."""
        return frozenset(d for d, n in enumerate(self.shape) if n != 1)

    def varying(self, axes: Sequence[int]) -> frozenset[int]:
        return frozenset(a for a in axes if a >= 0 and self.shape[a] != 1)


def equations_of(unit: Unit) -> list[Equation]:
    return unit.members if isinstance(unit, Group) else [unit.eqn]  # type: ignore[attr-defined]


def ordered(units: list[Unit], values: Values, unit_of: dict[Var, Unit]) -> list[Unit]:
    """An order in which units can run: as they were written, but one that frees more memory than it
    takes runs as soon as it can (a parameter's update, as soon as its gradient is there)."""
    return _Schedule(units, values, unit_of).run()


class _Schedule:
    def __init__(self, units: list[Unit], values: Values, unit_of: dict[Var, Unit]) -> None:
        self.units = {u.number: u for u in units}
        self.values = values
        self.missing: dict[int, int] = {}
        self.dependents: dict[int, list[int]] = {}
        for unit in units:
            needs = [n for n in self.units if n != unit.number and unit.needs >> n & 1]
            self.missing[unit.number] = len(needs)
            for n in needs:
                self.dependents.setdefault(n, []).append(unit.number)
        self.due = {n: self._due(n) for n in self.units}
        # Who still has to read each value that units hand to each other.
        self.readers: dict[Var, set[int]] = {}
        self.reads: dict[int, list[Var]] = {}
        for unit in units:
            roots: dict[Var, None] = {}
            for eqn in equations_of(unit):
                for arg in eqn.args:
                    root = values.root(arg) if isinstance(arg, Var) else None
                    if root is not None and root in unit_of and unit_of[root] is not unit:
                        roots[root] = None
            self.reads[unit.number] = list(roots)
            for root in roots:
                self.readers.setdefault(root, set()).add(unit.number)
        self.takes = {u.number: self._bytes_made(u, unit_of) for u in units}

    def _due(self, number: int) -> int:
        """When a unit was written, or earlier if something needs it by then. Single numbers take no
        memory, and updates of parameters wait for them: they are due when all else that one of
        these needs was written."""
        unit, waiting = self.units[number], self.dependents.get(number, ())
        if isinstance(unit, Group) and not unit.dims and waiting:
            return min(max(self._orders_needed(n, number), default=0) for n in waiting)
        return min(self.units[n].order for n in (number, *waiting))

    def _orders_needed(self, number: int, but: int) -> list[int]:
        needs = self.units[number].needs
        return [u.order for n, u in self.units.items() if n != but and needs >> n & 1]

    def _bytes_made(self, unit: Unit, unit_of: dict[Var, Unit]) -> int:
        return sum(
            out.type.nbytes
            for eqn in equations_of(unit)
            for out in eqn.outs
            if out in self.readers and not self.values.escapes(out)
        )

    def frees(self, number: int) -> int:
        """The bytes that nobody needs any more once a unit has run."""
        return sum(
            root.type.nbytes
            for root in self.reads[number]
            if len(self.readers[root]) == 1 and not self.values.escapes(root)
        )

    def run(self) -> list[Unit]:
        ready = {n for n, count in self.missing.items() if not count}
        done: list[Unit] = []
        while ready:
            number = self.choose(ready)
            ready.remove(number)
            done.append(self.units[number])
            for root in self.reads[number]:
                self.readers[root].discard(number)
            for other in self.dependents.get(number, ()):
                self.missing[other] -= 1
                if not self.missing[other]:
                    ready.add(other)
        assert len(done) == len(self.units), "units wait for each other"
        return done

    def choose(self, ready: set[int]) -> int:
        first = min(ready, key=lambda n: (self.due[n], n))
        gain, best = max(((self.frees(n) - self.takes[n], -n) for n in ready), default=(0, 0))
        return -best if gain > 0 else first
