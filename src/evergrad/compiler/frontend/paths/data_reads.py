"""Reads of the data: numbers in computed tensors that Python decides by while a session records.

A session computes such a number at once, with everything else that is alive (:class:`DataReads`),
and continues recording: its trace is that of the path which the function takes for these numbers. A
program for that path reads them again while it runs, see :mod:`.path`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core import dtypes
from evergrad.core.python_numbers import Expressions, PythonNumber
from evergrad.core.rng.default_generator import default_generator
from evergrad.core.rng.generator import Generator
from evergrad.core.source_location import SourceLocation, describe, user_location
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Equation, Graph, Var
from evergrad.core.tracing import trace_value
from evergrad.errors import AssumptionError

if TYPE_CHECKING:
    from evergrad.compiler.frontend.paths.path import Path
    from evergrad.compiler.frontend.session import Session

# The place of numbers that are read from the data, among the sources of a number.
DATA = "data"
# The most reads of one call that are parts of a path.
_MOST_READS = 64


class DataRead:
    """A number that a function has read from the data: of the call that is traced, or that a
    program runs for. ``outs`` are the values that were alive and not computed before."""

    __slots__ = ("index", "location", "outs", "path", "randoms", "value", "var")

    def __init__(
        self, index: int, var: Var, value: object, location: SourceLocation | None
    ) -> None:
        self.index: int = index
        self.var: Var | None = var
        self.value = value
        self.location: SourceLocation | None = location
        self.outs: list[Var] = []
        # How many random numbers were drawn before.
        self.randoms: int = 0
        # The path that it is a part of, which references it.
        self.path: weakref.ref[Path] | None = None

    def run(self) -> bool:
        """Compute the number for the present call; whether that was possible."""
        path = None if self.path is None else self.path()
        try:
            return path is not None and path.run(self)
        except AssumptionError:  # Python has to run
            return False

    def __str__(self) -> str:
        return f"a number of the data is read, at {describe(self.location)}"


class DataReads:
    """The reads of one session, and the values that were computed for them."""

    def __init__(self) -> None:
        self.reads: list[DataRead] = []
        # All reads, also those that precede the end of a segment.
        self.all: list[DataRead] = []
        # Those of which the numbers are needed after a run only: no path is split at them.
        self.late: list[DataRead] = []
        # Whether all were such, of a call that is no program.
        self.are_late = False
        # Whether shapes depend on some.
        self.has_sizes: bool = False
        # The values that are computed, and how many equations precede the last read.
        self.values: dict[Var, Any] = {}
        self.position = 0
        # The states of generators before the first of these draws.
        self.generators: dict[int, tuple[Any, Any]] = {}

    def number(self, session: Session, tensor: Tensor) -> PythonNumber | None:
        """The number in a tensor; ``None`` if a program could not read it."""
        if STATE.get().trace is not session or not is_readable(tensor):
            return None
        var = trace_value(session, tensor)
        given = next((t for captured, t in session.captures if captured is var), None)
        new = [] if given is not None else session.equations[self.position :]
        if len(self.all) >= _MOST_READS or any(map(_runs_once, new)):
            return None
        found = next((r for r in self.reads if r.var is var), None)
        read = self.read(session, var, given) if found is None else found
        table, source = session.expressions, frozenset([(DATA, read.index)])
        if found is None:
            table.guard(read.run, True)
        return PythonNumber(session, table, read.value, lambda: read.value, source)

    def read(self, session: Session, var: Var, given: Tensor | None) -> DataRead:
        """Read a value: that of a tensor from outside if one is ``given``, or else one that is
        computed now."""
        read = DataRead(len(self.all), var, None, user_location(1))
        if given is None:
            self.compute(session, var, read)
        else:
            read.value = session.array_of(var, given).item()
        self.reads.append(read)
        self.all.append(read)
        return read

    def compute(self, session: Session, var: Var, read: DataRead) -> None:
        """Compute the value of a read with all that are alive."""
        wanted = {var: None, **session.live_values()}
        known = {captured for captured, _ in session.captures}
        read.outs = [v for v in wanted if v not in self.values and v not in known]
        read.randoms = sum(eqn.op.random for eqn in session.equations)
        self.save_generators(session.equations[self.position :])
        try:
            values = session.compute(wanted)
        except BaseException:  # which the function may handle: no program reads this number
            session.once = "an operation fails where a number of the data is read"
            raise
        read.value = values[var].item()
        self.values.update((v, values[v]) for v in read.outs)
        self.position = len(session.equations)
        session._known.clear()  # values that are dead are not computed

    def save_generators(self, equations: Sequence[Equation]) -> None:
        for eqn in equations:
            if eqn.op.random:
                given = eqn.attrs.get("generator")
                generator: Any = default_generator() if given is None else given
                if id(generator) not in self.generators:
                    state = Generator.get_state(generator)
                    self.generators[id(generator)] = generator, state

    def settle(self, table: Expressions) -> None:
        """Find whether the numbers are only returned, stored or put out, at the end of a call."""
        sources = frozenset((DATA, read.index) for read in self.all)
        has_ended = len(self.reads) < len(self.all)  # a segment
        if not self.reads or has_ended or not table.needed.isdisjoint(sources):
            return
        self.late, self.reads = self.reads, []
        table.late_sources, table.reads_state = sources, True
        made = {id(read) for read in self.late}
        table.guards = [
            guard for guard in table.guards if id(getattr(guard[0], "__self__", None)) not in made
        ]

    def unsettle(self) -> None:
        """The call is no program: values were computed at the reads."""
        if self.late:
            self.reads, self.late, self.are_late = self.late, [], True

    def add_outputs(self, table: Expressions, outputs: list[object]) -> int:
        """Make the numbers that are needed after a run further results of the graph; returns how
        many these are."""
        late, first = (self.late if table.late else []), len(outputs)
        outputs += [read.var for read in late]

        def load() -> None:
            for index, read in enumerate(late, first):
                read.value = table.computed[index].item()

        if late:
            table.late_calls.insert(0, load)
        return len(late)

    def restore_generators(self) -> None:
        """Let generators have the states before the reads: a program draws these numbers again."""
        for generator, state in self.generators.values():
            Generator.set_state(generator, state)
        self.generators.clear()

    def forget(self) -> None:
        """Clear what was computed: the values are those of outside tensors from now on."""
        for read in self.reads:
            read.var, read.outs = None, []
        self.reads, self.values, self.position = [], {}, 0
        self.generators.clear()


def is_readable(tensor: Tensor) -> bool:
    """Whether a tensor is one number of Python."""
    kind = tensor.dtype
    return tensor._type.numel == 1 and (kind.is_floating_point or kind.category <= dtypes.INTEGRAL)


def _runs_once(eqn: Equation) -> bool:
    """Whether an equation must not be computed for a read and by the program again."""
    return eqn.op.communicates or eqn.op.family == "custom"


def slice_of(
    equations: Sequence[Equation], wanted: Collection[object], known: Collection[object],
    is_forced: Callable[[int, Equation], bool],
) -> list[int]:  # fmt: skip
    """The numbers of the equations that compute values from known ones, and of those forced."""
    needed = {var for var in wanted if isinstance(var, Var) and var not in known}
    kept: list[int] = []
    for number in reversed(range(len(equations))):
        eqn = equations[number]
        if is_forced(number, eqn) or not needed.isdisjoint(eqn.outs):
            kept.append(number)
            needed.update(a for a in eqn.args if a.__class__ is Var and a not in known)
    return kept[::-1]


def subgraph(
    equations: Sequence[Equation], inputs: Sequence[Var], outputs: Sequence[object]
) -> Graph:
    """A graph of some equations with values of its own; ``inputs`` are as they are."""
    given = set(inputs)
    env: dict[Var, Var] = {}
    made: list[Equation] = []
    for eqn in equations:
        args = tuple([env.get(a, a) if a.__class__ is Var else a for a in eqn.args])
        outs = tuple([Var(o.type, o.trace, o._layout, o.inactive) for o in eqn.outs])
        env.update((o, new) for o, new in zip(eqn.outs, outs, strict=True) if o not in given)
        made.append(Equation(eqn.specialization, args, outs, eqn.location, eqn.no_grad))
    return Graph(inputs, (), made, [env.get(o, o) if isinstance(o, Var) else o for o in outputs])
