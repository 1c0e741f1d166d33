"""Softmax and its logarithm of contiguous floats as one kernel with run-time extents.

The array is read as ``[outer, count, inner]``; exponentials are normalized over the middle
dimension. Extremes and sums are those of :mod:`evergrad.compiler.eager.reductions`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.eager.reductions import ReductionBuilder
from evergrad.compiler.native import jit
from evergrad.compiler.native.prototypes import functions_at
from evergrad.core import dtypes
from evergrad.core.row_facts import Combine, EagerReduction
from evergrad.extension import provides

_LARGEST, _SUM = EagerReduction(Combine.MAX), EagerReduction(Combine.SUM)


@provides("softmax_kernel")
@cache
def softmax_kernel(
    element: str, along_rows: bool, is_log: bool
) -> tuple[Callable[..., None], Callable[..., None]] | None:
    """A function of the addresses of result, argument and ``2 * inner`` elements of scratch memory
    and of the extents ``outer``, ``count`` and ``inner`` (1 where it is along rows): one that keeps
    the GIL and one that releases it. ``None`` where there is no machine code."""
    if not jit.can_jit():
        return None
    builder = _Builder(element, is_log)
    kernel = builder.along_rows() if along_rows else builder.down_columns()
    address = jit.addresses([kernel])[kernel.name]
    signature = (None, *[ctypes.c_void_p] * 3, *[ctypes.c_int64] * 3)
    return functions_at(address, signature)


class _Builder(ReductionBuilder):
    """The IR of one kernel. Loops over elements are scalar: LLVM vectorizes them."""

    pointers = ("out", "x", "work")

    def __init__(self, element: str, is_log: bool) -> None:
        super().__init__(_LARGEST, dtypes.float32 if element == "float32" else dtypes.float64)
        self.is_log = is_log

    def function(self, name: str, value: str) -> str:
        return self.call(name, self.vector.element, value)

    def calc(self, word: str, a: str, b: str) -> str:
        return self.op(f"{word} {self.vector.element} {a}, {b}")

    def normalized(self, x: str, out: str, i: str, largest: str, total: str) -> None:
        """Store an element, given the sum of exponentials, or its logarithm."""
        at = self.at(out, i)
        if self.is_log:
            shifted = self.calc("fsub", self.load(self.at(x, i)), largest)
            self.store(self.calc("fsub", shifted, total), at)
        else:
            self.store(self.calc("fdiv", self.load(at), total), at)

    def exponentials(self, x: str, out: str, i: str, largest: str) -> None:
        shifted = self.calc("fsub", self.load(self.at(x, i)), largest)
        self.store(self.function("vm_exp", shifted), self.at(out, i))

    def along_rows(self) -> Kernel:
        count = self["count"]
        with self.loop(self["outer"]) as number:
            start = self.mul(number, count)
            x, out = self.at(self["x"], start), self.at(self["out"], start)
            self.use(_LARGEST)
            largest = self.of_row(x)
            with self.loop(count) as i:
                self.exponentials(x, out, i, largest)
            self.use(_SUM)
            total = self.of_row(out)
            if self.is_log:
                total = self.function("vm_log", total)
            with self.loop(count) as i:
                self.normalized(x, out, i, largest, total)
        return self.kernel("softmax_rows")

    def down_columns(self) -> Kernel:
        inner = self["inner"]
        largest, totals = self["work"], self.at(self["work"], inner)
        with self.loop(self["outer"]) as number:
            start = self.mul(number, self["count"], inner)
            x, out = self.at(self["x"], start), self.at(self["out"], start)
            self.use(_LARGEST)
            self.of_columns(x, largest)
            with self.loop(self["count"]) as row:
                first = self.mul(row, inner)
                here, there = self.at(x, first), self.at(out, first)
                with self.loop(inner) as i:
                    self.exponentials(here, there, i, self.load(self.at(largest, i)))
            self.use(_SUM)
            self.of_columns(out, totals)
            if self.is_log:
                with self.loop(inner) as i:
                    total = self.load(self.at(totals, i))
                    self.store(self.function("vm_log", total), self.at(totals, i))
            with self.loop(self["count"]) as row:
                first = self.mul(row, inner)
                here, there = self.at(x, first), self.at(out, first)
                with self.loop(inner) as i:
                    level, total = (self.load(self.at(p, i)) for p in (largest, totals))
                    self.normalized(here, there, i, level, total)
        return self.kernel("softmax_columns")
