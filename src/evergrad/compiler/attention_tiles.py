"""The products of attention's kernels, in LLVM IR: tiles of sums held in registers.

A tile is a few elements of A that are broadcast, times a few registers of neighbouring columns of
B. With four registers of B to a row the processor's units for products are the limit; with fewer it
is how fast A can be read, so the registers of a row are dealt out evenly.
"""

from __future__ import annotations

from functools import cache

from evergrad.compiler.attention_text import EIGHT, Helper, Writer, helper, lanes
from evergrad.compiler.llvm import vector_bits

# Bytes that come from memory together.
_LINE = 64


def _has_few_registers() -> bool:
    """Sixteen, and not thirty-two."""
    return vector_bits() == 256


def _most_vectors() -> int:
    return 2 if _has_few_registers() else 4


def _tile_rows(vectors: int) -> int:
    """As many rows as there are registers for, in halves of eight."""
    return EIGHT // 2 if vectors == 4 or _has_few_registers() else EIGHT


@cache
def strip(vectors: int) -> Helper:
    """``C[r, :] (+)= sum over k of A[r, k] B[k, :]`` for all rows and up to four vectors.

    A lies anyhow (``across`` and ``along`` are the bytes between its rows and columns); rows beyond
    ``rows`` repeat the last one. Row r of A begins with ``r + zeros`` elements that do not count,
    if that is more than none; then C must be there before. Before a tile is computed, as many rows
    of two matrices that will be wanted soon are fetched from memory, so many bytes of each.
    """
    w = Writer()
    with w.loop(0, "%rows", _tile_rows(vectors)) as row:
        with w.loop(0, "%fetched", _LINE) as line:
            for name in ("%soon", "%later"):
                start = w.at(name, w.mul(row, f"{name}_row"), line)
                for place in w.spaced(start, f"{name}_row", _tile_rows(vectors)):
                    w.fetch(place)
        start = w.most(w.add(row, "%zeros"), 0)
        with w.when(w.op(f"icmp sle i64 {start}, %depth")):
            _tile(w, vectors, row, start)
    return helper(
        w, f"attention_strip{vectors}",
        "ptr noalias %a, i64 %across, i64 %along, i64 %rows, i64 %depth, ptr noalias %b, "
        "i64 %b_row, ptr noalias %c, i64 %c_row, i1 %more, i64 %zeros, ptr %soon, i64 %soon_row, "
        "ptr %later, i64 %later_row, i64 %fetched",
    )  # fmt: skip


def _tile(w: Writer, vectors: int, row: str, start: str) -> None:
    """The sums of a few rows, from some element of A on."""
    rows, width = range(_tile_rows(vectors)), lanes() * 4
    places = [(r, v) for r in rows for v in range(vectors)]
    last = w.sub(w.sub("%rows", row), 1)
    a = w.at("%a", w.mul(row, "%across"), w.mul(start, "%along"))
    starts = [w.at(a, w.mul(w.least(r, last), "%across")) for r in rows]
    c = w.spaced(w.at("%c", w.mul(row, "%c_row")), "%c_row", len(rows))
    targets = [w.at(c[r], v * width) for r, v in places]
    sums = [w.slot(w.vector, "zeroinitializer") for _ in places]
    with w.when("%more"):
        for slot, target in zip(sums, targets, strict=True):
            w.keep(slot, w.load(target))
    with w.loop(start, "%depth") as k:
        step = w.sub(k, start)
        line = w.at("%b", w.mul(k, "%b_row"))
        factors = [w.load(w.at(line, v * width)) for v in range(vectors)]
        along = w.mul(step, "%along")
        spread = [w.splat(w.load(w.at(at, along), "float")) for at in starts]
        for (r, v), slot in zip(places, sums, strict=True):
            w.keep(slot, w.fma(spread[r], factors[v], w.kept(slot)))
    for slot, target in zip(sums, targets, strict=True):
        w.store(w.kept(slot), target)


@cache
def product() -> Helper:
    """``C (+)= A B``; B and C have rows of whole vectors."""
    w = Writer()
    most = _most_vectors()
    strips = w.op(f"udiv i64 {w.add('%vectors', most - 1)}, {most}")
    with w.loop(0, strips) as number:
        first = w.op(f"udiv i64 {w.mul(number, '%vectors')}, {strips}")
        end = w.op(f"udiv i64 {w.mul(w.add(number, 1), '%vectors')}, {strips}")
        count, shift = w.sub(end, first), w.mul(first, lanes() * 4)
        for vectors in range(1, most + 1):
            with w.when(w.op(f"icmp eq i64 {count}, {vectors}")):
                w.call(
                    strip(vectors), "ptr %a", "i64 %across", "i64 %along", "i64 %rows",
                    "i64 %depth", f"ptr {w.at('%b', shift)}", "i64 %b_row",
                    f"ptr {w.at('%c', shift)}", "i64 %c_row", "i1 %more", "i64 %zeros",
                    "ptr %soon", "i64 %soon_row", "ptr %later", "i64 %later_row",
                    "i64 %fetched",
                )  # fmt: skip
    return helper(
        w, "attention_product",
        "ptr %a, i64 %across, i64 %along, i64 %rows, i64 %depth, ptr %b, i64 %b_row, ptr %c, "
        "i64 %c_row, i64 %vectors, i1 %more, i64 %zeros, ptr %soon, i64 %soon_row, ptr %later, "
        "i64 %later_row, i64 %fetched",
    )  # fmt: skip
