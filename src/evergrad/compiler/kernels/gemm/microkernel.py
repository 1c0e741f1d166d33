"""The inner functions of matrix products: strips of tiles held in registers, and packing.

A :class:`Tile` is some elements of A that are broadcast, times a few registers of neighbouring
columns of B; how many depends on the machine and the type of the elements. A strip is a column of
tiles that share one panel of B. Functions here know nothing of whole products; extents and steps
are given at run time, the last register of a row is masked, and what lies outside of a matrix is
neither read nor written.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.elementwise import Code
from evergrad.compiler.codegen.ir_builder import Text, Vector

# How many rows (or registers of a row) ahead packing asks for what it will read, and for the places
# it will write to: these may be in the cache of another core, which has read them there.
_AHEAD = 8
# What prefetching wants to have in the first cache, and in the second.
_FIRST, _SECOND = 3, 2


class Tile(NamedTuple):
    """The sums that are held in registers: so many rows of so many registers."""

    vector: Vector
    rows: int
    vectors: int

    @property
    def lanes(self) -> int:
        return self.vector.lanes

    @property
    def panel(self) -> int:
        """The columns of a tile."""
        return self.vectors * self.vector.lanes

    @property
    def wide(self) -> Tile | None:
        """The tile that is one register wider. Two of two registers each would take the place of
        one, and each would read all of A."""
        is_widest = self.vector.lanes * self.vector.size == 64
        return Tile(self.vector, 6, 4) if is_widest and self.vectors == 3 else None

    @property
    def unrolled(self) -> int:
        """The steps of the depth in one turn of the inner loop: with more of them LLVM loads more
        beforehand than there are registers."""
        return 4 if self.vector.size == 4 else 2

    @property
    def dealt(self) -> int:
        """How many rows of A, if its columns lie in order, are packed at once."""
        return 4 * max(self.vector.lanes, self.rows)


def tile_for(vector: Vector) -> Tile:
    """Sums, one row of B and a broadcast element fit into the registers: there are 16 of 256 bits
    and 32 of others, a few of which stay free."""
    return Tile(vector, 8 if vector.has_32_registers else 4, 3)


class Inner(Text):
    """The text of a function that kernels call; its arguments have names of their own."""

    def __init__(self, tile: Tile) -> None:
        Code.__init__(self)
        self.vector = tile.vector


class Function(NamedTuple):
    """A finished function, and what it calls itself."""

    name: str
    text: str
    helpers: dict[str, str]


def use(text: Text, function: Function, *arguments: str) -> None:
    """Call a function inside of a kernel."""
    text.helpers.update(function.helpers)
    text.helpers[function.name] = function.text
    text.do(f"call void @{function.name}({', '.join(arguments)})")


def _finished(text: Text, name: str, parameters: str) -> Function:
    lines = "\n".join(text.lines)
    body = (
        f"define internal void @{name}({parameters}) noinline nounwind {{\nentry:\n"
        f"{lines}\n  ret void\n}}\n"
    )
    return Function(name, body, text.helpers)


def _column_masks(text: Text, vectors: int, width: str) -> list[str]:
    """For each register of a row of so many columns, which lanes there are."""
    lanes = text.vector.lanes
    return [text.between(text.places(str(v * lanes), "1"), "0", width) for v in range(vectors)]


def _prefetch(text: Text, address: str, to_write: bool, locality: int = _FIRST) -> None:
    text.helpers["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    text.do(
        f"call void @llvm.prefetch.p0(ptr {address}, i32 {int(to_write)}, i32 {locality}, i32 1)"
    )


# -- tiles --------------------------------------------------------------------------------------


@cache
def strip(tile: Tile, vectors: int, by_rows: bool, padded: bool = False) -> Function:
    """``C[:rows, :width] = [C +] A B`` for a panel of B of up to ``vectors`` registers.

    If B is ``padded``, its rows are whole registers: a load with a mask would take a turn of the
    units that multiply. Then ``next`` is the panel that comes next, to be asked for: its rows have
    ``next_lines`` lines side by side and are ``next_step`` apart.

    ``a_row`` elements lie between the first elements of two rows of A. Inside of a tile, if
    ``by_rows``, a row lies in order and rows are ``a_step`` apart; otherwise a column of the tile
    lies in order and columns are ``a_step`` apart. If ``more``, it starts from rows at ``first``,
    ``first_step`` apart: those of C, or one row for all of them.
    """
    text = Inner(tile)
    masks = _column_masks(text, vectors, "%width")
    kept = tile.vector.of("i1")
    held = [
        text.op(f"select i1 %more, {kept} {mask}, {kept} zeroinitializer") for mask in masks
    ]  # fmt: skip
    share = _share(text, tile, vectors) if padded else ""
    with text.loop("%rows", tile.rows) as top:
        left = text.sub("%rows", top)
        a = text.at("%a", text.mul(top, "%a_row"))
        c = text.at("%c", text.mul(top, "%c_step"))
        rows = _rows(text, tile, c, "%c_step", left)
        first = text.at("%first", text.mul(top, "%first_step"))
        start = [
            text.load_masked(text.at(row, v * tile.lanes), mask, "zeroinitializer")
            for row in _rows(text, tile, first, "%first_step", left)
            for v, mask in enumerate(held)
        ]
        b_mask = "" if padded else masks[-1]
        asked = _asked(text, tile, vectors, c, top, share)
        sums = _tile_sums(text, tile, a, left, vectors, b_mask, by_rows, start, asked)
        _store_tile(text, sums, rows, left, masks)
    form = f"{'rows' if by_rows else 'columns'}{'_padded' if padded else ''}"
    name = f"gemm_strip_{tile.vector.mangled}_{vectors}_{form}"
    parameters = (
        "ptr noalias %a, i64 %a_row, i64 %a_step, ptr noalias %b, i64 %b_step, ptr %c, "
        "i64 %c_step, i64 %depth, i64 %rows, i64 %width, i1 %more, ptr %first, i64 %first_step"
    )
    following = ", ptr %next, i64 %next_step, i64 %next_lines" if padded else ""
    return _finished(text, name, parameters + following)


def _rows(text: Text, tile: Tile, start: str, step: str, left: str) -> list[str]:
    """The rows of a tile; behind the last of them, the last again."""
    final = text.sub(left, 1)
    return [text.at(start, text.mul(text.least(str(r), final), step)) for r in range(tile.rows)]


def _tile_sums(
    text: Text, tile: Tile, a: str, left: str, vectors: int, b_mask: str, by_rows: bool,
    sums: list[str], asked: _Asked,
) -> list[str]:  # fmt: skip
    """The sums of products over the whole depth; a mask says what the last register of a row of B
    has, if it is not whole."""
    starts = _rows(text, tile, a, "%a_step", left) if by_rows else [a] * tile.rows
    types = [tile.vector.text] * (tile.rows * vectors)
    whole = text.op(f"and i64 %depth, {-tile.unrolled}")
    for count, first, last in ((tile.unrolled, "0", whole), (1, whole, "%depth")):
        pairs = list(zip(types, sums, strict=True))
        with text.carrying(last, pairs, count, first) as (index, carried):
            if count > 1:
                asked.ask(text, text.op(f"udiv i64 {index}, {count}"))
            sums = carried.values
            for u in range(count):
                at = text.add(index, u)
                row = _row_of_b(text, tile, at, vectors, b_mask)
                column = at if by_rows else text.mul(at, "%a_step")
                sums = _one_step(text, starts, column, by_rows, row, sums)
            carried.after = sums
        sums = carried.after
    return sums


def _row_of_b(text: Text, tile: Tile, index: str, vectors: int, mask: str) -> list[str]:
    start = text.at("%b", text.mul(index, "%b_step"))
    *places, end = [text.at(start, v * tile.lanes) for v in range(vectors)]
    row = [text.load_vector(place) for place in places]
    last = text.load_masked(end, mask, "zeroinitializer") if mask else text.load_vector(end)
    return [*row, last]


class _Asked(NamedTuple):
    """What a tile asks for before it is needed, a little in each turn of its loop, since much at
    once keeps what the loop reads waiting: rows of C of the next tile, and lines of the panel of B
    that follows. Each tile begins at another place of that panel, if there is one."""

    tile: Tile
    vectors: int
    c: str
    line: str

    def ask(self, text: Text, turn: str) -> None:
        if self.line:
            at = text.at(self.line, text.mul(turn, "%next_step"))
            _prefetch(text, at, to_write=False, locality=_SECOND)
        # In a block of its own: beside products, LLVM would hold more than there are registers.
        with text.when(text.op(f"icmp ult i64 {turn}, {self.tile.rows}")):
            row = text.at(self.c, text.mul(turn, "%c_step"))
            for v in range(self.vectors):
                _prefetch(text, text.at(row, v * self.tile.lanes), to_write=True)


def _share(text: Text, tile: Tile, vectors: int) -> str:
    """How many lines of the next panel each tile asks for."""
    tiles = text.op(f"udiv i64 {text.add('%rows', tile.rows - 1)}, {tile.rows}")
    return text.add(text.op(f"udiv i64 {text.mul('%depth', vectors)}, {tiles}"), 1)


def _asked(text: Text, tile: Tile, vectors: int, c: str, top: str, share: str) -> _Asked:
    next_c = text.at(c, text.mul("%c_step", tile.rows))
    if not share:
        return _Asked(tile, vectors, next_c, "")
    rows, column = text.split(text.op(f"udiv i64 {top}, {tile.rows}"), "%next_lines")
    line = text.at("%next", text.mul(rows, share, "%next_step"), text.mul(column, tile.lanes))
    return _Asked(tile, vectors, next_c, line)


def _one_step(
    text: Text, starts: list[str], column: str, by_rows: bool, row: list[str], sums: list[str]
) -> list[str]:
    after = []
    for r, start in enumerate(starts):
        at = text.at(start, column) if by_rows else text.at(text.at(start, column), r)
        factor = text.splat(text.load(at), text.vector.element)
        for v, values in enumerate(row):
            after.append(text.multiply_add(factor, values, sums[r * len(row) + v]))
    return after


def _store_tile(text: Text, sums: list[str], rows: list[str], left: str, masks: list[str]) -> None:
    """Write the rows that there are."""
    done = text.fresh("stored")
    for r, row in enumerate(rows):
        for v, mask in enumerate(masks):
            address = text.at(row, v * text.vector.lanes)
            text.store_masked(sums[r * len(masks) + v], address, mask)
        if r + 1 < len(rows):
            _leave_at(text, left, r + 1, done)
    text.do(f"br label %{done}")
    text.label(done)


def _leave_at(text: Text, count: str, place: int, label: str) -> None:
    """Go to a label if there are no more than ``place``."""
    following = text.fresh("on")
    more = text.op(f"icmp sgt i64 {count}, {place}")
    text.do(f"br i1 {more}, label %{following}, label %{label}")
    text.label(following)


# -- packing ------------------------------------------------------------------------------------


@cache
def copying(tile: Tile) -> Function:
    """Copy ``rows`` rows of ``width`` elements; the last register of a row is filled up with
    zeros."""
    text = Inner(tile)
    with text.loop("%rows") as r, text.loop("%width", tile.panel) as column:
        source = text.at("%source", text.mul(r, "%source_step"), column)
        target = text.at("%target", text.mul(r, "%target_step"), column)
        ahead = text.at(source, text.mul("%source_step", _AHEAD))
        target_ahead = text.at(target, text.mul("%target_step", _AHEAD))
        left = text.sub("%width", column)
        for v, mask in enumerate(_column_masks(text, tile.vectors, left)):
            place = v * tile.lanes
            _prefetch(text, text.at(ahead, place), to_write=False)
            _prefetch(text, text.at(target_ahead, place), to_write=True)
            value = text.load_masked(text.at(source, place), mask, "zeroinitializer")
            with text.when(text.op(f"icmp sgt i64 {left}, {place}")):
                text.store_vector(value, text.at(target, place))
    return _finished(
        text,
        f"gemm_copy_{tile.vector.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %target_step, "
        "i64 %rows, i64 %width",
    )


@cache
def dealing(tile: Tile) -> Function:
    """Lay ``rows`` rows of up to ``tile.dealt`` elements out as tiles: as many elements of each row
    as a tile has rows go to one tile, the next to the next, which is ``tile_step`` further."""
    text = Inner(tile)
    masks = _column_masks(text, tile.dealt // tile.lanes, "%width")
    length = min(tile.lanes, tile.rows)
    part = f"<{length} x {tile.vector.element}>"
    with text.loop("%rows") as r:
        source = text.at("%source", text.mul(r, "%source_step"))
        target = text.at("%target", text.mul(r, tile.rows))
        ahead = text.at(source, text.mul("%source_step", _AHEAD))
        for v, mask in enumerate(masks):
            _prefetch(text, text.at(ahead, v * tile.lanes), to_write=False)
            value = text.load_masked(text.at(source, v * tile.lanes), mask, "zeroinitializer")
            for first in range(0, tile.lanes, length):
                number, place = divmod(v * tile.lanes + first, tile.rows)
                some = _part_of(text, value, first, length)
                to = text.at(target, text.mul("%tile_step", number), place)
                _prefetch(text, text.at(to, _AHEAD * tile.rows), to_write=True)
                text.do(f"store {part} {some}, ptr {to}, align {tile.vector.size}")
    return _finished(
        text,
        f"gemm_deal_{tile.vector.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %tile_step, "
        "i64 %rows, i64 %width",
    )


def _part_of(text: Text, value: str, first: int, length: int) -> str:
    """Some neighbouring lanes of a register."""
    many = text.vector.text
    chosen = ", ".join(f"i32 {n}" for n in range(first, first + length))
    return text.op(f"shufflevector {many} {value}, {many} poison, <{length} x i32> <{chosen}>")


@cache
def transposing(tile: Tile) -> Function:
    """``target[j, i] = source[i, j]`` for ``rows`` times ``columns`` elements; rows of the target
    are filled up with some of them as far as there is ``room``."""
    text = Inner(tile)
    lanes = tile.lanes
    with text.loop("%rows", lanes) as row, text.loop("%columns", lanes) as column:
        high, wide = text.sub("%rows", row), text.sub("%columns", column)
        mask = text.between(text.places("0", "1"), "0", wide)
        final = text.sub(high, 1)
        corner = text.at("%source", text.mul(row, "%source_step"), column)
        block = []
        for n in range(lanes):
            at = text.at(corner, text.mul(text.least(str(n), final), "%source_step"))
            _prefetch(text, text.at(at, _AHEAD * lanes), to_write=False)
            block.append(text.load_masked(at, mask, "zeroinitializer"))
        mask = text.between(text.places("0", "1"), "0", text.sub("%room", row))
        done = text.fresh("stored")
        target = text.at("%target", text.mul(column, "%target_step"), row)
        for n, values in enumerate(transposed(text, block)):
            next_block = text.at(target, text.mul("%target_step", lanes + n))
            _prefetch(text, next_block, to_write=True)
            text.store_masked(values, text.at(target, text.mul("%target_step", n)), mask)
            if n + 1 < lanes:
                _leave_at(text, wide, n + 1, done)
        text.do(f"br label %{done}")
        text.label(done)
    return _finished(
        text,
        f"gemm_transpose_{tile.vector.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %target_step, "
        "i64 %rows, i64 %columns, i64 %room",
    )


def transposed(text: Text, block: list[str]) -> list[str]:
    """A square of registers, its rows and columns exchanged: bit by bit of their numbers."""
    many, lanes = text.vector.text, text.vector.lanes
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
                exchanged[place] = text.op(
                    f"shufflevector {many} {block[n]}, {many} {block[n | bit]}, "
                    f"{text.vector.of('i32')} <{chosen}>"
                )
        block = exchanged
        bit *= 2
    return block
