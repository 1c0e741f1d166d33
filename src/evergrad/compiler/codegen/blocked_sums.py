"""Sums in two levels: runs of floats, and the total of runs in twice the precision.

A sum of many floats in one accumulator loses a digit for every factor of ten in their number. Here
a run of at most :data:`BLOCK` elements is summed in lanes, or :data:`ROWS` rows of a sum over
outer dimensions, and then added to a total: of float32 in float64, of float64 in two accumulators,
the second of which takes what additions to the first one lose (Knuth's two-sum). So the error is
that of one run, and errors of several runs largely cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from evergrad.compiler.codegen.code import FLOATS, Code
from evergrad.compiler.codegen.reductions import combine_of, compute_type
from evergrad.compiler.native.target import has_fma, vector_bits
from evergrad.core.row_facts import Combine
from evergrad.core.trace import Equation

if TYPE_CHECKING:
    from evergrad.compiler.codegen.emit_loops import LoopEmitter

# Elements of a run in vector lanes, 128 for each lane: SSE4, without fused multiply-adds, has four.
# And elements of one accumulator: rows, or a run that is not vectorized.
BLOCK = 4 * vector_bits() if has_fma() else 512
ROWS = 32


def is_float_sum(eqn: Equation) -> bool:
    return combine_of(eqn) is Combine.SUM and compute_type(eqn) in FLOATS


class BlockedSum:
    """The accumulators of a sum, at the addresses ``run``, ``total`` and ``lost`` (of float64
    alone). The loops add to ``run``."""

    def __init__(self, code: Code, type: str, run: str, total: str, lost: str) -> None:
        self.code = code
        self.type = type
        self.run = run
        self.total = total
        self.lost = lost

    def clear(self, tag: str = "") -> None:
        self.code.do(f"store {self.type} 0.0, ptr {self.run}{tag}")
        self.code.do(f"store double 0.0, ptr {self.total}{tag}")
        if self.type == "double":
            self.code.do(f"store double 0.0, ptr {self.lost}{tag}")

    def flush(self, tag: str = "") -> None:
        """Add the run to the total."""
        run = self.code.op(f"load {self.type}, ptr {self.run}{tag}")
        self.code.do(f"store {self.type} 0.0, ptr {self.run}{tag}")
        self.add(run, tag)

    def add(self, value: str, tag: str = "") -> None:
        """Add a value to the total, and what this loses to what was lost."""
        code = self.code
        total = code.op(f"load double, ptr {self.total}{tag}")
        if self.type == "float":
            value = code.op(f"fpext float {value} to double")
        after = code.op(f"fadd double {total}, {value}")
        code.do(f"store double {after}, ptr {self.total}{tag}")
        if self.type == "float":
            return
        added = code.op(f"fsub double {after}, {total}")
        kept = code.op(f"fsub double {after}, {added}")
        of_total = code.op(f"fsub double {total}, {kept}")
        of_value = code.op(f"fsub double {value}, {added}")
        error = code.op(f"fadd double {of_total}, {of_value}")
        lost = code.op(f"load double, ptr {self.lost}{tag}")
        code.do(f"store double {code.op(f'fadd double {lost}, {error}')}, ptr {self.lost}{tag}")

    def result(self, tag: str = "") -> str:
        """The sum, with the run that was not flushed. Where it is not finite nothing sensible was
        lost."""
        code = self.code
        run = code.op(f"load {self.type}, ptr {self.run}{tag}")
        total = code.op(f"load double, ptr {self.total}{tag}")
        if self.type == "float":
            run = code.op(f"fpext float {run} to double")
            return code.op(f"fptrunc double {code.op(f'fadd double {total}, {run}')} to float")
        lost = code.op(f"load double, ptr {self.lost}{tag}")
        zero = code.op(f"fsub double {lost}, {lost}")
        finite = code.op(f"fcmp oeq double {zero}, 0.0")
        lost = code.op(f"select i1 {finite}, double {lost}, double 0.0")
        last = code.op(f"fadd double {run}, {lost}")
        return code.op(f"fadd double {total}, {last}")


class Countdown:
    """Runs an action whenever enough rows were counted."""

    def __init__(self, loops: LoopEmitter, most: int, action: Callable[[], None]) -> None:
        self.code: Code = loops.code
        self.variable: str = loops.entry.variable("i64")
        self.most = most
        self.action = action

    def start(self) -> None:
        self.code.do(f"store i64 0, ptr {self.variable}")

    def count(self) -> None:
        code = self.code
        before = code.op(f"load i64, ptr {self.variable}")
        counted = code.op(f"add i64 {before}, 1")
        code.do(f"store i64 {counted}, ptr {self.variable}")
        full, end = code.fresh("full"), code.fresh("counted")
        enough = code.op(f"icmp sge i64 {counted}, {self.most}")
        code.do(f"br i1 {enough}, label %{full}, label %{end}")
        code.label(full)
        self.start()
        self.action()
        code.do(f"br label %{end}")
        code.label(end)


class NumberSum(BlockedSum):
    """A blocked sum of one number: its accumulators are variables."""

    def __init__(self, loops: LoopEmitter, type: str) -> None:
        run = loops.entry.variable(type)
        super().__init__(loops.code, type, run, *(loops.entry.variable("double") for _ in "12"))
        self.clear()
