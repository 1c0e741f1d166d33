"""Matrix products of bfloat16 by dot products of pairs (AVX512_BF16), summed in float32.

A pair is two neighbouring elements of the summed dimension, in 32 bits. The right factor is packed
in panels of 64 columns: for each pair the 64 words of a panel follow each other. Rows of the left
factor are read where they are; a transposed one is packed into pairs, too. Panels stay in L2 while
blocks of rows are multiplied by them; a chunk is some panels and blocks of rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from evergrad.compiler.codegen.ir_builder import (
    KernelBuilder,
    Vector,
    items_per_chunk,
    with_numbers,
)
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.native.target import has_bfloat16_dots
from evergrad.compiler.schedule.lower import Lowering
from evergrad.core import dtypes
from evergrad.core.trace import Var

_LANES = 16
_VECTORS = 4
_PANEL = _LANES * _VECTORS
_ROWS = 6  # rows of a tile
_BLOCK = 16 * _ROWS  # rows that are multiplied by a panel
_LEAST = 16  # rows, columns and summed elements of a product that is worth packing
_LONGEST = 8192  # summed elements: a panel has twice the bytes
_WORDS = Vector("i32", _LANES, 4)
_FLOATS = Vector("float", _LANES, 4)
# The sum, and two vectors of pairs: an instruction that no common version of LLVM names alike.
_DOT = 'asm "vdpbf16ps $2, $1, $0", "=v,v,v,0"'


def is_dot_product(product: Product | None, found: Any) -> bool:
    """Whether the kernel below is the fastest for a product of factors of a type."""
    if product is None or found is not dtypes.bfloat16 or not has_bfloat16_dots():
        return False
    is_large = min(product.m, product.n, product.k) >= _LEAST and product.k <= _LONGEST
    return is_large and product.k % 2 == 0 and product.items == 1


def add_dot_product(
    lowering: Lowering, label: str, product: Product, factors: list[Var], out: Var, leading: int
) -> None:
    """Add the instructions of a product: packing, and the product itself."""
    assert product.a is not None and product.b is not None
    pairs, panels = product.k // 2, -(-product.n // _PANEL)
    packed = lowering.scratch(4 * pairs * panels * _PANEL, f"factor of {label}")
    made = _paired_ir() if product.b.transposed else _interleaved_ir()
    right = _Packing(made, product.n, pairs, _PANEL, product.b.leading)
    _add_packing(lowering, label, right, factors[1], packed)
    left: Any = factors[0]
    row_stride, pair_stride = 2 * product.a.leading, 4
    if product.a.transposed:
        width = -(-product.m // _LANES) * _LANES
        left = lowering.scratch(4 * pairs * width, f"factor of {label}")
        rows = _Packing(_interleaved_ir(), product.m, pairs, width, product.a.leading)
        _add_packing(lowering, label, rows, factors[0], left)
        row_stride, pair_stride = 4, 4 * width
    blocks = -(-product.m // _BLOCK)
    items = panels * blocks
    per_chunk = items_per_chunk(items, _BLOCK * _PANEL * pairs)
    numbers = _Numbers(
        items, per_chunk, blocks, product.m, product.n, pairs, row_stride, pair_stride, leading
    )
    is_rounded = out.type.dtype is dtypes.bfloat16
    kernel = with_numbers(_product_ir(is_rounded), numbers, (), -(-items // per_chunk))
    lowering.add_kernel(label, kernel, [left, packed], [out], product.work // 16)


# -- packing ------------------------------------------------------------------------------------


class _PackingNumbers(NamedTuple):
    items: int  # panels times pairs
    per_chunk: int
    pairs: int
    columns: int
    width: int  # columns of a panel
    leading: int  # bytes from row to row


class _Packing(NamedTuple):
    """How a factor is packed: its columns (of the left one its rows) in panels of ``width``."""

    made: Kernel
    columns: int
    pairs: int
    width: int
    leading: int


def _add_packing(
    lowering: Lowering, label: str, packing: _Packing, factor: Var, target: Any
) -> None:
    made, columns, pairs, width, leading = packing
    items = -(-columns // width) * pairs
    per_chunk = items_per_chunk(items, 4 * width)
    numbers = _PackingNumbers(items, per_chunk, pairs, columns, width, 2 * leading)
    kernel = with_numbers(made, numbers, (), -(-items // per_chunk))
    lowering.add_kernel(f"pack for {label}", kernel, [factor], [target], 2 * columns * pairs)


class _PackingBuilder(KernelBuilder):
    """Over the pairs of panels: where the words of one go, and the columns that it has."""

    def __init__(self) -> None:
        super().__init__(_WORDS, ("x", "out"), _PackingNumbers._fields)

    def bytes_at(self, base: str, *offsets: str | int) -> str:
        return self.op(f"getelementptr i8, ptr {base}, i64 {self.add(*offsets)}")

    def target(self, item: str, column: str) -> str:
        return self.at(self["out"], self.mul(item, self["width"]), column)


@cache
def _interleaved_ir() -> Kernel:
    """Of rows of columns: two rows at a time are interleaved."""
    ir = _PackingBuilder()
    halves = Vector("i16", _LANES, 2)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    with ir.loop(last, first=first) as item:
        panel, pair = ir.split(item, ir["pairs"])
        left = ir.mul(panel, ir["width"])
        with ir.loop(ir["width"], _LANES) as column:
            mask = ir.range_mask(ir.lane_indices(ir.add(left, column)), "0", ir["columns"])
            at = ir.mul(ir.add(left, column), 2)
            words = []
            for half in range(2):
                row = ir.mul(ir.add(ir.mul(pair, 2), half), ir["leading"])
                address = ir.bytes_at(ir["x"], row, at)
                stored = ir.load_masked(address, mask, "zeroinitializer", halves)
                words.append(ir.op(f"zext {halves.type} {stored} to {_WORDS.type}"))
            high = ir.op(f"shl {_WORDS.type} {words[1]}, {ir.splat('16', 'i32')}")
            both = ir.op(f"or {_WORDS.type} {words[0]}, {high}")
            ir.store_vector(both, ir.target(item, column))
    return ir.kernel("pack_pairs")


@cache
def _paired_ir() -> Kernel:
    """Of columns whose elements follow each other: words are gathered."""
    ir = _PackingBuilder()
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    elements = ir.op(f"lshr i64 {ir['leading']}, 1")
    with ir.loop(last, first=first) as item:
        panel, pair = ir.split(item, ir["pairs"])
        left = ir.mul(panel, ir["width"])
        with ir.loop(ir["width"], _LANES) as column:
            mask = ir.range_mask(ir.lane_indices(ir.add(left, column)), "0", ir["columns"])
            at = ir.mul(ir.add(left, column), ir["leading"])
            start = ir.bytes_at(ir["x"], at, ir.mul(pair, 4))
            indices = ir.lane_indices("0", elements)
            words = _gathered(ir, start, indices, mask)
            ir.store_vector(words, ir.target(item, column))
    return ir.kernel("pack_pairs")


def _gathered(ir: KernelBuilder, start: str, indices: str, mask: str) -> str:
    """Words at indices in units of two bytes."""
    many, masks, pointers = (_WORDS.of(t) for t in ("i32", "i1", "ptr"))
    addresses = ir.op(f"getelementptr i16, ptr {start}, {many} {indices}")
    name = f"llvm.masked.gather.{_WORDS.mangled}.v{_LANES}p0"
    ir.helpers[name] = f"declare {many} @{name}({pointers}, i32, {masks}, {many})"
    return ir.op(
        f"call {many} @{name}({pointers} {addresses}, i32 2, {masks} {mask}, "
        f"{many} zeroinitializer)"
    )


# -- the product --------------------------------------------------------------------------------


class _Numbers(NamedTuple):
    items: int  # panels times blocks of rows
    per_chunk: int
    blocks: int
    m: int
    n: int
    pairs: int
    row_stride: int  # of the left factor, in bytes
    pair_stride: int
    leading: int  # elements from row to row of the result


class _ProductBuilder(KernelBuilder):
    """A product that is stored in float32, or rounded to bfloat16."""

    def __init__(self, is_rounded: bool) -> None:
        super().__init__(_FLOATS, ("a", "b", "out"), _Numbers._fields)
        self.stored = Vector("i16", _LANES, 2) if is_rounded else _FLOATS

    def put(self, value: str, element: str, mask: str | None) -> None:
        """Store a vector of results from an element of the result on."""
        stored = self.stored
        address = self.op(f"getelementptr {stored.element}, ptr {self['out']}, i64 {element}")
        if stored is not _FLOATS:
            value = _rounded(self, value)
        if mask is None:
            self.do(f"store {stored.type} {value}, ptr {address}, align {stored.size}")
        else:
            self.store_masked(value, address, mask, stored)


@cache
def _product_ir(is_rounded: bool) -> Kernel:
    ir = _ProductBuilder(is_rounded)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["items"])
    with ir.loop(last, first=first) as item:
        panel, block = ir.split(item, ir["blocks"])
        top = ir.mul(block, _BLOCK)
        bottom = ir.least(ir.add(top, str(_BLOCK)), ir["m"])
        left = ir.mul(panel, _PANEL)
        b = ir.at(ir["b"], ir.mul(left, ir["pairs"]))
        is_whole = ir.op(f"icmp sge i64 {ir.sub(ir['n'], left)}, {_PANEL}")
        with ir.when(is_whole):
            _rows_of_tiles(ir, b, top, bottom, left, _VECTORS, None)
        with ir.when(ir.op(f"xor i1 {is_whole}, true")), ir.loop(_PANEL, _LANES) as part:
            column = ir.add(left, part)
            with ir.when(ir.op(f"icmp slt i64 {column}, {ir['n']}")):
                mask = ir.range_mask(ir.lane_indices(column), "0", ir["n"])
                _rows_of_tiles(ir, ir.at(b, part), top, bottom, column, 1, mask)
    return ir.kernel("bfloat16_product")


def _rows_of_tiles(
    ir: _ProductBuilder, b: str, top: str, bottom: str, column: str, vectors: int, mask: str | None
) -> None:
    rest = ir.op(f"urem i64 {ir.sub(bottom, top)}, {_ROWS}")
    whole = ir.sub(bottom, rest)
    for first, last, count in ((top, whole, _ROWS), (whole, bottom, 1)):
        with ir.loop(last, count, first) as row:
            _tile(ir, b, row, column, count, vectors, mask)


def _tile(
    ir: _ProductBuilder, b: str, row: str, column: str, rows: int, vectors: int, mask: str | None
) -> None:
    words, floats = _WORDS.type, _FLOATS.type
    starts = [
        ir.op(f"getelementptr i8, ptr {ir['a']}, i64 {ir.mul(ir.add(row, r), ir['row_stride'])}")
        for r in range(rows)
    ]
    sums = [(floats, "zeroinitializer")] * (rows * vectors)
    with ir.carrying_loop(ir["pairs"], sums) as (pair, carried):
        line = ir.at(b, ir.mul(pair, _PANEL))
        columns = [
            ir.op(f"load {words}, ptr {ir.at(line, v * _LANES)}, align 4") for v in range(vectors)
        ]
        offset = ir.mul(pair, ir["pair_stride"])
        carried.after = []
        for r in range(rows):
            address = ir.op(f"getelementptr i8, ptr {starts[r]}, i64 {offset}")
            pairs = ir.splat(ir.op(f"load i32, ptr {address}, align 2"), "i32")
            for v in range(vectors):
                total = carried.values[r * vectors + v]
                given = f"{words} {pairs}, {words} {columns[v]}, {floats} {total}"
                carried.after.append(ir.op(f"call {floats} {_DOT}({given})"))
    for r in range(rows):
        target = ir.add(ir.mul(ir.add(row, r), ir["leading"]), column)
        for v in range(vectors):
            ir.put(carried.values[r * vectors + v], ir.add(target, v * _LANES), mask)


def _rounded(ir: KernelBuilder, value: str) -> str:
    """Round to nearest, ties to even; NaN stays NaN."""
    words = _WORDS.type

    def number(n: int) -> str:
        return ir.splat(str(n), "i32")

    bits = ir.op(f"bitcast {_FLOATS.type} {value} to {words}")
    high = ir.op(f"lshr {words} {bits}, {number(16)}")
    odd = ir.op(f"and {words} {high}, {number(1)}")
    up = ir.op(f"add {words} {bits}, {ir.op(f'add {words} {odd}, {number(32767)}')}")
    is_nan = ir.op(f"fcmp uno {_FLOATS.type} {value}, {value}")
    chosen = ir.op(f"select {_WORDS.of('i1')} {is_nan}, {words} {number(2143289344)}, {words} {up}")
    moved = ir.op(f"lshr {words} {chosen}, {number(16)}")
    return ir.op(f"trunc {words} {moved} to {_WORDS.of('i16')}")
