"""Packing functions of attention, in LLVM IR: matrices into scratch memory, some transposed, and
back.

Matrices in scratch memory have rows of whole vectors; what is beyond the edges of a value is read
as zero or as a copy of its last row, and never written back.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from evergrad.compiler.codegen.function_builder import FunctionBuilder, Helper, helper, lanes
from evergrad.compiler.native.target import machine

# The queries of a block, which are lanes of vectors. Kernels and dropout words rely on it.
QUERIES = 64
ROW = QUERIES * 4
LINE = machine().line_bytes
# Rows of scratch matrices are multiples of the most rows of a tile.
EIGHT = 8


def up(number: int, step: int) -> int:
    return -(-number // step) * step


# -- matrices into scratch memory and back ------------------------------------------------------

_COPY_PARAMETERS = "ptr %from, i64 %from_row, i64 %rows, i64 %columns, ptr %to, i64 %to_row"


def _transposed(w: FunctionBuilder, rows: Sequence[str]) -> list[str]:
    """A square tile of vectors, transposed."""
    rows = list(rows)
    n = lanes()
    half = 1
    while half < n:
        low = [i if not i & half else i - half + n for i in range(n)]
        high = [i + half if not i & half else i + n for i in range(n)]
        found = list(rows)
        for i in range(n):
            if not i & half:
                for target, order in ((i, low), (i + half, high)):
                    text = ", ".join(f"i32 {o}" for o in order)
                    found[target] = w.op(
                        f"shufflevector {w.vector} {rows[i]}, {w.vector} {rows[i + half]}, "
                        f"<{n} x i32> <{text}>"
                    )
        rows = found
        half *= 2
    return rows


def _transposed_in(word: str, keeps_rows: bool) -> Helper:
    w = FunctionBuilder()
    n = lanes()
    with w.loop(0, "%rows", n) as r, w.loop(0, "%columns", n) as c:
        mask = w.first_lanes(w.sub("%columns", c))
        last = w.sub(w.sub("%rows", r), 1)
        start = w.at("%from", w.mul(r, "%from_row"), w.mul(c, 4))
        places = [w.at(start, w.mul(w.least(x, last), "%from_row")) for x in range(n)]
        rows = [w.masked_load(place, mask) for place in places]
        if keeps_rows:
            target = w.at("%copy", w.mul(r, "%copy_row"), w.mul(c, 4))
            for row, place in zip(rows, w.spaced(target, "%copy_row", n), strict=True):
                w.store(row, place)
        target = w.at("%to", w.mul(c, "%to_row"), w.mul(r, 4))
        for row, place in zip(_transposed(w, rows), w.spaced(target, "%to_row", n), strict=True):
            w.store(row, place)
    return helper(
        w, word, f"{_COPY_PARAMETERS}, ptr %copy, i64 %copy_row" if keeps_rows else _COPY_PARAMETERS
    )


@cache
def transpose_in() -> Helper:
    """Rows of memory become columns of scratch: ``to[c, r] = from[r, c]``."""
    return _transposed_in("attention_transpose_in", keeps_rows=False)


@cache
def transpose_and_copy() -> Helper:
    """Rows of memory become columns of scratch, and rows of whole vectors too."""
    return _transposed_in("attention_transpose_and_copy", keeps_rows=True)


@cache
def row_products() -> Helper:
    """For each row the dot product with a row of whole vectors."""
    w = FunctionBuilder()
    with w.loop(0, "%rows") as r:
        start, other = w.at("%from", w.mul(r, "%from_row")), w.at("%by", w.mul(r, "%by_row"))
        total = w.slot(w.vector, "zeroinitializer")
        with w.loop(0, "%columns", lanes()) as c:
            mask, shift = w.first_lanes(w.sub("%columns", c)), w.mul(c, 4)
            found = w.masked_load(w.at(start, shift), mask)
            w.keep(total, w.fma(found, w.load(w.at(other, shift)), w.kept(total)))
        w.do(f"store float {w.sum_of(w.kept(total))}, ptr {w.at('%to', w.mul(r, 4))}, align 4")
    return helper(
        w, "attention_row_products",
        "ptr %from, i64 %from_row, ptr %by, i64 %by_row, i64 %rows, i64 %columns, ptr %to",
    )  # fmt: skip


@cache
def rows_in() -> Helper:
    """Rows of memory as rows of whole vectors, padded with zeros."""
    w = FunctionBuilder()
    with w.loop(0, "%rows") as r, w.loop(0, "%columns", lanes()) as c:
        mask = w.first_lanes(w.sub("%columns", c))
        start = w.at("%from", w.mul(r, "%from_row"), w.mul(c, 4))
        w.store(w.masked_load(start, mask), w.at("%to", w.mul(r, "%to_row"), w.mul(c, 4)))
    return helper(w, "attention_rows_in", _COPY_PARAMETERS)


def _moved_out(word: str, scales: bool) -> Helper:
    w = FunctionBuilder()
    with w.loop(0, "%rows") as r:
        factor = w.splat(w.load(w.at("%factors", w.mul(r, 4)), "float")) if scales else ""
        with w.loop(0, "%columns", lanes()) as c:
            mask = w.first_lanes(w.sub("%columns", c))
            found = w.load(w.at("%from", w.mul(r, "%from_row"), w.mul(c, 4)))
            if scales:
                found = w.calc("fmul", found, factor)
            w.masked_store(found, w.at("%to", w.mul(r, "%to_row"), w.mul(c, 4)), mask)
    return helper(w, word, f"{_COPY_PARAMETERS}, ptr %factors" if scales else _COPY_PARAMETERS)


@cache
def rows_out() -> Helper:
    """Rows of whole vectors as rows of memory."""
    return _moved_out("attention_rows_out", scales=False)


@cache
def scaled_rows_out() -> Helper:
    """Rows of whole vectors as rows of memory, each times a factor."""
    return _moved_out("attention_scaled_rows_out", scales=True)


@cache
def scale_rows() -> Helper:
    """Multiply rows of whole vectors, each by a factor."""
    w = FunctionBuilder()
    with w.loop(0, "%count") as r:
        factor = w.splat(w.load(w.at("%factors", w.mul(r, 4)), "float"))
        with w.loop(0, "%row", lanes() * 4) as c:
            place = w.at("%rows", w.mul(r, "%row"), c)
            w.store(w.calc("fmul", w.load(place), factor), place)
    return helper(w, "attention_scale_rows", "ptr %rows, i64 %row, i64 %count, ptr %factors")


@cache
def clear() -> Helper:
    """Zeros in scratch memory, in whole vectors."""
    w = FunctionBuilder()
    with w.loop(0, "%bytes", lanes() * 4) as i:
        w.store("zeroinitializer", w.at("%to", i))
    return helper(w, "attention_clear", "ptr %to, i64 %bytes")


@cache
def clear_rows() -> Helper:
    """Zeros in rows of memory, and in nothing between them."""
    w = FunctionBuilder()
    with w.loop(0, "%rows") as r, w.loop(0, "%columns", lanes()) as c:
        mask = w.first_lanes(w.sub("%columns", c))
        place = w.at("%to", w.mul(r, "%to_row"), w.mul(c, 4))
        w.masked_store("zeroinitializer", place, mask)
    return helper(w, "attention_clear_rows", "ptr %to, i64 %to_row, i64 %rows, i64 %columns")
