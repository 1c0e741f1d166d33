"""The cost model of tilings: estimated times of their parts, fitted to measured ones.

The fields of a tiling are arrays here, with an element for each candidate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.kernels.gemm.microkernel import Tile
from evergrad.compiler.kernels.gemm.packing import (
    PACKED_DEPTH,
    PACKED_ROWS,
    PACKED_TILES,
    PREPACKED,
    packs,
)
from evergrad.compiler.native.target import machine

if TYPE_CHECKING:
    from evergrad.compiler.kernels.gemm.tiling import Tiling
    from evergrad.core.types import Array

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


def ceil_div(a: Any, b: Array | int) -> Any:
    return -(-a // b)


def rounded_up(a: object, step: int) -> Array | int:
    result: Array | int = ceil_div(a, step) * step
    return result


def costs_of(tilings: Tiling, tile: Tile) -> Array:
    """The products of the times with several numbers of threads, of which the roots are the
    geometric means."""
    costs = _CostModel(tilings, tile)
    chunk = costs.chunk() * costs.filled * tilings.per_chunk + _CLAIM
    before = costs.prepacking()
    total: Any = 1.0
    for threads, count in _THREADS.items():
        time = ceil_div(tilings.chunks, threads) * chunk + before / threads
        for _ in range(count):
            total = total * time
    result: Array = total
    return result


def mean_time(cost: float) -> float:
    """The geometric mean of the times."""
    return float(float(cost) ** (1 / sum(_THREADS.values())))


class _CostModel:
    """Estimated times of the parts of tiled products, in nanoseconds."""

    def __init__(self, tilings: Tiling, tile: Tile) -> None:
        self.tilings = tilings
        self.tile = tile
        self.rows = rounded_up(tilings.part_rows, tile.rows)
        self.panels = np.minimum(tilings.part_panels, tilings.panels)
        self.columns = np.minimum(self.panels * tile.panel, rounded_up(tilings.n, tile.lanes))

    @property
    def filled(self) -> float:
        """The mean size of a chunk relative to a whole one: those at the edges are smaller."""
        tilings = self.tilings
        rows = tilings.row_parts * tilings.part_rows
        return tilings.m / rows * tilings.panels / (tilings.panel_parts * tilings.part_panels)

    def words(self, rows: Any, columns: Any) -> Any:
        """The size of a matrix in words of four bytes."""
        return rows * columns * self.tile.vector.size / 4

    def is_far(self, rows: object, columns: object, room: object = _L2) -> Array | bool:
        """Whether a matrix does not stay in L2, or in a part of it."""
        result: Array | bool = 4 * self.words(rows, columns) > room
        return result

    def packing(self, packing: float, rows: object, of_rows: int) -> Array | float:
        """The time to pack so many rows (or columns) of an operand that has more of them."""
        fetch = _FETCH if self.is_far(of_rows, self.tilings.k) else 0
        result: Array | float = self.words(rows, self.tilings.k) * (packing + fetch)
        return result

    @property
    def pack_b(self) -> float:
        return _COPY if self.tilings.b_column == 1 else _TRANSPOSE

    @property
    def unprefetched(self) -> Any:
        """The extra time of four bytes of B that come from beyond L2 without being prefetched."""
        tilings = self.tilings
        if tilings.b_column != 1 or not self.is_far(tilings.n, tilings.k):
            return 0.0
        return np.where(tilings.prefetch_stride != 0, 0.0, _UNPREFETCHED)

    def prepacking(self) -> Array:
        """The time to prepack operands."""
        tilings = self.tilings
        left = self.packing(_PACK_TILES + _STORE, tilings.m, tilings.m) + _CLAIM
        right = self.packing(self.pack_b + _STORE, tilings.n, tilings.n) + _CLAIM
        is_left, is_right = tilings.a_packing == PREPACKED, tilings.b_packing == PREPACKED
        return np.where(is_left, left, 0.0) + np.where(is_right, right, 0.0)

    def streaming(self) -> Array:
        """The time in which A of a chunk comes from beyond L2."""
        tilings = self.tilings
        is_packed = (tilings.a_packing == PACKED_ROWS) | (tilings.a_packing == PACKED_TILES)
        stream = _STREAM_A if self.is_far(tilings.m, tilings.k) else 0.0
        held = np.where(tilings.depth > PACKED_DEPTH, _DEEP_A_IN_L2, _A_IN_L2)
        is_reread = self.is_far(self.rows, tilings.depth, held)
        reread = np.where(is_reread, _REREAD_A * (self.panels - 1), 0.0)
        result: Array = self.words(self.rows, tilings.k) * (
            np.where(is_packed, 0.0, stream) + reread
        )
        return result

    @property
    def c_time(self) -> float | Array:
        """The time to write four bytes of C."""
        tilings = self.tilings
        time = _WRITE_C_FAR if self.is_far(tilings.m, tilings.n) else _WRITE_C
        row_bytes = tilings.n * self.tile.vector.size
        if row_bytes < machine().page_bytes or not self.is_far(tilings.m, tilings.n, _A_IN_L2):
            return time
        waits = (self.rows > _MANY_ROWS) & (tilings.depth <= _SHALLOW)
        return np.where(waits, time + _SCATTERED, time)

    def chunk(self) -> Array:
        """The time of one chunk of one product."""
        tilings, words = self.tilings, self.words
        # Tiles of one register are bound by the latency of loads.
        slow = 2 if tilings.n <= self.tile.lanes else 1
        time = self.rows * self.columns / self.tile.lanes * tilings.k * _MULTIPLY * slow
        time = time + self.streaming() + self.packing_of_a() + self.reading_of_b()
        time = time + words(self.rows, self.columns) * self.c_time * tilings.blocks
        if tilings.transposed:
            time = time + words(self.rows, self.columns) * (_STORE + _TRANSPOSE)
        result: Array = time
        return result

    def packing_of_a(self) -> Array:
        """The time in which a chunk packs A."""
        tilings = self.tilings
        padded = rounded_up(self.rows, self.tile.packed_rows)
        in_tiles = self.packing(_PACK_TILES, padded, tilings.m)
        in_rows = self.packing(_COPY, self.rows, tilings.m)
        packed = np.where(tilings.a_packing == PACKED_ROWS, in_rows, 0.0)
        return np.where(tilings.a_packing == PACKED_TILES, in_tiles, packed)

    def reading_of_b(self) -> Array:
        """The time in which a chunk packs or reads B. What is prepacked is prefetched, and a
        shallow block stays in L2."""
        tilings = self.tilings
        is_tiled = (tilings.a_packing == PACKED_TILES) & (tilings.panel_parts == 1)
        is_prefetched = (tilings.b_packing == PREPACKED) | is_tiled
        is_far = ~is_prefetched & self.is_far(tilings.n, tilings.k, _PREFETCHED_B)
        read = self.words(self.columns, tilings.k) * np.where(is_far, _READ_B_FAR, _READ_B)
        packed = self.packing(self.pack_b + self.unprefetched, self.columns, tilings.n)
        return np.where(packs(tilings.b_packing), packed, read)
