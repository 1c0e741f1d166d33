"""Packing functions of attention, in LLVM IR: matrices into scratch memory, some transposed, and
back.

Matrices in scratch memory have rows of whole vectors; what is beyond the edges of a value is read
as zero or as a copy of its last row, and never written back.
"""

from __future__ import annotations

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


def _transposed_in(word: str, keeps_rows: bool) -> Helper:
    w = FunctionBuilder()
    n = lanes()
    with w.loop("%rows", n) as r, w.loop("%columns", n) as c:
        mask = w.first_lanes(w.sub("%columns", c))
        last = w.sub(w.sub("%rows", r), 1)
        start = w.at_byte("%from", w.mul(r, "%from_row"), w.mul(c, 4))
        places = [w.at_byte(start, w.mul(w.least(x, last), "%from_row")) for x in range(n)]
        rows = [w.load_masked(place, mask) for place in places]
        if keeps_rows:
            target = w.at_byte("%copy", w.mul(r, "%copy_row"), w.mul(c, 4))
            for row, place in zip(rows, w.spaced(target, "%copy_row", n), strict=True):
                w.store_vector(row, place)
        target = w.at_byte("%to", w.mul(c, "%to_row"), w.mul(r, 4))
        for row, place in zip(w.transposed(rows), w.spaced(target, "%to_row", n), strict=True):
            w.store_vector(row, place)
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
    with w.loop("%rows") as r:
        start = w.at_byte("%from", w.mul(r, "%from_row"))
        other = w.at_byte("%by", w.mul(r, "%by_row"))
        total = w.slot(w.vector.type, "zeroinitializer")
        with w.loop("%columns", lanes()) as c:
            mask, shift = w.first_lanes(w.sub("%columns", c)), w.mul(c, 4)
            found = w.load_masked(w.at_byte(start, shift), mask)
            factor = w.load_vector(w.at_byte(other, shift))
            w.keep(total, w.multiply_add(found, factor, w.kept(total)))
        w.store(w.sum_of_lanes(w.kept(total)), w.at_byte("%to", w.mul(r, 4)))
    return helper(
        w, "attention_row_products",
        "ptr %from, i64 %from_row, ptr %by, i64 %by_row, i64 %rows, i64 %columns, ptr %to",
    )  # fmt: skip


@cache
def rows_in() -> Helper:
    """Rows of memory as rows of whole vectors, padded with zeros."""
    w = FunctionBuilder()
    with w.loop("%rows") as r, w.loop("%columns", lanes()) as c:
        mask = w.first_lanes(w.sub("%columns", c))
        start = w.at_byte("%from", w.mul(r, "%from_row"), w.mul(c, 4))
        w.store_vector(
            w.load_masked(start, mask),
            w.at_byte("%to", w.mul(r, "%to_row"), w.mul(c, 4)),
        )
    return helper(w, "attention_rows_in", _COPY_PARAMETERS)


def _moved_out(word: str, scales: bool) -> Helper:
    w = FunctionBuilder()
    with w.loop("%rows") as r:
        factor = w.splat(w.load(w.at_byte("%factors", w.mul(r, 4))), "float") if scales else ""
        with w.loop("%columns", lanes()) as c:
            mask = w.first_lanes(w.sub("%columns", c))
            found = w.load_vector(w.at_byte("%from", w.mul(r, "%from_row"), w.mul(c, 4)))
            if scales:
                found = w.lanewise("fmul", found, factor)
            w.store_masked(found, w.at_byte("%to", w.mul(r, "%to_row"), w.mul(c, 4)), mask)
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
    with w.loop("%count") as r:
        factor = w.splat(w.load(w.at_byte("%factors", w.mul(r, 4))), "float")
        with w.loop("%row", lanes() * 4) as c:
            place = w.at_byte("%rows", w.mul(r, "%row"), c)
            w.store_vector(w.lanewise("fmul", w.load_vector(place), factor), place)
    return helper(w, "attention_scale_rows", "ptr %rows, i64 %row, i64 %count, ptr %factors")


@cache
def add_rows() -> Helper:
    """Add scratch memory to another, in whole vectors."""
    w = FunctionBuilder()
    with w.loop("%bytes", lanes() * 4) as i:
        place = w.at_byte("%to", i)
        more = w.load_vector(w.at_byte("%more", i))
        w.store_vector(w.lanewise("fadd", w.load_vector(place), more), place)
    return helper(w, "attention_add_rows", "ptr %to, ptr %more, i64 %bytes")


@cache
def clear() -> Helper:
    """Zeros in scratch memory, in whole vectors."""
    w = FunctionBuilder()
    with w.loop("%bytes", lanes() * 4) as i:
        w.store_vector("zeroinitializer", w.at_byte("%to", i))
    return helper(w, "attention_clear", "ptr %to, i64 %bytes")


@cache
def clear_rows() -> Helper:
    """Zeros in rows of memory, and in nothing between them."""
    w = FunctionBuilder()
    with w.loop("%rows") as r, w.loop("%columns", lanes()) as c:
        mask = w.first_lanes(w.sub("%columns", c))
        place = w.at_byte("%to", w.mul(r, "%to_row"), w.mul(c, 4))
        w.store_masked("zeroinitializer", place, mask)
    return helper(w, "attention_clear_rows", "ptr %to, i64 %to_row, i64 %rows, i64 %columns")
