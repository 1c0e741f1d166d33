"""Small products: Y is laid out in the first cache, and no register may stay empty.

``C = X Y``. Rows of Y are copied to scratch memory, filled up to whole registers; then rows of C
are summed up over the depth, about as many registers at once as additions are under way. Matrices
may lie in any order. Where that takes less time, the transposed product is computed. In OpenBLAS
callers from several threads would wait for each other.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Text, Vector, items_per_chunk, numbered
from evergrad.compiler.kernels.gemm.blocked import operands, ordered
from evergrad.compiler.kernels.gemm.microkernel import tile_for, transposing, use
from evergrad.compiler.kernels.gemm.problem import Batch, Product
from evergrad.compiler.native.target import machine
from evergrad.compiler.schedule.instructions import Kernel

# Of how many rows of C how many registers are summed up at once, from the first row on and in what
# is left of the rows.
_BLOCKS = ((8, 1), (4, 2), (1, 4))
# How long it takes, in the time of one step of them: to copy a register of Y, if it lies in order
# or not, and to write one of C.
_COPY, _TURN = 0.5, 1.0
_STORE, _SCATTER = 0.25, 4.0
# So many bytes of Y stay in the first cache.
_NEAR = machine().l1_bytes


class _Small(NamedTuple):
    """``C = X Y``: extents and steps. If it is flipped, X is B and Y is A, both transposed."""

    m: int
    n: int
    k: int
    x_row: int
    x_column: int
    y_row: int
    y_column: int
    c_row: int
    c_column: int
    width: int  # of the rows of Y in scratch memory
    flipped: int
    items: int
    per_chunk: int

    def cost(self, lanes: int) -> float:
        """How long the product takes, roughly, in steps of blocks."""
        registers, left, steps = self.width // lanes, self.m, 0
        for rows, at_once in _BLOCKS:
            blocks, left = divmod(left, rows)
            steps += blocks * sum(divmod(registers, at_once)) * self.k
        copied = _COPY if self.y_column == 1 else _TURN
        stored = _STORE if self.c_column == 1 else _SCATTER
        return steps + registers * (self.k * copied + self.m * stored)


_NUMBERS = (*_Small._fields, *Batch._fields)


def small_kernel(product: Product, vector: Vector, leading: int) -> Kernel | None:
    """The kernel of a product; ``None`` if it is not small. The pointers are A, B and C."""
    assert product.a is not None and product.b is not None
    a, b = product.a.steps, product.b.steps
    m, n, k = product.m, product.n, product.k
    wide, high = (-(-extent // vector.lanes) * vector.lanes for extent in (n, m))
    shared = product.items, items_per_chunk(product.items, product.work)
    found = min(
        _Small(m, n, k, *a, *b, leading, 1, wide, 0, *shared),
        _Small(n, m, k, *b[::-1], *a[::-1], 1, leading, high, 1, *shared),
        key=lambda small: small.cost(vector.lanes),
    )
    scratch = k * found.width * vector.size
    if scratch > _NEAR:
        return None
    numbers = (*found, *product.batch_numbers(vector.size))
    chunks = -(-found.items // found.per_chunk)
    return numbered(_text(vector, product.items > 1), numbers, (), chunks, scratch)


@cache
def _text(vector: Vector, batched: bool) -> Kernel:
    """A chunk is some products of a batch, or the only one."""
    text = Text(vector, ("a", "b", "c"), _NUMBERS)
    if not batched:
        _multiply(text, *ordered(text, text["a"], text["b"]), text["c"])
        return text.kernel("gemm_small")
    first, last = text.items("%chunk", text["per_chunk"], text["items"])
    with text.loop(last, first=first) as item:
        _multiply(text, *operands(text, item))
    return text.kernel("gemm_small_batch")


def _multiply(text: Text, x: str, y: str, c: str) -> None:
    _copy(text, y)
    done = "0"
    for rows, registers in _BLOCKS:
        end = text.op(f"and i64 {text['m']}, {-rows}")
        with text.loop(end, rows, done) as row:
            xs = _rows(text, x, row, text["x_row"], rows)
            cs = _rows(text, c, row, text["c_row"], rows)
            for count, first, last in _parts(text, registers):
                with text.loop(last, count * text.vector.lanes, first) as column:
                    _store(text, _sums(text, xs, column, count), cs, column)
        done = end


def _rows(text: Text, matrix: str, first: str, step: str, count: int) -> list[str]:
    """Where some rows of a matrix begin."""
    start = text.at(matrix, text.mul(first, step))
    return [text.at(start, text.mul(step, r)) for r in range(count)]


def _parts(text: Text, registers: int) -> list[tuple[int, str, str]]:
    """From where to where so many registers fit into a row, and single ones."""
    if registers == 1:
        return [(1, "0", text["width"])]
    whole = text.op(f"and i64 {text['width']}, {-registers * text.vector.lanes}")
    return [(registers, "0", whole), (1, whole, text["width"])]


def _copy(text: Text, y: str) -> None:
    """Copy Y to scratch memory, row by row."""
    in_order, turned = _by_order(text, text["y_column"])
    with text.when(in_order), text.loop(text["width"], text.vector.lanes) as column:
        mask = _inside(text, column)
        with text.loop(text["k"]) as step:
            place = text.at(y, text.mul(step, text["y_row"]), column)
            values = text.load_masked(place, mask, "zeroinitializer")
            text.store_vector(values, _copied(text, step, column))
    with text.when(turned):  # then its rows lie in order
        use(
            text, transposing(tile_for(text.vector)), f"ptr {y}", f"i64 {text['y_column']}",
            f"ptr {text.scratch}", f"i64 {text['width']}", f"i64 {text['n']}", f"i64 {text['k']}",
            f"i64 {text['width']}",
        )  # fmt: skip


def _copied(text: Text, row: str, column: str) -> str:
    return text.at(text.scratch, text.mul(row, text["width"]), column)


def _inside(text: Text, column: str) -> str:
    """Which lanes of the register at a column are in the matrix."""
    return text.between(text.places("0"), "0", text.sub(text["n"], column))


def _by_order(text: Text, step: str) -> tuple[str, str]:
    """Whether elements lie in order, or not."""
    in_order = text.op(f"icmp eq i64 {step}, 1")
    return in_order, text.op(f"xor i1 {in_order}, true")


def _sums(text: Text, rows: list[str], column: str, registers: int) -> list[list[str]]:
    """Some registers of each row of C."""
    many = text.vector.text
    start = [(many, "zeroinitializer")] * (len(rows) * registers)
    with text.carrying(text["k"], start) as (step, carried):
        place = _copied(text, step, column)
        values = [text.load_vector(text.at(place, r * text.vector.lanes)) for r in range(registers)]
        along = text.mul(step, text["x_column"])
        factors = [text.splat(text.load(text.at(r, along)), text.vector.element) for r in rows]
        pairs = [(factor, value) for factor in factors for value in values]
        carried.after = [
            text.multiply_add(*pair, total)
            for pair, total in zip(pairs, carried.values, strict=True)
        ]
    sums = carried.after
    return [sums[r : r + registers] for r in range(0, len(sums), registers)]


def _store(text: Text, sums: list[list[str]], rows: list[str], column: str) -> None:
    in_order, apart = _by_order(text, text["c_column"])
    for so, is_in_order in ((in_order, True), (apart, False)):
        with text.when(so):
            for number in range(len(sums[0])):
                first = text.add(column, number * text.vector.lanes)
                mask, place = _inside(text, first), text.mul(first, text["c_column"])
                for row, totals in zip(rows, sums, strict=True):
                    target = text.at(row, place)
                    if is_in_order:
                        text.store_masked(totals[number], target, mask)
                    else:
                        steps = text.places("0", text["c_column"])
                        text.scatter(totals[number], target, steps, mask)
