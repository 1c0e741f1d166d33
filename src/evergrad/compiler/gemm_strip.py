"""The inner functions of matrix products: strips of tiles held in registers, and packing.

A tile is ``ROWS`` elements of A that are broadcast, times up to ``VECTORS`` registers of
neighbouring columns of B. A strip is a column of tiles that share one panel of B. Functions here
know nothing of whole products; extents and steps are given at run time, the last register of a row
is masked, and what lies outside of a matrix is neither read nor written.
"""

from __future__ import annotations

from functools import cache

from evergrad.compiler.conv_text import Text, Vector
from evergrad.compiler.scalar import Code

# Sums, one row of B and a broadcast element must leave a few of 32 registers free.
ROWS = 8
VECTORS = 3
_UNROLLED = 4
# How many rows of A, if its columns lie in order, are packed at once.
DEALT = 64
# How many rows ahead packing asks for what it will read.
_AHEAD = 8


class Inner(Text):
    """The text of a function that kernels call; its arguments have names of their own."""

    def __init__(self, vector: Vector) -> None:
        Code.__init__(self)
        self.vector = vector


def use(text: Text, function: tuple[str, str, dict[str, str]], *arguments: str) -> None:
    """Call one of the functions of this module inside of another."""
    name, body, needed = function
    text.helpers.update(needed)
    text.helpers[name] = body
    text.do(f"call void @{name}({', '.join(arguments)})")


def panel_width(vector: Vector) -> int:
    return VECTORS * vector.lanes


def _finished(text: Text, name: str, parameters: str) -> tuple[str, str, dict[str, str]]:
    lines = "\n".join(text.lines)
    body = (
        f"define internal void @{name}({parameters}) noinline nounwind {{\nentry:\n"
        f"{lines}\n  ret void\n}}\n"
    )
    return name, body, text.helpers


def _column_masks(text: Text, vectors: int, width: str) -> list[str]:
    """For each register of a row of so many columns, which lanes there are."""
    lanes = text.vector.lanes
    return [
        text.between(text.places(str(v * lanes), "1"), "0", width) for v in range(vectors)
    ]  # fmt: skip


def _prefetch(text: Text, address: str, to_write: bool) -> None:
    text.helpers["llvm.prefetch.p0"] = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
    text.do(f"call void @llvm.prefetch.p0(ptr {address}, i32 {int(to_write)}, i32 3, i32 1)")


# -- tiles --------------------------------------------------------------------------------------


@cache
def strip(vector: Vector, vectors: int, by_rows: bool) -> tuple[str, str, dict[str, str]]:
    """``C[:rows, :width] = [C +] A B`` for a panel of B of up to ``vectors`` registers.

    ``a_row`` elements lie between the first elements of two rows of A. Inside of a tile, if
    ``by_rows``, a row lies in order and rows are ``a_step`` apart; otherwise a column of the tile
    lies in order and columns are ``a_step`` apart. It starts from C if ``more``.
    """
    text = Inner(vector)
    masks = _column_masks(text, vectors, "%width")
    kept = vector.of("i1")
    held = [
        text.op(f"select i1 %more, {kept} {mask}, {kept} zeroinitializer") for mask in masks
    ]  # fmt: skip
    with text.loop("%rows", ROWS) as top:
        left = text.sub("%rows", top)
        a = text.at("%a", text.mul(top, "%a_row"))
        rows = [text.at("%c", text.mul(text.add(top, r), "%c_step")) for r in range(2 * ROWS)]
        for row in rows[ROWS:]:
            for v in range(vectors):
                _prefetch(text, text.at(row, v * vector.lanes), to_write=True)
        start = [
            text.load_masked(text.at(row, v * vector.lanes), mask, "zeroinitializer")
            for row in rows[:ROWS]
            for v, mask in enumerate(held)
        ]
        sums = _tile_sums(text, a, left, masks, by_rows, start)
        _store_tile(text, sums, rows[:ROWS], left, masks)
    name = f"gemm_strip_{vector.mangled}_{vectors}_{'rows' if by_rows else 'columns'}"
    return _finished(
        text,
        name,
        "ptr noalias %a, i64 %a_row, i64 %a_step, ptr noalias %b, i64 %b_step, ptr noalias %c, "
        "i64 %c_step, i64 %depth, i64 %rows, i64 %width, i1 %more",
    )


def _tile_sums(
    text: Text, a: str, left: str, masks: list[str], by_rows: bool, sums: list[str]
) -> list[str]:
    """The sums over the whole depth; a tile with fewer rows computes its last one again."""
    starts = [a] * ROWS
    if by_rows:
        final = text.sub(left, 1)
        starts = [text.at(a, text.mul(text.least(str(r), final), "%a_step")) for r in range(ROWS)]

    def products(index: str, count: int, sums: list[str]) -> list[str]:
        for u in range(count):
            at = text.add(index, u)
            b = text.at("%b", text.mul(at, "%b_step"))
            row = [text.load_vector(text.at(b, v * text.vector.lanes)) for v in range(len(masks) - 1)]
            end = text.at(b, (len(masks) - 1) * text.vector.lanes)
            row.append(text.load_masked(end, masks[-1], "zeroinitializer"))
            column = at if by_rows else text.mul(at, "%a_step")
            sums = _one_step(text, starts, column, by_rows, row, sums)
        return sums

    types = [text.vector.text] * (ROWS * len(masks))
    whole = text.op(f"and i64 %depth, {-_UNROLLED}")
    for count, first, last in ((_UNROLLED, "0", whole), (1, whole, "%depth")):
        pairs = list(zip(types, sums, strict=True))
        with text.carrying(last, pairs, count, first) as (index, carried):
            carried.after = products(index, count, carried.values)
        sums = carried.after
    return sums


