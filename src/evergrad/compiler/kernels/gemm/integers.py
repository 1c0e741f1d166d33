"""Matrix products of integers: rows of the left factor times vectors of the right one.

Sums wrap around, so their order does not matter. Elements of 8 bits are multiplied as 16 bits, for
which there are vector products. A chunk is some blocks of rows; columns are outermost in a block:
those of the right factor stay in cache.
"""

from __future__ import annotations

from functools import cache
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.contiguous import contiguous
from evergrad.compiler.native.jit import vector_bits
from evergrad.compiler.schedule.lower import Lowering
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.trace import Equation

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

_DTYPES = (dtypes.int64, dtypes.int32, dtypes.int16, dtypes.int8, dtypes.uint8)
_BLOCK = 16  # rows of a block
_ROWS = 4  # rows of a tile


class _Numbers(NamedTuple):
    items: int
    per_chunk: int
    blocks: int  # of a matrix
    m: int
    n: int
    k: int
    a_stride: int  # from matrix to matrix, 0 if all have the same one
    b_stride: int


def lower_integer_product(lowering: Lowering, eqn: Equation) -> bool:
    """Lower a product of matrices, or of stacks of as many of them, or of one and a stack."""
    a, b = (arg.type for arg in eqn.args)
    out = eqn.outs[0]
    if a.dtype not in _DTYPES or not (a.numel and b.numel):
        return False
    batch = prod(out.type.shape[:-2])
    counts = [prod(t.shape[:-2]) for t in (a, b)]
    if any(count not in (1, batch) for count in counts):
        return False
    (m, k), n = a.shape[-2:], b.shape[-1]
    blocks = -(-m // _BLOCK)
    items = batch * blocks
    per_chunk = items_per_chunk(items, _BLOCK * n * k)
    strides = (0 if counts[0] == 1 else m * k), (0 if counts[1] == 1 else k * n)
    numbers = _Numbers(items, per_chunk, blocks, m, n, k, *strides)
    made = _product_ir(a.dtype, vector_bits())
    kernel = with_numbers(made, numbers, (), -(-items // per_chunk))
    given: Leaves = [contiguous(lowering, arg) for arg in eqn.args]
    lowering.add_kernel(f"{eqn.op.name} {m}x{n}x{k}", kernel, given, [out], batch * m * n * k)
    return True


class _Builder(KernelBuilder):
    """A kernel with elements in memory (``stored``), and vectors in which they are multiplied."""

    def __init__(self, found: dtype, bits: int) -> None:
        width = max(16, KINDS[found].bits)
        super().__init__(
            Vector(f"i{width}", bits // width, width // 8), ("a", "b", "out"), _Numbers._fields
        )
        self.stored = Vector(f"i{KINDS[found].bits}", bits // width, found.itemsize)

    def address(self, base: str, *offsets: str | int) -> str:
        offset = self.add(*offsets)
        return self.op(f"getelementptr {self.stored.element}, ptr {base}, i64 {offset}")

    def widened(self, value: str, source: str, target: str) -> str:
        return value if source == target else self.op(f"sext {source} {value} to {target}")

    def row_element(self, address: str) -> str:
        """An element of the left factor in every lane."""
        stored, wide = self.stored.element, self.vector.element
        value = self.op(f"load {stored}, ptr {address}")
        return self.splat(self.widened(value, stored, wide), wide)

    def columns(self, address: str, mask: str | None) -> str:
        if mask is None:
            value = self.load_vector(address, self.stored)
        else:
            value = self.load_masked(address, mask, vector=self.stored)
        return self.widened(value, self.stored.type, self.vector.type)

    def put(self, value: str, address: str, mask: str | None) -> None:
        if self.stored != self.vector:
            value = self.op(f"trunc {self.vector.type} {value} to {self.stored.type}")
        if mask is None:
            size = self.stored.size
            self.do(f"store {self.stored.type} {value}, ptr {address}, align {size}")
        else:
            self.store_masked(value, address, mask, self.stored)


@cache
def _product_ir(found: dtype, bits: int) -> Kernel:
    ir = _Builder(found, bits)
    vectors = 4 if ir.vector.has_32_registers else 2
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    with ir.loop(last, first=first) as item:
        matrix, block = ir.split(item, ir["blocks"])
        top = ir.mul(block, _BLOCK)
        bottom = ir.least(ir.add(top, _BLOCK), ir["m"])
        a = ir.address(ir["a"], ir.mul(matrix, ir["a_stride"]))
        b = ir.address(ir["b"], ir.mul(matrix, ir["b_stride"]))
        out = ir.address(ir["out"], ir.mul(matrix, ir["m"], ir["n"]))
        wide = vectors * ir.vector.lanes
        whole = ir.sub(ir["n"], ir.op(f"urem i64 {ir['n']}, {wide}"))
        with ir.loop(whole, wide) as column:
            _rows_of_tiles(ir, a, b, out, top, bottom, column, vectors, None)
        with ir.loop(ir["n"], ir.vector.lanes, whole) as column:
            mask = ir.range_mask(ir.lane_indices(column), "0", ir["n"])
            _rows_of_tiles(ir, a, b, out, top, bottom, column, 1, mask)
    return ir.kernel("integer_product")


def _rows_of_tiles(
    ir: _Builder, a: str, b: str, out: str, top: str, bottom: str, column: str, vectors: int,
    mask: str | None,
) -> None:  # fmt: skip
    rows = ir.sub(bottom, top)
    whole = ir.sub(bottom, ir.op(f"urem i64 {rows}, {_ROWS}"))
    for first, last, count in ((top, whole, _ROWS), (whole, bottom, 1)):
        with ir.loop(last, count, first) as row:
            _tile(ir, a, b, out, row, column, count, vectors, mask)


def _tile(
    ir: _Builder, a: str, b: str, out: str, row: str, column: str, rows: int, vectors: int,
    mask: str | None,
) -> None:  # fmt: skip
    many, lanes = ir.vector.type, ir.vector.lanes
    lines = [ir.address(a, ir.mul(ir.add(row, r), ir["k"])) for r in range(rows)]
    start = [(many, "zeroinitializer")] * (rows * vectors)
    with ir.carrying_loop(ir["k"], start) as (k, carried):
        line = ir.address(b, ir.mul(k, ir["n"]), column)
        columns = [ir.columns(ir.address(line, v * lanes), mask) for v in range(vectors)]
        carried.after = []
        for r in range(rows):
            factor = ir.row_element(ir.address(lines[r], k))
            for v in range(vectors):
                product = ir.op(f"mul {many} {factor}, {columns[v]}")
                total = carried.values[r * vectors + v]
                carried.after.append(ir.op(f"add {many} {total}, {product}"))
    for r in range(rows):
        target = ir.address(out, ir.mul(ir.add(row, r), ir["n"]), column)
        for v in range(vectors):
            ir.put(carried.values[r * vectors + v], ir.address(target, v * lanes), mask)
