"""Diagnoses a failed run of a compiled program in terms of the traced function.

Kernels do not carry source locations; the traced graph does. A run that failed is therefore
re-evaluated equation by equation with NumPy, on the inputs as they were before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from evergrad.core.rng.default_generator import default_generator
from evergrad.core.rng.generator import Generator
from evergrad.core.source_location import describe
from evergrad.core.state import using
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Equation, Graph, Var
from evergrad.errors import IndexOutOfRangeError

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

_FLOATING = "fcV"  # V: the 16-bit floats of ml_dtypes


class Snapshot:
    """A copy of what a program may write: storages and RNG states."""

    def __init__(self, storages: Iterable[Storage], generators: Iterable[Any]) -> None:
        held: Leaves = [s.value for s in storages]
        self.arrays = [(array, array.copy()) for array in held]
        self.generators = [(g, Generator.get_state(g)) for g in generators]

    def restore(self) -> None:
        for array, value in self.arrays:
            np.copyto(array, value)
        self.restore_generators()

    def restore_generators(self) -> None:
        for generator, state in self.generators:
            Generator.set_state(generator, state)


class Kind(NamedTuple):
    """Which non-finite values an array holds."""

    infinite: bool
    nan: bool

    def __str__(self) -> str:
        return " and ".join(w for w, held in (("inf", self.infinite), ("nan", self.nan)) if held)


FINITE = Kind(False, False)


def kind_of(value: object) -> Kind:
    array = value._value if isinstance(value, Tensor) else value
    if not isinstance(array, np.ndarray) or array.dtype.kind not in _FLOATING:
        return FINITE
    with np.errstate(all="ignore"):
        if bool(np.isfinite(array).all()):
            return FINITE
        return Kind(bool(np.isinf(array).any()), bool(np.isnan(array).any()))


def evaluate(
    graph: Graph, inputs: Sequence[Tensor], watch: Callable[[Equation, Sequence[object]], None]
) -> None:
    """Interpret a graph with NumPy; ``watch`` gets each equation's results. Values are freed after
    their last use."""
    last = {a: n for n, e in enumerate(graph.equations) for a in e.args if isinstance(a, Var)}
    env: dict[Var, Tensor] = dict(zip(graph.inputs, inputs, strict=True))
    with using(grad=False):
        for number, eqn in enumerate(graph.equations):
            found = eqn.apply(*[env[a] if isinstance(a, Var) else a for a in eqn.args])
            outs = (found,) if eqn.op.outputs == 1 else tuple(found)
            watch(eqn, outs)
            env.update((v, o) for v, o in zip(eqn.outs, outs, strict=True) if v in last)
            for arg in eqn.args:
                if isinstance(arg, Var) and last[arg] == number:
                    env.pop(arg, None)


# -- lookups and checks -------------------------------------------------------------------------


def failed_lookup(
    graph: Graph, inputs: Sequence[Tensor], generators: Iterable[object]
) -> Exception:
    """The error for the first lookup with an index out of range or the first check that fails, with
    its source location. The error of a check is that of eager evaluation, with a note."""
    head = "an index is out of range in a lookup inside a compiled function; nothing was written."
    at: list[Equation] = []
    snapshot = Snapshot((), generators)
    try:
        evaluate(graph, inputs, lambda eqn, outs: at.append(eqn))
    except Exception as error:
        eqn = graph.equations[len(at)]
        # Rows whose arguments programs check: probabilities of draws, divisors of integers.
        if eqn.op.checks or eqn.op.random or eqn.op.family == "elementwise":
            error.add_note(
                f"in a compiled function; nothing was written.\n  at {describe(eqn.location)}"
            )
            return error.with_traceback(None)
        if not isinstance(error, IndexError | RuntimeError):
            raise
        kind = IndexError if isinstance(error, IndexError) else IndexOutOfRangeError
        return kind(f"{error}\n  {head}\n  in {describe_equation(eqn)}")
    finally:
        snapshot.restore_generators()
    return IndexError(head)


# -- non-finite values --------------------------------------------------------------------------


class _Origins:
    """The equations with non-finite results, and the dependencies between these."""

    def __init__(self, graph: Graph, inputs: Sequence[Tensor]) -> None:
        self.kinds: dict[Var, Kind] = {}
        self.maker: dict[Var, Equation] = {}
        for var, tensor in zip(graph.inputs, inputs, strict=True):
            self.note(var, kind_of(tensor))
        evaluate(graph, inputs, self.watch)

    def note(self, var: Var, kind: Kind) -> None:
        if kind != FINITE:
            self.kinds[var] = kind

    def watch(self, eqn: Equation, outs: Sequence[object]) -> None:
        for var, out in zip(eqn.outs, outs, strict=True):
            self.maker[var] = eqn
            self.note(var, kind_of(out))

    def sources(self, var: Var) -> list[Var]:
        eqn = self.maker.get(var)
        return [] if eqn is None else [a for a in eqn.args if a in self.kinds]

    def leading_to(self, outputs: Iterable[Var]) -> list[Var]:
        """The non-finite values on which non-finite outputs depend, in topological order."""
        found: dict[Var, None] = {}
        waiting = [o for o in outputs if o in self.kinds]
        while waiting:
            var = waiting.pop()
            if var not in found:
                found[var] = None
                waiting += self.sources(var)
        return [v for v in self.kinds if v in found]


class FiniteCheck:
    """A run of a program that is undone if a result or a written tensor is not finite."""

    def __init__(
        self, graph: Graph, count: int, inputs: Sequence[Tensor], written: Sequence[Storage]
    ) -> None:
        """Checks the first ``count`` outputs of the graph."""
        self.graph = graph
        self.count = count
        self.inputs = inputs
        self.written = written
        drawn = [e.attrs.get("generator") for e in graph.equations if e.op.random]
        generators = [default_generator() if g is None else g for g in dict.fromkeys(drawn)]
        self.snapshot: Snapshot = Snapshot(written, generators)

    def passes(self, results: Sequence[object]) -> bool:
        held = (*results[: self.count], *(s.value for s in self.written))
        return all(kind_of(array) == FINITE for array in held)

    def undo(self, name_of_input: Callable[[int], str]) -> str:
        """Restore everything to the state before the run; returns the reason, for a message."""
        self.snapshot.restore()
        try:
            origins = _Origins(self.graph, self.inputs)
        finally:
            self.snapshot.restore_generators()
        return self.reason(origins, name_of_input)

    def reason(self, origins: _Origins, name_of_input: Callable[[int], str]) -> str:
        head = "a compiled function produced non-finite values; nothing was written."
        outputs = [o for o in self.graph.outputs[: self.count] if isinstance(o, Var)]
        chain = origins.leading_to(outputs)
        if not chain:
            return (
                f"{head}\n  Evaluated op by op all its values are finite: either one of them is at "
                "the limit of its dtype's range, or the program is wrong. Please report it."
            )
        first, kind = chain[0], origins.kinds[chain[0]]
        if first not in origins.maker:
            given = name_of_input(self.graph.inputs.index(first))
            return f"{head}\n  {kind} was in an input: {given}"
        lines = [head, f"  The first {kind} came from {describe_equation(origins.maker[first])}"]
        first_nan = next((v for v in chain if origins.kinds[v].nan), first)
        if first_nan is not first:
            lines.append(
                f"  It led to the first nan in {describe_equation(origins.maker[first_nan])}"
            )
        return "\n".join(lines)


def describe_equation(eqn: Equation) -> str:
    """An equation for a message: its op and source location."""
    return f"{eqn.op.name}: {describe(eqn.location)}"
