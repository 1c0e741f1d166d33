"""The inner functions of matrix products: the microkernel on register tiles, and packing.

A :class:`Tile` is some broadcast elements of A times a few registers of neighbouring columns of B;
its shape depends on the machine and the element type. The microkernel computes a column of tiles
that share one panel of B. Extents and strides are given at run time, the last register of a row is
masked, and nothing outside of a matrix is read or written.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.code import Code
from evergrad.compiler.codegen.epilogue_tiles import call_on_tile
from evergrad.compiler.codegen.ir_builder import Vector
from evergrad.compiler.codegen.kernel_builder import KernelBuilder

# How many rows (or registers of a row) ahead packing prefetches what it reads and what it writes,
# which may be in the cache of another core.
_PREFETCH_DISTANCE = 8
# Localities of prefetches: to L1 and to L2.
_TO_L1, _TO_L2 = 3, 2


# Products that are added in a register before the sum is added to C: the error of one long chain of
# additions would grow with its length. A multiple of every unrolling.
_RUN = 256


# The registers of the widest tile.
_MOST_VECTORS = 4


class Tile(NamedTuple):
    """A register tile: sums in so many rows of so many registers. Of ``pairs`` an element is a word
    of two bfloat16, whose products with those of another word are both added."""

    vector: Vector
    rows: int
    vectors: int
    pairs: bool = False

    @property
    def lanes(self) -> int:
        return self.vector.lanes

    @property
    def panel(self) -> int:
        """The columns of a tile."""
        return self.vectors * self.vector.lanes

    @property
    def wide(self) -> Tile | None:
        """The tile that is one register wider, in place of two tiles of two registers that would
        each read all of A."""
        is_widest = self.vector.lanes * self.vector.size == 64
        return self._replace(rows=6, vectors=4) if is_widest and self.vectors == 3 else None

    @property
    def unrolled(self) -> int:
        """The unrolling of the loop over K: with more, LLVM hoists more loads than there are
        registers."""
        return 4 if self.vector.size == 4 else 2

    @property
    def packed_rows(self) -> int:
        """The rows of A, if its columns are contiguous, that are packed at once."""
        return 4 * max(self.vector.lanes, self.rows)


def tile_for(vector: Vector) -> Tile:
    """The tile of a machine: its sums, one row of B and a broadcast element fit into the
    registers."""
    return Tile(vector, 8 if vector.has_32_registers else 4, 3)


class InnerFunction(KernelBuilder):
    """A builder of a function that kernels call; its parameters have names of their own."""

    def __init__(self, tile: Tile) -> None:
        Code.__init__(self)
        self.vector: Vector = tile.vector


class Function(NamedTuple):
    """A function in LLVM IR: its name, its definition, and the definitions it needs."""

    name: str
    ir: str
    helpers: dict[str, str]


def use(ir: KernelBuilder, function: Function, *arguments: str) -> None:
    """Call a function in a kernel."""
    ir.helpers.update(function.helpers)
    ir.helpers[function.name] = function.ir
    ir.do(f"call void @{function.name}({', '.join(arguments)})")


def _finished(ir: KernelBuilder, name: str, parameters: str) -> Function:
    lines = "\n".join(ir.lines)
    body = (
        f"define internal void @{name}({parameters}) noinline nounwind {{\nentry:\n"
        f"{lines}\n  ret void\n}}\n"
    )
    return Function(name, body, ir.helpers)


def _column_masks(ir: KernelBuilder, vectors: int, width: str) -> list[str]:
    """The masks of the registers of a row of so many columns."""
    lanes = ir.vector.lanes
    return [ir.range_mask(ir.lane_indices(str(v * lanes), "1"), "0", width) for v in range(vectors)]


def _prefetch(ir: KernelBuilder, address: str, to_write: bool, locality: int = _TO_L1) -> None:
    ir.helpers["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    ir.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 {int(to_write)}, i32 {locality}, i32 1)")


# -- tiles --------------------------------------------------------------------------------------


@cache
def microkernel(tile: Tile, vectors: int, by_rows: bool, padded: bool = False) -> Function:
    """``C[:rows, :width] = [C +] A B`` for a panel of B of up to ``vectors`` registers.

    If B is ``padded``, its rows are whole registers: a masked load would occupy a port of the
    multipliers. Then ``next`` is the next panel, which is prefetched: its rows have ``next_lines``
    lines and the stride ``next_step``.

    ``a_row`` is the stride of rows of A. In a tile, if ``by_rows``, rows are contiguous with the
    stride ``a_step``; otherwise columns are. If ``more``, C is added. A function of tiles,
    ``finish``, is called for rectangles that are complete, of which the first row and column are
    given.
    """
    ir = InnerFunction(tile)
    masks = _column_masks(ir, vectors, "%width")
    share = _lines_per_tile(ir, tile, vectors) if padded else ""
    with ir.loop("%rows", tile.rows) as top:
        left = ir.sub("%rows", top)
        a = ir.at("%a", ir.mul(top, "%a_row"))
        c = ir.at("%c", ir.mul(top, "%c_step"))
        rows = _rows(ir, tile, c, "%c_step", left)
        b_mask = "" if padded else masks[-1]
        prefetches = _prefetches(ir, tile, vectors, c, top, share)
        with ir.loop("%depth", _RUN) as begin:
            end = ir.least(ir.add(begin, _RUN), "%depth")
            run = _tile_sums(ir, tile, a, left, vectors, b_mask, by_rows, begin, end, prefetches)
            start = _start_of_run(ir, tile, begin, c, left)
            _store_tile(ir, tile, run, start, rows, left, masks[-1])
        _finish(ir, tile, top, left)
    form = f"{'rows' if by_rows else 'columns'}{'_padded' if padded else ''}"
    kind = "pairs" if tile.pairs else tile.vector.mangled
    name = f"gemm_microkernel_{kind}_{vectors}_{form}"
    parameters = (
        "ptr noalias %a, i64 %a_row, i64 %a_step, ptr noalias %b, i64 %b_step, ptr %c, "
        "i64 %c_step, i64 %depth, i64 %rows, i64 %width, i1 %more, ptr %finish, ptr %arguments, "
        "ptr %place, i64 %row, i64 %column"
    )
    following = ", ptr %next, i64 %next_step, i64 %next_lines" if padded else ""
    return _finished(ir, name, parameters + following)


# What callers give for ``finish`` and its arguments if there is nothing to do.
UNFINISHED = ("ptr null", "ptr null", "ptr null", "i64 0", "i64 0")


def _finish(ir: KernelBuilder, tile: Tile, top: str, left: str) -> None:
    """Call ``finish`` for a tile that is complete, and in L1, if it is given."""
    with ir.when(ir.op("icmp ne ptr %finish, null")):
        height = ir.least(left, tile.rows)
        rectangle = (ir.add("%row", top), height, "%column", "%width")
        call_on_tile(ir, "%finish", "%arguments", "%place", rectangle)


def _start_of_run(ir: KernelBuilder, tile: Tile, begin: str, c: str, left: str) -> list[str]:
    """The rows that the sums of a run of K are added to: zeros for the first run, unless there is
    ``more``; otherwise C."""
    is_first = ir.op(f"icmp eq i64 {begin}, 0")
    zeros = f"gemm_zeros_{tile.vector.mangled}"
    room = f"[{_MOST_VECTORS} x {tile.vector.type}]"
    ir.helpers[zeros] = f"@{zeros} = internal constant {room} zeroinitializer"
    is_zero = ir.op(f"and i1 {is_first}, {ir.op('xor i1 %more, true')}")
    source = ir.op(f"select i1 {is_zero}, ptr @{zeros}, ptr {c}")
    step = ir.op(f"select i1 {is_zero}, i64 0, i64 %c_step")
    return _rows(ir, tile, source, step, left)


def _rows(ir: KernelBuilder, tile: Tile, start: str, step: str, left: str) -> list[str]:
    """The rows of a tile; after the last of them, the last again."""
    final = ir.sub(left, 1)
    return [ir.at(start, ir.mul(ir.least(str(r), final), step)) for r in range(tile.rows)]


def _tile_sums(
    ir: KernelBuilder, tile: Tile, a: str, left: str, vectors: int, b_mask: str, by_rows: bool,
    begin: str, end: str, prefetches: _Prefetches,
) -> list[str]:  # fmt: skip
    """The sums of products over a run of the depth; a mask selects the lanes of the last register
    of a row of B, if it is not whole."""
    starts = _rows(ir, tile, a, "%a_step", left) if by_rows else [a] * tile.rows
    types = [tile.vector.type] * (tile.rows * vectors)
    sums = ["zeroinitializer"] * len(types)
    whole = ir.op(f"and i64 {end}, {-tile.unrolled}")
    for count, first, last in ((tile.unrolled, begin, whole), (1, whole, end)):
        pairs = list(zip(types, sums, strict=True))
        with ir.carrying_loop(last, pairs, count, first) as (index, carried):
            if count > 1:
                prefetches.emit(ir, ir.op(f"udiv i64 {index}, {count}"))
            sums = carried.values
            for u in range(count):
                at = ir.add(index, u)
                row = _row_of_b(ir, tile, at, vectors, b_mask)
                column = at if by_rows else ir.mul(at, "%a_step")
                sums = _outer_product(ir, tile, starts, column, by_rows, row, sums)
            carried.after = sums
        sums = carried.after
    return sums


def _row_of_b(ir: KernelBuilder, tile: Tile, index: str, vectors: int, mask: str) -> list[str]:
    start = ir.at("%b", ir.mul(index, "%b_step"))
    *places, end = [ir.at(start, v * tile.lanes) for v in range(vectors)]
    row = [ir.load_vector(place) for place in places]
    last = ir.load_masked(end, mask) if mask else ir.load_vector(end)
    return [*row, last]


class _Prefetches(NamedTuple):
    """What a tile prefetches, a little in each iteration since a burst would delay the loads of the
    loop: rows of C of the next tile, and lines of the next panel of B. Each tile begins at another
    line of that panel, if there is one."""

    tile: Tile
    vectors: int
    c: str
    line: str

    def emit(self, ir: KernelBuilder, turn: str) -> None:
        if self.line:
            at = ir.at(self.line, ir.mul(turn, "%next_step"))
            _prefetch(ir, at, to_write=False, locality=_TO_L2)
        # In a basic block of its own: among the products LLVM would spill registers.
        with ir.when(ir.op(f"icmp ult i64 {turn}, {self.tile.rows}")):
            row = ir.at(self.c, ir.mul(turn, "%c_step"))
            for v in range(self.vectors):
                _prefetch(ir, ir.at(row, v * self.tile.lanes), to_write=True)


def _lines_per_tile(ir: KernelBuilder, tile: Tile, vectors: int) -> str:
    """How many lines of the next panel each tile prefetches."""
    tiles = ir.op(f"udiv i64 {ir.add('%rows', tile.rows - 1)}, {tile.rows}")
    return ir.add(ir.op(f"udiv i64 {ir.mul('%depth', vectors)}, {tiles}"), 1)


def _prefetches(
    ir: KernelBuilder, tile: Tile, vectors: int, c: str, top: str, share: str
) -> _Prefetches:
    next_c = ir.at(c, ir.mul("%c_step", tile.rows))
    if not share:
        return _Prefetches(tile, vectors, next_c, "")
    rows, column = ir.split(ir.op(f"udiv i64 {top}, {tile.rows}"), "%next_lines")
    line = ir.at("%next", ir.mul(rows, share, "%next_step"), ir.mul(column, tile.lanes))
    return _Prefetches(tile, vectors, next_c, line)


def _outer_product(
    ir: KernelBuilder,
    tile: Tile,
    starts: list[str],
    column: str,
    by_rows: bool,
    row: list[str],
    sums: list[str],
) -> list[str]:
    after = []
    for r, start in enumerate(starts):
        at = ir.at(start, column) if by_rows else ir.at(ir.at(start, column), r)
        factor = ir.splat(ir.load(at), ir.vector.element)
        for v, values in enumerate(row):
            total = sums[r * len(row) + v]
            multiply_add = ir.add_dots if tile.pairs else ir.multiply_add
            after.append(multiply_add(factor, values, total))
    return after


def _store_tile(
    ir: KernelBuilder, tile: Tile, sums: list[str], start: list[str], rows: list[str], left: str,
    mask: str,
) -> None:  # fmt: skip
    """Store the rows inside of C; the mask selects the lanes of the last register of a row. Each
    register is loaded, added and stored before the next: there are none for all of them."""
    done = ir.fresh("stored")
    vectors = len(sums) // tile.rows
    for r, row in enumerate(rows):
        for v, total in enumerate(sums[r * vectors : (r + 1) * vectors]):
            source, target = (ir.at(at, v * tile.lanes) for at in (start[r], row))
            if v + 1 < vectors:
                ir.store_vector(ir.plus(ir.load_vector(source), total), target)
            else:
                held = ir.load_masked(source, mask)
                ir.store_masked(ir.plus(held, total), target, mask)
        if r + 1 < len(rows):
            _exit_at(ir, left, r + 1, done)
    ir.do(f"br label %{done}")
    ir.label(done)


def _exit_at(ir: KernelBuilder, count: str, place: int, label: str) -> None:
    """Branch to a label if there are no more than ``place``."""
    following = ir.fresh("on")
    more = ir.op(f"icmp sgt i64 {count}, {place}")
    ir.do(f"br i1 {more}, label %{following}, label %{label}")
    ir.label(following)


# -- packing ------------------------------------------------------------------------------------


@cache
def copy_rows(tile: Tile) -> Function:
    """Copy ``rows`` rows of ``width`` elements; the last register of a row is padded with
    zeros."""
    ir = InnerFunction(tile)
    with ir.loop("%rows") as r, ir.loop("%width", tile.panel) as column:
        source = ir.at("%source", ir.mul(r, "%source_step"), column)
        target = ir.at("%target", ir.mul(r, "%target_step"), column)
        ahead = ir.at(source, ir.mul("%source_step", _PREFETCH_DISTANCE))
        target_ahead = ir.at(target, ir.mul("%target_step", _PREFETCH_DISTANCE))
        left = ir.sub("%width", column)
        for v, mask in enumerate(_column_masks(ir, tile.vectors, left)):
            place = v * tile.lanes
            _prefetch(ir, ir.at(ahead, place), to_write=False)
            _prefetch(ir, ir.at(target_ahead, place), to_write=True)
            value = ir.load_masked(ir.at(source, place), mask)
            with ir.when(ir.op(f"icmp sgt i64 {left}, {place}")):
                ir.store_vector(value, ir.at(target, place))
    return _finished(
        ir,
        f"gemm_copy_{tile.vector.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %target_step, "
        "i64 %rows, i64 %width",
    )


@cache
def pack_tiles(tile: Tile) -> Function:
    """Pack ``rows`` rows of up to ``tile.packed_rows`` elements in tiles: as many elements of each
    row as a tile has rows go to one tile, the next to the next, ``tile_step`` further."""
    ir = InnerFunction(tile)
    masks = _column_masks(ir, tile.packed_rows // tile.lanes, "%width")
    length = min(tile.lanes, tile.rows)
    part = f"<{length} x {tile.vector.element}>"
    with ir.loop("%rows") as r:
        source = ir.at("%source", ir.mul(r, "%source_step"))
        target = ir.at("%target", ir.mul(r, tile.rows))
        ahead = ir.at(source, ir.mul("%source_step", _PREFETCH_DISTANCE))
        for v, mask in enumerate(masks):
            _prefetch(ir, ir.at(ahead, v * tile.lanes), to_write=False)
            value = ir.load_masked(ir.at(source, v * tile.lanes), mask)
            for first in range(0, tile.lanes, length):
                number, place = divmod(v * tile.lanes + first, tile.rows)
                some = _part_of(ir, value, first, length)
                to = ir.at(target, ir.mul("%tile_step", number), place)
                _prefetch(ir, ir.at(to, _PREFETCH_DISTANCE * tile.rows), to_write=True)
                ir.do(f"store {part} {some}, ptr {to}, align {tile.vector.size}")
    return _finished(
        ir,
        f"gemm_pack_tiles_{tile.vector.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %tile_step, "
        "i64 %rows, i64 %width",
    )


def _part_of(ir: KernelBuilder, value: str, first: int, length: int) -> str:
    """Neighbouring lanes of a register."""
    many = ir.vector.type
    chosen = ", ".join(f"i32 {n}" for n in range(first, first + length))
    return ir.op(f"shufflevector {many} {value}, {many} poison, <{length} x i32> <{chosen}>")


@cache
def transpose(tile: Tile) -> Function:
    """``target[j, i] = source[i, j]`` for ``rows`` times ``columns`` elements; rows of the target
    are padded with arbitrary elements up to ``room``."""
    ir = InnerFunction(tile)
    lanes = tile.lanes
    with ir.loop("%rows", lanes) as row, ir.loop("%columns", lanes) as column:
        high, wide = ir.sub("%rows", row), ir.sub("%columns", column)
        mask = ir.range_mask(ir.lane_indices("0", "1"), "0", wide)
        final = ir.sub(high, 1)
        corner = ir.at("%source", ir.mul(row, "%source_step"), column)
        block = []
        for n in range(lanes):
            at = ir.at(corner, ir.mul(ir.least(str(n), final), "%source_step"))
            _prefetch(ir, ir.at(at, _PREFETCH_DISTANCE * lanes), to_write=False)
            block.append(ir.load_masked(at, mask))
        mask = ir.range_mask(ir.lane_indices("0", "1"), "0", ir.sub("%room", row))
        done = ir.fresh("stored")
        target = ir.at("%target", ir.mul(column, "%target_step"), row)
        for n, values in enumerate(transposed(ir, block)):
            next_block = ir.at(target, ir.mul("%target_step", lanes + n))
            _prefetch(ir, next_block, to_write=True)
            ir.store_masked(values, ir.at(target, ir.mul("%target_step", n)), mask)
            if n + 1 < lanes:
                _exit_at(ir, wide, n + 1, done)
        ir.do(f"br label %{done}")
        ir.label(done)
    return _finished(
        ir,
        f"gemm_transpose_{tile.vector.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %target_step, "
        "i64 %rows, i64 %columns, i64 %room",
    )


def transposed(ir: KernelBuilder, block: list[str]) -> list[str]:
    """A square of registers transposed by butterfly shuffles, one for each bit of an index."""
    many, lanes = ir.vector.type, ir.vector.lanes
    bit = 1
    while bit < lanes:
        low = [lanes + (c ^ bit) if c & bit else c for c in range(lanes)]
        high = [lanes + c if c & bit else c | bit for c in range(lanes)]
        exchanged = list(block)
        for n in range(lanes):
            if n & bit:
                continue
            for place, order in ((n, low), (n | bit, high)):
                chosen = ", ".join(f"i32 {c}" for c in order)
                exchanged[place] = ir.op(
                    f"shufflevector {many} {block[n]}, {many} {block[n | bit]}, "
                    f"{ir.vector.of('i32')} <{chosen}>"
                )
        block = exchanged
        bit *= 2
    return block
