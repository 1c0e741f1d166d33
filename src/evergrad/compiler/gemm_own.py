"""Matrix products by our own kernels: how a product is cut, packed and put together.

A chunk is a rectangle of C (or some whole products of a batch) over the whole depth. It goes
through the depth in blocks; A of a block stays in the second cache, a panel of B in the first.
:class:`Cut` says all that is decided for a product, from its extents alone; the kernels take it as
numbers, so that there is one text for all products.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from evergrad.compiler.conv_text import Text, Vector
from evergrad.compiler.gemm_strip import (
    DEALT,
    ROWS,
    VECTORS,
    copying,
    dealing,
    panel_width,
    strip,
    transposing,
    use,
)
from evergrad.compiler.kernel import Kernel

# How operands are taken.
AS_IT_LIES, COPIED, TRANSPOSED, PREPARED, DEALT_OUT = range(5)
_BATCH_DIMS = 3


class Cut(NamedTuple):
    """What is decided for a product: the steps through its operands and its pieces."""

    m: int
    n: int
    k: int
    a_row: int
    a_column: int
    b_row: int
    b_column: int
    c_row: int
    depth: int  # of a block
    a_way: int
    b_way: int
    panels: int
    last_panel: int  # the column at which the last panel begins
    part_rows: int
    part_panels: int
    row_parts: int
    panel_parts: int
    flipped: int  # C is computed transposed
    items: int
    per_chunk: int
    more: int  # add to C
    copy_row: int  # from row to row of the copy of A
    panel_at: int  # where the scratch memory has the panel of B
    tile_at: int  # and the transposed part of C


class _Batch(NamedTuple):
    """Extents of a batch but the first, and steps in bytes."""

    e1: int
    e2: int
    a0: int
    a1: int
    a2: int
    b0: int
    b1: int
    b2: int
    c_step: int


# -- the kernel ---------------------------------------------------------------------------------


@cache
def _product_text(vector: Vector) -> Kernel:
    text = Text(vector, ("a", "b", "c", "prepared"), (*Cut._fields, *_Batch._fields))
    parts = text.mul(text["row_parts"], text["panel_parts"])
    group, part = text.split("%chunk", parts)
    row_part, panel_part = text.split(part, text["panel_parts"])
    first, last = text.items(group, text["per_chunk"], text["items"])
    top = text.mul(row_part, text["part_rows"])
    rows = text.least(text["part_rows"], text.sub(text["m"], top))
    start = text.mul(panel_part, text["part_panels"])
    stop = text.least(text.add(start, text["part_panels"]), text["panels"])
    with text.loop(last, first=first) as item:
        a, b, c = _operands(text, item)
        piece = _Piece(text, a, b, c, top, rows, start, stop)
        piece.write()
    return text.kernel("gemm")


def _operands(text: Text, item: str) -> tuple[str, str, str]:
    """Where A, B and C of a product of the batch begin."""
    rest, i2 = text.split(item, text["e2"])
    i0, i1 = text.split(rest, text["e1"])
    found = []
    for word in "ab":
        moved = text.add(
            *(text.mul(i, text[f"{word}{d}"]) for d, i in enumerate((i0, i1, i2)))
        )  # fmt: skip
        found.append(text.op(f"getelementptr i8, ptr {text[word]}, i64 {moved}"))
    moved = text.mul(item, text["c_step"])
    return found[0], found[1], text.op(f"getelementptr i8, ptr {text['c']}, i64 {moved}")


def column_of(text: Text, panel: str) -> str:
    """The first column of a panel, or behind the last."""
    is_last = text.op(f"icmp eq i64 {text.add(panel, 1)}, {text['panels']}")
    is_end = text.op(f"icmp eq i64 {panel}, {text['panels']}")
    regular = text.mul(panel, panel_width(text.vector))
    column = text.op(f"select i1 {is_last}, i64 {text['last_panel']}, i64 {regular}")
    return text.op(f"select i1 {is_end}, i64 {text['n']}, i64 {column}")


class _Piece:
    """The text that computes a rectangle of C."""

    def __init__(
        self, text: Text, a: str, b: str, c: str, top: str, rows: str, start: str, stop: str
    ) -> None:
        self.text = text
        self.b = b
        self.rows = rows
        self.start, self.stop = start, stop
        self.flipped = text.op(f"icmp ne i64 {text['flipped']}, 0")
        self.left = column_of(text, start)
        self.right = column_of(text, stop)
        self.a = text.at(a, text.mul(top, text["a_row"]))
        wide = text.sub(self.right, self.left)
        direct = text.at(c, text.mul(top, text["c_row"]), self.left)
        self.aside = text.at(text.scratch, text["tile_at"])
        self.target = text.at(c, text.mul(self.left, text["c_row"]), top)
        self.wide = wide
        self.c = text.op(f"select i1 {self.flipped}, ptr {self.aside}, ptr {direct}")
        self.c_row = text.op(f"select i1 {self.flipped}, i64 {wide}, i64 {text['c_row']}")

    def way(self, operand: str, way: int) -> str:
        return self.text.op(f"icmp eq i64 {self.text[f'{operand}_way']}, {way}")

    def write(self) -> None:
        text = self.text
        with text.loop(text["k"], text["depth"]) as done:
            depth = text.least(text["depth"], text.sub(text["k"], done))
            later = text.op(f"icmp ne i64 {text.add(done, text['more'])}, 0")
            a = text.at(self.a, text.mul(done, text["a_column"]))
            with text.when(self.way("a", DEALT_OUT)):
                self.deal_a(a, depth)
            with text.when(self.way("a", COPIED)):
                self.copy_a(a, depth)
            with text.loop(self.stop, first=self.start) as panel:
                self.panel(a, panel, done, depth, later)
        with text.when(self.flipped):
            use(
                text, transposing(text.vector), f"ptr {self.aside}", f"i64 {self.wide}",
                f"ptr {self.target}", f"i64 {text['c_row']}", f"i64 {self.rows}",
                f"i64 {self.wide}",
            )  # fmt: skip

    def copy_a(self, a: str, depth: str) -> None:
        """Rows, with steps that are no power of two, in the beginning of the scratch memory."""
        use(
            self.text, copying(self.text.vector), f"ptr {a}", f"i64 {self.text['a_row']}",
            f"ptr {self.text.scratch}", f"i64 {self.text['copy_row']}", f"i64 {self.rows}", f"i64 {depth}",
        )  # fmt: skip

    def deal_a(self, a: str, depth: str) -> None:
        """Columns of tiles one behind the other, in the beginning of the scratch memory."""
        text = self.text
        tile = text.mul(text["depth"], ROWS)
        with text.loop(self.rows, DEALT) as row:
            width = text.least(str(DEALT), text.sub(self.rows, row))
            source = text.at(a, text.mul(row, text["a_row"]))
            target = text.at(text.scratch, text.mul(row, text["depth"]))
            use(
                text, dealing(text.vector), f"ptr {source}", f"i64 {text['a_column']}",
                f"ptr {target}", f"i64 {tile}", f"i64 {depth}", f"i64 {width}",
            )  # fmt: skip

    def panel(self, a: str, panel: str, done: str, depth: str, later: str) -> None:
        text = self.text
        column = column_of(text, panel)
        width = text.sub(column_of(text, text.add(panel, 1)), column)
        source = text.at(
            self.b, text.mul(done, text["b_row"]), text.mul(column, text["b_column"])
        )  # fmt: skip
        packed = text.at(text.scratch, text["panel_at"])
        with text.when(self.way("b", COPIED)):
            pack_panel(text, False, source, packed, depth, width)
        with text.when(self.way("b", TRANSPOSED)):
            pack_panel(text, True, source, packed, depth, width)
        block = text.op(f"udiv i64 {done}, {text['depth']}")
        number = text.add(text.mul(block, text["panels"]), panel)
        size = text.mul(text["depth"], panel_width(text.vector))
        ready = text.at(text["prepared"], text.mul(number, size))
        lies, is_ready = self.way("b", AS_IT_LIES), self.way("b", PREPARED)
        own = text.op(f"select i1 {is_ready}, ptr {ready}, ptr {packed}")
        b = text.op(f"select i1 {lies}, ptr {source}, ptr {own}")
        b_step = text.op(
            f"select i1 {lies}, i64 {text['b_row']}, i64 {panel_width(text.vector)}"
        )  # fmt: skip
        c = text.at(self.c, text.sub(column, self.left))
        given = [f"ptr {b}", f"i64 {b_step}", f"ptr {c}", f"i64 {self.c_row}", f"i64 {depth}"]
        given += [f"i64 {self.rows}", f"i64 {width}", f"i1 {later}"]
        self.strips(a, width, given)

    def strips(self, a: str, width: str, given: list[str]) -> None:
        """Call the strip for the width of the panel and the way A lies."""
        text = self.text
        wide = text.add(width, text.vector.lanes - 1)
        vectors = text.op(f"udiv i64 {wide}, {text.vector.lanes}")
        in_rows = text.op(f"icmp eq i64 {text['a_column']}, 1")
        in_columns = text.op(f"xor i1 {in_rows}, true")
        apart = text.op(f"select i1 {in_rows}, i64 {text['a_row']}, i64 {text['a_column']}")
        from_, row, step = a, text["a_row"], apart
        for way, row_packed, step_packed in (
            (COPIED, text["copy_row"], text["copy_row"]),
            (DEALT_OUT, text["depth"], str(ROWS)),
        ):
            so = self.way("a", way)
            from_ = text.op(f"select i1 {so}, ptr {text.scratch}, ptr {from_}")
            row = text.op(f"select i1 {so}, i64 {row_packed}, i64 {row}")
            step = text.op(f"select i1 {so}, i64 {step_packed}, i64 {step}")
        for count in range(1, VECTORS + 1):
            fits = text.op(f"icmp eq i64 {vectors}, {count}")
            for is_rows, so in ((True, in_rows), (False, in_columns)):
                with text.when(text.op(f"and i1 {fits}, {so}")):
                    use(
                        text, strip(text.vector, count, is_rows), f"ptr {from_}", f"i64 {row}",
                        f"i64 {step}", *given,
                    )  # fmt: skip


def pack_panel(
    text: Text, is_turned: bool, source: str, target: str, depth: str, width: str
) -> None:
    """Lay a panel of B out in rows of the width of a whole panel."""
    step = f"i64 {panel_width(text.vector)}"
    if is_turned:
        use(
            text, transposing(text.vector), f"ptr {source}", f"i64 {text['b_column']}",
            f"ptr {target}", step, f"i64 {width}", f"i64 {depth}",
        )  # fmt: skip
    else:
        use(
            text, copying(text.vector), f"ptr {source}", f"i64 {text['b_row']}",
            f"ptr {target}", step, f"i64 {depth}", f"i64 {width}",
        )  # fmt: skip


# -- B, laid out before the product -------------------------------------------------------------


@cache
def _prepare_text(vector: Vector) -> Kernel:
    """A chunk is a panel of B in a block of the depth."""
    text = Text(vector, ("b", "prepared"), (*Cut._fields, *_Batch._fields))
    block, panel = text.split("%chunk", text["panels"])
    done = text.mul(block, text["depth"])
    depth = text.least(text["depth"], text.sub(text["k"], done))
    column = column_of(text, panel)
    width = text.sub(column_of(text, text.add(panel, 1)), column)
    source = text.at(
        text["b"], text.mul(done, text["b_row"]), text.mul(column, text["b_column"])
    )  # fmt: skip
    size = text.mul(text["depth"], panel_width(vector))
    target = text.at(text["prepared"], text.mul("%chunk", size))
    in_rows = text.op(f"icmp eq i64 {text['b_column']}, 1")
    with text.when(in_rows):
        pack_panel(text, False, source, target, depth, width)
    with text.when(text.op(f"xor i1 {in_rows}, true")):
        pack_panel(text, True, source, target, depth, width)
    return text.kernel("gemm_prepare")
