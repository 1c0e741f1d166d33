"""Triangular systems as one loop with run-time extents.

The right sides are rows of numbers, so that a vector has one element of each of several systems. A
strip of two vectors is solved from its first row to its last, some rows at a time: what the rows
above contribute to them is summed in registers, then these rows are solved among themselves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache

from evergrad.compiler.codegen.ir_builder import IRBuilder, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.native import jit
from evergrad.core import dtypes
from evergrad.extension import provides

_POINTERS = ("a", "x")
_NUMBERS = ("count", "order", "width", "a_stack", "a_row", "a_column", "x_stack", "x_row", "unit")
# The vectors of a strip, and the rows that are solved together: their sums are in registers.
_STRIP = 2
_ROWS = {True: 8, False: 4}


@provides("triangular_solver")
@cache
def triangular_solver(itemsize: int) -> Callable[..., None] | None:
    """A function of addresses and :data:`_NUMBERS` that replaces ``x`` by the solution of
    ``a x = b``, ``a`` lower triangular. Strides are in elements and may be negative, which makes a
    lower triangle of an upper one. ``None`` where there is no machine code."""
    if not jit.can_jit():
        return None
    kernel = _Builder(itemsize).kernel()
    address = jit.addresses([kernel])[kernel.name]
    types = [ctypes.c_void_p] * len(_POINTERS) + [ctypes.c_int64] * len(_NUMBERS)
    return ctypes.CFUNCTYPE(None, *types)(address)


class _Builder(IRBuilder):
    """The IR of the function."""

    def __init__(self, itemsize: int) -> None:
        super().__init__(vector_for(dtypes.float32 if itemsize == 4 else dtypes.float64))
        self.rows = _ROWS[self.vector.has_32_registers]

    def kernel(self) -> Kernel:
        strip = _STRIP * self.vector.lanes
        with self.loop("%count") as n, self.loop("%width", strip) as column:
            a = self.at("%a", self.mul(n, "%a_stack"))
            x = self.at("%x", self.mul(n, "%x_stack"), column)
            left = self.sub("%width", column)
            is_whole = self.op(f"icmp sge i64 {left}, {strip}")
            with self.when(is_whole):
                self.solve_strip(a, x, [None] * _STRIP)
            with self.when(self.op(f"xor i1 {is_whole}, true")):
                counts = [self.sub(left, v * self.vector.lanes) for v in range(_STRIP)]
                self.solve_strip(a, x, [self.first_lanes(count) for count in counts])
        parameters = [f"ptr noalias %{name}" for name in _POINTERS]
        parameters += [f"i64 %{name}" for name in _NUMBERS]
        body = "\n".join(["entry:", *self.lines, "  ret void", "}", ""])
        text = f"define void @SELF({', '.join(parameters)}) nounwind {{\n{body}"
        name = jit.name_of(text, "triangular")
        return Kernel(name, text.replace("@SELF", f"@{name}"), self.helpers)

    def solve_strip(self, a: str, x: str, masks: list[str | None]) -> None:
        """All rows of a strip; the first ones alone, so that the number of the others is whole."""
        head = self.op(f"urem i64 %order, {self.rows}")
        with self.loop(head) as row:
            self.solve_rows(a, x, row, 1, masks)
        with self.loop("%order", self.rows, head) as row:
            self.solve_rows(a, x, row, self.rows, masks)

    def solve_rows(self, a: str, x: str, row: str, count: int, masks: list[str | None]) -> None:
        first = self.at(x, self.mul(row, "%x_row"))
        targets = [self.at(first, self.mul("%x_row", r)) for r in range(count)]
        block = self.at(a, self.mul(row, "%a_row"))
        sources = [self.at(block, self.mul("%a_row", r)) for r in range(count)]
        start = [v for target in targets for v in self.load_row(target, masks)]
        many = self.vector.type
        with self.carrying_loop(row, [(many, value) for value in start]) as (k, carried):
            known = self.load_row(self.at(x, self.mul(k, "%x_row")), masks)
            offset = self.mul(k, "%a_column")
            carried.after = [
                value
                for r in range(count)
                for value in self.without(
                    self.at(sources[r], offset), known, carried.values[_STRIP * r :]
                )
            ]
        solved: list[list[str]] = []
        for r in range(count):
            values = carried.after[_STRIP * r : _STRIP * (r + 1)]
            for other, known in enumerate(solved):
                offset = self.mul("%a_column", self.add(row, other))
                values = self.without(self.at(sources[r], offset), known, values)
            diagonal = self.at(sources[r], self.mul("%a_column", self.add(row, r)))
            scale = self.reciprocal(diagonal)
            solved.append([self.lanewise("fmul", value, scale) for value in values])
        for target, values in zip(targets, solved, strict=True):
            self.store_row(values, target, masks)

    def without(self, factor: str, known: list[str], values: list[str]) -> list[str]:
        """The values less a factor in memory times known ones."""
        scale = self.splat(self.load(factor), self.vector.element)
        less = [self.op(f"fneg {self.vector.type} {value}") for value in known]
        pairs = zip(less, values, strict=False)
        return [self.multiply_add(scale, value, held) for value, held in pairs]

    def reciprocal(self, diagonal: str) -> str:
        """One over an element of the diagonal, or one, in every lane."""
        element = self.vector.element
        is_unit = self.op("icmp ne i64 %unit, 0")
        value = self.op(f"select i1 {is_unit}, {element} 1.0, {element} {self.load(diagonal)}")
        return self.splat(self.op(f"fdiv {element} 1.0, {value}"), element)

    def load_row(self, address: str, masks: list[str | None]) -> list[str]:
        return [
            self.load_vector(place) if mask is None else self.load_masked(place, mask)
            for place, mask in zip(self.vectors_at(address), masks, strict=True)
        ]

    def store_row(self, values: list[str], address: str, masks: list[str | None]) -> None:
        for value, place, mask in zip(values, self.vectors_at(address), masks, strict=True):
            if mask is None:
                self.store_vector(value, place)
            else:
                self.store_masked(value, place, mask)

    def vectors_at(self, address: str) -> list[str]:
        return [self.at(address, v * self.vector.lanes) for v in range(_STRIP)]
