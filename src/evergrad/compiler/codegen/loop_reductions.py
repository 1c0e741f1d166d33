"""Reductions inside a loop nest: accumulators of inner ones, partial results of outer ones.

An outer reduction leaves one partial result per chunk; another kernel combines these in a fixed
order (:func:`~.codegen.reductions.combine_partials`), whichever threads computed them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
    from evergrad.compiler.codegen.emit_loops import LoopEmitter
    from evergrad.compiler.codegen.loop_point import IterationPoint


class ReductionEmitter:
    """Emits the reductions of one loop nest."""

    def __init__(self, loops: LoopEmitter) -> None:
        self.loops = loops
        self.code = loops.code
        # For each outer reduction (by ``id``) the address of this chunk's partial result, and the
        # variable that accumulates it if it is one number.
        self.partial_pointers: dict[int, str] = {}
        self.partial_variables: dict[int, str] = {}

    # -- inner reductions -----------------------------------------------------------------------

    def _variable(self, type: str, identity: str) -> str:
        name = self.loops.entry.variable(type)
        self.code.do(f"store {type} {identity}, ptr {name}")
        return name

    def accumulator(self, eqn: Equation) -> str:
        """A variable for an inner reduction, set to its identity."""
        if is_ordered(eqn):
            return self._variable(ordered_type(eqn), ordered_identity(eqn))
        return self._variable(compute_type(eqn), identity_of(eqn))

    def result(self, eqn: Equation, accumulator: str) -> str:
        """The result of an inner reduction."""
        if is_ordered(eqn):
            held = self.code.op(f"load {ordered_type(eqn)}, ptr {accumulator}")
            return from_ordered(self.code, eqn, held)
        return self.code.op(f"load {compute_type(eqn)}, ptr {accumulator}")

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
            self._accumulate_at(eqn, address, value, ", !llvm.access.group !M0")
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
                self.partial_variables[id(eqn)] = self._variable(type, identity_of(eqn))
                self.partial_pointers[id(eqn)] = code.op(
                    f"getelementptr {memory_type(type)}, ptr {partials}, i64 %chunk"
                )
                continue
            count = loops.entry.number(("inner", 0))
            for d in range(1, len(loops.inner_extents)):
                count = code.op(f"mul i64 {count}, {loops.entry.number(('inner', d))}")
            begin = code.op(f"mul i64 %chunk, {count}")
            start = code.op(f"getelementptr {type}, ptr {partials}, i64 {begin}")
            self.partial_pointers[id(eqn)] = start

            def clear(index: str, start: str = start, type: str = type, eqn: Any = eqn) -> None:
                address = code.op(f"getelementptr {type}, ptr {start}, i64 {index}")
                code.do(f"store {type} {identity_of(eqn)}, ptr {address}, !llvm.access.group !M0")

            loops.loop("0", count, clear, vectorize=True)

    def add_to_partial(self, eqn: Equation, value: str) -> None:
        """Reduce a number into a partial result that is a variable."""
        self._accumulate_at(eqn, self.partial_variables[id(eqn)], value)

    def finish_partials(self) -> None:
        """Store the partial results that are variables."""
        for eqn in self.loops.outer_reductions():
            if id(eqn) in self.partial_variables:
                type = compute_type(eqn)
                held = self.code.op(f"load {type}, ptr {self.partial_variables[id(eqn)]}")
                if type == "i1":
                    held = self.code.op(f"zext i1 {held} to i8")
                address = self.partial_pointers[id(eqn)]
                self.code.do(f"store {memory_type(type)} {held}, ptr {address}")
