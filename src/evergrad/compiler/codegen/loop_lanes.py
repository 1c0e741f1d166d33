"""Inner reductions of few elements, for many outer iterations at a time: the lanes of a register.

A nest that goes by lanes (:attr:`.loop_nest.LoopNest.by_lanes`) has a run of outer iterations as
its innermost loop. What an outer iteration has one of, a reduction or a value that follows from it,
is an array on the stack then, with an element for each lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.blocked_sums import is_float_sum
from evergrad.compiler.codegen.loop_accesses import PARALLEL
from evergrad.compiler.codegen.loop_nest import TILE_COLUMNS
from evergrad.compiler.codegen.loop_point import IterationPoint
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
from evergrad.core.trace import Equation, Var

if TYPE_CHECKING:
    from evergrad.compiler.codegen.emit_loops import LoopEmitter


class LaneEmitter:
    """Emits what is computed once for each lane."""

    def __init__(self, loops: LoopEmitter) -> None:
        self.loops = loops
        self.code = loops.code

    def _array(self) -> str:
        return self.loops.entry.memory(TILE_COLUMNS * 8)

    def _for_lanes(self, body: Callable[[str], None]) -> None:
        self.loops.loop("0", self.loops.tile_extents[1], body, vectorize=True)

    def _load(self, type: str, array: str, lane: str) -> str:
        memory = memory_type(type)
        address = self.code.op(f"getelementptr {memory}, ptr {array}, i64 {lane}")
        value = self.code.op(f"load {memory}, ptr {address}{PARALLEL}")
        return self.code.op(f"icmp ne i8 {value}, 0") if type == "i1" else value

    def _store(self, type: str, value: str, array: str, lane: str) -> None:
        memory = memory_type(type)
        if type == "i1":
            value = self.code.op(f"zext i1 {value} to i8")
        address = self.code.op(f"getelementptr {memory}, ptr {array}, i64 {lane}")
        self.code.do(f"store {memory} {value}, ptr {address}{PARALLEL}")

    # -- reductions -----------------------------------------------------------------------------

    def _is_widened(self, eqn: Equation) -> bool:
        is_single = is_float_sum(eqn) and compute_type(eqn) == "float"
        return is_single and self.loops.sums_in_double

    def _held_type(self, eqn: Equation) -> str:
        if self._is_widened(eqn):
            return "double"
        return ordered_type(eqn) if is_ordered(eqn) else compute_type(eqn)

    def accumulators(self, equations: list[Equation]) -> dict[int, str]:
        """Arrays for inner reductions, set to their identities."""
        arrays = {id(eqn): self._array() for eqn in equations}

        def clear(lane: str) -> None:
            for eqn in equations:
                identity = ordered_identity(eqn) if is_ordered(eqn) else identity_of(eqn)
                self._store(self._held_type(eqn), identity, arrays[id(eqn)], lane)

        self._for_lanes(clear)
        return arrays

    def accumulate(self, eqn: Equation, point: IterationPoint, array: str) -> None:
        """Reduce the element at a point."""
        value, lane, type = (
            point.operand(self.loops.uses[id(eqn), 0]),
            point.lane,
            self._held_type(eqn),
        )
        held = self._load(type, array, lane)
        if self._is_widened(eqn):
            value = self.code.op(f"fpext float {value} to double")
            result = self.code.op(f"fadd double {held}, {value}")
        elif is_ordered(eqn):
            result = max_ordered(self.code, eqn, held, value)
        else:
            result = reduce_element(self.code, eqn, held, value)
        self._store(type, result, array, lane)

    def results(self, equations: list[Equation], arrays: dict[int, str]) -> None:
        """The results of inner reductions as outer values."""
        made = {eqn.outs[0]: self._array() for eqn in equations}

        def finish(lane: str) -> None:
            for eqn in equations:
                found = self._load(self._held_type(eqn), arrays[id(eqn)], lane)
                if self._is_widened(eqn):
                    found = self.code.op(f"fptrunc double {found} to float")
                elif is_ordered(eqn):
                    found = from_ordered(self.code, eqn, found)
                var = eqn.outs[0]
                found = elementwise.rounded(self.code, var.type.dtype, found)
                self._store(elementwise.KINDS[var.type.dtype].compute, found, made[var], lane)

        if equations:
            self._for_lanes(finish)
            self.loops.outer_values.update(made)

    # -- outer values ---------------------------------------------------------------------------

    def outer_value(self, var: Var, lane: str) -> str:
        kind = elementwise.KINDS[var.type.dtype]
        return self._load(kind.compute, self.loops.outer_values[var], lane)

    def compute(self, number: int, equations: list[Equation], stored: Iterable[Var]) -> None:
        """The outer values that equations give after a pass, and the stores of these and of
        reductions."""
        made = {eqn.outs[0]: self._array() for eqn in equations}

        def body(lane: str) -> None:
            loops = self.loops
            point = IterationPoint(loops, number, ["0", lane])
            for var, array in made.items():
                kind = elementwise.KINDS[var.type.dtype]
                self._store(kind.compute, point.value(var), array, lane)
            for var in stored:
                point.store(loops.stores[var], point.value(var))

        if made or stored:
            self._for_lanes(body)
            self.loops.outer_values.update(made)
