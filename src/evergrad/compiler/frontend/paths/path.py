"""Paths: programs of functions that decide by the data, as stages with reads between them.

The trace of a call that has read numbers of the data is valid while these lead to the same
decisions. Its graph is split at the reads: each :class:`Stage` computes a number and what was alive
when it was read, the last part is the program of the variant. Nothing is written before that, so
that a path which the data does not take leaves nothing behind: another one is tried, or Python runs
the function. Stages that several paths have in common run once per call (:class:`StageMemo`), so
that the paths of a signature are a tree.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import is_
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.frontend.diagnose import failed_lookup
from evergrad.compiler.frontend.paths.data_reads import DataRead
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.runtime.stage_runner import KEPT_BYTES, StageRun, contiguous, stage_runner
from evergrad.core.python_numbers import Expressions, exactly
from evergrad.core.rng.generator import Generator
from evergrad.core.tensor import Tensor, from_array
from evergrad.core.trace import Graph
from evergrad.errors import AssumptionError

if TYPE_CHECKING:
    from evergrad.compiler.frontend.captured import Captured
    from evergrad.core.types import Array, Leaves

# A value that precedes a stage: ("argument", "grad" or "carried", index).
Source = tuple[str, int]


class Stage:
    """A program of a part of a path: its inputs, and the values that it computes for the read that
    follows and for later parts."""

    def __init__(self, captured: Captured, inputs: list[Source], first: int) -> None:
        """``first`` is the number of its first result among the values that are carried on."""
        self.captured = captured
        self.inputs = inputs
        self.first = first
        self.program: Program | None = None
        self.runner: StageRun | None = None
        self.is_random: bool = False
        # What is equal for a stage that computes the same from the same.
        self.key: Any = None

    def run(self, arrays: list[Array], numbers: list[float]) -> Leaves:
        """The results, valid until the next run."""
        program = self.program
        assert program is not None
        if self.runner is None:
            self.runner = stage_runner(program)
            self.is_random = program.is_random
        try:
            return self.runner(arrays, numbers)
        except Exception as error:
            found = self.failed(arrays, numbers) if program.status_word[0] else error
            if isinstance(found, self.captured.handled):  # Python runs the call
                raise AssumptionError(str(error)) from None
            if found is error:
                raise
            raise found from error

    def failed(self, arrays: list[Any], numbers: list[float]) -> Exception:
        """The error of a failed lookup or check."""
        assert self.program is not None
        captured = self.captured
        floats = [from_array(np.asarray(number, np.float64)) for number in numbers]
        given = [*map(from_array, contiguous(arrays)), *floats, *captured.outside]
        return failed_lookup(captured.graph, given, self.program.generators())

    def generators(self) -> Leaves:
        """The generators that it draws from."""
        if self.runner is not None and not self.is_random:
            return []
        assert self.program is not None
        return self.program.generators()


class StageMemo:
    """The stages that have run for the present call of a compiled function, with the states of
    generators before the first and after each."""

    def __init__(self) -> None:
        self.results: dict[Stage, tuple[Leaves, list[float], Leaves, Any]] = {}
        self.before: dict[int, tuple[Any, Any]] = {}

    def run(self, stage: Stage, arrays: list[Array], numbers: list[float]) -> Leaves:
        """The results of a stage, computed unless it has run on the same."""
        found = self.results.get(stage)
        if found is not None:
            known, values, results, states = found
            if all(map(is_, known, arrays)) and list(map(exactly, values)) == list(
                map(exactly, numbers)
            ):
                _set_states(states)
                return results
        generators = stage.generators()
        for generator in generators:
            if id(generator) not in self.before:
                self.before[id(generator)] = generator, Generator.get_state(generator)
        results = stage.run(arrays, numbers)
        states = [(generator, Generator.get_state(generator)) for generator in generators]
        self.results[stage] = arrays, numbers, results, states
        return results

    def undo(self) -> None:
        """Let generators have the states before the call."""
        _set_states(self.before.values())

    def clear(self) -> None:
        """The call has ended, or is run by Python."""
        if self.results:
            self.results = {}
        if self.before:
            self.before = {}


def _set_states(states: Iterable[tuple[Any, Any]]) -> None:
    for generator, state in states:
        Generator.set_state(generator, state)


class Path:
    """The stages of one path. ``places`` says for each read where its number is: the result of a
    stage, or an input of the graph."""

    def __init__(
        self, reads: Sequence[DataRead], stages: list[Stage | None],
        places: list[Callable[[Path], Any]], carried: list[int], graph: Graph,
    ) -> None:  # fmt: skip
        self.reads: list[DataRead] = list(reads)
        self.stages = stages
        # The run-time numbers of each stage: a stage may be that of another path too.
        self.numbers = [[] if stage is None else stage.captured.numbers for stage in stages]
        self.places = places
        # The values that the last part takes, among those of all stages.
        self.carried = carried
        # The graph before it was split, with the values of the reads as further outputs.
        self.graph = graph
        self.memo: StageMemo = StageMemo()
        self.grad_inputs: list[Tensor] = []
        # Whether values are kept after the call, as residuals.
        self.keeps_values = False
        self.last_arrays: list[object] | None = None
        self.last_values: list[Tensor] = []
        # Of the present call: the argument of an index, the values so far, and what is assumed of
        # the data instead of computing it.
        self.argument: Callable[[int], Tensor] = _no_argument
        self.values: dict[int, Any] = {}
        self.assumed: Sequence[Any] | None = None
        for read in reads:
            read.path = weakref.ref(self)
            read.var, read.outs = None, []

    def begin(self, argument: Callable[[int], Tensor]) -> None:
        """Begin a call with these arguments."""
        self.argument = argument
        self.values = {}

    def run(self, read: DataRead) -> bool:
        """Compute the number of a read for the present call."""
        if self.assumed is not None:
            if read.index >= len(self.assumed):
                return False
            read.value = self.assumed[read.index]
            return True
        stage = self.stages[read.index]
        if stage is not None:
            arrays = [self.array(source) for source in stage.inputs]
            numbers = [number_of(*entry) for entry in self.numbers[read.index]]
            results = self.memo.run(stage, arrays, numbers)
            self.values.update(enumerate(results, stage.first))
        read.value = self.places[read.index](self).item()
        return True

    def array(self, source: Source) -> Any:
        kind, index = source
        if kind == "carried":
            return self.values[index]
        tensor: Any = self.grad_inputs[index]._grad if kind == "grad" else self.argument(index)
        return tensor._value

    @contextmanager
    def assuming(self, data: Sequence[object]) -> Iterator[None]:
        """Take these numbers for those of the reads meanwhile."""
        self.assumed = data
        try:
            yield
        finally:
            self.assumed = None

    @contextmanager
    def last_part(self) -> Iterator[None]:
        """Run the last part of the path; if it fails, generators are as before the call."""
        try:
            yield
        except Exception:
            self.memo.undo()
            raise
        finally:
            self.memo.clear()

    def fail(self) -> None:
        """The program is not for the present call: leave nothing behind."""
        self.memo.undo()
        self.release()

    def finish(self) -> list[Tensor]:
        """The values for the last part of the path, once it is known to be taken."""
        values = self.values
        arrays = [values[index] for index in self.carried]
        if self.keeps_values:
            found = [from_array(array.copy()) for array in arrays]
        elif self.last_arrays is not None and all(map(is_, arrays, self.last_arrays)):
            found = self.last_values  # in memory that is kept
        else:
            found = [from_array(array) for array in arrays]
            if sum(array.nbytes for array in arrays) <= KEPT_BYTES:
                self.last_arrays, self.last_values = arrays, found
        self.memo.results = {}
        self.release()
        return found

    def release(self) -> None:
        self.argument, self.values = _no_argument, {}

    @property
    def programs(self) -> list[Program]:
        return [s.program for s in self.stages if s is not None and s.program is not None]


def _no_argument(index: int) -> Tensor:
    raise RuntimeError("no call is running")


def number_of(container: Any, key: Any, part: int | None) -> float:
    """A run-time number of a stage; one of Python is evaluated, since what it depends on is
    known."""
    if isinstance(container, Expressions):
        return float(container.expressions[key]())
    value = container[key]
    return float(value if part is None else value[part])
