"""Small products, with Y packed in L1.

``C = X Y``. Rows of Y are copied to scratch memory, padded to whole registers; then rows of C are
summed over K, in about as many registers as additions are in flight. Strides are arbitrary. Where
that is faster, the transposed product is computed. OpenBLAS would serialize callers from several
threads.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, items_per_chunk, with_numbers
from evergrad.compiler.kernels.gemm.blocked import operands, ordered
from evergrad.compiler.kernels.gemm.microkernel import tile_for, transpose, use
from evergrad.compiler.kernels.gemm.problem import Batch, Product
from evergrad.compiler.kernels.gemm.tile_epilogue import EPILOGUE, NO_EPILOGUE, apply_epilogue
from evergrad.compiler.native.target import machine

# The rows of C and the registers of each that are summed at once, from the first row on and in the
# remaining rows.
_BLOCKS = ((8, 1), (4, 2), (1, 4))
# Costs in iterations of a block: to copy a register of Y, contiguous or not, and to write one of C.
# Fitted; tools/fit_kernel_costs.py fits them again.
_COPY, _TRANSPOSE = 0.5, 1.0
_STORE, _SCATTER = 0.25, 4.0
_L1 = machine().l1_bytes


class _Small(NamedTuple):
    """``C = X Y``: extents and strides. If it is transposed, X is B and Y is A, both transposed."""

    m: int
    n: int
    k: int
    x_row: int
    x_column: int
    y_row: int
    y_column: int
    c_row: int
    c_column: int
    width: int  # of the rows of Y in scratch memory
    transposed: int
    items: int
    per_chunk: int

    def scratch(self, vector: Vector) -> int:
        """The bytes of Y in scratch memory."""
        return self.k * self.width * vector.size

    def cost(self, lanes: int) -> float:
        """The estimated cost of the product, in iterations of blocks."""
        registers, left, steps = self.width // lanes, self.m, 0
        for rows, at_once in _BLOCKS:
            blocks, left = divmod(left, rows)
            steps += blocks * sum(divmod(registers, at_once)) * self.k
        copied = _COPY if self.y_column == 1 else _TRANSPOSE
        stored = _STORE if self.c_column == 1 else _SCATTER
        return steps + registers * (self.k * copied + self.m * stored)


# The products of an element of C that are one chain of additions.
_RUN = 128
_NUMBERS = (*_Small._fields, *Batch._fields, *EPILOGUE)


def small_kernel(product: Product, vector: Vector, leading: int) -> Kernel | None:
    """The kernel of a product; ``None`` if it is not small. The pointers are A, B and C."""
    found = _cheaper(product, vector, leading)
    return None if found.scratch(vector) > _L1 else kernel_of(found, product, vector)


def fits(product: Product, vector: Vector) -> bool:
    """Whether there is a kernel of the product: what it packs has to stay in L1."""
    return _cheaper(product, vector, product.n).scratch(vector) <= _L1


def _cheaper(product: Product, vector: Vector, leading: int) -> _Small:
    return min(candidates(product, vector, leading), key=lambda small: small.cost(vector.lanes))


def stays_in_cache(product: Product, vector: Vector) -> bool:
    """Whether a packed B stays in L1."""
    width = -(-product.n // vector.lanes) * vector.lanes
    return bool(product.k * width * vector.size <= _L1)


def candidates(product: Product, vector: Vector, leading: int) -> tuple[_Small, _Small]:
    """The product, and the transposed one."""
    assert product.a is not None and product.b is not None
    a, b = product.a.strides, product.b.strides
    m, n, k = product.m, product.n, product.k
    wide, high = (-(-extent // vector.lanes) * vector.lanes for extent in (n, m))
    shared = product.items, items_per_chunk(product.items, product.work)
    return (
        _Small(m, n, k, *a, *b, leading, 1, wide, 0, *shared),
        _Small(n, m, k, *b[::-1], *a[::-1], 1, leading, high, 1, *shared),
    )


def kernel_of(found: _Small, product: Product, vector: Vector) -> Kernel:
    """The kernel of one of the candidates."""
    numbers = (*found, *product.batch_numbers(vector.size), *NO_EPILOGUE)
    chunks = -(-found.items // found.per_chunk)
    made = _ir(vector, product.items > 1)
    return with_numbers(made, numbers, (), chunks, found.scratch(vector))


@cache
def _ir(vector: Vector, batched: bool) -> Kernel:
    """A chunk is some products of a batch, or the only one."""
    ir = KernelBuilder(vector, ("a", "b", "c"), _NUMBERS)
    if not batched:
        _multiply(ir, *ordered(ir, ir["a"], ir["b"]), ir["c"])
        _apply_epilogue(ir, "0")
        return ir.kernel("gemm_small")
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    with ir.loop(last, first=first) as item:
        _multiply(ir, *operands(ir, item))
        _apply_epilogue(ir, item)
    return ir.kernel("gemm_small_batch")


def _apply_epilogue(ir: KernelBuilder, item: str) -> None:
    """Apply the epilogue to a whole product, the rows of C being counted over the batch."""
    transposed = ir.op(f"icmp ne i64 {ir['transposed']}, 0")
    rows = ir.op(f"select i1 {transposed}, i64 {ir['n']}, i64 {ir['m']}")
    columns = ir.op(f"select i1 {transposed}, i64 {ir['m']}, i64 {ir['n']}")
    apply_epilogue(ir, ir.mul(item, rows), rows, "0", columns)


def _multiply(ir: KernelBuilder, x: str, y: str, c: str) -> None:
    _copy(ir, y)
    done = "0"
    for rows, registers in _BLOCKS:
        end = ir.op(f"and i64 {ir['m']}, {-rows}")
        with ir.loop(end, rows, done) as row:
            xs = _rows(ir, x, row, ir["x_row"], rows)
            cs = _rows(ir, c, row, ir["c_row"], rows)
            for count, first, last in _parts(ir, registers):
                with ir.loop(last, count * ir.vector.lanes, first) as column:
                    _store(ir, _sums(ir, xs, column, count), cs, column)
        done = end


def _rows(ir: KernelBuilder, matrix: str, first: str, step: str, count: int) -> list[str]:
    """The addresses of some rows of a matrix."""
    start = ir.at(matrix, ir.mul(first, step))
    return [ir.at(start, ir.mul(step, r)) for r in range(count)]


def _parts(ir: KernelBuilder, registers: int) -> list[tuple[int, str, str]]:
    """The bounds of groups of so many registers in a row, and of single ones."""
    if registers == 1:
        return [(1, "0", ir["width"])]
    whole = ir.op(f"and i64 {ir['width']}, {-registers * ir.vector.lanes}")
    return [(registers, "0", whole), (1, whole, ir["width"])]


def _copy(ir: KernelBuilder, y: str) -> None:
    """Pack Y in scratch memory, row by row."""
    contiguous, strided = _by_stride(ir, ir["y_column"])
    with ir.when(contiguous), ir.loop(ir["width"], ir.vector.lanes) as column:
        mask = _inside(ir, column)
        with ir.loop(ir["k"]) as step:
            place = ir.at(y, ir.mul(step, ir["y_row"]), column)
            values = ir.load_masked(place, mask)
            ir.store_vector(values, _copied(ir, step, column))
    with ir.when(strided):  # then its other dimension is contiguous
        use(
            ir, transpose(tile_for(ir.vector)), f"ptr {y}", f"i64 {ir['y_column']}",
            f"ptr {ir.scratch}", f"i64 {ir['width']}", f"i64 {ir['n']}", f"i64 {ir['k']}",
            f"i64 {ir['width']}",
        )  # fmt: skip


def _copied(ir: KernelBuilder, row: str, column: str) -> str:
    return ir.at(ir.scratch, ir.mul(row, ir["width"]), column)


def _inside(ir: KernelBuilder, column: str) -> str:
    """The mask of the lanes of the register at a column that are inside of the matrix."""
    return ir.range_mask(ir.lane_indices("0"), "0", ir.sub(ir["n"], column))


def _by_stride(ir: KernelBuilder, step: str) -> tuple[str, str]:
    """Whether elements are contiguous, or strided."""
    contiguous = ir.op(f"icmp eq i64 {step}, 1")
    return contiguous, ir.op(f"xor i1 {contiguous}, true")


def _sums(ir: KernelBuilder, rows: list[str], column: str, registers: int) -> list[list[str]]:
    """Some registers of each row of C, by runs of K: one chain of additions over a long K would
    have many times the error."""
    start = [(ir.vector.type, "zeroinitializer")] * (len(rows) * registers)
    with ir.carrying_loop(ir["k"], start, _RUN) as (begin, totals):
        end = ir.least(ir.add(begin, _RUN), ir["k"])
        with ir.carrying_loop(end, start, 1, begin) as (step, carried):
            place = _copied(ir, step, column)
            values = [ir.load_vector(ir.at(place, r * ir.vector.lanes)) for r in range(registers)]
            along = ir.mul(step, ir["x_column"])
            factors = [ir.splat(ir.load(ir.at(r, along)), ir.vector.element) for r in rows]
            pairs = [(factor, value) for factor in factors for value in values]
            carried.after = [
                ir.multiply_add(*pair, total)
                for pair, total in zip(pairs, carried.values, strict=True)
            ]
        totals.after = [
            ir.plus(total, run) for total, run in zip(totals.values, carried.after, strict=True)
        ]
    sums = totals.after
    return [sums[r : r + registers] for r in range(0, len(sums), registers)]


def _store(ir: KernelBuilder, sums: list[list[str]], rows: list[str], column: str) -> None:
    contiguous, strided = _by_stride(ir, ir["c_column"])
    for so, is_contiguous in ((contiguous, True), (strided, False)):
        with ir.when(so):
            for number in range(len(sums[0])):
                first = ir.add(column, number * ir.vector.lanes)
                mask, place = _inside(ir, first), ir.mul(first, ir["c_column"])
                for row, totals in zip(rows, sums, strict=True):
                    target = ir.at(row, place)
                    if is_contiguous:
                        ir.store_masked(totals[number], target, mask)
                    else:
                        steps = ir.lane_indices("0", ir["c_column"])
                        ir.scatter(totals[number], target, steps, mask)
