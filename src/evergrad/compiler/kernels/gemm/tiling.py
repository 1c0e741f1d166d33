"""How a product of our own kernels is cut and packed: the one place where that is decided.

Every way to cut a product is given a time, made of measured times of its parts, for teams of
several sizes; the best one on the whole is taken. It depends on extents and steps alone, so that
results do not depend on the team.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product as all_pairs
from typing import NamedTuple

from evergrad.compiler.kernels.gemm.microkernel import Tile
from evergrad.compiler.kernels.gemm.problem import Product
from evergrad.compiler.native.target import machine

# How operands are taken: as they lie, copied in rows, transposed, dealt out to tiles, or laid out
# by a kernel of its own before the product.
AS_IT_LIES, COPIED, TRANSPOSED, DEALT_OUT, PREPARED = range(5)
# The operands, as tiles see them.
LEFT, RIGHT = range(2)

# The depth of blocks: if nothing is packed in a piece, else, and for A whose columns lie in order
# and are near.
_DEPTH = 1024
_PACKED_DEPTH = 512
_NEAR_DEPTH = 256
# Operands up to these steps are multiplied as they lie: A whose columns lie in order (further apart
# they often fall on the same places of a cache), B, and B beside A that is dealt out once, whose
# blocks are less deep.
NEAR_COLUMNS = 128
NEAR_ROWS = 256
_NEAR_DEALT = 384
# With so few rows, packing B would take longer than multiplying.
_FEW = 16
# Rows of A further apart than this fall on the same places of a cache.
_FAR = 2048
# C is computed transposed only if it, or its transpose, has no more rows than this.
_FLAT = 384
# Nanoseconds for the products of a register; for four bytes that are copied, transposed, dealt out
# to tiles or stored for later, more if they come from further away than the second cache; of a
# panel of B for a piece; of A when it first comes from further away, and for a further panel; of C
# for a block of the depth, and if many rows of it, pages apart, are written in turn with too little
# depth to wait for them; of B that is copied without having been asked for; and for a piece. Fitted
# to measured times of many cuts, to about 10 %; those of A, of rows apart and of a piece were set
# by hand so that the cuts measured as best are chosen.
_MULTIPLY, _COPY, _TRANSPOSE, _DEAL, _STORE, _FETCH = 0.24, 0.12, 0.17, 0.25, 0.12, 0.33
_TAKE, _TAKE_FAR, _STREAM, _AGAIN, _SUM, _SUM_FAR = 0.05, 0.32, 0.15, 0.05, 0.14, 0.27
_SCATTERED, _MANY_ROWS, _SHALLOW, _UNASKED = 0.4, 32, 64, 0.1
_CLAIM = 500.0
_SECOND_CACHE = machine().l2_bytes
# As much of B, multiplied as it lies, comes in time since tiles ask for it.
_STILL_NEAR = 2 * machine().l2_bytes
# As much of A as stays there beside panels of B and C; of a deep block more, as it has fewer rows.
_HELD, _HELD_DEEP = 3 * machine().l2_bytes // 8, machine().l2_bytes // 2
# How often the time of a team of so many threads counts.
_TEAMS = {1: 3, 2: 3, 8: 1}
# Into how many parts rows and panels are cut, and rows alone.
_PARTS = (1, 2, 3, 4, 6, 8)
_ROW_PARTS = (12, 16, 32, 64)
# Products of a batch are put together into pieces of so many multiplications, but not too few.
_PIECE = 1 << 21
_ENOUGH_PIECES = 8
# Rows of so many bytes stay in cache while a loop goes over them and over what else it needs, and
# to spare the memory they would take is worth a product that takes so many times as long.
_HOT = machine().l2_bytes // 2
_AS_GOOD = 1.1


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
    panel: int  # the columns of a panel
    next_step: int  # from line to line of the next panel of B, as tiles ask for it
    next_lines: int  # side by side in a row of it
    dealt_rows: int  # of A, in whole steps of packing
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
    def prepared(self) -> list[int]:
        """Which operands are laid out before."""
        ways = {LEFT: self.a_way, RIGHT: self.b_way}
        return [side for side, way in ways.items() if way == PREPARED]

    def laid_out(self, side: int) -> int:
        """The elements of an operand that is laid out before."""
        across = self.dealt_rows if side == LEFT else self.panels * self.panel
        return self.blocks * self.depth * across

    def number_of(self, side: int) -> int:
        """Which factor of the product (0 or 1) an operand is."""
        return side ^ self.flipped


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


def cut_of(
    product: Product, tile: Tile, leading: int, may_prepare: bool, more: bool = False
) -> Cut:
    """The best way to cut a product; C has a leading extent."""
    sides = [_sides(product, tile, False)]
    if _may_flip(sides[0]) and not more:
        sides.append(_sides(product, tile, True))
    return _best(tuple(sides), may_prepare)._replace(c_row=leading, more=int(more))


def row_cut_of(product: Product, tile: Tile) -> Cut | None:
    """The best way to cut a product into rows of C that stay in cache until they are read again;
    ``None`` if other cuts are much better."""
    sides = _sides(product, tile, False)
    cuts = [
        _cut(sides, parts, 1, prepared)
        for parts in _parts_in_cache(sides)
        for prepared in (None, RIGHT)
    ]
    if not cuts:
        return None
    found = min(cuts, key=lambda cut: _time(cut, sides))
    best = cut_of(product, tile, product.n, may_prepare=True)
    least = _time(best, _sides(product, tile, bool(best.flipped)))
    return found._replace(c_row=product.n) if _time(found, sides) <= _AS_GOOD * least else None


def _parts_in_cache(sides: _Sides) -> set[int]:
    """Into how many parts rows of C may be cut so that a part stays in cache."""
    tile = sides.tile
    most = _HOT // (sides.n * tile.vector.size)
    step = tile.dealt if most >= tile.dealt else tile.rows
    wanted = [max(sides.m // pieces, step) for pieces in (_ENOUGH_PIECES, 2 * _ENOUGH_PIECES)]
    heights = [min(most, rows) // step * step for rows in wanted]
    parts = {_ceil(sides.m, rows) for rows in heights if rows}
    if step == tile.dealt:  # of an odd number, one thread of two would have one more
        parts |= {_ceil(4 * count, 3) for count in parts if count % 2}
    return {count for count in parts if count >= _ENOUGH_PIECES}


def _sides(product: Product, tile: Tile, flipped: bool) -> _Sides:
    assert product.a is not None and product.b is not None
    a, b = product.a.steps, product.b.steps
    m, n, k = product.m, product.n, product.k
    shared = not any(product.a_steps), not any(product.b_steps)
    if flipped:
        m, n, a, b, shared = n, m, b[::-1], a[::-1], shared[::-1]
    fitting = _fitting(tile, n, a[1])
    return _Sides(m, n, k, *a, *b, flipped, product.items, *shared, fitting)


def _fitting(tile: Tile, n: int, a_column: int) -> Tile:
    """The tile that takes a row of C as a whole, if rows of A lie in order."""
    wide = tile.wide
    return wide if wide and a_column == 1 and tile.panel < n <= wide.panel else tile


def _may_flip(sides: _Sides) -> bool:
    """Whether the transposed product may spare packing: the transposing of a large B, dealing a
    large A out, or copying a large B where a small A could be taken as it lies."""
    if sides.a_column == 1:
        return sides.b_column != 1 and sides.m <= _FLAT
    return sides.b_column == 1 and min(sides.m, sides.n) <= _FLAT and sides.m != sides.n


@cache
def _best(sides: tuple[_Sides, ...], may_prepare: bool) -> Cut:
    cuts = [(cut, side) for side in sides for cut in _all_cuts(side, may_prepare)]
    return min(cuts, key=lambda pair: _time(*pair))[0]


def _all_cuts(sides: _Sides, may_prepare: bool) -> Iterator[Cut]:
    can_prepare_a = may_prepare and sides.a_is_shared and sides.a_column != 1
    can_prepare_b = may_prepare and sides.b_is_shared
    tiles = _ceil(sides.m, sides.tile.rows)
    parts = [*all_pairs(_PARTS, _PARTS), *((rows, 1) for rows in _ROW_PARTS)]
    for row_parts, panel_parts in parts:
        if row_parts > tiles or panel_parts > sides.panels:
            continue
        yield _cut(sides, row_parts, panel_parts)
        if can_prepare_b and row_parts * sides.items > 1:
            yield _cut(sides, row_parts, panel_parts, prepared=RIGHT)
        if can_prepare_a and panel_parts * sides.items > 1:
            yield _cut(sides, row_parts, panel_parts, prepared=LEFT)


def _cut(sides: _Sides, row_parts: int, panel_parts: int, prepared: int | None = None) -> Cut:
    m, n, k, panels, tile = sides.m, sides.n, sides.k, sides.panels, sides.tile
    part_rows = min(m, _rounded(_ceil(m, row_parts), tile.rows))
    part_panels = _ceil(panels, panel_parts)
    per_chunk = 1
    if row_parts * panel_parts == 1:
        per_chunk = max(1, min(_PIECE // (m * n * k), _ceil(sides.items, _ENOUGH_PIECES)))
    a_way = PREPARED if prepared == LEFT else _way_of_a(sides, part_panels)
    is_dealt = a_way == DEALT_OUT and part_panels == panels
    b_way = PREPARED if prepared == RIGHT else _way_of_b(sides, is_dealt)
    # In whole steps of the unrolled loop.
    depth = min(k, _rounded(_ceil(k, _ceil(k, _deepest(sides, a_way, b_way))), tile.unrolled))
    copy_row = _rounded(depth, tile.lanes) + tile.lanes
    panel_at = _rounded(part_rows, tile.dealt) * copy_row if a_way in (COPIED, DEALT_OUT) else 0
    is_packed = b_way in (COPIED, TRANSPOSED) or n % tile.lanes
    aside_at = panel_at + (depth * tile.panel if is_packed else 0)
    scratch = aside_at + (part_rows * part_panels * tile.panel if sides.flipped else 0)
    return Cut(
        m, n, k, sides.a_row, sides.a_column, sides.b_row, sides.b_column, 0, depth, a_way, b_way,
        panels, _last_panel(n, tile), part_rows, part_panels, _ceil(m, part_rows),
        _ceil(panels, part_panels), int(sides.flipped), sides.items, per_chunk, 0, tile.panel,
        *_next_lines(sides, b_way), _rounded(m, tile.dealt), copy_row, panel_at, aside_at, scratch,
    )  # fmt: skip


def _last_panel(n: int, tile: Tile) -> int:
    """Where the last panel begins: if it had one register only, the one before gives it one."""
    registers, panels = _ceil(n, tile.lanes), _ceil(n, tile.panel)
    lent = tile.lanes if panels > 1 and registers % tile.vectors == 1 else 0
    return (panels - 1) * tile.panel - lent


def _way_of_a(sides: _Sides, part_panels: int) -> int:
    if sides.a_column == 1:
        return COPIED if sides.a_row >= _FAR and part_panels >= 4 else AS_IT_LIES
    is_near = sides.a_column <= NEAR_COLUMNS
    return AS_IT_LIES if is_near and sides.m % sides.tile.rows == 0 else DEALT_OUT


def _way_of_b(sides: _Sides, is_dealt: bool) -> int:
    if sides.b_column != 1:
        return TRANSPOSED
    near = _NEAR_DEALT if is_dealt else NEAR_ROWS
    return AS_IT_LIES if sides.b_row <= near or sides.m <= _FEW else COPIED


def _deepest(sides: _Sides, a_way: int, b_way: int) -> int:
    """How deep a block may be."""
    if a_way == AS_IT_LIES and sides.a_column != 1:
        return _NEAR_DEPTH
    is_packed = a_way in (COPIED, DEALT_OUT) or b_way in (COPIED, TRANSPOSED)
    return _PACKED_DEPTH if is_packed else _DEPTH


def _next_lines(sides: _Sides, way: int) -> tuple[int, int]:
    """How tiles ask for the next panel of B: line by line if it is prepared. If its rows lie in
    order, row by row, unless they fall on the same places of a cache, where they would not stay
    until they are packed. Otherwise not at all."""
    tile = sides.tile
    if way == PREPARED:
        return tile.lanes, 1
    is_asked = sides.b_column == 1 and sides.b_row * tile.vector.size % machine().critical_stride
    return (sides.b_row, tile.vectors) if is_asked else (0, 1)


def _time(cut: Cut, sides: _Sides) -> float:
    """The mean (a geometric one) of the times that teams of several sizes take."""
    clock = _Clock(cut, sides.tile)
    piece = clock.piece() * clock.filled * cut.per_chunk + _CLAIM
    before = clock.preparation()
    total = 1.0
    for team, count in _TEAMS.items():
        total *= (_ceil(cut.chunks, team) * piece + before / team) ** count
    return float(total ** (1 / sum(_TEAMS.values())))


class _Clock:
    """How long the parts of a cut product take."""

    def __init__(self, cut: Cut, tile: Tile) -> None:
        self.cut = cut
        self.tile = tile
        self.rows = _rounded(cut.part_rows, tile.rows)
        self.panels = min(cut.part_panels, cut.panels)
        self.columns = min(self.panels * tile.panel, _rounded(cut.n, tile.lanes))

    @property
    def filled(self) -> float:
        """How much of a whole piece is in one on the average: those at the end are smaller."""
        cut = self.cut
        rows, panels = cut.row_parts * cut.part_rows, cut.panel_parts * cut.part_panels
        return cut.m / rows * cut.panels / panels

    def words(self, rows: int, columns: int) -> float:
        """The size of a matrix, in four bytes."""
        return rows * columns * self.tile.vector.size / 4

    def is_far(self, rows: int, columns: int, room: int = _SECOND_CACHE) -> bool:
        """Whether a matrix does not stay in the second cache, or a part of it."""
        return 4 * self.words(rows, columns) > room

    def packing(self, way: float, rows: int, of_rows: int) -> float:
        """The time to pack so many rows (or columns) of an operand that has more of them."""
        fetch = _FETCH if self.is_far(of_rows, self.cut.k) else 0
        return self.words(rows, self.cut.k) * (way + fetch)

    @property
    def pack_b(self) -> float:
        return _COPY if self.cut.b_column == 1 else _TRANSPOSE

    @property
    def unasked(self) -> float:
        """What four bytes of B take longer that are far away and not asked for before."""
        cut = self.cut
        is_asked = cut.next_step or not self.is_far(cut.n, cut.k)
        return 0 if is_asked or cut.b_column != 1 else _UNASKED

    def preparation(self) -> float:
        """The time to lay operands out before."""
        cut, time = self.cut, 0.0
        for side in cut.prepared:
            across, way = (cut.m, _DEAL) if side == LEFT else (cut.n, self.pack_b)
            time += self.packing(way + _STORE, across, across) + _CLAIM
        return time

    def streaming(self) -> float:
        """The time in which A of a piece comes from further away than the second cache."""
        cut = self.cut
        is_packed = cut.a_way in (COPIED, DEALT_OUT)
        first = 0 if is_packed or not self.is_far(cut.m, cut.k) else _STREAM
        held = _HELD_DEEP if cut.depth > _PACKED_DEPTH else _HELD
        again = _AGAIN * (self.panels - 1) if self.is_far(self.rows, cut.depth, held) else 0
        return self.words(self.rows, cut.k) * (first + again)

    @property
    def per_sum(self) -> float:
        """The time in which four bytes of C are written."""
        cut = self.cut
        time = _SUM_FAR if self.is_far(cut.m, cut.n) else _SUM
        is_apart = cut.n * self.tile.vector.size >= machine().page_bytes and self.is_far(
            cut.m, cut.n, _HELD
        )
        waits = self.rows > _MANY_ROWS and cut.depth <= _SHALLOW
        return time + _SCATTERED if is_apart and waits else time

    def piece(self) -> float:
        """The time of one piece of one product."""
        cut, words = self.cut, self.words
        # Tiles of one register wait for what they load.
        slow = 2 if cut.n <= self.tile.lanes else 1
        time = self.rows * self.columns / self.tile.lanes * cut.k * _MULTIPLY * slow
        time += self.streaming()
        if cut.a_way == DEALT_OUT:
            time += self.packing(_DEAL, _rounded(self.rows, self.tile.dealt), cut.m)
        elif cut.a_way == COPIED:
            time += self.packing(_COPY, self.rows, cut.m)
        if cut.b_way in (COPIED, TRANSPOSED):
            time += self.packing(self.pack_b + self.unasked, self.columns, cut.n)
        else:
            # What was prepared is asked for before it is needed, and a shallow block stays near.
            is_dealt = cut.a_way == DEALT_OUT and cut.panel_parts == 1
            is_asked = cut.b_way == PREPARED or is_dealt
            is_far = not is_asked and self.is_far(cut.n, cut.k, _STILL_NEAR)
            take = _TAKE_FAR if is_far else _TAKE
            time += words(self.columns, cut.k) * take
        time += words(self.rows, self.columns) * self.per_sum * cut.blocks
        if cut.flipped:
            time += words(self.rows, self.columns) * (_STORE + _TRANSPOSE)
        return time
