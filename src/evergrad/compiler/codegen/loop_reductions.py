"""Reductions inside a loop nest: accumulators of inner ones, partial results of outer ones.

An outer reduction leaves one partial result per chunk; another kernel combines these in a fixed
order (:func:`~.codegen.reductions.combine_partials`), whichever threads computed them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from evergrad.compiler.codegen.blocked_sums import (
    ROWS,
    BlockedSum,
    Countdown,
    NumberSum,
    is_float_sum,
)
from evergrad.compiler.codegen.loop_accesses import PARALLEL
from evergrad.compiler.codegen.reductions import (
    compute_type,
    from_ordered,
    identity_of,
    is_ordered,
    max_ordered,
    memory_type,
    ordered_identity,
    ordered_type,
    reduce_element,
)
from evergrad.core.trace import Equation

if TYPE_CHECKING:
    from evergrad.compiler.codegen.code import Code
    from evergrad.compiler.codegen.emit_loops import LoopEmitter
    from evergrad.compiler.codegen.loop_point import IterationPoint


class ReductionEmitter:
    """Emits the reductions of one loop nest."""

    def __init__(self, loops: LoopEmitter) -> None:
        self.loops = loops
        self.code: Code = loops.code
        # For each outer reduction (by ``id``) the address of this chunk's partial result, and the
        # variable that accumulates it if it is one number.
        self.partial_pointers: dict[int, str] = {}
        self.partial_variables: dict[int, str] = {}
        # Blocked sums of one number, by the variable of their run; and the countdown to the
        # next flush of those with one number per inner index.
        self.number_sums: dict[str, NumberSum] = {}
        self.row_countdown: Countdown = Countdown(loops, ROWS, self._flush_rows)

    # -- inner reductions -----------------------------------------------------------------------

    def _variable(self, type: str, identity: str) -> str:
        name = self.loops.entry.variable(type)
        self.code.do(f"store {type} {identity}, ptr {name}")
        return name

    def accumulator(self, eqn: Equation) -> str:
        """A variable for an inner reduction, set to its identity."""
        if is_ordered(eqn):
            return self._variable(ordered_type(eqn), ordered_identity(eqn))
        if is_float_sum(eqn) and self.loops.has_runs:
            return self._number_sum(eqn)
        return self._variable(compute_type(eqn), identity_of(eqn))

    def _number_sum(self, eqn: Equation) -> str:
        made = NumberSum(self.loops, compute_type(eqn))
        self.number_sums[made.run] = made
        return made.run

    def flush_runs(self, equations: list[Equation], accumulators: dict[int, str]) -> None:
        """Add the sums of one run of the innermost loop to their totals."""
        for eqn in equations:
            variable = accumulators.get(id(eqn)) or self.partial_variables.get(id(eqn), "")
            if variable in self.number_sums:
                self.number_sums[variable].flush()

    def _held(self, type: str, variable: str) -> str:
        """What a variable has accumulated."""
        if variable in self.number_sums:
            return self.number_sums[variable].result()
        return self.code.op(f"load {type}, ptr {variable}")

    def result(self, eqn: Equation, accumulator: str) -> str:
        """The result of an inner reduction."""
        if is_ordered(eqn):
            held = self.code.op(f"load {ordered_type(eqn)}, ptr {accumulator}")
            return from_ordered(self.code, eqn, held)
        return self._held(compute_type(eqn), accumulator)

    def accumulate(self, eqn: Equation, point: IterationPoint, accumulator: str | None) -> None:
        """Reduce the element at a point; without an accumulator, into the partial result."""
        value = point.operand(self.loops.uses[id(eqn), 0])
        type = compute_type(eqn)
        if accumulator is not None and is_ordered(eqn):
            integer = ordered_type(eqn)
            held = self.code.op(f"load {integer}, ptr {accumulator}")
            greater = max_ordered(self.code, eqn, held, value)
            self.code.do(f"store {integer} {greater}, ptr {accumulator}")
        elif accumulator is not None:
            self._accumulate_at(eqn, accumulator, value)
        elif self.loops.keeps_inner(eqn):
            partial = self.partial_pointers[id(eqn)]
            address = self.code.op(f"getelementptr {type}, ptr {partial}, i64 {point.linear()}")
            self._accumulate_at(eqn, address, value, PARALLEL)
        else:
            self.add_to_partial(eqn, value)

    def _accumulate_at(self, eqn: Equation, address: str, value: str, tag: str = "") -> None:
        type = compute_type(eqn)
        held = self.code.op(f"load {type}, ptr {address}{tag}")
        result = reduce_element(self.code, eqn, held, value)
        self.code.do(f"store {type} {result}, ptr {address}{tag}")

    # -- outer reductions -----------------------------------------------------------------------

    def start_partials(self) -> None:
        """Set this chunk's partial results to the identity: in memory if there is one element per
        inner index, otherwise in a variable."""
        code, loops = self.code, self.loops
        for number, eqn in enumerate(loops.outer_reductions()):
            type = compute_type(eqn)
            partials = loops.entry.pointer(len(loops.slots) + number)
            if not loops.keeps_inner(eqn):
                is_long = is_float_sum(eqn) and loops.outer_size * loops.inner_size > ROWS
                self.partial_variables[id(eqn)] = (
                    self._number_sum(eqn) if is_long else self._variable(type, identity_of(eqn))
                )
                self.partial_pointers[id(eqn)] = code.op(
                    f"getelementptr {memory_type(type)}, ptr {partials}, i64 %chunk"
                )
                continue
            begin = code.op(f"mul i64 %chunk, {self._inner_count()}")
            start = code.op(f"getelementptr {type}, ptr {partials}, i64 {begin}")
            self.partial_pointers[id(eqn)] = start
            self._for_inner(eqn, self._clear)
        self.row_countdown.start()

    def _inner_count(self) -> str:
        """The number of inner indices."""
        count = self.loops.entry.number(("inner", 0))
        for d in range(1, len(self.loops.inner_extents)):
            count = self.code.op(f"mul i64 {count}, {self.loops.entry.number(('inner', d))}")
        return count

    def _for_inner(self, eqn: Equation, action: Callable[[Equation, str], None]) -> None:
        """A vectorized loop over inner indices."""
        self.loops.loop("0", self._inner_count(), partial(action, eqn), vectorize=True)

    def _row_sum(self, eqn: Equation, index: str) -> BlockedSum:
        """The blocked sum at an inner index: its run is the partial result."""
        type, code = compute_type(eqn), self.code
        run = code.op(f"getelementptr {type}, ptr {self.partial_pointers[id(eqn)]}, i64 {index}")
        total, lost = (
            code.op(f"getelementptr double, ptr {self.loops.scratch_row(row)}, i64 {index}")
            for row in self.loops.sum_rows(eqn)
        )
        return BlockedSum(code, type, run, total, lost)

    def _clear(self, eqn: Equation, index: str) -> None:
        if self.loops.sum_rows(eqn):
            self._row_sum(eqn, index).clear(PARALLEL)
            return
        type, partial = compute_type(eqn), self.partial_pointers[id(eqn)]
        address = self.code.op(f"getelementptr {type}, ptr {partial}, i64 {index}")
        self.code.do(f"store {type} {identity_of(eqn)}, ptr {address}{PARALLEL}")

    def _flush_rows(self) -> None:
        for eqn in self.loops.tall_sums:
            self._for_inner(eqn, lambda eqn, index: self._row_sum(eqn, index).flush(PARALLEL))

    def count_row(self) -> None:
        """Count an outer iteration, in the sums with one result per inner index."""
        if self.loops.tall_sums:
            self.row_countdown.count()

    def _finish_row(self, eqn: Equation, index: str) -> None:
        found = self._row_sum(eqn, index)
        result = found.result(PARALLEL)
        self.code.do(f"store {found.type} {result}, ptr {found.run}{PARALLEL}")

    def add_to_partial(self, eqn: Equation, value: str) -> None:
        """Reduce a number into a partial result that is a variable."""
        variable = self.partial_variables[id(eqn)]
        if variable in self.number_sums and not self.loops.reduces_full(eqn):
            self.number_sums[variable].add(value)
        else:
            self._accumulate_at(eqn, variable, value)

    def finish_partials(self) -> None:
        """Store the partial results that are variables, and complete blocked sums."""
        for eqn in self.loops.tall_sums:
            self._for_inner(eqn, self._finish_row)
        for eqn in self.loops.outer_reductions():
            if id(eqn) in self.partial_variables:
                type = compute_type(eqn)
                held = self._held(type, self.partial_variables[id(eqn)])
                if type == "i1":
                    held = self.code.op(f"zext i1 {held} to i8")
                address = self.partial_pointers[id(eqn)]
                self.code.do(f"store {memory_type(type)} {held}, ptr {address}")
