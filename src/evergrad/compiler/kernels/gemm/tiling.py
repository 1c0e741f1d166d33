"""Tiling and packing of products by blocked kernels, chosen by a cost model.

Every candidate tiling has an estimated time, made of fitted times of its parts, for several numbers
of threads; the one with the best mean is chosen. It depends on extents, strides and the machine
model alone, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import product as all_pairs
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from evergrad.compiler.kernels.gemm.microkernel import Tile
from evergrad.compiler.kernels.gemm.packing import (
    LEFT,
    PACKED_DEPTH,
    PACKED_ROWS,
    PACKED_TILES,
    PACKED_TRANSPOSED,
    PREPACKED,
    RIGHT,
    UNPACKED,
    packs,
)
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.kernels.gemm.tiling_costs import (
    ceil_div,
    costs_of,
    mean_time,
    rounded_up,
)
from evergrad.compiler.native.target import machine

if TYPE_CHECKING:
    from evergrad.core.types import Array, Leaves

_NONE = -1

# The depth of K blocks if a chunk packs nothing, and for unpacked A with contiguous columns.
_UNPACKED_DEPTH = 1024
_NEAR_DEPTH = 256
# Operands up to these strides (in elements) are multiplied unpacked: A with contiguous columns
# (further apart these often share sets of a cache), B, and B beside A that is packed in tiles once,
# whose blocks are less deep. Beyond them packing pays.
UNPACKED_A_STRIDE = 128
UNPACKED_B_STRIDE = 256
_UNPACKED_B_STRIDE_TILES = 384
# With so few rows, packing B takes longer than multiplying by it.
_SKINNY = 16
# Rows of a batch of which several programs may exist that have to agree to the bit.
_FEW_ROWS = 128
# Rows of A further apart than this (in elements) share sets of a cache.
_PACKED_A_STRIDE = 2048
# C is computed transposed only if it, or its transpose, has no more rows than this: of larger ones
# the transposition costs more than the packing it avoids.
_SMALL_SIDE = 384
_L2 = machine().l2_bytes
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
# The products whose tilings are kept.
_MAX_KEPT = 4096


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
        return int(ceil_div(self.n, self.tile.panel))


def tiling_of(
    product: Product, tile: Tile, leading: int, may_prepack: bool, accumulate: bool = False
) -> Tiling:
    """The best tiling of a product; C has a leading extent."""
    _, found = _best(_sides(product, tile, not accumulate), may_prepack)
    return found._replace(c_row=leading, accumulate=int(accumulate))


def _sides(product: Product, tile: Tile, may_transpose: bool) -> tuple[_Operands, ...]:
    """A product as it is, and transposed if that may be better."""
    operands = _operands(product, tile, False)
    if may_transpose and _may_transpose(operands):
        return operands, _operands(product, tile, True)
    return (operands,)


def row_tiling_of(product: Product, tile: Tile) -> Tiling | None:
    """The best tiling into rows of C that stay in L2 until an epilogue reads them; ``None`` if
    other tilings are much better."""
    operands = _operands(product, tile, False)
    parts = [(p, 1, side) for p in sorted(_row_parts_in_l2(operands)) for side in (_NONE, RIGHT)]
    if not parts:
        return None
    cost, found = _cheapest(operands, np.array(parts, np.int64))
    sides = _sides(product, tile, may_transpose=True)
    least, _ = _best(sides, may_prepack=True)
    return found._replace(c_row=product.n) if cost <= _AS_GOOD * least else None


def _row_parts_in_l2(operands: _Operands) -> set[int]:
    """The numbers of parts of rows of C of which one stays in L2."""
    tile = operands.tile
    most = _ROWS_IN_L2 // (operands.n * tile.vector.size)
    step = tile.packed_rows if most >= tile.packed_rows else tile.rows
    wanted = [max(operands.m // chunks, step) for chunks in (_ENOUGH_CHUNKS, 2 * _ENOUGH_CHUNKS)]
    heights = [min(most, rows) // step * step for rows in wanted]
    parts = {ceil_div(operands.m, rows) for rows in heights if rows}
    if step == tile.packed_rows:  # of an odd number, one thread of two has one more
        parts |= {ceil_div(4 * count, 3) for count in parts if count % 2}
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


@lru_cache(_MAX_KEPT)
def _best(sides: tuple[_Operands, ...], may_prepack: bool) -> tuple[float, Tiling]:
    """The best tiling, and its estimated time."""
    found = [_cheapest(operands, _all_parts(operands, may_prepack)) for operands in sides]
    return min(found, key=lambda pair: pair[0])


def _all_parts(operands: _Operands, may_prepack: bool) -> Array:
    """The candidates: parts of rows, parts of panels, and the prepacked operand."""
    tiles = min(ceil_div(operands.m, operands.tile.rows), max(_ROW_PARTS))
    panels = min(operands.panels, max(_PARTS))
    prepacks_a = may_prepack and operands.a_is_shared and operands.a_column != 1
    prepacks_b = may_prepack and operands.b_is_shared
    return _parts_up_to(tiles, panels, operands.items > 1, prepacks_a, prepacks_b)


@cache
def _parts_up_to(
    tiles: int, panels: int, is_batched: bool, prepacks_a: bool, prepacks_b: bool
) -> Array:
    found = []
    for rows, columns in (*all_pairs(_PARTS, _PARTS), *((rows, 1) for rows in _ROW_PARTS)):
        if rows > tiles or columns > panels:
            continue
        found.append((rows, columns, _NONE))
        if prepacks_b and (rows > 1 or is_batched):
            found.append((rows, columns, RIGHT))
        if prepacks_a and (columns > 1 or is_batched):
            found.append((rows, columns, LEFT))
    return np.array(found, np.int64)


def _cheapest(operands: _Operands, parts: Array) -> tuple[float, Tiling]:
    """The candidate with the least estimated time, and that time."""
    fields: Leaves = _tilings(operands, *parts.T)
    costs = costs_of(Tiling(*fields), operands.tile)
    least = int(np.argmin(costs))
    chosen = [field[least] if isinstance(field, np.ndarray) else field for field in fields]
    return mean_time(costs[least]), Tiling(*map(int, chosen))


def _tilings(
    operands: _Operands, row_parts: Array, panel_parts: Array, prepacked: object
) -> list[int]:
    """The fields of tilings into so many parts, as arrays where they differ."""
    m, n, k, panels, tile = operands.m, operands.n, operands.k, operands.panels, operands.tile
    part_rows = np.minimum(m, rounded_up(ceil_div(m, row_parts), tile.rows))
    part_panels = ceil_div(panels, panel_parts)
    batched = max(1, min(_CHUNK_WORK // (m * n * k), ceil_div(operands.items, _ENOUGH_CHUNKS)))
    per_chunk = np.where(row_parts * panel_parts == 1, batched, 1)
    a_packing = np.where(prepacked == LEFT, PREPACKED, _packing_of_a(operands, part_panels))
    is_tiled = (a_packing == PACKED_TILES) & (part_panels == panels)
    b_packing = np.where(prepacked == RIGHT, PREPACKED, _packing_of_b(operands, is_tiled))
    blocks = ceil_div(k, _block_depth(operands, a_packing, b_packing))
    depth = np.minimum(k, rounded_up(ceil_div(k, blocks), tile.unrolled))
    packed_row_stride = rounded_up(depth, tile.lanes) + tile.lanes
    is_packed_a = (a_packing == PACKED_ROWS) | (a_packing == PACKED_TILES)
    panel_at = is_packed_a * rounded_up(part_rows, tile.packed_rows) * packed_row_stride
    is_packed = (b_packing == PACKED_ROWS) | (b_packing == PACKED_TRANSPOSED) | (n % tile.lanes > 0)
    transposed_at = panel_at + is_packed * depth * tile.panel
    scratch = transposed_at + operands.transposed * part_rows * part_panels * tile.panel
    return [
        m, n, k, operands.a_row, operands.a_column, operands.b_row, operands.b_column, 0, depth,
        a_packing, b_packing, panels, _last_panel(n, tile), part_rows, part_panels,
        ceil_div(m, part_rows), ceil_div(panels, part_panels), int(operands.transposed),
        operands.items, per_chunk, 0, tile.panel, *_prefetch_lines(operands, b_packing),
        rounded_up(m, tile.packed_rows), packed_row_stride, panel_at, transposed_at, scratch,
    ]  # fmt: skip


def _last_panel(n: int, tile: Tile) -> int:
    """The first column of the last panel, which takes one register of the panel before it if it
    had only one."""
    registers, panels = ceil_div(n, tile.lanes), ceil_div(n, tile.panel)
    lent = tile.lanes if panels > 1 and registers % tile.vectors == 1 else 0
    return int((panels - 1) * tile.panel - lent)


def _packing_of_a(operands: _Operands, part_panels: Array) -> Array | int:
    if operands.a_column == 1:
        is_far = operands.a_row >= _PACKED_A_STRIDE
        return np.where(is_far & (part_panels >= 4), PACKED_ROWS, UNPACKED)
    is_near = operands.a_column <= UNPACKED_A_STRIDE
    return UNPACKED if is_near and operands.m % operands.tile.rows == 0 else PACKED_TILES


def _packing_of_b(operands: _Operands, is_tiled: Array) -> int | Array:
    if operands.b_column != 1:
        return PACKED_TRANSPOSED
    near = np.where(is_tiled, _UNPACKED_B_STRIDE_TILES, UNPACKED_B_STRIDE)
    is_unpacked = (operands.b_row <= near) | (operands.m <= _SKINNY)
    return np.where(is_unpacked, UNPACKED, PACKED_ROWS)


def _block_depth(operands: _Operands, a_packing: object, b_packing: object) -> int | Array:
    """The largest depth of a K block. Of few rows times a weight it is the same for all packings,
    so that a row is accumulated in the same order whatever the number of rows."""
    if _is_few_rows_by_weight(operands):
        return PACKED_DEPTH
    is_packed = packs(a_packing) | packs(b_packing)
    depth = np.where(is_packed, PACKED_DEPTH, _UNPACKED_DEPTH)
    is_near = (a_packing == UNPACKED) & (operands.a_column != 1)
    return np.where(is_near, _NEAR_DEPTH, depth)


def _is_few_rows_by_weight(operands: _Operands) -> bool:
    """Whether both operands are contiguous along K, and C has few rows."""
    rows = operands.n if operands.transposed else operands.m
    is_linear = operands.a_column == 1 and operands.b_row == 1
    return operands.items == 1 and is_linear and rows <= _FEW_ROWS


def _prefetch_lines(operands: _Operands, packing: object) -> tuple[Array, Array]:
    """The stride and the lines of a row with which tiles prefetch the next panel of B: line by line
    if it is prepacked. If its rows are contiguous, row by row, unless these share sets of a cache,
    where they would be evicted before they are packed. Otherwise nothing is prefetched."""
    tile = operands.tile
    is_prefetched = (
        operands.b_column == 1 and operands.b_row * tile.vector.size % machine().critical_stride
    )
    stride, lines = (operands.b_row, tile.vectors) if is_prefetched else (0, 1)
    is_prepacked = packing == PREPACKED
    return np.where(is_prepacked, tile.lanes, stride), np.where(is_prepacked, 1, lines)
