"""Epilogues as functions of tiles: what a kernel calls for a rectangle of results in memory.

A function takes the arguments of an epilogue, and the rectangle. It is small, and compiled once for
all kernels and shapes that have the same epilogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.elementwise_lanes import decoded, encoded
from evergrad.compiler.codegen.epilogue import Along, Epilogue, Placed
from evergrad.compiler.codegen.ir_builder import Vector, vector_for
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder
from evergrad.core.dtypes import dtype

# The last arguments of a function of tiles: the rectangle of the matrix.
TILE = ("row", "rows", "column", "columns")
# Rows whose registers of a column are computed one after the other.
_STRIP = 16


@lru_cache(maxsize=1024)
def tile_kernel(epilogue: Epilogue) -> Kernel:
    """The function that applies an epilogue to a rectangle of a matrix. Its arguments are pointers
    to the matrix, the operands and the results, :func:`tile_numbers`, and the rectangle
    (:data:`TILE`)."""
    return _TileEmitter(epilogue).kernel()


def tile_numbers(placed: Placed, source: int) -> list[int]:
    """The numbers of a function of tiles, given the stride of the rows of its matrix."""
    given = [(source * placed.period, source), *(s for _, s in (*placed.read, *placed.written))]
    blocks = [*(block for block, _ in given), placed.period] if placed.epilogue.blocks else []
    return [*(row for _, row in given), *blocks, *placed.factors]


class _TileEmitter:
    def __init__(self, epilogue: Epilogue) -> None:
        self.epilogue = epilogue
        self.types: list[dtype] = [
            epilogue.source, *(o.dtype for o in epilogue.operands),
            *(epilogue.dtype_of(n) for n in epilogue.stored),
        ]  # fmt: skip
        each = range(len(self.types))
        numbers = [f"stride{n}" for n in each]
        if epilogue.blocks:
            numbers += [*(f"block{n}" for n in each), "period"]
        numbers += [f"factor{n}" for n in range(len(epilogue.factors))]
        self.vector: Vector = vector_for(epilogue.source)
        pointers = [f"pointer{n}" for n in each]
        self.ir: KernelBuilder = KernelBuilder(self.vector, pointers, (*numbers, *TILE))

    def kernel(self) -> Kernel:
        ir, lanes = self.ir, self.vector.lanes
        self.factors: list[str] = [
            ir.splat(self.factor(n), type) for n, type in enumerate(self.epilogue.factors)
        ]
        self.same: dict[int, str] = self.loaded(Along.SCALAR, lambda n: ir[f"pointer{n}"])
        column, last = ir["column"], ir.add(ir["column"], ir["columns"])
        whole = ir.add(column, ir.op(f"and i64 {ir['columns']}, {-lanes}"))
        mask = ir.range_mask(ir.lane_indices("0"), "0", ir.sub(last, whole))
        end = ir.add(ir["row"], ir["rows"])
        with ir.loop(end, _STRIP, ir["row"]) as top:
            bottom = ir.least(ir.add(top, _STRIP), end)
            for first, stop, inside in ((column, whole, ""), (whole, last, mask)):
                with ir.loop(stop, lanes, first) as index:
                    self.strip(top, bottom, index, inside)
        return ir.kernel("epilogue_tile")

    def strip(self, top: str, bottom: str, index: str, mask: str) -> None:
        """A register of some rows."""
        ir = self.ir
        columns = self.loaded(Along.COLUMN, lambda n: ir[f"pointer{n}"], index, mask)
        with ir.loop(bottom, first=top) as row:
            places = self.places(row)
            rows = self.loaded(Along.ROW, places.__getitem__)
            self.register(places, {**self.same, **columns, **rows}, index, mask)

    def loaded(
        self, along: Along, place: Callable[[int], str], index: str = "", mask: str = ""
    ) -> dict[int, str]:
        """Registers of the operands with an index map."""
        ir, found = self.ir, {}
        for n, operand in enumerate(self.epilogue.operands):
            if operand.along is not along:
                continue
            if along.by_column:
                found[n] = self.load(1 + n, place(1 + n), index, mask)
            else:
                value = elementwise.load(ir, operand.dtype, place(1 + n))
                found[n] = ir.splat(value, KINDS[operand.dtype].compute)
        return found

    def places(self, row: str) -> list[str]:
        """The addresses of a row of the matrix, the operands and the results."""
        ir, each = self.ir, range(len(self.types))
        if not self.epilogue.blocks:
            offsets = [ir.mul(row, ir[f"stride{n}"]) for n in each]
        else:
            block, inside = ir.split(row, ir["period"])
            offsets = [
                ir.add(ir.mul(block, ir[f"block{n}"]), ir.mul(inside, ir[f"stride{n}"]))
                for n in each
            ]
        return [ir.at_byte(ir[f"pointer{n}"], offset) for n, offset in enumerate(offsets)]

    def factor(self, number: int) -> str:
        ir = self.ir
        found = ir.op(f"bitcast i64 {ir[f'factor{number}']} to double")
        if self.epilogue.factors[number] == "double":
            return found
        return ir.op(f"fptrunc double {found} to float")

    def register(self, places: list[str], known: dict[int, str], index: str, mask: str) -> None:
        """A register of each result."""
        epilogue, count = self.epilogue, 1 + len(self.epilogue.operands)

        def operand(number: int) -> str:
            if number not in known:
                known[number] = self.load(1 + number, places[1 + number], index, mask)
            return known[number]

        tile = self.load(0, places[0], index, mask)
        values = epilogue.emit(self.ir, self.vector.lanes, tile, operand, self.factors.__getitem__)
        for n, value in enumerate(epilogue.stored, count):
            self.store(n, places[n], index, mask, values[value])

    def address(self, number: int, start: str, index: str) -> tuple[str, Vector]:
        kind = KINDS[self.types[number]]
        stored = Vector(kind.storage, self.vector.lanes, kind.bits // 8)
        return self.ir.op(f"getelementptr {kind.storage}, ptr {start}, i64 {index}"), stored

    def load(self, number: int, start: str, index: str, mask: str) -> str:
        ir, (at, stored) = self.ir, self.address(number, start, index)
        raw = ir.load_masked(at, mask, vector=stored) if mask else ir.load_vector(at, stored)
        return decoded(ir, self.vector.lanes, self.types[number], raw)

    def store(self, number: int, start: str, index: str, mask: str, value: str) -> None:
        ir, (at, stored) = self.ir, self.address(number, start, index)
        value = encoded(ir, self.vector.lanes, self.types[number], value)
        if mask:
            ir.store_masked(value, at, mask, stored)
        else:
            ir.do(f"store {stored.type} {value}, ptr {at}, align {stored.size}")


def call_on_tile(
    code: Code, function: str, arguments: str, place: str, rectangle: Sequence[str]
) -> None:
    """Call a function of tiles for a rectangle: rows from one on, columns from one on. ``place`` is
    where this is among its arguments."""
    for number, value in enumerate(rectangle):
        at = code.op(f"getelementptr i64, ptr {place}, i64 {number}")
        code.do(f"store i64 {value}, ptr {at}")
    code.do(f"call void {function}(ptr {arguments}, i64 0, ptr null)")
