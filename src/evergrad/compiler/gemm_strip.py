"""The inner functions of matrix products: strips of tiles held in registers, and packing.

A tile is ``ROWS`` elements of A that are broadcast, times up to ``VECTORS`` registers of
neighbouring columns of B. A strip is a column of tiles that share one panel of B. Functions here
know nothing of whole products; extents and steps are given at run time, the last register of a row
is masked, and what lies outside of a matrix is neither read nor written.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.conv_text import Text, Vector
from evergrad.compiler.scalar import Code

LANES = 16
VECTOR = Vector("float", LANES, 4)
# Sums, one row of B and a broadcast element must leave a few of 32 registers free.
ROWS = 8
VECTORS = 3
# Steps of the depth in one turn of the inner loop.
UNROLLED = 4
# How many rows of A, if its columns lie in order, are packed at once.
DEALT = 64
# How many rows (or registers of a row) ahead packing asks for what it will read.
_AHEAD = 8


class Inner(Text):
    """The text of a function that kernels call; its arguments have names of their own."""

    def __init__(self) -> None:
        Code.__init__(self)
        self.vector = VECTOR


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
    return [
        text.between(text.places(str(v * LANES), "1"), "0", width) for v in range(vectors)
    ]  # fmt: skip


def _prefetch(text: Text, address: str, to_write: bool) -> None:
    text.helpers["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    text.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 {int(to_write)}, i32 3, i32 1)")


# -- tiles --------------------------------------------------------------------------------------


@cache
def strip(vectors: int, by_rows: bool) -> Function:
    """``C[:rows, :width] = [C +] A B`` for a panel of B of up to ``vectors`` registers.

    ``a_row`` elements lie between the first elements of two rows of A. Inside of a tile, if
    ``by_rows``, a row lies in order and rows are ``a_step`` apart; otherwise a column of the tile
    lies in order and columns are ``a_step`` apart. It starts from C if ``more``.
    """
    text = Inner()
    masks = _column_masks(text, vectors, "%width")
    kept = VECTOR.of("i1")
    held = [
        text.op(f"select i1 %more, {kept} {mask}, {kept} zeroinitializer") for mask in masks
    ]  # fmt: skip
    with text.loop("%rows", ROWS) as top:
        left = text.sub("%rows", top)
        a = text.at("%a", text.mul(top, "%a_row"))
        c = text.at("%c", text.mul(top, "%c_step"))
        rows = _rows(text, c, "%c_step", left)
        start = [
            text.load_masked(text.at(row, v * LANES), mask, "zeroinitializer")
            for row in rows
            for v, mask in enumerate(held)
        ]
        sums = _tile_sums(text, a, c, left, masks, by_rows, start)
        _store_tile(text, sums, rows, left, masks)
    name = f"gemm_strip_{VECTOR.mangled}_{vectors}_{'rows' if by_rows else 'columns'}"
    return _finished(
        text,
        name,
        "ptr noalias %a, i64 %a_row, i64 %a_step, ptr noalias %b, i64 %b_step, ptr noalias %c, "
        "i64 %c_step, i64 %depth, i64 %rows, i64 %width, i1 %more",
    )


def _rows(text: Text, start: str, step: str, left: str) -> list[str]:
    """The rows of a tile; behind the last of them, the last again."""
    final = text.sub(left, 1)
    return [text.at(start, text.mul(text.least(str(r), final), step)) for r in range(ROWS)]


def _tile_sums(
    text: Text, a: str, c: str, left: str, masks: list[str], by_rows: bool, sums: list[str]
) -> list[str]:
    """The sums of products over the whole depth.

    Rows of C of the next tile are asked for one by one in the loop, since many at once keep what it
    reads waiting; but tiles by rows have no registers to spare for that.
    """
    starts = [a] * ROWS
    if by_rows:
        starts = _rows(text, a, "%a_step", left)
        for r in range(ROWS):
            _prefetch_next_tile(text, c, r, len(masks))

    def products(index: str, count: int, sums: list[str]) -> list[str]:
        for u in range(count):
            at = text.add(index, u)
            b = text.at("%b", text.mul(at, "%b_step"))
            row = [text.load_vector(text.at(b, v * LANES)) for v in range(len(masks) - 1)]
            end = text.at(b, (len(masks) - 1) * LANES)
            row.append(text.load_masked(end, masks[-1], "zeroinitializer"))
            column = at if by_rows else text.mul(at, "%a_step")
            sums = _one_step(text, starts, column, by_rows, row, sums)
        return sums

    types = [VECTOR.text] * (ROWS * len(masks))
    whole = text.op(f"and i64 %depth, {-UNROLLED}")
    for count, first, last in ((UNROLLED, "0", whole), (1, whole, "%depth")):
        pairs = list(zip(types, sums, strict=True))
        with text.carrying(last, pairs, count, first) as (index, carried):
            if count > 1 and not by_rows:
                turn = text.op(f"udiv i64 {index}, {count}")
                row = text.op(f"and i64 {turn}, {ROWS - 1}")
                _prefetch_next_tile(text, c, row, len(masks))
            carried.after = products(index, count, carried.values)
        sums = carried.after
    return sums


def _prefetch_next_tile(text: Text, c: str, row: str | int, vectors: int) -> None:
    """Ask for a row of C of the next tile."""
    following = text.at(c, text.mul(text.add(row, ROWS), "%c_step"))
    for v in range(vectors):
        _prefetch(text, text.at(following, v * LANES), to_write=True)


def _one_step(
    text: Text, starts: list[str], column: str, by_rows: bool, row: list[str], sums: list[str]
) -> list[str]:
    after = []
    for r, start in enumerate(starts):
        at = text.at(start, column) if by_rows else text.at(text.at(start, column), r)
        factor = text.splat(text.load(at), VECTOR.element)
        for v, values in enumerate(row):
            after.append(_fma(text, factor, values, sums[r * len(row) + v]))
    return after


def _fma(text: Text, a: str, b: str, c: str) -> str:
    many, name = VECTOR.text, f"llvm.fma.{VECTOR.mangled}"
    text.helpers[name] = f"declare {many} @{name}({many}, {many}, {many})"
    return text.op(f"call {many} @{name}({many} {a}, {many} {b}, {many} {c})")


def _store_tile(text: Text, sums: list[str], rows: list[str], left: str, masks: list[str]) -> None:
    """Write the rows that there are."""
    done = text.fresh("stored")
    for r, row in enumerate(rows):
        for v, mask in enumerate(masks):
            address = text.at(row, v * LANES)
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
def copying() -> Function:
    """Copy ``rows`` rows of ``width`` elements."""
    text = Inner()
    with text.loop("%rows") as r, text.loop("%width", VECTORS * LANES) as column:
        source = text.at("%source", text.mul(r, "%source_step"), column)
        target = text.at("%target", text.mul(r, "%target_step"), column)
        ahead = text.at(source, text.mul("%source_step", _AHEAD))
        for v, mask in enumerate(_column_masks(text, VECTORS, text.sub("%width", column))):
            place = v * LANES
            _prefetch(text, text.at(ahead, place), to_write=False)
            value = text.load_masked(text.at(source, place), mask, "zeroinitializer")
            text.store_masked(value, text.at(target, place), mask)
    return _finished(
        text,
        f"gemm_copy_{VECTOR.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %target_step, "
        "i64 %rows, i64 %width",
    )


@cache
def dealing() -> Function:
    """Lay ``rows`` rows of up to ``DEALT`` elements out as tiles: ``ROWS`` elements of each row go
    to one tile, the next ``ROWS`` to the next, which is ``tile_step`` further."""
    text = Inner()
    masks = _column_masks(text, DEALT // LANES, "%width")
    part = f"<{ROWS} x {VECTOR.element}>"
    with text.loop("%rows") as r:
        source = text.at("%source", text.mul(r, "%source_step"))
        target = text.at("%target", text.mul(r, ROWS))
        ahead = text.at(source, text.mul("%source_step", _AHEAD))
        for v, mask in enumerate(masks):
            place = v * LANES
            _prefetch(text, text.at(ahead, place), to_write=False)
            value = text.load_masked(text.at(source, place), mask, "zeroinitializer")
            for first in range(0, LANES, ROWS):
                chosen = ", ".join(f"i32 {n}" for n in range(first, first + ROWS))
                some = text.op(
                    f"shufflevector {VECTOR.text} {value}, {VECTOR.text} poison, "
                    f"<{ROWS} x i32> <{chosen}>"
                )
                tile = text.mul("%tile_step", (place + first) // ROWS)
                text.do(f"store {part} {some}, ptr {text.at(target, tile)}, align {VECTOR.size}")
    return _finished(
        text,
        f"gemm_deal_{VECTOR.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %tile_step, "
        "i64 %rows, i64 %width",
    )


@cache
def transposing() -> Function:
    """``target[j, i] = source[i, j]`` for ``rows`` times ``columns`` elements."""
    text = Inner()
    with text.loop("%rows", LANES) as row, text.loop("%columns", LANES) as column:
        high, wide = text.sub("%rows", row), text.sub("%columns", column)
        mask = text.between(text.places("0", "1"), "0", wide)
        final = text.sub(high, 1)
        corner = text.at("%source", text.mul(row, "%source_step"), column)
        block = []
        for n in range(LANES):
            at = text.at(corner, text.mul(text.least(str(n), final), "%source_step"))
            _prefetch(text, text.at(at, _AHEAD * LANES), to_write=False)
            block.append(text.load_masked(at, mask, "zeroinitializer"))
        mask = text.between(text.places("0", "1"), "0", high)
        done = text.fresh("stored")
        target = text.at("%target", text.mul(column, "%target_step"), row)
        for n, values in enumerate(_transposed(text, block)):
            text.store_masked(values, text.at(target, text.mul("%target_step", n)), mask)
            if n + 1 < LANES:
                _leave_at(text, wide, n + 1, done)
        text.do(f"br label %{done}")
        text.label(done)
    return _finished(
        text,
        f"gemm_transpose_{VECTOR.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %target_step, "
        "i64 %rows, i64 %columns",
    )


def _transposed(text: Text, block: list[str]) -> list[str]:
    """A square of registers, its rows and columns exchanged: bit by bit of their numbers."""
    many = VECTOR.text
    bit = 1
    while bit < LANES:
        low = [LANES + (c ^ bit) if c & bit else c for c in range(LANES)]
        high = [LANES + c if c & bit else c | bit for c in range(LANES)]
        exchanged = list(block)
        for n in range(LANES):
            if n & bit:
                continue
            for place, order in ((n, low), (n | bit, high)):
                chosen = ", ".join(f"i32 {c}" for c in order)
                exchanged[place] = text.op(
                    f"shufflevector {many} {block[n]}, {many} {block[n | bit]}, "
                    f"{VECTOR.of('i32')} <{chosen}>"
                )
        block = exchanged
        bit *= 2
    return block
