"""Tiling and packing of products by blocked kernels, chosen by a cost model.

Every candidate tiling has an estimated time, made of fitted times of its parts, for several numbers
of threads; the one with the best mean is chosen. It depends on extents, strides and the machine
model alone, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product as all_pairs
from typing import NamedTuple

from evergrad.compiler.kernels.gemm.microkernel import Tile
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.native.target import machine

# Packing of an operand: none, rows (copied), rows of the transpose, register tiles, or all of it by
# a kernel of its own before the product.
UNPACKED, PACKED_ROWS, PACKED_TRANSPOSED, PACKED_TILES, PREPACKED = range(5)
# The operands, as register tiles take them.
LEFT, RIGHT = range(2)

# The depth of K blocks: if a chunk packs nothing, if it packs, and for unpacked A with contiguous
# columns.
_UNPACKED_DEPTH = 1024
_PACKED_DEPTH = 512
_NEAR_DEPTH = 256
# Operands up to these strides (in elements) are multiplied unpacked: A with contiguous columns
# (further apart these often share sets of a cache), B, and B beside A that is packed in tiles once,
# whose blocks are less deep. Beyond them packing pays.
UNPACKED_A_STRIDE = 128
UNPACKED_B_STRIDE = 256
_UNPACKED_B_STRIDE_TILES = 384
# With so few rows, packing B takes longer than multiplying by it.
_SKINNY = 16
# Rows of A further apart than this (in elements) share sets of a cache.
_PACKED_A_STRIDE = 2048
# C is computed transposed only if it, or its transpose, has no more rows than this: of larger ones
# the transposition costs more than the packing it avoids.
_SMALL_SIDE = 384
# Nanoseconds for a vector of products and for four bytes of an operand. Fitted to measured times of
# many tilings, to about 10 %; tools/fit_kernel_costs.py fits them again.
_MULTIPLY = 0.24
_COPY = 0.12
_TRANSPOSE = 0.17
_PACK_TILES = 0.25
_STORE = 0.12  # written for later
_FETCH = 0.33  # packed from beyond L2
_UNPREFETCHED = 0.1  # of B, copied from beyond L2 without prefetching
_READ_B, _READ_B_FAR = 0.05, 0.32  # of a panel of B for each chunk, from L2 and beyond
_WRITE_C, _WRITE_C_FAR = 0.14, 0.27  # of C for each K block
# Set by hand so that the tilings measured as best are chosen: four bytes of A that come from beyond
# L2 the first time and for each further panel; of C whose rows are pages apart and more than these,
# over so little depth that their stores are waited for; and claiming a chunk.
_STREAM_A, _REREAD_A = 0.15, 0.05
_SCATTERED, _MANY_ROWS, _SHALLOW = 0.4, 32, 64
_CLAIM = 500.0
_L2 = machine().l2_bytes
# As much of unpacked B arrives in time because tiles prefetch it.
_PREFETCHED_B = 2 * _L2
# As much of A as stays in L2 beside panels of B and C; of a deep block more, as it has fewer rows.
_A_IN_L2, _DEEP_A_IN_L2 = 3 * _L2 // 8, _L2 // 2
# The weights of the times with so many threads in the mean.
_THREADS = {1: 3, 2: 3, 8: 1}
# Into how many parts rows and panels are divided, and rows alone.
_PARTS = (1, 2, 3, 4, 6, 8)
_ROW_PARTS = (12, 16, 32, 64)
# Products of a batch make up chunks of so many multiplications, but not fewer chunks than these.
_CHUNK_WORK = 1 << 21
_ENOUGH_CHUNKS = 8
# Rows of so many bytes stay in L2 while the epilogue reads them and its other operands; the memory
# and the bandwidth this saves are worth a product that takes so many times as long.
_ROWS_IN_L2 = _L2 // 2
_AS_GOOD = 1.1


class Tiling(NamedTuple):
    """The tiling of a product: strides of its operands, packing, and chunks. If it is
    ``transposed``, A and B are exchanged and C is computed transposed."""

    m: int
    n: int
    k: int
    a_row: int
    a_column: int
    b_row: int
    b_column: int
    c_row: int
    depth: int  # of a K block
    a_packing: int
    b_packing: int
    panels: int
    last_panel: int  # the column at which the last panel begins
    part_rows: int
    part_panels: int
    row_parts: int
    panel_parts: int
    transposed: int
    items: int
    per_chunk: int
    accumulate: int  # add to C
    panel: int  # the columns of a panel
    prefetch_stride: int  # between prefetched lines of the next panel of B
    prefetch_lines: int  # of one row of it
    padded_rows: int  # of A, in whole groups of packed rows
    packed_row_stride: int  # of packed rows of A
    panel_at: int  # the panel of B in scratch memory
    transposed_at: int  # the transposed part of C in scratch memory
    scratch: int  # elements

    @property
    def chunks(self) -> int:
        return -(-self.items // self.per_chunk) * self.row_parts * self.panel_parts

    @property
    def blocks(self) -> int:
        return -(-self.k // self.depth)

    @property
    def prepacked(self) -> list[int]:
        """The operands that are packed by a kernel of their own."""
        packings = {LEFT: self.a_packing, RIGHT: self.b_packing}
        return [side for side, packing in packings.items() if packing == PREPACKED]

    def packed_elements(self, side: int) -> int:
        """The elements of a prepacked operand."""
        across = self.padded_rows if side == LEFT else self.panels * self.panel
        return self.blocks * self.depth * across

    def operand_of(self, side: int) -> int:
        """The factor of the product (0 or 1) that an operand is."""
        return side ^ self.transposed


class _Operands(NamedTuple):
    """The extents of a product and the strides of its operands, A on the left of tiles."""

    m: int
    n: int
    k: int
    a_row: int
    a_column: int
    b_row: int
    b_column: int
    transposed: bool
    items: int
    a_is_shared: bool  # A is the same in the whole batch
    b_is_shared: bool
    tile: Tile

    @property
    def panels(self) -> int:
        return _ceil(self.n, self.tile.panel)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _rounded(a: int, step: int) -> int:
    return _ceil(a, step) * step


def tiling_of(
    product: Product, tile: Tile, leading: int, may_prepack: bool, accumulate: bool = False
) -> Tiling:
    """The best tiling of a product; C has a leading extent."""
    operands = [_operands(product, tile, False)]
    if _may_transpose(operands[0]) and not accumulate:
        operands.append(_operands(product, tile, True))
    return _best(tuple(operands), may_prepack)._replace(c_row=leading, accumulate=int(accumulate))


def row_tiling_of(product: Product, tile: Tile) -> Tiling | None:
    """The best tiling into rows of C that stay in L2 until an epilogue reads them; ``None`` if
    other tilings are much better."""
    operands = _operands(product, tile, False)
    tilings = [
        _tiling(operands, parts, 1, prepacked)
        for parts in _row_parts_in_l2(operands)
        for prepacked in (None, RIGHT)
    ]
    if not tilings:
        return None
    found = min(tilings, key=lambda tiling: _cost(tiling, operands))
    best = tiling_of(product, tile, product.n, may_prepack=True)
    least = _cost(best, _operands(product, tile, bool(best.transposed)))
    return found._replace(c_row=product.n) if _cost(found, operands) <= _AS_GOOD * least else None


def _row_parts_in_l2(operands: _Operands) -> set[int]:
    """The numbers of parts of rows of C of which one stays in L2."""
    tile = operands.tile
    most = _ROWS_IN_L2 // (operands.n * tile.vector.size)
    step = tile.packed_rows if most >= tile.packed_rows else tile.rows
    wanted = [max(operands.m // chunks, step) for chunks in (_ENOUGH_CHUNKS, 2 * _ENOUGH_CHUNKS)]
    heights = [min(most, rows) // step * step for rows in wanted]
    parts = {_ceil(operands.m, rows) for rows in heights if rows}
    if step == tile.packed_rows:  # of an odd number, one thread of two has one more
        parts |= {_ceil(4 * count, 3) for count in parts if count % 2}
    return {count for count in parts if count >= _ENOUGH_CHUNKS}


def _operands(product: Product, tile: Tile, transposed: bool) -> _Operands:
    assert product.a is not None and product.b is not None
    a, b = product.a.strides, product.b.strides
    m, n, k = product.m, product.n, product.k
    shared = not any(product.a_strides), not any(product.b_strides)
    if transposed:
        m, n, a, b, shared = n, m, b[::-1], a[::-1], shared[::-1]
    found = _tile_for_columns(tile, n, a[1])
    return _Operands(m, n, k, *a, *b, transposed, product.items, *shared, found)


def _tile_for_columns(tile: Tile, n: int, a_column: int) -> Tile:
    """The tile that covers a whole row of C, if rows of A are contiguous."""
    wide = tile.wide
    return wide if wide and a_column == 1 and tile.panel < n <= wide.panel else tile


def _may_transpose(operands: _Operands) -> bool:
    """Whether the transposed product may avoid packing: transposing a large B, packing a large A in
    tiles, or copying a large B where a small A could be unpacked."""
    if operands.a_column == 1:
        return operands.b_column != 1 and operands.m <= _SMALL_SIDE
    return (
        operands.b_column == 1
        and min(operands.m, operands.n) <= _SMALL_SIDE
        and operands.m != operands.n
    )


@cache
def _best(operands: tuple[_Operands, ...], may_prepack: bool) -> Tiling:
    tilings = [(tiling, side) for side in operands for tiling in _all_tilings(side, may_prepack)]
    return min(tilings, key=lambda pair: _cost(*pair))[0]


def _all_tilings(operands: _Operands, may_prepack: bool) -> Iterator[Tiling]:
    can_prepack_a = may_prepack and operands.a_is_shared and operands.a_column != 1
    can_prepack_b = may_prepack and operands.b_is_shared
    tiles = _ceil(operands.m, operands.tile.rows)
    parts = [*all_pairs(_PARTS, _PARTS), *((rows, 1) for rows in _ROW_PARTS)]
    for row_parts, panel_parts in parts:
        if row_parts > tiles or panel_parts > operands.panels:
            continue
        yield _tiling(operands, row_parts, panel_parts)
        if can_prepack_b and row_parts * operands.items > 1:
            yield _tiling(operands, row_parts, panel_parts, prepacked=RIGHT)
        if can_prepack_a and panel_parts * operands.items > 1:
            yield _tiling(operands, row_parts, panel_parts, prepacked=LEFT)


def _tiling(
    operands: _Operands, row_parts: int, panel_parts: int, prepacked: int | None = None
) -> Tiling:
    m, n, k, panels, tile = operands.m, operands.n, operands.k, operands.panels, operands.tile
    part_rows = min(m, _rounded(_ceil(m, row_parts), tile.rows))
    part_panels = _ceil(panels, panel_parts)
    per_chunk = 1
    if row_parts * panel_parts == 1:
        per_chunk = max(1, min(_CHUNK_WORK // (m * n * k), _ceil(operands.items, _ENOUGH_CHUNKS)))
    a_packing = PREPACKED if prepacked == LEFT else _packing_of_a(operands, part_panels)
    is_tiled = a_packing == PACKED_TILES and part_panels == panels
    b_packing = PREPACKED if prepacked == RIGHT else _packing_of_b(operands, is_tiled)
    blocks = _ceil(k, _block_depth(operands, a_packing, b_packing))
    depth = min(k, _rounded(_ceil(k, blocks), tile.unrolled))
    packed_row_stride = _rounded(depth, tile.lanes) + tile.lanes
    panel_at = 0
    if a_packing in (PACKED_ROWS, PACKED_TILES):
        panel_at = _rounded(part_rows, tile.packed_rows) * packed_row_stride
    is_packed = b_packing in (PACKED_ROWS, PACKED_TRANSPOSED) or n % tile.lanes
    transposed_at = panel_at + (depth * tile.panel if is_packed else 0)
    scratch = transposed_at + (part_rows * part_panels * tile.panel if operands.transposed else 0)
    return Tiling(
        m, n, k, operands.a_row, operands.a_column, operands.b_row, operands.b_column, 0, depth,
        a_packing, b_packing, panels, _last_panel(n, tile), part_rows, part_panels,
        _ceil(m, part_rows), _ceil(panels, part_panels), int(operands.transposed), operands.items,
        per_chunk, 0, tile.panel, *_prefetch_lines(operands, b_packing),
        _rounded(m, tile.packed_rows), packed_row_stride, panel_at, transposed_at, scratch,
    )  # fmt: skip


def _last_panel(n: int, tile: Tile) -> int:
    """The first column of the last panel, which takes one register of the panel before it if it
    had only one."""
    registers, panels = _ceil(n, tile.lanes), _ceil(n, tile.panel)
    lent = tile.lanes if panels > 1 and registers % tile.vectors == 1 else 0
    return (panels - 1) * tile.panel - lent


def _packing_of_a(operands: _Operands, part_panels: int) -> int:
    if operands.a_column == 1:
        return PACKED_ROWS if operands.a_row >= _PACKED_A_STRIDE and part_panels >= 4 else UNPACKED
    is_near = operands.a_column <= UNPACKED_A_STRIDE
    return UNPACKED if is_near and operands.m % operands.tile.rows == 0 else PACKED_TILES


def _packing_of_b(operands: _Operands, is_tiled: bool) -> int:
    if operands.b_column != 1:
        return PACKED_TRANSPOSED
    near = _UNPACKED_B_STRIDE_TILES if is_tiled else UNPACKED_B_STRIDE
    return UNPACKED if operands.b_row <= near or operands.m <= _SKINNY else PACKED_ROWS


def _block_depth(operands: _Operands, a_packing: int, b_packing: int) -> int:
    """The largest depth of a K block."""
    if a_packing == UNPACKED and operands.a_column != 1:
        return _NEAR_DEPTH
    packing = (PACKED_ROWS, PACKED_TRANSPOSED, PACKED_TILES)
    is_packed = a_packing in packing or b_packing in packing
    return _PACKED_DEPTH if is_packed else _UNPACKED_DEPTH


def _prefetch_lines(operands: _Operands, packing: int) -> tuple[int, int]:
    """The stride and the lines of a row with which tiles prefetch the next panel of B: line by line
    if it is prepacked. If its rows are contiguous, row by row, unless these share sets of a cache,
    where they would be evicted before they are packed. Otherwise nothing is prefetched."""
    tile = operands.tile
    if packing == PREPACKED:
        return tile.lanes, 1
    is_prefetched = (
        operands.b_column == 1 and operands.b_row * tile.vector.size % machine().critical_stride
    )
    return (operands.b_row, tile.vectors) if is_prefetched else (0, 1)


def _cost(tiling: Tiling, operands: _Operands) -> float:
    """The geometric mean of the times with several numbers of threads."""
    costs = _CostModel(tiling, operands.tile)
    chunk = costs.chunk() * costs.filled * tiling.per_chunk + _CLAIM
    before = costs.prepacking()
    total = 1.0
    for threads, count in _THREADS.items():
        total *= (_ceil(tiling.chunks, threads) * chunk + before / threads) ** count
    return float(total ** (1 / sum(_THREADS.values())))


class _CostModel:
    """Estimated times of the parts of a tiled product, in nanoseconds."""

    def __init__(self, tiling: Tiling, tile: Tile) -> None:
        self.tiling = tiling
        self.tile = tile
        self.rows = _rounded(tiling.part_rows, tile.rows)
        self.panels = min(tiling.part_panels, tiling.panels)
        self.columns = min(self.panels * tile.panel, _rounded(tiling.n, tile.lanes))

    @property
    def filled(self) -> float:
        """The mean size of a chunk relative to a whole one: those at the edges are smaller."""
        tiling = self.tiling
        rows, panels = tiling.row_parts * tiling.part_rows, tiling.panel_parts * tiling.part_panels
        return tiling.m / rows * tiling.panels / panels

    def words(self, rows: int, columns: int) -> float:
        """The size of a matrix in words of four bytes."""
        return rows * columns * self.tile.vector.size / 4

    def is_far(self, rows: int, columns: int, room: int = _L2) -> bool:
        """Whether a matrix does not stay in L2, or in a part of it."""
        return 4 * self.words(rows, columns) > room

    def packing(self, packing: float, rows: int, of_rows: int) -> float:
        """The time to pack so many rows (or columns) of an operand that has more of them."""
        fetch = _FETCH if self.is_far(of_rows, self.tiling.k) else 0
        return self.words(rows, self.tiling.k) * (packing + fetch)

    @property
    def pack_b(self) -> float:
        return _COPY if self.tiling.b_column == 1 else _TRANSPOSE

    @property
    def unprefetched(self) -> float:
        """The extra time of four bytes of B that come from beyond L2 without being prefetched."""
        tiling = self.tiling
        is_prefetched = tiling.prefetch_stride or not self.is_far(tiling.n, tiling.k)
        return 0 if is_prefetched or tiling.b_column != 1 else _UNPREFETCHED

    def prepacking(self) -> float:
        """The time to prepack operands."""
        tiling, time = self.tiling, 0.0
        for side in tiling.prepacked:
            across, packing = (tiling.m, _PACK_TILES) if side == LEFT else (tiling.n, self.pack_b)
            time += self.packing(packing + _STORE, across, across) + _CLAIM
        return time

    def streaming(self) -> float:
        """The time in which A of a chunk comes from beyond L2."""
        tiling = self.tiling
        is_packed = tiling.a_packing in (PACKED_ROWS, PACKED_TILES)
        first = 0 if is_packed or not self.is_far(tiling.m, tiling.k) else _STREAM_A
        held = _DEEP_A_IN_L2 if tiling.depth > _PACKED_DEPTH else _A_IN_L2
        reread = _REREAD_A * (self.panels - 1) if self.is_far(self.rows, tiling.depth, held) else 0
        return self.words(self.rows, tiling.k) * (first + reread)

    @property
    def c_time(self) -> float:
        """The time to write four bytes of C."""
        tiling = self.tiling
        time = _WRITE_C_FAR if self.is_far(tiling.m, tiling.n) else _WRITE_C
        row_bytes = tiling.n * self.tile.vector.size
        is_apart = row_bytes >= machine().page_bytes and self.is_far(tiling.m, tiling.n, _A_IN_L2)
        waits = self.rows > _MANY_ROWS and tiling.depth <= _SHALLOW
        return time + _SCATTERED if is_apart and waits else time

    def chunk(self) -> float:
        """The time of one chunk of one product."""
        tiling, words = self.tiling, self.words
        # Tiles of one register are bound by the latency of loads.
        slow = 2 if tiling.n <= self.tile.lanes else 1
        time = self.rows * self.columns / self.tile.lanes * tiling.k * _MULTIPLY * slow
        time += self.streaming()
        if tiling.a_packing == PACKED_TILES:
            time += self.packing(_PACK_TILES, _rounded(self.rows, self.tile.packed_rows), tiling.m)
        elif tiling.a_packing == PACKED_ROWS:
            time += self.packing(_COPY, self.rows, tiling.m)
        if tiling.b_packing in (PACKED_ROWS, PACKED_TRANSPOSED):
            time += self.packing(self.pack_b + self.unprefetched, self.columns, tiling.n)
        else:
            # What is prepacked is prefetched, and a shallow block stays in L2.
            is_tiled = tiling.a_packing == PACKED_TILES and tiling.panel_parts == 1
            is_prefetched = tiling.b_packing == PREPACKED or is_tiled
            is_far = not is_prefetched and self.is_far(tiling.n, tiling.k, _PREFETCHED_B)
            time += words(self.columns, tiling.k) * (_READ_B_FAR if is_far else _READ_B)
        time += words(self.rows, self.columns) * self.c_time * tiling.blocks
        if tiling.transposed:
            time += words(self.rows, self.columns) * (_STORE + _TRANSPOSE)
        return time
