"""How a product of our own kernels is cut and packed: the one place where that is decided.

Every way to cut a product is given a time, made of measured times of its parts, for teams of
several sizes; the best one on the whole is taken. It depends on extents and steps alone, so that
results do not depend on the team.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from evergrad.compiler.gemm_product import Matrix, Product
from evergrad.compiler.gemm_strip import DEALT, LANES, ROWS, UNROLLED, VECTORS

# How operands are taken: as they lie, copied in rows, transposed, dealt out to tiles, or laid out
# by a kernel of its own before the product.
AS_IT_LIES, COPIED, TRANSPOSED, DEALT_OUT, PREPARED = range(5)
PANEL = VECTORS * LANES

# The depth of blocks, for A whose rows lie in order and for A that is dealt out.
_DEPTH = 512
_DEALT_DEPTH = 256
# Operands up to these steps and depths are multiplied as they lie.
_NEAR = 256
# With so few rows, packing B would take longer than multiplying.
_FEW = 16
# Rows of A further apart than this fall on the same places of a cache.
_FAR = 2048
# C is computed transposed only if it has no more rows than this.
_FLAT = 256
# Nanoseconds for a multiplication; for an element that is packed, that is dealt out, more if it
# comes from further away than the second cache, that is read for each panel or part (again more
# from further away), or that is written out and read again; and for a piece.
_MULTIPLY, _PACK, _DEAL, _FETCH, _READ, _STORE, _CLAIM = 1 / 60, 0.2, 0.3, 0.3, 0.05, 0.2, 500.0
_SECOND_CACHE = 1 << 20
# How often the time of a team of so many threads counts.
_TEAMS = {1: 3, 2: 3, 8: 1}
# Into how many parts rows and panels are cut.
_PARTS = (1, 2, 3, 4, 6, 8)
# Products of a batch are put together into pieces of so many multiplications, but not too few.
_PIECE = 1 << 21
_ENOUGH_PIECES = 8


class Cut(NamedTuple):
    """What is decided for a product: the steps through its operands, and its pieces. A and B are
    exchanged if it is ``flipped``: then C is computed transposed."""

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
    flipped: int
    items: int
    per_chunk: int
    more: int  # add to C
    copy_row: int  # from row to row of the copy of A
    panel_at: int  # where the scratch memory has the panel of B
    aside_at: int  # and the transposed part of C
    scratch: int  # elements

    @property
    def chunks(self) -> int:
        return -(-self.items // self.per_chunk) * self.row_parts * self.panel_parts

    @property
    def blocks(self) -> int:
        return -(-self.k // self.depth)

    @property
    def prepared(self) -> int:
        """The elements of B when it is laid out before."""
        return self.blocks * self.panels * self.depth * PANEL


class _Sides(NamedTuple):
    """The extents of a product and the steps of its sides, A on the left of tiles."""

    m: int
    n: int
    k: int
    a_row: int
    a_column: int
    b_row: int
    b_column: int
    flipped: bool
    items: int
    is_shared: bool  # B is the same in the whole batch

    @property
    def panels(self) -> int:
        return _ceil(self.n, PANEL)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _rounded(a: int, step: int) -> int:
    return _ceil(a, step) * step


def cut_of(product: Product, leading: int, may_prepare: bool, more: bool = False) -> Cut:
    """The best way to cut a product; C has a leading extent."""
    sides = [_sides(product, False)]
    if _may_flip(sides[0]) and not more:
        sides.append(_sides(product, True))
    return _best(tuple(sides), may_prepare)._replace(c_row=leading, more=int(more))


def _sides(product: Product, flipped: bool) -> _Sides:
    assert product.a is not None and product.b is not None
    a, b = _steps(product.a), _steps(product.b)
    m, n, k = product.m, product.n, product.k
    is_shared = not any(product.a_steps if flipped else product.b_steps)
    if flipped:
        return _Sides(n, m, k, *b[::-1], *a[::-1], True, product.items, is_shared)
    return _Sides(m, n, k, *a, *b, False, product.items, is_shared)


def _steps(matrix: Matrix) -> tuple[int, int]:
    return (1, matrix.leading) if matrix.transposed else (matrix.leading, 1)


def _may_flip(sides: _Sides) -> bool:
    """Whether the transposed product spares the transposing of a large B."""
    return sides.a_column == 1 and sides.b_column != 1 and sides.m <= _FLAT


@cache
def _best(sides: tuple[_Sides, ...], may_prepare: bool) -> Cut:
    cuts = [cut for side in sides for cut in _all_cuts(side, may_prepare)]
    return min(cuts, key=_time)


def _all_cuts(sides: _Sides, may_prepare: bool) -> Iterator[Cut]:
    can_prepare = may_prepare and sides.is_shared
    for row_parts in [p for p in _PARTS if p <= _ceil(sides.m, ROWS)]:
        for panel_parts in [p for p in _PARTS if p <= sides.panels]:
            yield _cut(sides, row_parts, panel_parts, False)
            if can_prepare and row_parts * sides.items > 1:
                yield _cut(sides, row_parts, panel_parts, True)


def _cut(sides: _Sides, row_parts: int, panel_parts: int, is_prepared: bool) -> Cut:
    m, n, k, panels = sides.m, sides.n, sides.k, sides.panels
    # In whole steps of the unrolled loop.
    deepest = _DEPTH if sides.a_column == 1 else _DEALT_DEPTH
    depth = min(k, _rounded(_ceil(k, _ceil(k, deepest)), UNROLLED))
    part_rows = min(m, _rounded(_ceil(m, row_parts), ROWS))
    part_panels = _ceil(panels, panel_parts)
    per_chunk = 1
    if row_parts * panel_parts == 1:
        per_chunk = max(1, min(_PIECE // (m * n * k), _ceil(sides.items, _ENOUGH_PIECES)))
    a_way = _way_of_a(sides, part_panels)
    b_way = PREPARED if is_prepared else _way_of_b(sides)
    copy_row = _rounded(depth, LANES) + LANES
    panel_at = 0 if a_way == AS_IT_LIES else _rounded(part_rows, DEALT) * copy_row
    aside_at = panel_at + (depth * PANEL if b_way in (COPIED, TRANSPOSED) else 0)
    scratch = aside_at + (part_rows * part_panels * PANEL if sides.flipped else 0)
    return Cut(
        m, n, k, sides.a_row, sides.a_column, sides.b_row, sides.b_column, 0, depth, a_way, b_way,
        panels, _last_panel(n), part_rows, part_panels, _ceil(m, part_rows),
        _ceil(panels, part_panels), int(sides.flipped), sides.items, per_chunk, 0, copy_row,
        panel_at, aside_at, scratch,
    )  # fmt: skip


def _last_panel(n: int) -> int:
    """Where the last panel begins: if it had one register only, the one before gives it one."""
    registers, panels = _ceil(n, LANES), _ceil(n, PANEL)
    lent = LANES if panels > 1 and registers % VECTORS == 1 else 0
    return (panels - 1) * PANEL - lent


def _way_of_a(sides: _Sides, part_panels: int) -> int:
    if sides.a_column == 1:
        return COPIED if sides.a_row >= _FAR and part_panels >= 4 else AS_IT_LIES
    is_near = max(sides.a_column, sides.k) <= _NEAR
    return AS_IT_LIES if is_near and sides.m % ROWS == 0 else DEALT_OUT


def _way_of_b(sides: _Sides) -> int:
    if sides.b_column != 1:
        return TRANSPOSED
    is_near = max(sides.b_row, sides.k) <= _NEAR
    return AS_IT_LIES if is_near or sides.m <= _FEW else COPIED


def _time(cut: Cut) -> float:
    """A mean of the times that teams of several sizes take."""
    piece = _piece_time(cut) * cut.per_chunk + _CLAIM
    before = 0.0
    if cut.b_way == PREPARED:
        far = 3 * _FETCH if _is_far(cut.n, cut.k) else 0
        before = cut.n * cut.k * (_packing(cut.n, cut.k) + _STORE + far) + _CLAIM
    total = 1.0
    for team, count in _TEAMS.items():
        total *= (_ceil(cut.chunks, team) * piece + before / team) ** count
    return total


def _piece_time(cut: Cut) -> float:
    """The time of one piece of one product."""
    rows = _rounded(cut.part_rows, ROWS)
    panels = min(cut.part_panels, cut.panels)
    columns = min(panels * PANEL, _rounded(cut.n, LANES))
    # Tiles of one register wait for what they load.
    slow = 2 if cut.n <= LANES else 1
    time = rows * columns * cut.k * _MULTIPLY * slow
    time += rows * cut.k * panels * _reading(rows, cut.depth)
    if cut.a_way == DEALT_OUT:
        time += _rounded(rows, DEALT) * cut.k * _packing(cut.m, cut.k, _DEAL)
    elif cut.a_way == COPIED:
        time += rows * cut.k * _packing(cut.m, cut.k)
    else:
        time += rows * cut.k * _reading(cut.m, cut.k)
    if cut.b_way in (COPIED, TRANSPOSED):
        time += columns * cut.k * _packing(cut.n, cut.k)
    else:
        time += columns * cut.k * 2 * _reading(cut.n, cut.k)
    if cut.flipped:
        time += rows * columns * (_STORE + _PACK)
    return time


def _is_far(rows: int, columns: int) -> bool:
    """Whether so many elements do not stay in the second cache."""
    return 4 * rows * columns > _SECOND_CACHE


def _packing(rows: int, columns: int, near: float = _PACK) -> float:
    """For an element of a matrix of this size."""
    return near + (_FETCH if _is_far(rows, columns) else 0)


def _reading(rows: int, columns: int) -> float:
    """For an element of a matrix of this size."""
    return _READ * (3 if _is_far(rows, columns) else 1)
