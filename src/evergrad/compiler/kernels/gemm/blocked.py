"""Blocked matrix products: K blocks, packed panels and a register-tile microkernel.

A chunk is a rectangle of C (or some whole products of a batch) over all of K. It goes through K in
blocks; A of a block stays in L2, a panel of B in L1. Kernels take a
:class:`~evergrad.compiler.kernels.gemm.tiling.Tiling` as numbers, so that one function serves all
products of an element type.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.codegen.kernel_builder import KernelBuilder, with_numbers
from evergrad.compiler.kernels.gemm.microkernel import (
    Tile,
    copy_rows,
    microkernel,
    pack_tiles,
    transpose,
    use,
)
from evergrad.compiler.kernels.gemm.packing import (
    LEFT,
    PACKED_ROWS,
    PACKED_TILES,
    PACKED_TRANSPOSED,
    PREPACKED,
    UNPACKED,
)
from evergrad.compiler.kernels.gemm.problem import Batch, Product
from evergrad.compiler.kernels.gemm.tile_epilogue import (
    EPILOGUE,
    NO_EPILOGUE,
    apply_epilogue,
    epilogue_pointers,
)
from evergrad.compiler.kernels.gemm.tiling import Tiling

_NUMBERS = (*Tiling._fields, *Batch._fields, *EPILOGUE)
# Groups of rows of A in a chunk that packs it.
_PACKED_PER_CHUNK = 4


def blocked_kernel(product: Product, tile: Tile, tiling: Tiling) -> Kernel:
    """The kernel of a product; the pointers are A, B and C. The pointer of an operand that is
    prepacked is to its packed form."""
    return _with_numbers(_product_ir(tile), product, tile, tiling, tiling.chunks, tiling.scratch)


def packing_kernel(product: Product, tile: Tile, tiling: Tiling, side: int) -> Kernel:
    """The kernel that prepacks an operand."""
    if side == LEFT:
        chunks = tiling.blocks * -(-tiling.m // (_PACKED_PER_CHUNK * tile.packed_rows))
        return _with_numbers(_pack_a_ir(tile), product, tile, tiling, chunks)
    return _with_numbers(_pack_b_ir(tile), product, tile, tiling, tiling.blocks * tiling.panels)


def _with_numbers(
    made: Kernel, product: Product, tile: Tile, tiling: Tiling, chunks: int, scratch: int = 0
) -> Kernel:
    size = tile.vector.size
    return with_numbers(
        made, (*tiling, *product.batch_numbers(size), *NO_EPILOGUE), (), chunks, scratch * size
    )


# -- products -----------------------------------------------------------------------------------


@cache
def _product_ir(tile: Tile) -> Kernel:
    ir = KernelBuilder(tile.vector, ("a", "b", "c"), _NUMBERS)
    parts = ir.mul(ir["row_parts"], ir["panel_parts"])
    group, part = ir.split("%chunk", parts)
    first, last = ir.items(group, ir["per_chunk"], ir["items"])
    with ir.loop(last, first=first) as item:
        _Chunk(ir, tile, *operands(ir, item), part).write(item)
    return ir.kernel("gemm")


def operands(ir: KernelBuilder, item: str) -> tuple[str, str, str]:
    """The addresses of an item of the batch: the left and the right operand of tiles, and C."""
    rest, i2 = ir.split(item, ir["e2"])
    i0, i1 = ir.split(rest, ir["e1"])
    places = {"c": ir.mul(item, ir["c_stride"])}
    for word in "ab":
        strides = [ir[f"{word}{d}"] for d in range(3)]
        places[word] = ir.add(*map(ir.mul, (i0, i1, i2), strides))
    a, b, c = (ir.op(f"getelementptr i8, ptr {ir[word]}, i64 {places[word]}") for word in "abc")
    return *ordered(ir, a, b), c


def ordered(ir: KernelBuilder, a: str, b: str) -> tuple[str, str]:
    """The left and the right operand: A and B, exchanged if C is computed transposed."""
    transposed = ir.op(f"icmp ne i64 {ir['transposed']}, 0")
    left = ir.op(f"select i1 {transposed}, ptr {b}, ptr {a}")
    right = ir.op(f"select i1 {transposed}, ptr {a}, ptr {b}")
    return left, right


def _first_column(ir: KernelBuilder, panel: str) -> str:
    """The first column of a panel; after the last panel, the number of columns."""
    is_last = ir.op(f"icmp eq i64 {ir.add(panel, 1)}, {ir['panels']}")
    is_end = ir.op(f"icmp eq i64 {panel}, {ir['panels']}")
    regular = ir.mul(panel, ir["panel"])
    column = ir.op(f"select i1 {is_last}, i64 {ir['last_panel']}, i64 {regular}")
    return ir.op(f"select i1 {is_end}, i64 {ir['n']}, i64 {column}")


def _microkernels(tile: Tile) -> Iterator[tuple[Tile, int, bool]]:
    """The microkernels that a panel may need: tile, registers, and whether rows of A are
    contiguous."""
    yield from ((tile, n + 1, by_rows) for n in range(tile.vectors) for by_rows in (True, False))
    if tile.wide is not None:
        yield tile.wide, tile.wide.vectors, True


class _Chunk:
    """The IR that computes a rectangle of C."""

    def __init__(self, ir: KernelBuilder, tile: Tile, a: str, b: str, c: str, part: str) -> None:
        self.ir = ir
        self.tile = tile
        self.prepared_a = a
        self.b = b
        row_part, panel_part = ir.split(part, ir["panel_parts"])
        self.top = ir.mul(row_part, ir["part_rows"])
        self.rows = ir.least(ir["part_rows"], ir.sub(ir["m"], self.top))
        self.start = ir.mul(panel_part, ir["part_panels"])
        self.stop = ir.least(ir.add(self.start, ir["part_panels"]), ir["panels"])
        self.left = _first_column(ir, self.start)
        self.width = ir.sub(_first_column(ir, self.stop), self.left)
        self.a = ir.at(a, ir.mul(self.top, ir["a_row"]))
        self.place_c(c)

    def place_c(self, c: str) -> None:
        """Sums go to C, or to scratch memory if they have to be transposed."""
        ir = self.ir
        self.transposed = ir.op(f"icmp ne i64 {ir['transposed']}, 0")
        self.c_buffer = ir.at(ir.scratch, ir["transposed_at"])
        self.c_transposed = ir.at(c, ir.mul(self.left, ir["c_row"]), self.top)
        straight = ir.at(c, ir.mul(self.top, ir["c_row"]), self.left)
        self.c = ir.op(f"select i1 {self.transposed}, ptr {self.c_buffer}, ptr {straight}")
        self.c_row = ir.op(f"select i1 {self.transposed}, i64 {self.width}, i64 {ir['c_row']}")

    def write(self, item: str) -> None:
        ir = self.ir
        # Rows of C, counted over the batch.
        first = ir.add(ir.mul(item, ir["m"]), self.top)
        with ir.loop(ir["k"], ir["depth"]) as done:
            depth = ir.least(ir["depth"], ir.sub(ir["k"], done))
            more = ir.op(f"icmp ne i64 {ir.add(done, ir['accumulate'])}, 0")
            a = ir.at(self.a, ir.mul(done, ir["a_column"]))
            self.pack_a(a, depth)
            is_last = ir.op(f"icmp sge i64 {ir.add(done, depth)}, {ir['k']}")
            straight = ir.op(f"xor i1 {self.transposed}, true")
            is_complete = ir.op(f"and i1 {is_last}, {straight}")
            function, *rest = epilogue_pointers(ir)
            finish = ir.op(f"select i1 {is_complete}, ptr {function}, ptr null")
            finishing = [*(f"ptr {pointer}" for pointer in (finish, *rest)), f"i64 {first}"]
            with ir.loop(self.stop, first=self.start) as panel:
                self.multiply(a, panel, done, depth, more, finishing)
        with ir.when(self.transposed):
            _transpose(
                ir, self.tile, self.c_buffer, self.width, self.c_transposed, ir["c_row"], self.rows,
                self.width, self.rows,
            )  # fmt: skip
            first = ir.add(ir.mul(item, ir["n"]), self.left)
            apply_epilogue(ir, first, self.width, self.top, self.rows)

    def is_packing(self, operand: str, packing: int) -> str:
        """Whether an operand has some packing."""
        return self.ir.op(f"icmp eq i64 {self.ir[f'{operand}_packing']}, {packing}")

    def pack_a(self, a: str, depth: str) -> None:
        """Pack A of a block at the beginning of scratch memory: in rows, or in tiles."""
        ir = self.ir
        with ir.when(self.is_packing("a", PACKED_ROWS)):
            step = ir["packed_row_stride"]
            _copy(ir, self.tile, a, ir["a_row"], ir.scratch, step, self.rows, depth)
        with ir.when(self.is_packing("a", PACKED_TILES)):
            _pack_tiles(ir, self.tile, a, ir.scratch, self.rows, depth)

    def multiply(
        self, a: str, panel: str, done: str, depth: str, more: str, finishing: list[str]
    ) -> None:
        """All tiles of a panel of B, in a K block."""
        ir = self.ir
        column = _first_column(ir, panel)
        width = ir.sub(_first_column(ir, ir.add(panel, 1)), column)
        b, b_step = self.panel_of_b(panel, column, done, depth, width)
        c = ir.at(self.c, ir.sub(column, self.left))
        a_at, a_row, a_step = self.tiles_of_a(a, done)
        in_rows = ir.op(f"icmp eq i64 {ir['a_column']}, 1")
        in_columns = ir.op(f"xor i1 {in_rows}, true")
        following = self.next_panel(panel, done)
        lanes = self.tile.lanes
        registers = ir.op(f"udiv i64 {ir.add(width, lanes - 1)}, {lanes}")
        for tile, count, by_rows in _microkernels(self.tile):
            fits = ir.op(f"icmp eq i64 {registers}, {count}")
            with ir.when(ir.op(f"and i1 {fits}, {in_rows if by_rows else in_columns}")):
                use(
                    ir, microkernel(tile, count, by_rows, padded=True), f"ptr {a_at}",
                    f"i64 {a_row}", f"i64 {a_step}", f"ptr {b}", f"i64 {b_step}", f"ptr {c}",
                    f"i64 {self.c_row}", f"i64 {depth}", f"i64 {self.rows}", f"i64 {width}",
                    f"i1 {more}", *finishing, f"i64 {column}", f"ptr {following}",
                    f"i64 {ir['prefetch_stride']}",
                    f"i64 {ir['prefetch_lines']}",
                )  # fmt: skip

    def panel_of_b(
        self, panel: str, column: str, done: str, depth: str, width: str
    ) -> tuple[str, str]:
        """The address of a panel of B, packed now or before, and the stride of its rows. Of
        unpacked B a panel without whole registers is copied."""
        ir = self.ir
        source = _corner(ir, self.b, done, column)
        packed = ir.at(ir.scratch, ir["panel_at"])
        over = ir.op(f"and i64 {width}, {self.tile.lanes - 1}")
        is_whole = ir.op(f"icmp eq i64 {over}, 0")
        as_matrix = self.is_packing("b", UNPACKED)
        is_unpacked = ir.op(f"and i1 {as_matrix}, {is_whole}")
        is_copied = ir.op(f"or i1 {as_matrix}, {self.is_packing('b', PACKED_ROWS)}")
        is_copied = ir.op(f"and i1 {is_copied}, {ir.op(f'xor i1 {is_unpacked}, true')}")
        found = self.prepared_panel(panel, done)
        for way, so in (
            (PACKED_ROWS, is_copied),
            (PACKED_TRANSPOSED, self.is_packing("b", PACKED_TRANSPOSED)),
        ):
            with ir.when(so):
                _pack_panel(ir, self.tile, way, source, packed, depth, width)
            found = ir.op(f"select i1 {so}, ptr {packed}, ptr {found}")
        found = ir.op(f"select i1 {is_unpacked}, ptr {source}, ptr {found}")
        return found, ir.op(f"select i1 {is_unpacked}, i64 {ir['b_row']}, i64 {ir['panel']}")

    def prepared_panel(self, panel: str, done: str) -> str:
        """The address of a panel of prepacked B."""
        ir = self.ir
        block = ir.op(f"udiv i64 {done}, {ir['depth']}")
        number = ir.add(ir.mul(block, ir["panels"]), panel)
        return ir.at(self.b, ir.mul(number, ir["depth"], ir["panel"]))

    def next_panel(self, panel: str, done: str) -> str:
        """The address of the next panel of B, to be prefetched; after the last one it is only an
        address, which nothing reads."""
        ir = self.ir
        number = ir.add(panel, 1)
        source = _corner(ir, self.b, done, _first_column(ir, number))
        prepacked = self.prepared_panel(number, done)
        return ir.op(f"select i1 {self.is_packing('b', PREPACKED)}, ptr {prepacked}, ptr {source}")

    def tiles_of_a(self, a: str, done: str) -> tuple[str, str, str]:
        """The address of A, the stride of its rows, and the stride of the rows or columns of a
        tile."""
        ir = self.ir
        in_rows = ir.op(f"icmp eq i64 {ir['a_column']}, 1")
        step = ir.op(f"select i1 {in_rows}, i64 {ir['a_row']}, i64 {ir['a_column']}")
        row = ir["a_row"]
        before = ir.op(f"udiv i64 {ir.mul(done, ir['padded_rows'])}, {ir['depth']}")
        first = ir.mul(ir.add(before, self.top), ir["depth"])
        tile = str(self.tile.rows)
        for way, packed, packed_row, packed_step in (
            (PACKED_ROWS, ir.scratch, ir["packed_row_stride"], ir["packed_row_stride"]),
            (PACKED_TILES, ir.scratch, ir["depth"], tile),
            (PREPACKED, ir.at(self.prepared_a, first), ir["depth"], tile),
        ):
            so = self.is_packing("a", way)
            a = ir.op(f"select i1 {so}, ptr {packed}, ptr {a}")
            row = ir.op(f"select i1 {so}, i64 {packed_row}, i64 {row}")
            step = ir.op(f"select i1 {so}, i64 {packed_step}, i64 {step}")
        return a, row, step


# -- packing ------------------------------------------------------------------------------------


def _corner(ir: KernelBuilder, b: str, row: str, column: str) -> str:
    """The address of an element of unpacked B."""
    return ir.at(b, ir.mul(row, ir["b_row"]), ir.mul(column, ir["b_column"]))


def _pack_panel(
    ir: KernelBuilder, tile: Tile, way: int, source: str, target: str, depth: str, width: str
) -> None:
    """Pack a panel of B in rows of the width of a whole panel."""
    panel = ir["panel"]
    if way == PACKED_TRANSPOSED:
        _transpose(ir, tile, source, ir["b_column"], target, panel, width, depth, panel)
    else:
        _copy(ir, tile, source, ir["b_row"], target, panel, depth, width)


def _pack_tiles(ir: KernelBuilder, tile: Tile, a: str, target: str, rows: str, depth: str) -> None:
    """Pack rows of A, whose columns are contiguous, in tiles."""
    step = ir.mul(ir["depth"], tile.rows)
    with ir.loop(rows, tile.packed_rows) as row:
        width = ir.least(str(tile.packed_rows), ir.sub(rows, row))
        source = ir.at(a, ir.mul(row, ir["a_row"]))
        place = ir.at(target, ir.mul(row, ir["depth"]))
        use(
            ir, pack_tiles(tile), f"ptr {source}", f"i64 {ir['a_column']}", f"ptr {place}",
            f"i64 {step}", f"i64 {depth}", f"i64 {width}",
        )  # fmt: skip


def _copy(
    ir: KernelBuilder, tile: Tile, source: str, source_step: str, target: str, target_step: str,
    rows: str, width: str,
) -> None:  # fmt: skip
    use(
        ir, copy_rows(tile), f"ptr {source}", f"i64 {source_step}", f"ptr {target}",
        f"i64 {target_step}", f"i64 {rows}", f"i64 {width}",
    )  # fmt: skip


def _transpose(
    ir: KernelBuilder, tile: Tile, source: str, source_step: str, target: str, target_step: str,
    rows: str, width: str, room: str,
) -> None:  # fmt: skip
    use(
        ir, transpose(tile), f"ptr {source}", f"i64 {source_step}", f"ptr {target}",
        f"i64 {target_step}", f"i64 {rows}", f"i64 {width}", f"i64 {room}",
    )  # fmt: skip


# -- prepacking ---------------------------------------------------------------------------------


@cache
def _pack_b_ir(tile: Tile) -> Kernel:
    """A chunk is a panel of B in a K block."""
    ir = KernelBuilder(tile.vector, ("b", "prepacked"), _NUMBERS)
    block, panel = ir.split("%chunk", ir["panels"])
    done = ir.mul(block, ir["depth"])
    depth = ir.least(ir["depth"], ir.sub(ir["k"], done))
    column = _first_column(ir, panel)
    width = ir.sub(_first_column(ir, ir.add(panel, 1)), column)
    source = _corner(ir, ir["b"], done, column)
    target = ir.at(ir["prepacked"], ir.mul("%chunk", ir["depth"], ir["panel"]))
    in_rows = ir.op(f"icmp eq i64 {ir['b_column']}, 1")
    with ir.when(in_rows):
        _pack_panel(ir, tile, PACKED_ROWS, source, target, depth, width)
    with ir.when(ir.op(f"xor i1 {in_rows}, true")):
        _pack_panel(ir, tile, PACKED_TRANSPOSED, source, target, depth, width)
    return ir.kernel("gemm_pack")


@cache
def _pack_a_ir(tile: Tile) -> Kernel:
    """A chunk is some rows of A, whose columns are contiguous, in a K block."""
    ir = KernelBuilder(tile.vector, ("a", "prepacked"), _NUMBERS)
    some = _PACKED_PER_CHUNK * tile.packed_rows
    parts = ir.op(f"udiv i64 {ir.add(ir['m'], some - 1)}, {some}")
    block, part = ir.split("%chunk", parts)
    done, top = ir.mul(block, ir["depth"]), ir.mul(part, some)
    depth = ir.least(ir["depth"], ir.sub(ir["k"], done))
    rows = ir.least(str(some), ir.sub(ir["m"], top))
    source = ir.at(ir["a"], ir.mul(done, ir["a_column"]), ir.mul(top, ir["a_row"]))
    first = ir.mul(ir.add(ir.mul(block, ir["padded_rows"]), top), ir["depth"])
    _pack_tiles(ir, tile, source, ir.at(ir["prepacked"], first), rows, depth)
    return ir.kernel("gemm_pack")
