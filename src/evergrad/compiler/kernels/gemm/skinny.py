"""Products with few rows (or few columns): X is small, Y is large and read once.

Packing Y would take longer than multiplying it, and a panel of it as it lies is read in pieces too
short for the processor to see where they lead. Here rows of Y are read along, several side by side.
If they go along the depth, each of them gives a column of C: a dot product for each row of X.
Otherwise each of them is added to all rows of C.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from evergrad.compiler.codegen.ir_builder import Text, Vector, numbered
from evergrad.compiler.kernels.gemm.microkernel import tile_for, transposing, use
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.kernels.gemm.tiling import NEAR_ROWS
from evergrad.compiler.native.target import machine
from evergrad.compiler.schedule.instructions import Kernel

# With more rows than this packing Y is worth it; and it need not be packed if its rows are near.
_FEW = 16
_FEW_NEAR = 4
# How many rows of Y are added at once to how many rows of C: to a single row, and to several.
_TO_ONE = (16, 1)
_TO_SEVERAL = (8, 2)
# The columns of C in a chunk that adds rows: of a few rows they stay in the first cache.
_COLUMNS = machine().l1_bytes // (4 * _FEW)
# The multiplications of a chunk of dot products; the most chunks of those, and the fewest.
_PIECE = 1 << 18
_MOST, _FEWEST = 16, 2


class _Few(NamedTuple):
    """``C = X Y``, or its transpose: the extents, of which m is small, and the steps."""

    m: int
    n: int
    k: int
    x_row: int
    x_column: int
    y_step: int  # from one row of Y, as it lies, to the next
    c_row: int
    c_column: int
    per_chunk: int  # columns of C

    @property
    def chunks(self) -> int:
        return -(-self.n // self.per_chunk)


def few_kernel(product: Product, vector: Vector, leading: int) -> Kernel | None:
    """The kernel of a product of a small and a large matrix; ``None`` if it is none, or if others
    are better. The pointers are A, B and C."""
    if product.items > 1:
        return None
    assert product.a is not None and product.b is not None
    a, b = product.a.steps, product.b.steps
    m, n, k = product.m, product.n, product.k
    if b[1] == 1 and n > 1 and m <= (_FEW_NEAR if b[0] <= NEAR_ROWS else _FEW):
        few = _Few(m, n, k, *a, b[0], leading, 1, _added_columns(n, vector))
        scratch = m * few.per_chunk * vector.size
        return numbered(_sums_text(vector), few, (), few.chunks, scratch)
    if m <= _FEW and b[0] == 1:
        few = _Few(m, n, k, *a, b[1], leading, 1, _dot_columns(m, n, k, vector))
        return _dots_kernel(vector, few, flipped=False)
    if n <= _FEW and a[1] == 1:
        few = _Few(n, m, k, *b[::-1], a[0], 1, leading, _dot_columns(n, m, k, vector))
        return _dots_kernel(vector, few, flipped=True)
    return None


def _added_columns(n: int, vector: Vector) -> int:
    """The columns of a chunk that adds rows."""
    chunks = max(-(-n // _COLUMNS), _FEWEST if n >= _COLUMNS // 2 else 1)
    return -(-n // (chunks * vector.lanes)) * vector.lanes


def _dot_columns(m: int, n: int, k: int, vector: Vector) -> int:
    """The columns of a chunk of dot products."""
    chunks = min(_MOST, max(_FEWEST, m * n * k // _PIECE))
    return -(-n // (chunks * vector.lanes)) * vector.lanes


# -- registers ----------------------------------------------------------------------------------


class _Some(NamedTuple):
    """Loads and stores a register, of which only what the mask says may be there."""

    text: Text
    mask: str

    def load(self, address: str) -> str:
        if not self.mask:
            return self.text.load_vector(address)
        return self.text.load_masked(address, self.mask, "zeroinitializer")

    def store(self, value: str, address: str) -> None:
        if not self.mask:
            self.text.store_vector(value, address)
        else:
            self.text.store_masked(value, address, self.mask)


def _whole_and_rest(text: Text, extent: str) -> list[tuple[str, str, _Some]]:
    """From where to where an extent has whole registers, and the rest of it, which needs a mask:
    masks take turns of the units that multiply."""
    whole = text.op(f"and i64 {extent}, {-text.vector.lanes}")
    mask = text.between(text.places("0"), "0", text.sub(extent, whole))
    return [("0", whole, _Some(text, "")), (whole, extent, _Some(text, mask))]


def _registers(text: Text, width: str) -> Iterator[tuple[str, _Some]]:
    """Lets lines be written for each register of a row."""
    for first, last, some in _whole_and_rest(text, width):
        with text.loop(last, text.vector.lanes, first) as column:
            yield column, some


# -- rows that are added ------------------------------------------------------------------------


@cache
def _sums_text(vector: Vector) -> Kernel:
    """A chunk is some columns of C. They are added up in scratch memory: rows of C often fall on
    the same places of a cache."""
    text = Text(vector, ("x", "y", "c"), _Few._fields)
    left, right = text.items("%chunk", text["per_chunk"], text["n"])
    y, c, width = text.at(text["y"], left), text.at(text["c"], left), text.sub(right, left)
    with text.loop(text.mul(text["m"], text["per_chunk"]), vector.lanes) as place:
        text.store_vector("zeroinitializer", text.at(text.scratch, place))
    is_one = text.op(f"icmp eq i64 {text['m']}, 1")
    for (added, rows), so in ((_TO_ONE, is_one), (_TO_SEVERAL, text.op(f"xor i1 {is_one}, true"))):
        with text.when(so):
            whole = text.op(f"and i64 {text['k']}, {-added}")
            for count, first, last in ((added, "0", whole), (1, whole, text["k"])):
                with text.loop(last, count, first) as step, text.loop(text["m"], rows) as row:
                    _add_rows(text, y, step, count, row, rows, width)
    with text.loop(text["m"]) as row:
        source = text.at(text.scratch, text.mul(row, text["per_chunk"]))
        target = text.at(c, text.mul(row, text["c_row"]))
        for column, some in _registers(text, width):
            some.store(text.load_vector(text.at(source, column)), text.at(target, column))
    return text.kernel("gemm_sums")


def _add_rows(text: Text, y: str, step: str, count: int, row: str, rows: int, width: str) -> None:
    """Add some rows of Y to some rows of sums. Behind the last row of sums, it is the last again,
    which is written twice."""
    places = [text.least(text.add(row, r), text.sub(text["m"], 1)) for r in range(rows)]
    steps = [text.add(step, s) for s in range(count)]
    factors = [
        text.splat(text.load(_element_of_x(text, r, s)), text.vector.element)
        for r in places
        for s in steps
    ]
    targets = [text.at(text.scratch, text.mul(r, text["per_chunk"])) for r in places]
    sources = [text.at(y, text.mul(s, text["y_step"])) for s in steps]
    for column, some in _registers(text, width):
        sums = [text.load_vector(text.at(target, column)) for target in targets]
        for s, source in enumerate(sources):
            values = some.load(text.at(source, column))
            sums = [
                text.multiply_add(factors[r * count + s], values, total)
                for r, total in enumerate(sums)
            ]
        for target, total in zip(targets, sums, strict=True):
            text.store_vector(total, text.at(target, column))


def _element_of_x(text: Text, row: str, step: str) -> str:
    return text.at(text["x"], text.mul(row, text["x_row"]), text.mul(step, text["x_column"]))


# -- dot products -------------------------------------------------------------------------------


def _dots_kernel(vector: Vector, few: _Few, flipped: bool) -> Kernel:
    is_copied = few.x_column != 1
    scratch = few.m * few.k * vector.size if is_copied else 0
    return numbered(_dots_text(vector, flipped), few, (), few.chunks, scratch)


@cache
def _dots_text(vector: Vector, flipped: bool) -> Kernel:
    """A chunk is some columns of C. There are as many dot products at once as a register has lanes:
    of one row of X, or of several if there are."""
    text = Text(vector, ("y", "x", "c") if flipped else ("x", "y", "c"), _Few._fields)
    x, x_row = _rows_of_x(text)
    first, last = text.items("%chunk", text["per_chunk"], text["n"])
    is_one = text.op(f"icmp eq i64 {text['m']}, 1")
    several = 4 if vector.lanes == 16 else 2
    for rows, so in ((1, is_one), (several, text.op(f"xor i1 {is_one}, true"))):
        step = vector.lanes // rows
        with (
            text.when(so),
            text.loop(last, step, first) as column,
            text.loop(text["m"], rows) as row,
        ):
            _dots(text, x, x_row, row, rows, column, last)
    return text.kernel("gemm_dots")


def _rows_of_x(text: Text) -> tuple[str, str]:
    """Where X has rows in order, and the step between them: its columns may lie in order, then it
    is copied."""
    is_copied = text.op(f"icmp ne i64 {text['x_column']}, 1")
    with text.when(is_copied):
        use(
            text, transposing(tile_for(text.vector)), f"ptr {text['x']}", f"i64 {text['x_column']}",
            f"ptr {text.scratch}", f"i64 {text['k']}", f"i64 {text['k']}", f"i64 {text['m']}",
            f"i64 {text['k']}",
        )  # fmt: skip
    x = text.op(f"select i1 {is_copied}, ptr {text.scratch}, ptr {text['x']}")
    return x, text.op(f"select i1 {is_copied}, i64 {text['k']}, i64 {text['x_row']}")


def _dots(text: Text, x: str, x_row: str, row: str, rows: int, column: str, last: str) -> None:
    """The dot products of some rows of X and of Y; behind the last rows, of the last again."""
    lanes = text.vector.lanes
    columns = lanes // rows
    final_row, final_column = text.sub(text["m"], 1), text.sub(last, 1)
    x_starts = [
        text.at(x, text.mul(text.least(text.add(row, r), final_row), x_row)) for r in range(rows)
    ]
    y_starts = [
        text.at(text["y"], text.mul(text.least(text.add(column, c), final_column), text["y_step"]))
        for c in range(columns)
    ]
    sums = ["zeroinitializer"] * lanes
    for first, end, some in _whole_and_rest(text, text["k"]):
        pairs = [(text.vector.text, total) for total in sums]
        with text.carrying(end, pairs, lanes, first) as (step, carried):
            xs = [some.load(text.at(start, step)) for start in x_starts]
            ys = [some.load(text.at(start, step)) for start in y_starts]
            carried.after = [
                text.multiply_add(xs[n // columns], ys[n % columns], total)
                for n, total in enumerate(carried.values)
            ]
        sums = carried.after
    _store_dots(text, _lane_sums(text, sums), row, rows, column, last)


def _lane_sums(text: Text, sums: list[str]) -> str:
    """The sum of each register's lanes, for as many registers as there are lanes."""
    while len(sums) > 1:
        pairs = zip(sums[::2], sums[1::2], strict=True)
        sums = [text.plus(*text.parted(a, b)) for a, b in pairs]
    return sums[0]


def _store_dots(text: Text, sums: str, row: str, rows: int, column: str, last: str) -> None:
    """Write a register of sums, row by row, to where they belong in C."""
    vector = text.vector
    many, columns = vector.of("i32"), vector.lanes // rows
    places = {}
    for name, numbers in (
        ("row", [n // columns for n in range(vector.lanes)]),
        ("column", [n % columns for n in range(vector.lanes)]),
    ):
        places[name] = f"<{', '.join(f'i32 {n}' for n in numbers)}>"
    masks = [
        text.between(places["row"], "0", text.sub(text["m"], row)),
        text.between(places["column"], "0", text.sub(last, column)),
    ]
    mask = text.op(f"and {vector.of('i1')} {masks[0]}, {masks[1]}")
    offsets = [
        text.op(f"mul {many} {places[name]}, {text.narrow(text[f'c_{name}'])}")
        for name in ("row", "column")
    ]
    offset = text.op(f"add {many} {offsets[0]}, {offsets[1]}")
    corner = text.at(text["c"], text.mul(row, text["c_row"]), text.mul(column, text["c_column"]))
    text.scatter(sums, corner, offset, mask)