def _one_step(
    text: Text, starts: list[str], column: str, by_rows: bool, row: list[str], sums: list[str]
) -> list[str]:
    after = []
    for r, start in enumerate(starts):
        at = text.at(start, column) if by_rows else text.at(text.at(start, column), r)
        factor = text.splat(text.load(at), text.vector.element)
        for v, values in enumerate(row):
            after.append(_fma(text, factor, values, sums[r * len(row) + v]))
    return after


def _fma(text: Text, a: str, b: str, c: str) -> str:
    many, name = text.vector.text, f"llvm.fma.{text.vector.mangled}"
    text.helpers[name] = f"declare {many} @{name}({many}, {many}, {many})"
    return text.op(f"call {many} @{name}({many} {a}, {many} {b}, {many} {c})")


def _store_tile(
    text: Text, sums: list[str], rows: list[str], left: str, masks: list[str]
) -> None:
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
def copying(vector: Vector) -> tuple[str, str, dict[str, str]]:
    """Copy ``rows`` rows of ``width`` elements."""
    text = Inner(vector)
    with text.loop("%rows") as r, text.loop("%width", panel_width(vector)) as column:
        source = text.at("%source", text.mul(r, "%source_step"), column)
        target = text.at("%target", text.mul(r, "%target_step"), column)
        ahead = text.at(source, text.mul("%source_step", _AHEAD))
        for v, mask in enumerate(_column_masks(text, VECTORS, text.sub("%width", column))):
            place = v * vector.lanes
            _prefetch(text, text.at(ahead, place), to_write=False)
            value = text.load_masked(text.at(source, place), mask, "zeroinitializer")
            text.store_masked(value, text.at(target, place), mask)
    return _finished(
        text,
        f"gemm_copy_{vector.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %target_step, "
        "i64 %rows, i64 %width",
    )


@cache
def dealing(vector: Vector) -> tuple[str, str, dict[str, str]]:
    """Lay ``rows`` rows of up to ``DEALT`` elements out as tiles: ``ROWS`` elements of each row go
    to one tile, the next ``ROWS`` to the next, which is ``tile_step`` further."""
    text = Inner(vector)
    masks = _column_masks(text, DEALT // vector.lanes, "%width")
    part = f"<{ROWS} x {vector.element}>"
    with text.loop("%rows") as r:
        source = text.at("%source", text.mul(r, "%source_step"))
        target = text.at("%target", text.mul(r, ROWS))
        ahead = text.at(source, text.mul("%source_step", _AHEAD))
        for v, mask in enumerate(masks):
            place = v * vector.lanes
            _prefetch(text, text.at(ahead, place), to_write=False)
            value = text.load_masked(text.at(source, place), mask, "zeroinitializer")
            for first in range(0, vector.lanes, ROWS):
                chosen = ", ".join(f"i32 {n}" for n in range(first, first + ROWS))
                some = text.op(
                    f"shufflevector {vector.text} {value}, {vector.text} poison, "
                    f"<{ROWS} x i32> <{chosen}>"
                )
                tile = text.mul("%tile_step", (place + first) // ROWS)
                text.do(f"store {part} {some}, ptr {text.at(target, tile)}, align {vector.size}")
    return _finished(
        text,
        f"gemm_deal_{vector.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %tile_step, "
        "i64 %rows, i64 %width",
    )


@cache
def transposing(vector: Vector) -> tuple[str, str, dict[str, str]]:
    """``target[j, i] = source[i, j]`` for ``rows`` times ``columns`` elements."""
    text = Inner(vector)
    lanes = vector.lanes
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
        mask = text.between(text.places("0", "1"), "0", high)
        done = text.fresh("stored")
        target = text.at("%target", text.mul(column, "%target_step"), row)
        for n, values in enumerate(_transposed(text, block)):
            text.store_masked(values, text.at(target, text.mul("%target_step", n)), mask)
            if n + 1 < lanes:
                _leave_at(text, wide, n + 1, done)
        text.do(f"br label %{done}")
        text.label(done)
    return _finished(
        text,
        f"gemm_transpose_{vector.mangled}",
        "ptr noalias %source, i64 %source_step, ptr noalias %target, i64 %target_step, "
        "i64 %rows, i64 %columns",
    )


def _transposed(text: Text, block: list[str]) -> list[str]:
    """A square of registers, its rows and columns exchanged: bit by bit of their numbers."""
    lanes, many = text.vector.lanes, text.vector.text
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
