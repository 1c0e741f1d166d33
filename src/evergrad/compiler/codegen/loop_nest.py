"""The loop nest of a group: its loops, and the pass in which each value is computed.

The outer loops are over the dimensions that are not ``inner``. The inner loops are traversed once,
or once more for every inner reduction whose result later members need: these are the passes.
:class:`~.codegen.emit_loops.LoopEmitter` emits the IR.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING

from evergrad.compiler.codegen.kernel import Chunking
from evergrad.compiler.codegen.loop_accesses import STATUS, LoopAccesses
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


class LoopNest(LoopAccesses):
    """The loops of one group. ``flat``: there is one loop, over elements, and no outer one."""

    inner_dims: list[list[int]]
    outer_dims: list[list[int]]

    def __init__(
        self,
        group: Group,
        values: DefUse,
        layout: Callable[[Var], object],
        strides: Callable[[Var], tuple[int, ...]],
        stored: set[Var],
    ) -> None:
        super().__init__(group, values, layout, strides, stored)
        self.arrange()
        self.assign_stages()

    # -- the loops ------------------------------------------------------------------------------

    def arrange(self) -> None:
        """Order the dimensions, outer ones first, and collapse those that are contiguous."""
        group = self.group
        inner = group.inner
        if inner is None:
            dims = self.collapsed(sorted(group.dims))
            self.outer_dims, self.inner_dims = dims[:-1], dims[-1:]
        else:
            self.outer_dims = self.collapsed(sorted(group.dims - inner))
            self.inner_dims = self.collapsed(sorted(inner))
        self.outer_extents: list[int] = [
            prod(group.shape[d] for d in dim) for dim in self.outer_dims
        ]
        self.inner_extents: list[int] = [
            prod(group.shape[d] for d in dim) for dim in self.inner_dims
        ]
        for access in self.accesses:
            access.outer = tuple(access.strides[dim[-1]] for dim in self.outer_dims)
            access.inner = tuple(access.strides[dim[-1]] for dim in self.inner_dims)
        self.flat: bool = inner is None and not self.outer_dims
        if not self.inner_dims:
            self.inner_extents = [1]
            for access in self.accesses:
                access.inner = (0,)
        self.outer_size: int = prod(self.outer_extents)
        self.inner_size: int = prod(self.inner_extents)

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
        if self.group.blocks > 1 or (STATUS, None) in self.slots:
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
