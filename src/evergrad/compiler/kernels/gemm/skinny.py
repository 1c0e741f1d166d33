"""Skinny products: few rows (or few columns) of C; X is small, Y is large and read once.

Packing Y takes longer than multiplying by it, and runs of an unpacked panel of it are too short for
the hardware prefetcher. Here several rows of Y are read side by side. If they are contiguous along
K, each gives a column of C: a dot product for each row of X. Otherwise each is added to all rows of
C. Dot products may read a Y of 8 or 16 bits and widen it in registers.

A dot product is accumulated in one order whatever the number of rows: serving relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.kernels.gemm.microkernel import tile_for, transpose, use
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.kernels.gemm.tile_epilogue import EPILOGUE, NO_EPILOGUE, apply_epilogue
from evergrad.compiler.kernels.gemm.tiling import UNPACKED_B_STRIDE
from evergrad.compiler.native.target import machine
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype

# With more rows than this packing Y pays; with a small stride Y is multiplied unpacked by tiles.
MOST_ROWS = 16
_MOST_ROWS_UNPACKED = 4
# How many rows of Y are added at once to how many rows of C: to one row, and to several.
_TO_ONE = (16, 1)
_TO_SEVERAL = (8, 2)
# The columns of C in a chunk that adds rows: with the most rows they fill L1.
_COLUMNS = machine().l1_bytes // (4 * MOST_ROWS)
# The rows of Y in a run and in a part. One chain of additions over all of K would have many times
# the error: the sums of runs are added to those of a part, and these to the result.
_RUN, _PART = 128, 1 << 14
_LEVELS = 3
# The multiplications of a chunk of dot products that are worth claiming it; the most chunks, which
# are enough for any thread pool, and the fewest.
_PIECE = 1 << 18
_MOST, _FEWEST = 16, 2


class _Skinny(NamedTuple):
    """``C = X Y``, or its transpose: the extents, of which m is small, and the strides."""

    m: int
    n: int
    k: int
    x_row: int
    x_column: int
    y_stride: int  # of rows of Y in memory
    c_row: int
    c_column: int
    per_chunk: int  # columns of C

    @property
    def chunks(self) -> int:
        return -(-self.n // self.per_chunk)


_NUMBERS = (*_Skinny._fields, *EPILOGUE)


def skinny_kernel(product: Product, vector: Vector, leading: int) -> Kernel | None:
    """The kernel of a skinny product; ``None`` if others are better. The pointers are A, B and
    C."""
    if product.items > 1:
        return None
    assert product.a is not None and product.b is not None
    a, b = product.a.strides, product.b.strides
    m, n, k = product.m, product.n, product.k
    if (
        b[1] == 1
        and n > 1
        and m <= (_MOST_ROWS_UNPACKED if b[0] <= UNPACKED_B_STRIDE else MOST_ROWS)
    ):
        skinny = _Skinny(m, n, k, *a, b[0], leading, 1, _added_columns(n, vector))
        scratch = _LEVELS * m * skinny.per_chunk * vector.size
        return with_numbers(_sums_ir(vector), (*skinny, *NO_EPILOGUE), (), skinny.chunks, scratch)
    if n == 1 and m > 1 and leading == 1 and a[0] == 1 and a[1] >= m:
        skinny = _Skinny(1, m, k, *b[::-1], a[1], m, 1, _added_columns(m, vector))
        scratch = _LEVELS * skinny.per_chunk * vector.size
        return with_numbers(
            _sums_ir(vector, transposed=True), (*skinny, *NO_EPILOGUE), (), skinny.chunks, scratch
        )
    if m <= MOST_ROWS and b[0] == 1:
        skinny = _Skinny(m, n, k, *a, b[1], leading, 1, _dot_columns(m, n, k, vector))
        return _dots_kernel(vector, skinny, transposed=False)
    if n <= MOST_ROWS and a[1] == 1:
        skinny = _Skinny(n, m, k, *b[::-1], a[0], 1, leading, _dot_columns(n, m, k, vector))
        return _dots_kernel(vector, skinny, transposed=True)
    return None


def widening_kernel(product: Product, vector: Vector, leading: int, narrow: dtype) -> Kernel:
    """The kernel of a product of at most ``MOST_ROWS`` rows with a B that is contiguous along K and
    of a narrower element type."""
    assert product.a is not None and product.b is not None
    m, n, k = product.m, product.n, product.k
    y_stride = product.b.strides[1]
    columns = _dot_columns(m, n, k, vector)
    skinny = _Skinny(m, n, k, *product.a.strides, y_stride, leading, 1, columns)
    return _dots_kernel(vector, skinny, transposed=False, narrow=narrow)


def _added_columns(n: int, vector: Vector) -> int:
    """The columns of a chunk that adds rows."""
    chunks = max(-(-n // _COLUMNS), _FEWEST if n >= _COLUMNS // 2 else 1)
    return -(-n // (chunks * vector.lanes)) * vector.lanes


def _dot_columns(m: int, n: int, k: int, vector: Vector) -> int:
    """The columns of a chunk of dot products."""
    chunks = min(_MOST, max(_FEWEST, m * n * k // _PIECE))
    return -(-n // (chunks * vector.lanes)) * vector.lanes


# -- registers ----------------------------------------------------------------------------------


class _Access(NamedTuple):
    """Loads and stores a register, masked if there is a mask."""

    ir: KernelBuilder
    mask: str

    def load(self, address: str, vector: Vector | None = None) -> str:
        if not self.mask:
            return self.ir.load_vector(address, vector)
        return self.ir.load_masked(address, self.mask, vector=vector)

    def store(self, value: str, address: str) -> None:
        if not self.mask:
            self.ir.store_vector(value, address)
        else:
            self.ir.store_masked(value, address, self.mask)


class _Operand(NamedTuple):
    """A matrix that is read in the kernel's element type, or widened from a ``narrow`` one."""

    ir: KernelBuilder
    start: str
    narrow: dtype | None

    def at(self, offset: str) -> str:
        if self.narrow is None:
            return self.ir.at(self.start, offset)
        element = KINDS[self.narrow].storage
        return self.ir.op(f"getelementptr {element}, ptr {self.start}, i64 {offset}")

    def load(self, some: _Access, offset: str) -> str:
        """A register of it, from an offset in elements on."""
        if self.narrow is None:
            return some.load(self.at(offset))
        ir, kind = self.ir, KINDS[self.narrow]
        stored = Vector(kind.storage, ir.vector.lanes, kind.bits // 8)
        raw = some.load(self.at(offset), stored)
        integers = ir.vector.of("i32")
        if self.narrow is dtypes.float16:
            return ir.op(f"fpext {stored.type} {raw} to {ir.vector.type}")
        extend = "sext" if kind.signed and not kind.is_float else "zext"
        wide = ir.op(f"{extend} {stored.type} {raw} to {integers}")
        if self.narrow is dtypes.bfloat16:
            wide = ir.op(f"shl {integers} {wide}, {ir.splat('16', 'i32')}")
            return ir.op(f"bitcast {integers} {wide} to {ir.vector.type}")
        return ir.op(f"sitofp {integers} {wide} to {ir.vector.type}")


def _whole_and_rest(ir: KernelBuilder, extent: str) -> list[tuple[str, str, _Access]]:
    """The bounds of the whole registers of an extent, and of the rest, which needs a mask: masked
    loads occupy a port of the multipliers."""
    whole = ir.op(f"and i64 {extent}, {-ir.vector.lanes}")
    mask = ir.range_mask(ir.lane_indices("0"), "0", ir.sub(extent, whole))
    return [("0", whole, _Access(ir, "")), (whole, extent, _Access(ir, mask))]


def _registers(ir: KernelBuilder, width: str) -> Iterator[tuple[str, _Access]]:
    """A loop over the registers of a row."""
    for first, last, some in _whole_and_rest(ir, width):
        with ir.loop(last, ir.vector.lanes, first) as column:
            yield column, some


# -- sums of rows -------------------------------------------------------------------------------


@cache
def _sums_ir(vector: Vector, transposed: bool = False) -> Kernel:
    """A chunk is some columns of C. They are summed in scratch memory (rows of C often share sets
    of a cache), by runs of K."""
    ir = KernelBuilder(vector, ("y", "x", "c") if transposed else ("x", "y", "c"), _NUMBERS)
    left, right = ir.items("%chunk", ir["per_chunk"], ir["n"])
    y, c, width = ir.at(ir["y"], left), ir.at(ir["c"], left), ir.sub(right, left)
    size = ir.mul(ir["m"], ir["per_chunk"])
    total, part, run = (ir.at(ir.scratch, ir.mul(size, n)) for n in range(3))
    is_long = ir.op(f"icmp sgt i64 {ir['k']}, {_RUN}")
    sums = ir.op(f"select i1 {is_long}, ptr {run}, ptr {total}")
    is_one = ir.op(f"icmp eq i64 {ir['m']}, 1")
    _clear(ir, total, size)
    with ir.loop(ir["k"], _PART) as begin:
        with ir.when(is_long):
            _clear(ir, part, size)
        stop = ir.least(ir.add(begin, _PART), ir["k"])
        with ir.loop(stop, _RUN, begin) as first:
            last = ir.least(ir.add(first, _RUN), stop)
            with ir.when(is_long):
                _clear(ir, run, size)
            _add_run(ir, y, sums, first, last, is_one, width)
            with ir.when(is_long):
                _add_sums(ir, part, run, size)
        with ir.when(is_long):
            _add_sums(ir, total, part, size)
    with ir.loop(ir["m"]) as row:
        source = ir.at(ir.scratch, ir.mul(row, ir["per_chunk"]))
        target = ir.at(c, ir.mul(row, ir["c_row"]))
        for column, some in _registers(ir, width):
            some.store(ir.load_vector(ir.at(source, column)), ir.at(target, column))
    _apply_epilogue(ir, left, right, transposed)
    return ir.kernel("gemm_sums")


def _apply_epilogue(ir: KernelBuilder, first: str, last: str, transposed: bool) -> None:
    """Apply the epilogue to the columns of a chunk, which are rows of C if it is transposed."""
    width = ir.sub(last, first)
    if transposed:
        apply_epilogue(ir, first, width, "0", ir["m"])
    else:
        apply_epilogue(ir, "0", ir["m"], first, width)


def _clear(ir: KernelBuilder, sums: str, size: str) -> None:
    with ir.loop(size, ir.vector.lanes) as place:
        ir.store_vector("zeroinitializer", ir.at(sums, place))


def _add_sums(ir: KernelBuilder, to: str, added: str, size: str) -> None:
    with ir.loop(size, ir.vector.lanes) as place:
        both = [ir.load_vector(ir.at(sums, place)) for sums in (to, added)]
        ir.store_vector(ir.plus(*both), ir.at(to, place))


def _add_run(
    ir: KernelBuilder, y: str, sums: str, first: str, last: str, is_one: str, width: str
) -> None:
    """Add a run of rows of Y to all sums."""
    for (added, rows), so in ((_TO_ONE, is_one), (_TO_SEVERAL, ir.op(f"xor i1 {is_one}, true"))):
        with ir.when(so):
            whole = ir.add(first, ir.op(f"and i64 {ir.sub(last, first)}, {-added}"))
            for count, begin, end in ((added, first, whole), (1, whole, last)):
                with ir.loop(end, count, begin) as step, ir.loop(ir["m"], rows) as row:
                    _add_rows(ir, y, sums, step, count, row, rows, width)


def _add_rows(
    ir: KernelBuilder, y: str, sums_at: str, step: str, count: int, row: str, rows: int, width: str
) -> None:
    """Add some rows of Y to some rows of sums. After the last row of sums it is the last again,
    which is written twice."""
    places = [ir.least(ir.add(row, r), ir.sub(ir["m"], 1)) for r in range(rows)]
    steps = [ir.add(step, s) for s in range(count)]
    factors = [
        ir.splat(ir.load(_element_of_x(ir, r, s)), ir.vector.element) for r in places for s in steps
    ]
    targets = [ir.at(sums_at, ir.mul(r, ir["per_chunk"])) for r in places]
    sources = [ir.at(y, ir.mul(s, ir["y_stride"])) for s in steps]
    for column, some in _registers(ir, width):
        sums = [ir.load_vector(ir.at(target, column)) for target in targets]
        for s, source in enumerate(sources):
            values = some.load(ir.at(source, column))
            sums = [
                ir.multiply_add(factors[r * count + s], values, total)
                for r, total in enumerate(sums)
            ]
        for target, total in zip(targets, sums, strict=True):
            ir.store_vector(total, ir.at(target, column))


def _element_of_x(ir: KernelBuilder, row: str, step: str) -> str:
    return ir.at(ir["x"], ir.mul(row, ir["x_row"]), ir.mul(step, ir["x_column"]))


# -- dot products -------------------------------------------------------------------------------


def _dots_kernel(
    vector: Vector, skinny: _Skinny, transposed: bool, narrow: dtype | None = None
) -> Kernel:
    is_copied = skinny.x_column != 1
    scratch = skinny.m * skinny.k * vector.size if is_copied else 0
    numbers = (*skinny, *NO_EPILOGUE)
    return with_numbers(_dots_ir(vector, transposed, narrow), numbers, (), skinny.chunks, scratch)


@cache
def _dots_ir(vector: Vector, transposed: bool, narrow: dtype | None) -> Kernel:
    """A chunk is some columns of C. As many dot products as a register has lanes are computed at
    once: of one row of X, or of several if there are."""
    ir = KernelBuilder(vector, ("y", "x", "c") if transposed else ("x", "y", "c"), _NUMBERS)
    x, x_row = _rows_of_x(ir)
    y = _Operand(ir, ir["y"], narrow)
    first, last = ir.items("%chunk", ir["per_chunk"], ir["n"])
    is_one = ir.op(f"icmp eq i64 {ir['m']}, 1")
    several = 4 if vector.lanes == 16 else 2
    for rows, so in ((1, is_one), (several, ir.op(f"xor i1 {is_one}, true"))):
        step = vector.lanes // rows
        with (
            ir.when(so),
            ir.loop(last, step, first) as column,
            ir.loop(ir["m"], rows) as row,
        ):
            _dots(ir, x, x_row, y, row, rows, column, last)
    _apply_epilogue(ir, first, last, transposed)
    return ir.kernel("gemm_dots")


def _rows_of_x(ir: KernelBuilder) -> tuple[str, str]:
    """X with contiguous rows, and their stride; it is copied if its columns are contiguous."""
    is_copied = ir.op(f"icmp ne i64 {ir['x_column']}, 1")
    with ir.when(is_copied):
        use(
            ir, transpose(tile_for(ir.vector)), f"ptr {ir['x']}", f"i64 {ir['x_column']}",
            f"ptr {ir.scratch}", f"i64 {ir['k']}", f"i64 {ir['k']}", f"i64 {ir['m']}",
            f"i64 {ir['k']}",
        )  # fmt: skip
    x = ir.op(f"select i1 {is_copied}, ptr {ir.scratch}, ptr {ir['x']}")
    return x, ir.op(f"select i1 {is_copied}, i64 {ir['k']}, i64 {ir['x_row']}")


def _dots(
    ir: KernelBuilder, x: str, x_row: str, y: _Operand, row: str, rows: int, column: str, last: str
) -> None:
    """The dot products of some rows of X and of Y; after the last rows, of the last again."""
    lanes = ir.vector.lanes
    columns = lanes // rows
    final_row, final_column = ir.sub(ir["m"], 1), ir.sub(last, 1)
    x_starts = [ir.at(x, ir.mul(ir.least(ir.add(row, r), final_row), x_row)) for r in range(rows)]
    y_starts = [
        y._replace(start=y.at(ir.mul(ir.least(ir.add(column, c), final_column), ir["y_stride"])))
        for c in range(columns)
    ]
    # The next rows of Y: while several rows of X are multiplied the hardware prefetcher is idle,
    # and narrow rows end before it has seen their stride.
    ahead = ir.mul(ir["y_stride"], columns)
    sums = ["zeroinitializer"] * lanes
    for first, end, some in _whole_and_rest(ir, ir["k"]):
        pairs = [(ir.vector.type, total) for total in sums]
        with ir.carrying_loop(end, pairs, lanes, first) as (step, carried):
            if rows > 1 or y.narrow is not None:
                _prefetch(ir, [start.at(ir.add(step, ahead)) for start in y_starts])
            xs = [some.load(ir.at(start, step)) for start in x_starts]
            ys = [start.load(some, step) for start in y_starts]
            carried.after = [
                ir.multiply_add(xs[n // columns], ys[n % columns], total)
                for n, total in enumerate(carried.values)
            ]
        sums = carried.after
    _store_dots(ir, ir.lane_sums(sums), row, rows, column, last)


def _prefetch(ir: KernelBuilder, addresses: list[str]) -> None:
    name = "llvm.prefetch.p0"
    ir.helpers[name] = f"declare void @{name}(ptr, i32, i32, i32)"
    for address in addresses:
        ir.do(f"call void @{name}(ptr {address}, i32 0, i32 3, i32 1)")


def _store_dots(ir: KernelBuilder, sums: str, row: str, rows: int, column: str, last: str) -> None:
    """Scatter a register of sums to C."""
    vector = ir.vector
    many, columns = vector.of("i32"), vector.lanes // rows
    places = {}
    for name, numbers in (
        ("row", [n // columns for n in range(vector.lanes)]),
        ("column", [n % columns for n in range(vector.lanes)]),
    ):
        places[name] = f"<{', '.join(f'i32 {n}' for n in numbers)}>"
    masks = [
        ir.range_mask(places["row"], "0", ir.sub(ir["m"], row)),
        ir.range_mask(places["column"], "0", ir.sub(last, column)),
    ]
    mask = ir.op(f"and {vector.of('i1')} {masks[0]}, {masks[1]}")
    offsets = [
        ir.op(f"mul {many} {places[name]}, {ir.splat_index(ir[f'c_{name}'])}")
        for name in ("row", "column")
    ]
    offset = ir.op(f"add {many} {offsets[0]}, {offsets[1]}")
    corner = ir.at(ir["c"], ir.mul(row, ir["c_row"]), ir.mul(column, ir["c_column"]))
    ir.scatter(sums, corner, offset, mask)
