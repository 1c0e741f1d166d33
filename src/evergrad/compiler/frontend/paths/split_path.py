"""Splits the graph of a call that has read the data into the stages of its path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from evergrad.compiler.frontend.paths.data_reads import DataRead, slice_of, subgraph
from evergrad.compiler.frontend.paths.path import Path, Source, Stage, number_of
from evergrad.core.op import TABLE
from evergrad.core.trace import Equation, Var

if TYPE_CHECKING:
    from evergrad.compiler.frontend.captured import Captured
    from evergrad.core.tensor import Tensor
    from evergrad.core.types import Array

import numpy as np


def outputs_of(reads: Sequence[DataRead]) -> list[Var]:
    """The values that a path is split at, to be outputs of its graph."""
    return [var for read in reads for var in (read.var, *read.outs) if var is not None]


def split_path(
    found: Captured, reads: Sequence[DataRead], first: int, make: Callable[[], Captured]
) -> None:
    """Make the graph of a captured call that of the last part of a path, and add the path. The
    outputs of the graph from ``first`` on are :func:`outputs_of` the reads; ``make`` makes a
    captured call."""
    kept: set[int] = set()
    while True:
        try:
            _Splitter(found, reads, first, make, kept).split()
            return
        except _DrawnBeforeError as drawn:
            kept |= drawn.numbers


class _DrawnBeforeError(Exception):
    """A part of a path needs random numbers of an earlier one, of the equations ``numbers``, which
    have to be among its results."""

    def __init__(self, numbers: set[int]) -> None:
        self.numbers = numbers


class _Splitter:
    """A captured call and its reads. ``known`` are the values that are inputs of the graph, or
    computed by the stages so far."""

    def __init__(
        self, found: Captured, reads: Sequence[DataRead], first: int, make: Callable[[], Captured],
        kept: set[int],
    ) -> None:  # fmt: skip
        """``kept`` are the random equations whose results later parts need."""
        self.kept = kept
        self.found = found
        self.reads = reads
        self.make = make
        self.graph = found.graph
        self.equations: Sequence[Equation] = found.graph.equations
        grads = len(found.grad_inputs)
        # The inputs of the graph by kind: arguments, gradients, numbers, outside tensors.
        ends = [found.arguments - grads, found.arguments, found.arguments + len(found.numbers)]
        inputs = list(found.graph.inputs)
        self.arguments, self.grads = inputs[: ends[0]], inputs[ends[0] : ends[1]]
        self.numbers, self.outside = inputs[ends[1] : ends[2]], inputs[ends[2] :]
        self.known: set[object] = set(inputs)
        self.carried: list[Var] = []
        self.randoms = [n for n, eqn in enumerate(self.equations) if eqn.op.random]
        # The random equations that stages have, which are run once.
        self.drawn: set[int] = set()
        self.first = first
        count = sum(1 + len(read.outs) for read in reads)
        self.extra = self.graph.outputs[first : first + count]
        self.rest = [*self.graph.outputs[:first], *self.graph.outputs[first + count :]]

    def split(self) -> None:
        stages: list[Stage | None] = []
        places: list[Callable[[Path], Any]] = []
        position = 0
        for read in self.reads:
            outs = self.extra[position : position + 1 + len(read.outs)]
            position += len(outs)
            stages.append(self.stage(outs, read.randoms))
            places.append(self.place(outs[0]))
        carried = self.last()
        path = self.found.path = Path(self.reads, stages, places, carried, self.graph)
        path.grad_inputs = self.found.grad_inputs
        path.keeps_values = self.found.derivative is not None

    def stage(self, outs: Sequence[object], randoms: int) -> Stage | None:
        """The stage that computes values, with the random numbers drawn before."""
        forced = set(self.randoms[:randoms]) - self.drawn
        wanted = [v for v in dict.fromkeys(outs) if isinstance(v, Var) and v not in self.known]
        numbers = slice_of(self.equations, wanted, self.known, lambda n, _: n in forced)
        if not numbers:
            return None
        self.draw(numbers)
        drawn = [out for n in numbers if n in self.kept for out in self.equations[n].outs]
        wanted = list(dict.fromkeys([*wanted, *drawn]))
        kept = [self.equations[n] for n in numbers]
        read = {a for eqn in kept for a in eqn.args if a.__class__ is Var}
        captured = self.make()
        given: list[Var] = []
        sources: list[Source] = []
        of_kinds = (("argument", self.arguments), ("grad", self.grads), ("carried", self.carried))
        for kind, members in of_kinds:
            for index, var in enumerate(members):
                if var in read:
                    given.append(var)
                    sources.append((kind, index))
        found = self.found
        options = [(v, entry) for v, entry in zip(self.numbers, found.numbers, strict=True)
                   if v in read]  # fmt: skip
        outside = [(v, t) for v, t in zip(self.outside, found.outside, strict=True) if v in read]
        captured.numbers = [entry for _, entry in options]
        captured.outside = [tensor for _, tensor in outside]
        captured.arguments, captured.result_count = len(given), len(wanted)
        inputs = [*given, *(v for v, _ in options), *(v for v, _ in outside)]
        captured.graph = subgraph(kept, inputs, wanted).with_plain_inputs(
            len(given), TABLE["clone"]
        )
        first = len(self.carried)
        self.carried += wanted
        self.known.update(wanted)
        return Stage(captured, sources, first)

    def draw(self, numbers: Sequence[int]) -> None:
        """Note the random equations of a part, of which none must have been run by another one."""
        random = {n for n in numbers if self.equations[n].op.random}
        if not random.isdisjoint(self.drawn):
            raise _DrawnBeforeError(random & self.drawn)
        self.drawn |= random

    def place(self, out: Any) -> Callable[[Path], Any]:
        """Where the number of a read is."""
        if not isinstance(out, Var):
            return partial(_constant, np.asarray(out))
        for index, var in enumerate(self.carried):
            if var is out:
                return partial(_carried, index)
        for index, var in enumerate(self.arguments):
            if var is out:
                return partial(_given, ("argument", index))
        for index, var in enumerate(self.grads):
            if var is out:
                return partial(_given, ("grad", index))
        for index, var in enumerate(self.outside):
            if var is out:
                return partial(_outside, self.found.outside[index])
        entry = self.found.numbers[next(i for i, v in enumerate(self.numbers) if v is out)]
        return partial(_number, entry)

    def last(self) -> list[int]:
        """Make the captured graph that of the last part; returns the values that it takes of the
        stages."""
        found = self.found

        def is_forced(number: int, eqn: Equation) -> bool:
            return eqn.op.has_effect and number not in self.drawn

        numbers = slice_of(self.equations, self.rest, self.known, is_forced)
        self.draw(numbers)
        kept = [self.equations[n] for n in numbers]
        read = {a for eqn in kept for a in eqn.args if a.__class__ is Var}
        read |= {out for out in self.rest if isinstance(out, Var)}
        taken = [index for index, var in enumerate(self.carried) if var in read]
        carried = [self.carried[index] for index in taken]
        count = len(self.arguments) + len(carried) + len(self.grads)
        inputs = [*self.arguments, *carried, *self.grads, *self.numbers, *self.outside]
        found.graph = subgraph(kept, inputs, self.rest).with_plain_inputs(count, TABLE["clone"])
        self.shift(len(carried))
        return taken

    def shift(self, count: int) -> None:
        """Have the indices of inputs after the arguments as they are with ``count`` more."""
        found, first = self.found, len(self.arguments)

        def moved(index: int) -> int:
            return index + count if index >= first else index

        found.arguments += count
        found.overwritten = list(map(moved, found.overwritten))
        derivative = found.derivative
        if derivative is not None:
            derivative.residuals = [
                (kind, moved(n) if kind == "input" else n) for kind, n in derivative.residuals
            ]
            derivative.sources = list(map(moved, derivative.sources))


def _constant(array: Array, path: Path) -> object:
    return array


def _carried(index: int, path: Path) -> Array:
    result: Array = path.values[index]
    return result


def _given(source: Source, path: Path) -> object:
    return path.array(source)


def _outside(tensor: Tensor, path: Path) -> object:
    return tensor._value


def _number(entry: tuple[object, object, int | None], path: Path) -> object:
    return np.asarray(number_of(*entry), np.float64)
