"""The loop nest of a group: its loops, and the pass in which each value is computed.

The outer loops are over the dimensions that are not ``inner``. The inner loops are traversed once,
or once more for every inner reduction whose result later members need: these are the passes. Where
accesses are contiguous along different dimensions, two loops are tiled, and what is read or written
against the order of its memory goes through a transposed copy of the tile.
:class:`~.codegen.emit_loops.LoopEmitter` emits the IR.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from evergrad.compiler.codegen.blocked_sums import ROWS
from evergrad.compiler.codegen.kernel import Chunking
from evergrad.compiler.codegen.loop_accesses import STATUS, Access, LoopAccesses
from evergrad.compiler.native.target import machine
from evergrad.core import dtypes
from evergrad.core.row_facts import Cost, Indexing
from evergrad.core.shapes import contiguous_strides
from evergrad.core.trace import Equation, Var

if TYPE_CHECKING:
    from evergrad.compiler.schedule.def_use import DefUse
    from evergrad.compiler.schedule.nodes import Group

# A chunk is worth claiming if it has about this many elements.
_CHUNK = 8192
_MAX_CHUNKS = 64
_MAX_PARTIALS = 16
_LINE = machine().line_bytes
# The least extents of tiled loops, the iterations of the innermost loop of a tile, and the least of
# the other one: as many more as a cache line has elements.
_LEAST_TILED = 8
_FEW = 16  # iterations of costly loops: fewer are not left innermost
# Elements of a reduction that goes by lanes.
_MOST_IN_LANES = 128
TILE_COLUMNS = 64
_TILE_ROWS = 16


class Loop(NamedTuple):
    """A loop: its extent, and the stride of each access along it."""

    extent: int
    strides: tuple[int, ...]

    def split(self, tile: int) -> tuple[Loop, Loop]:
        """The loop over tiles, and that over the iterations of one. The last tile may be short."""
        over = Loop(-(-self.extent // tile), tuple(tile * stride for stride in self.strides))
        return over, Loop(tile, self.strides)


class LoopNest(LoopAccesses):
    """The loops of one group. ``flat``: there is one loop, over elements, and no outer one."""

    def __init__(
        self,
        group: Group,
        values: DefUse,
        layout: Callable[[Var], object],
        strides: Callable[[Var], tuple[int, ...]],
        stored: set[Var],
    ) -> None:
        super().__init__(group, values, layout, strides, stored)
        # Of tiled loops: the extents of the whole loops. The last two outer ones are over tiles.
        self.tiled_extents: tuple[int, ...] = ()
        self.tile_rows: int = 0  # at most
        # Whether the innermost loop is over outer iterations, for reductions of few elements.
        self.by_lanes: bool = False
        self.arrange()
        self.assign_stages()

    # -- the loops ------------------------------------------------------------------------------

    def arrange(self) -> None:
        """Order the dimensions, outer ones first, and collapse those that are contiguous."""
        group = self.group
        if group.inner is None:
            loops = self.loops_over(sorted(group.dims))
            outer, inner = self.tiled(loops[:-1], loops[-1:])
        else:
            outer = self.loops_over(sorted(group.dims - group.inner))
            inner = self.loops_over(sorted(group.inner))
            if self.suits_lanes(outer, inner):
                outer, inner = self.in_lanes(outer, *inner)
        self.flat: bool = group.inner is None and not outer
        inner = inner or [Loop(1, (0,) * len(self.accesses))]
        self.outer_extents: list[int] = [loop.extent for loop in outer]
        self.inner_extents: list[int] = [loop.extent for loop in inner]
        for number, access in enumerate(self.accesses):
            access.outer = tuple(loop.strides[number] for loop in outer)
            access.inner = tuple(loop.strides[number] for loop in inner)
            if self.tiled_extents and _is_across(access, *access.inner):
                access.stage(TILE_COLUMNS)
        self.outer_size: int = prod(self.outer_extents)
        self.inner_size: int = prod(self.inner_extents)

    def loops_over(self, dims: list[int]) -> list[Loop]:
        """Loops over dimensions, of which contiguous ones are collapsed."""
        shape = self.group.shape
        return [
            Loop(prod(shape[d] for d in dim), tuple(a.strides[dim[-1]] for a in self.accesses))
            for dim in self.collapsed(dims)
        ]

    def tiled(self, outer: list[Loop], inner: list[Loop]) -> tuple[list[Loop], list[Loop]]:
        """Two loops as loops over tiles and the loops of one: the innermost one and another along
        which an access is contiguous that is not along the innermost, or one that is longer than an
        innermost one of few iterations. The longer runs innermost then."""
        if not inner or any(access.lookup is not None for access in self.accesses):
            return outer, inner
        (last,) = inner
        for position in reversed(range(len(outer))):
            loop = outer[position]
            if loop.extent < _LEAST_TILED:
                continue
            rows, columns = loop, last
            if last.extent < _FEW and self.is_costly:
                rows, columns = last, loop
            given = list(zip(self.accesses, rows.strides, columns.strides, strict=True))
            sizes = [
                access.dtype.itemsize for access, *strides in given if _is_across(access, *strides)
            ]
            is_far = any(_is_across(*g) and abs(g[2]) >= _LINE for g in given)
            if rows is last or (is_far and last.extent >= _LEAST_TILED):
                self.tile_rows = max(_TILE_ROWS, _LINE // min(sizes, default=_LINE))
                tiles = min(rows.extent, self.tile_rows), min(columns.extent, TILE_COLUMNS)
                over, within = zip(rows.split(tiles[0]), columns.split(tiles[1]), strict=True)
                self.tiled_extents = rows.extent, columns.extent
                return [*outer[:position], *outer[position + 1 :], *over], [*within]
        return outer, inner

    def suits_lanes(self, outer: list[Loop], inner: list[Loop]) -> bool:
        """Whether the inner loop is short, and strided or shorter than a register, so that
        reductions over it are better computed for many outer iterations at a time."""
        group = self.group
        if group.outer_reductions or group.blocks > 1 or len(inner) != 1 or not outer:
            return False
        if not 1 < inner[0].extent <= _MOST_IN_LANES or outer[-1].extent < _FEW:
            return False
        if any(e.op.indexing is not None or e.op.emit.numbered for e in group.members):
            return False
        if any(access.lookup is not None for access in self.accesses):
            return False
        strides = list(zip(self.accesses, inner[0].strides, outer[-1].strides, strict=True))
        if inner[0].extent > ROWS:
            is_double = any(e.op.combine and e.args[0].type.dtype is dtypes.float64
                            for e in group.members)  # fmt: skip
            return not is_double and any(_is_across(a, lane, k) for a, k, lane in strides)
        is_strided = any(k not in (0, a.dtype.itemsize) for a, k, _ in strides)
        return is_strided or 4 <= inner[0].extent < _FEW or self.is_costly

    @property
    def sums_in_double(self) -> bool:
        """Whether sums that go by lanes are of so many elements that they need more precision."""
        return self.by_lanes and self.inner_extents[0] > ROWS

    def in_lanes(self, outer: list[Loop], inner: Loop) -> tuple[list[Loop], list[Loop]]:
        """The loops with a run of outer iterations as the innermost one: a tile of all the inner
        iterations and of some outer ones."""
        last = outer[-1]
        whole, _ = inner.split(inner.extent)
        over, lanes = last.split(min(last.extent, TILE_COLUMNS))
        self.by_lanes, self.tile_rows = True, _MOST_IN_LANES
        self.tiled_extents = inner.extent, last.extent
        return [*outer[:-1], whole, over], [inner, lanes]

    @cached_property
    def is_costly(self) -> bool:
        """Whether an element costs so much that loops are to be vectorized in any case."""
        is_narrow = any(a.dtype in (dtypes.float16, dtypes.bfloat16) for a in self.accesses)
        return is_narrow or any(eqn.op.emit.cost is Cost.EXPENSIVE for eqn in self.group.members)

    def collapsed(self, dims: list[int]) -> list[list[int]]:
        """Runs of dimensions that every access traverses like one."""
        shape = self.group.shape
        joined: list[list[int]] = []
        for d in dims:
            if joined:
                before = joined[-1][-1]
                if all(a.strides[before] == a.strides[d] * shape[d] for a in self.accesses):
                    joined[-1].append(d)
                    continue
            joined.append([d])
        return joined

    def partition(self) -> tuple[int, int]:
        """The units (outer iterations, or elements) of a chunk, and the chunks of a block. Depends
        on shapes alone, so that results do not depend on the number of threads."""
        units, weight = (self.inner_size, 1) if self.flat else (self.outer_size, self.inner_size)
        blocks = self.group.blocks
        most = _MAX_PARTIALS if self.group.outer_reductions else _MAX_CHUNKS
        wanted = max(1, min(most, units, units * weight * self.passes // _CHUNK))
        units //= blocks
        per_chunk = -(-units // max(1, wanted // blocks))
        if self.flat:
            per_chunk = -(-per_chunk // 64) * 64
        return per_chunk, -(-units // per_chunk)

    def chunking(self, per_chunk: int) -> Chunking | None:
        """How the kernel partitions the domain, if it may be partitioned otherwise."""
        if self.group.blocks > 1 or self.tiled_extents or (STATUS, None) in self.slots:
            return None
        unit, total = (1, self.inner_size) if self.flat else (self.inner_size, self.outer_size)
        return Chunking(unit, total, per_chunk, self.contiguous_slots())

    def contiguous_slots(self) -> frozenset[int]:
        """The pointers to operands that are contiguous in the order of the loops."""
        inner = contiguous_strides(self.inner_extents)
        outer = [self.inner_size * s for s in contiguous_strides(self.outer_extents)]
        found: set[int] = set()
        others: set[int] = set()
        for access in self.accesses:
            size = access.dtype.itemsize
            contiguous = tuple(size * s for s in outer), tuple(size * s for s in inner)
            is_so = access.lookup is None and (access.outer, access.inner) == contiguous
            (found if is_so else others).add(access.slot)
        return frozenset(found - others)

    def is_outer(self, var: Var) -> bool:
        """Whether a value of the group is constant along the inner dimensions."""
        inner = self.group.inner
        return inner is not None and not (self.group.varying(self.group.axes[var]) & inner)

    # -- reductions -----------------------------------------------------------------------------

    def outer_reductions(self) -> list[Equation]:
        """The reductions over outer dimensions: each chunk leaves a partial result."""
        return [e for e in self.group.members if e.outs[0] in self.group.outer_reductions]

    def reduces_full(self, eqn: Equation) -> bool:
        """Whether a reduction is of a value that varies along the inner dimensions."""
        source = self.uses[id(eqn), 0]
        return not isinstance(source, Var) or not self.is_outer(source)

    def keeps_inner(self, eqn: Equation) -> bool:
        """Whether an outer reduction has one result per inner index, rather than one in all."""
        return self.reduces_full(eqn) and eqn.outs[0].type.numel > 1

    def partial_length(self, eqn: Equation) -> int:
        """The elements of a partial result."""
        return self.inner_size if self.keeps_inner(eqn) else 1

    # -- passes ---------------------------------------------------------------------------------

    def assign_stages(self) -> None:
        """``stage``: the pass that computes a full value, or after which an outer one is known."""
        self.stage: dict[Var, int] = {}
        for eqn in self.group.members:
            out = eqn.outs[0]
            if eqn.op.combine:
                self.stage[out] = self.stage_of_operand(eqn, 0)
                continue
            is_outer = self.is_outer(out) and eqn.op.indexing is not Indexing.LOOKUP
            stage = -1 if is_outer else 0
            for number in range(len(eqn.args)):
                source = self.uses[id(eqn), number]
                if not isinstance(source, Var):
                    continue
                ready = self.stage[source]
                if is_outer and not self.is_outer(source):
                    ready -= 1  # one element of it, computed from outer values known by then
                elif not is_outer and self.is_outer(source):
                    ready += 1
                stage = max(stage, ready)
            self.stage[out] = stage
        self.passes: int = 1 + max(
            [self.stage[e.outs[0]] for e in self.group.members
             if not self.is_outer(e.outs[0]) or e.op.combine],
            default=-1,
        )  # fmt: skip
        self.choose_scratch()

    def stage_of_operand(self, eqn: Equation, number: int) -> int:
        source = self.uses[id(eqn), number]
        return self.stage[source] if isinstance(source, Var) else 0

    def choose_scratch(self) -> None:
        """Choose the full values that are kept in scratch memory between passes: those that are
        expensive to recompute."""
        self.scratch: dict[Var, int] = {}
        last_use = self.last_uses()
        for eqn in self.group.members:
            out = eqn.outs[0]
            if eqn.op.combine or self.is_outer(out) or out in self.stores:
                continue
            if eqn.op.emit.cost is not Cost.EXPENSIVE:
                continue
            if last_use.get(out, -1) > self.stage[out]:
                self.scratch[out] = len(self.scratch)

    def last_uses(self) -> dict[Var, int]:
        """For each full value the last pass that needs it, directly or to recompute another."""
        last: dict[Var, int] = {}
        for eqn in reversed(self.group.members):
            out = eqn.outs[0]
            stage = -1
            if eqn.op.combine or out in self.stores:
                stage = self.stage[out]
            if not eqn.op.combine and not self.is_outer(out):
                stage = max(self.stage[out], last.get(out, -1))
            for number in range(len(eqn.args)):
                source = self.uses[id(eqn), number]
                if isinstance(source, Var):
                    last[source] = max(last.get(source, -1), stage)
        return last


def _is_across(access: Access, along: int, across: int) -> bool:
    """Whether an access is contiguous along the rows of a tile and not along its columns."""
    return along == access.dtype.itemsize and abs(across) > along
