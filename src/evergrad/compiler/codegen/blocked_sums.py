"""Sums in two levels: blocks, and the total of blocks with what its additions lose.

A sum of many floats in one accumulator loses a digit for every factor of ten in their number. Here
a block is summed as before, in vector lanes; after :data:`BLOCK` elements (:data:`ROWS` rows of a
sum over outer dimensions) it is added to a total, whose rounding errors are kept in a third
accumulator (Knuth's two-sum) and added at the end. So the error is that of one block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from evergrad.compiler.codegen.elementwise import FLOATS, Code
from evergrad.compiler.codegen.reductions import combine_of, compute_type
from evergrad.core.row_facts import Combine
from evergrad.core.trace import Equation

if TYPE_CHECKING:
    from evergrad.compiler.codegen.emit_loops import LoopEmitter

# Elements of a block in vector lanes, and rows of a block.
BLOCK = 2048
ROWS = 64
# Runs of fewer elements are hardly vectorized; an element counts for as many as lanes would share.
LONG_RUN = 1024
_LANES = BLOCK // ROWS


def is_float_sum(eqn: Equation) -> bool:
    return combine_of(eqn) is Combine.SUM and compute_type(eqn) in FLOATS


class BlockedSum:
    """The three accumulators of a sum, at the addresses ``block``, ``total`` and ``lost``. The
    loops add to ``block``."""

    def __init__(self, code: Code, type: str, block: str, total: str, lost: str) -> None:
        self.code = code
        self.type = type
        self.block = block
        self.rest: tuple[str, str] = total, lost

    def clear(self, tag: str = "") -> None:
        for address in (self.block, *self.rest):
            self.code.do(f"store {self.type} 0.0, ptr {address}{tag}")

    def flush(self, tag: str = "") -> None:
        """Add the block to the total, and what this loses to what was lost."""
        code, type = self.code, self.type
        block = code.op(f"load {type}, ptr {self.block}{tag}")
        total, lost = (code.op(f"load {type}, ptr {address}{tag}") for address in self.rest)
        after = code.op(f"fadd {type} {total}, {block}")
        added = code.op(f"fsub {type} {after}, {total}")
        kept = code.op(f"fsub {type} {after}, {added}")
        of_total = code.op(f"fsub {type} {total}, {kept}")
        of_block = code.op(f"fsub {type} {block}, {added}")
        error = code.op(f"fadd {type} {of_total}, {of_block}")
        more = code.op(f"fadd {type} {lost}, {error}")
        places = (self.block, *self.rest)
        for address, value in zip(places, ("0.0", after, more), strict=True):
            code.do(f"store {type} {value}, ptr {address}{tag}")

    def result(self, tag: str = "") -> str:
        """The sum. Where it is not finite nothing sensible was lost."""
        code, type = self.code, self.type
        block, total, lost = (
            code.op(f"load {type}, ptr {address}{tag}") for address in (self.block, *self.rest)
        )
        zero = code.op(f"fsub {type} {lost}, {lost}")
        finite = code.op(f"fcmp oeq {type} {zero}, 0.0")
        lost = code.op(f"select i1 {finite}, {type} {lost}, {type} 0.0")
        last = code.op(f"fadd {type} {block}, {lost}")
        return code.op(f"fadd {type} {total}, {last}")


class Countdown:
    """Runs an action whenever enough elements were counted."""

    def __init__(self, loops: LoopEmitter, most: int, action: Callable[[], None]) -> None:
        self.code: Code = loops.code
        self.variable: str = loops.entry.variable("i64")
        self.most = most
        self.action = action

    def start(self) -> None:
        self.code.do(f"store i64 0, ptr {self.variable}")

    def count(self, elements: str) -> None:
        code = self.code
        before = code.op(f"load i64, ptr {self.variable}")
        counted = code.op(f"add i64 {before}, {elements}")
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
        super().__init__(loops.code, type, *(loops.entry.variable(type) for _ in range(3)))
        self.countdown: Countdown = Countdown(loops, BLOCK, self.flush)
        self.weight = 1 if loops.inner_extents[-1] >= LONG_RUN else _LANES
        self.start()

    def start(self) -> None:
        self.clear()
        self.countdown.start()

    def count_run(self, elements: str) -> None:
        """Count the elements of one run of the innermost loop."""
        if self.weight > 1:
            elements = self.code.op(f"mul i64 {elements}, {self.weight}")
        self.countdown.count(elements)

    def count_row(self) -> None:
        """Count a number that was added once in an outer iteration."""
        self.countdown.count(str(_LANES))
