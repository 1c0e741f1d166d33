"""Matrix products by our own kernels.

A chunk is a rectangle of C (or some whole products of a batch) over the whole depth. It goes
through the depth in blocks; A of a block stays in the second cache, a panel of B in the first. The
kernels take a :class:`~evergrad.compiler.kernels.gemm.tiling.Cut` as numbers, so that there is one
text for all products of a type of elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from evergrad.compiler.codegen.ir_builder import KernelBuilder, with_numbers
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm.microkernel import (
    Tile,
    copying,
    dealing,
    strip,
    transposing,
    use,
)
from evergrad.compiler.kernels.gemm.problem import Batch, Product
from evergrad.compiler.kernels.gemm.tiling import (
    AS_IT_LIES,
    COPIED,
    DEALT_OUT,
    LEFT,
    PREPARED,
    TRANSPOSED,
    Cut,
)

# ``first`` is the address of a row that the rows of C start from, or 0.
_NUMBERS = (*Cut._fields, *Batch._fields, "first")
FIRST = _NUMBERS.index("first")


# How many steps of packing rows of A a chunk has that lays it out.
_STEPS = 4


def own_kernel(product: Product, tile: Tile, cut: Cut) -> Kernel:
    """The kernel of a product; the pointers are A, B and C. The pointer of an operand that is
    prepared, as the cut says, is to what the other kernel made of it."""
    return _with_numbers(_product_text(tile), product, tile, cut, cut.chunks, cut.scratch)


def prepare_kernel(product: Product, tile: Tile, cut: Cut, side: int) -> Kernel:
    """The kernel that lays an operand out, before the product."""
    if side == LEFT:
        chunks = cut.blocks * -(-cut.m // (_STEPS * tile.dealt))
        return _with_numbers(_prepare_left_text(tile), product, tile, cut, chunks)
    return _with_numbers(_prepare_right_text(tile), product, tile, cut, cut.blocks * cut.panels)


def _with_numbers(
    made: Kernel, product: Product, tile: Tile, cut: Cut, chunks: int, scratch: int = 0
) -> Kernel:
    size = tile.vector.size
    return with_numbers(made, (*cut, *product.batch_numbers(size), 0), (), chunks, scratch * size)


# -- products -----------------------------------------------------------------------------------


@cache
def _product_text(tile: Tile) -> Kernel:
    text = KernelBuilder(tile.vector, ("a", "b", "c"), _NUMBERS)
    parts = text.mul(text["row_parts"], text["panel_parts"])
    group, part = text.split("%chunk", parts)
    first, last = text.items(group, text["per_chunk"], text["items"])
    with text.loop(last, first=first) as item:
        _Piece(text, tile, *operands(text, item), part).write()
    return text.kernel("gemm")


def operands(text: KernelBuilder, item: str) -> tuple[str, str, str]:
    """Where what is on the left of tiles, on the right of them, and C begin in the batch."""
    rest, i2 = text.split(item, text["e2"])
    i0, i1 = text.split(rest, text["e1"])
    places = {"c": text.mul(item, text["c_step"])}
    for word in "ab":
        steps = [text[f"{word}{d}"] for d in range(3)]
        places[word] = text.add(*map(text.mul, (i0, i1, i2), steps))
    a, b, c = (text.op(f"getelementptr i8, ptr {text[word]}, i64 {places[word]}") for word in "abc")
    return *ordered(text, a, b), c


def ordered(text: KernelBuilder, a: str, b: str) -> tuple[str, str]:
    """What is on the left and on the right: A and B, or the other way round if it is flipped."""
    flipped = text.op(f"icmp ne i64 {text['flipped']}, 0")
    left = text.op(f"select i1 {flipped}, ptr {b}, ptr {a}")
    right = text.op(f"select i1 {flipped}, ptr {a}, ptr {b}")
    return left, right


def _first_column(text: KernelBuilder, panel: str) -> str:
    """The first column of a panel; behind the last panel, the number of columns."""
    is_last = text.op(f"icmp eq i64 {text.add(panel, 1)}, {text['panels']}")
    is_end = text.op(f"icmp eq i64 {panel}, {text['panels']}")
    regular = text.mul(panel, text["panel"])
    column = text.op(f"select i1 {is_last}, i64 {text['last_panel']}, i64 {regular}")
    return text.op(f"select i1 {is_end}, i64 {text['n']}, i64 {column}")


def _strips(tile: Tile) -> Iterator[tuple[Tile, int, bool]]:
    """The strips of tiles that a panel may need, with their registers, and whether rows of A lie in
    order."""
    yield from ((tile, n + 1, by_rows) for n in range(tile.vectors) for by_rows in (True, False))
    if tile.wide is not None:
        yield tile.wide, tile.wide.vectors, True


class _Piece:
    """The text that computes a rectangle of C."""

    def __init__(self, text: KernelBuilder, tile: Tile, a: str, b: str, c: str, part: str) -> None:
        self.text = text
        self.tile = tile
        self.prepared_a = a
        self.b = b
        row_part, panel_part = text.split(part, text["panel_parts"])
        self.top = text.mul(row_part, text["part_rows"])
        self.rows = text.least(text["part_rows"], text.sub(text["m"], self.top))
        self.start = text.mul(panel_part, text["part_panels"])
        self.stop = text.least(text.add(self.start, text["part_panels"]), text["panels"])
        self.left = _first_column(text, self.start)
        self.width = text.sub(_first_column(text, self.stop), self.left)
        self.a = text.at(a, text.mul(self.top, text["a_row"]))
        self.place_results(c)

    def place_results(self, c: str) -> None:
        """Sums go to C, or aside if they are to be transposed."""
        text = self.text
        self.flipped = text.op(f"icmp ne i64 {text['flipped']}, 0")
        self.aside = text.at(text.scratch, text["aside_at"])
        self.turned = text.at(c, text.mul(self.left, text["c_row"]), self.top)
        straight = text.at(c, text.mul(self.top, text["c_row"]), self.left)
        self.c = text.op(f"select i1 {self.flipped}, ptr {self.aside}, ptr {straight}")
        self.c_row = text.op(f"select i1 {self.flipped}, i64 {self.width}, i64 {text['c_row']}")

    def write(self) -> None:
        text = self.text
        with text.loop(text["k"], text["depth"]) as done:
            depth = text.least(text["depth"], text.sub(text["k"], done))
            more = text.op(f"icmp ne i64 {text.add(done, text['more'])}, 0")
            a = text.at(self.a, text.mul(done, text["a_column"]))
            self.pack_a(a, depth)
            with text.loop(self.stop, first=self.start) as panel:
                self.multiply(a, panel, done, depth, more)
        with text.when(self.flipped):
            _transpose(
                text, self.tile, self.aside, self.width, self.turned, text["c_row"], self.rows,
                self.width, self.rows,
            )  # fmt: skip

    def takes(self, operand: str, way: int) -> str:
        """Whether an operand is taken in some way."""
        return self.text.op(f"icmp eq i64 {self.text[f'{operand}_way']}, {way}")

    def pack_a(self, a: str, depth: str) -> None:
        """Lay A of a block out at the beginning of the scratch memory: its rows, not so far apart,
        or columns of tiles."""
        text = self.text
        with text.when(self.takes("a", COPIED)):
            step = text["copy_row"]
            _copy(text, self.tile, a, text["a_row"], text.scratch, step, self.rows, depth)
        with text.when(self.takes("a", DEALT_OUT)):
            _deal(text, self.tile, a, text.scratch, self.rows, depth)

    def multiply(self, a: str, panel: str, done: str, depth: str, more: str) -> None:
        """All tiles of a panel of B, in a block of the depth."""
        text = self.text
        column = _first_column(text, panel)
        width = text.sub(_first_column(text, text.add(panel, 1)), column)
        b, b_step = self.panel_of_b(panel, column, done, depth, width)
        c = text.at(self.c, text.sub(column, self.left))
        a_at, a_row, a_step = self.tiles_of_a(a, done)
        in_rows = text.op(f"icmp eq i64 {text['a_column']}, 1")
        in_columns = text.op(f"xor i1 {in_rows}, true")
        following = self.next_panel(panel, done)
        first, first_step, more = self.first_rows(c, column, done, more)
        lanes = self.tile.lanes
        registers = text.op(f"udiv i64 {text.add(width, lanes - 1)}, {lanes}")
        for tile, count, by_rows in _strips(self.tile):
            fits = text.op(f"icmp eq i64 {registers}, {count}")
            with text.when(text.op(f"and i1 {fits}, {in_rows if by_rows else in_columns}")):
                use(
                    text, strip(tile, count, by_rows, padded=True), f"ptr {a_at}",
                    f"i64 {a_row}", f"i64 {a_step}", f"ptr {b}", f"i64 {b_step}", f"ptr {c}",
                    f"i64 {self.c_row}", f"i64 {depth}", f"i64 {self.rows}", f"i64 {width}",
                    f"i1 {more}", f"ptr {first}", f"i64 {first_step}", f"ptr {following}",
                    f"i64 {text['next_step']}", f"i64 {text['next_lines']}",
                )  # fmt: skip

    def first_rows(self, c: str, column: str, done: str, more: str) -> tuple[str, str, str]:
        """What tiles start from, the step between its rows, and whether they do: C, or in the first
        block one row for all of them, if there is one."""
        text = self.text
        is_given = text.op(f"icmp ne i64 {text['first']}, 0")
        so = text.op(f"and i1 {is_given}, {text.op(f'icmp eq i64 {done}, 0')}")
        row = text.at(text.op(f"inttoptr i64 {text['first']} to ptr"), column)
        first = text.op(f"select i1 {so}, ptr {row}, ptr {c}")
        step = text.op(f"select i1 {so}, i64 0, i64 {self.c_row}")
        return first, step, text.op(f"or i1 {more}, {so}")

    def panel_of_b(
        self, panel: str, column: str, done: str, depth: str, width: str
    ) -> tuple[str, str]:
        """Where a panel of B is found, packed now or before, and the step between its rows. Of what
        is taken as it lies, a panel that has not whole registers is copied."""
        text = self.text
        source = _corner(text, self.b, done, column)
        packed = text.at(text.scratch, text["panel_at"])
        over = text.op(f"and i64 {width}, {self.tile.lanes - 1}")
        is_whole = text.op(f"icmp eq i64 {over}, 0")
        as_it_lies = self.takes("b", AS_IT_LIES)
        lies = text.op(f"and i1 {as_it_lies}, {is_whole}")
        is_copied = text.op(f"or i1 {as_it_lies}, {self.takes('b', COPIED)}")
        is_copied = text.op(f"and i1 {is_copied}, {text.op(f'xor i1 {lies}, true')}")
        found = self.prepared_panel(panel, done)
        for way, so in ((COPIED, is_copied), (TRANSPOSED, self.takes("b", TRANSPOSED))):
            with text.when(so):
                _pack_panel(text, self.tile, way, source, packed, depth, width)
            found = text.op(f"select i1 {so}, ptr {packed}, ptr {found}")
        found = text.op(f"select i1 {lies}, ptr {source}, ptr {found}")
        return found, text.op(f"select i1 {lies}, i64 {text['b_row']}, i64 {text['panel']}")

    def prepared_panel(self, panel: str, done: str) -> str:
        """Where a panel of B is found if it was packed before."""
        text = self.text
        block = text.op(f"udiv i64 {done}, {text['depth']}")
        number = text.add(text.mul(block, text["panels"]), panel)
        return text.at(self.b, text.mul(number, text["depth"], text["panel"]))

    def next_panel(self, panel: str, done: str) -> str:
        """Where the next panel of B lies, for those who ask for it; behind the last one there may
        be anything, which is not read."""
        text = self.text
        number = text.add(panel, 1)
        source = _corner(text, self.b, done, _first_column(text, number))
        prepared = self.prepared_panel(number, done)
        return text.op(f"select i1 {self.takes('b', PREPARED)}, ptr {prepared}, ptr {source}")

    def tiles_of_a(self, a: str, done: str) -> tuple[str, str, str]:
        """Where A is found, the step between the first elements of rows, and the step between the
        rows or columns of a tile."""
        text = self.text
        in_rows = text.op(f"icmp eq i64 {text['a_column']}, 1")
        step = text.op(f"select i1 {in_rows}, i64 {text['a_row']}, i64 {text['a_column']}")
        row = text["a_row"]
        before = text.op(f"udiv i64 {text.mul(done, text['dealt_rows'])}, {text['depth']}")
        first = text.mul(text.add(before, self.top), text["depth"])
        tile = str(self.tile.rows)
        for way, packed, packed_row, packed_step in (
            (COPIED, text.scratch, text["copy_row"], text["copy_row"]),
            (DEALT_OUT, text.scratch, text["depth"], tile),
            (PREPARED, text.at(self.prepared_a, first), text["depth"], tile),
        ):
            so = self.takes("a", way)
            a = text.op(f"select i1 {so}, ptr {packed}, ptr {a}")
            row = text.op(f"select i1 {so}, i64 {packed_row}, i64 {row}")
            step = text.op(f"select i1 {so}, i64 {packed_step}, i64 {step}")
        return a, row, step


# -- packing ------------------------------------------------------------------------------------


def _corner(text: KernelBuilder, b: str, row: str, column: str) -> str:
    """The address of an element of B as it lies."""
    return text.at(b, text.mul(row, text["b_row"]), text.mul(column, text["b_column"]))


def _pack_panel(
    text: KernelBuilder, tile: Tile, way: int, source: str, target: str, depth: str, width: str
) -> None:
    """Lay a panel of B out in rows of the width of a whole panel."""
    panel = text["panel"]
    if way == TRANSPOSED:
        _transpose(text, tile, source, text["b_column"], target, panel, width, depth, panel)
    else:
        _copy(text, tile, source, text["b_row"], target, panel, depth, width)


def _deal(text: KernelBuilder, tile: Tile, a: str, target: str, rows: str, depth: str) -> None:
    """Lay rows of A, whose columns lie in order, out as columns of tiles."""
    step = text.mul(text["depth"], tile.rows)
    with text.loop(rows, tile.dealt) as row:
        width = text.least(str(tile.dealt), text.sub(rows, row))
        source = text.at(a, text.mul(row, text["a_row"]))
        place = text.at(target, text.mul(row, text["depth"]))
        use(
            text, dealing(tile), f"ptr {source}", f"i64 {text['a_column']}", f"ptr {place}",
            f"i64 {step}", f"i64 {depth}", f"i64 {width}",
        )  # fmt: skip


def _copy(
    text: KernelBuilder, tile: Tile, source: str, source_step: str, target: str, target_step: str,
    rows: str, width: str,
) -> None:  # fmt: skip
    use(
        text, copying(tile), f"ptr {source}", f"i64 {source_step}", f"ptr {target}",
        f"i64 {target_step}", f"i64 {rows}", f"i64 {width}",
    )  # fmt: skip


def _transpose(
    text: KernelBuilder, tile: Tile, source: str, source_step: str, target: str, target_step: str,
    rows: str, width: str, room: str,
) -> None:  # fmt: skip
    use(
        text, transposing(tile), f"ptr {source}", f"i64 {source_step}", f"ptr {target}",
        f"i64 {target_step}", f"i64 {rows}", f"i64 {width}", f"i64 {room}",
    )  # fmt: skip


# -- preparation --------------------------------------------------------------------------------


@cache
def _prepare_right_text(tile: Tile) -> Kernel:
    """A chunk is a panel of B in a block of the depth."""
    text = KernelBuilder(tile.vector, ("b", "prepared"), _NUMBERS)
    block, panel = text.split("%chunk", text["panels"])
    done = text.mul(block, text["depth"])
    depth = text.least(text["depth"], text.sub(text["k"], done))
    column = _first_column(text, panel)
    width = text.sub(_first_column(text, text.add(panel, 1)), column)
    source = _corner(text, text["b"], done, column)
    target = text.at(text["prepared"], text.mul("%chunk", text["depth"], text["panel"]))
    in_rows = text.op(f"icmp eq i64 {text['b_column']}, 1")
    with text.when(in_rows):
        _pack_panel(text, tile, COPIED, source, target, depth, width)
    with text.when(text.op(f"xor i1 {in_rows}, true")):
        _pack_panel(text, tile, TRANSPOSED, source, target, depth, width)
    return text.kernel("gemm_prepare")


@cache
def _prepare_left_text(tile: Tile) -> Kernel:
    """A chunk is a few rows of A, whose columns lie in order, in a block of the depth."""
    text = KernelBuilder(tile.vector, ("a", "prepared"), _NUMBERS)
    some = _STEPS * tile.dealt
    parts = text.op(f"udiv i64 {text.add(text['m'], some - 1)}, {some}")
    block, part = text.split("%chunk", parts)
    done, top = text.mul(block, text["depth"]), text.mul(part, some)
    depth = text.least(text["depth"], text.sub(text["k"], done))
    rows = text.least(str(some), text.sub(text["m"], top))
    source = text.at(text["a"], text.mul(done, text["a_column"]), text.mul(top, text["a_row"]))
    first = text.mul(text.add(text.mul(block, text["dealt_rows"]), top), text["depth"])
    _deal(text, tile, source, text.at(text["prepared"], first), rows, depth)
    return text.kernel("gemm_prepare")
