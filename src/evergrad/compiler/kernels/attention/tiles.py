"""The products of attention's kernels, in LLVM IR: a microkernel on register tiles.

A tile is a few broadcast elements of A times a few registers of neighbouring columns of B. With
four registers of B to a row the FMA ports are the limit; with fewer it is the loads of A, so
registers of a row are divided evenly. Constant strides are parts of addresses: every other counter
of a loop competes with the products.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.function_builder import FunctionBuilder, Helper, helper, lanes
from evergrad.compiler.kernels.attention.primitives import EIGHT, LINE, ROW
from evergrad.compiler.native.jit import vector_bits
from evergrad.compiler.native.target import vector_registers


class Layout(NamedTuple):
    """The layout of A: the strides of its rows and columns in bytes. ``None``: given at run time;
    then rows beyond the last are not read."""

    word: str
    across: int | None
    along: int


GIVEN = Layout("given", None, 4)  # keys and values
SCORES = Layout("scores", ROW, 4)  # keys by queries, in scratch memory
TRANSPOSED_SCORES = Layout("transposed_scores", 4, ROW)


def _has_few_registers() -> bool:
    """Whether there are 16 vector registers and not 32."""
    return vector_registers(vector_bits()) == 16


def _most_vectors() -> int:
    return 2 if _has_few_registers() else 4


def _tile_rows(vectors: int) -> int:
    """The rows of a tile, for which there are registers: eight or half of it."""
    return EIGHT // 2 if vectors == 4 or _has_few_registers() else EIGHT


_OTHERS = (
    "i64 %rows, i64 %depth, ptr %b, i64 %b_row, ptr %before, i64 %before_row, ptr %to, "
    "i64 %to_row, i1 %more, i1 %triangle, ptr %soon, i64 %soon_row, ptr %later, i64 %later_row, "
    "i64 %fetched"
)


@cache
def microkernel(layout: Layout, vectors: int) -> Helper:
    """``to[r, :] = sum over k of A[r, k] B[k, :] (+ before[r, :])`` for all rows and up to four
    vectors.

    With ``triangle`` a tile uses only its part of a causal triangle: scores from its first row on,
    transposed scores up to its last row. Before a tile is computed, as many rows of two matrices
    that are needed soon are prefetched, so many bytes of each.
    """
    w = FunctionBuilder()
    rows = _tile_rows(vectors)
    with w.loop("%rows", rows) as row:
        with w.loop("%fetched", LINE) as line:
            for name in ("%soon", "%later"):
                start = w.at_byte(name, w.mul(row, f"{name}_row"), line)
                for place in w.spaced(start, f"{name}_row", rows):
                    w.prefetch_line(place)
        start, end = "0", "%depth"
        if layout is SCORES:
            start = w.op(f"select i1 %triangle, i64 {row}, i64 0")
        elif layout is TRANSPOSED_SCORES:
            seen = w.least(w.add(row, rows), "%depth")
            end = w.op(f"select i1 %triangle, i64 {seen}, i64 %depth")
        _tile(w, layout, vectors, row, start, end)
    return helper(
        w, f"attention_microkernel{vectors}_{layout.word}",
        f"ptr %a, i64 %across, {_OTHERS}",
    )  # fmt: skip


def _tile(w: FunctionBuilder, layout: Layout, vectors: int, row: str, start: str, end: str) -> None:
    """The register tile of a few rows, from some column of A up to another."""
    rows, width = range(_tile_rows(vectors)), lanes() * 4
    places = [(r, v) for r in rows for v in range(vectors)]
    if layout.across is None:
        last = w.sub(w.sub("%rows", row), 1)
        a = w.at_byte("%a", w.mul(row, "%across"))
        starts = [w.at_byte(a, w.mul(w.least(r, last), "%across")) for r in rows]
    else:
        a = w.at_byte("%a", w.mul(row, layout.across))
        starts = [w.at_byte(a, r * layout.across) for r in rows]

    def all_of(name: str) -> list[str]:
        start = w.at_byte(name, w.mul(row, f"{name}_row"))
        lines = w.spaced(start, f"{name}_row", len(rows))
        return [w.at_byte(lines[r], v * width) for r, v in places]

    sums = [w.slot(w.vector.type, "zeroinitializer") for _ in places]
    with w.loop(end, first=start) as k:
        line = w.at_byte("%b", w.mul(k, "%b_row"))
        factors = [w.load_vector(w.at_byte(line, v * width)) for v in range(vectors)]
        along = w.mul(k, layout.along)
        spread = [w.splat(w.load(w.at_byte(at, along)), "float") for at in starts]
        for (r, v), slot in zip(places, sums, strict=True):
            w.keep(slot, w.multiply_add(spread[r], factors[v], w.kept(slot)))
    # What was summed before is added as a whole: one chain of additions over all keys would have
    # many times the error of chains over blocks.
    with w.when("%more"):
        for slot, place in zip(sums, all_of("%before"), strict=True):
            w.keep(slot, w.lanewise("fadd", w.load_vector(place), w.kept(slot)))
    for slot, place in zip(sums, all_of("%to"), strict=True):
        w.store_vector(w.kept(slot), place)


@cache
def product(layout: Layout) -> Helper:
    """``to = A B (+ before)``; all but A have rows of whole vectors."""
    w = FunctionBuilder()
    most = _most_vectors()
    groups = w.op(f"udiv i64 {w.add('%vectors', most - 1)}, {most}")
    with w.loop(groups) as number:
        first = w.op(f"udiv i64 {w.mul(number, '%vectors')}, {groups}")
        end = w.op(f"udiv i64 {w.mul(w.add(number, 1), '%vectors')}, {groups}")
        count, shift = w.sub(end, first), w.mul(first, lanes() * 4)
        for vectors in range(1, most + 1):
            with w.when(w.op(f"icmp eq i64 {count}, {vectors}")):
                w.call_helper(
                    microkernel(layout, vectors), "ptr %a", "i64 %across", "i64 %rows",
                    "i64 %depth", f"ptr {w.at_byte('%b', shift)}", "i64 %b_row",
                    f"ptr {w.at_byte('%before', shift)}", "i64 %before_row",
                    f"ptr {w.at_byte('%to', shift)}", "i64 %to_row", "i1 %more", "i1 %triangle",
                    "ptr %soon", "i64 %soon_row", "ptr %later", "i64 %later_row", "i64 %fetched",
                )  # fmt: skip
    return helper(
        w, f"attention_product_{layout.word}",
        f"ptr %a, i64 %across, i64 %vectors, {_OTHERS}",
    )  # fmt: skip
