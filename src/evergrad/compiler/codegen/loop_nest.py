"""How the loops of a group go: which memory they touch, in which order, and when what is computed.

:class:`LoopSpace` works it out; :class:`~.codegen.emit_loops.LoopWriter` writes it down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from evergrad.compiler.codegen import elementwise
from evergrad.compiler.codegen.elementwise import Code
from evergrad.compiler.schedule.index_maps import FOLDS
from evergrad.compiler.schedule.instructions import Walk
from evergrad.compiler.schedule.nodes import Group, Values
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.shapes import contiguous_strides
from evergrad.core.trace import Equation, Var

STATUS = "status"


# The slot of no memory: what would be an address there is the number of the element.
NOWHERE = -1


class Access:
    """Memory that a kernel goes through: strides in bytes along rows and along a row."""

    __slots__ = ("dtype", "inner", "lookup", "rows", "slot", "strides")

    def __init__(self, slot: int, found: dtype, strides: tuple[int, ...]) -> None:
        self.slot = slot
        self.dtype = found
        self.strides = strides
        self.rows: tuple[int, ...] = ()
        self.inner: tuple[int, ...] = ()
        # For a table looked up by row: (access of the places, bytes from row to row, rows, wraps).
        self.lookup: tuple[Access, int, int, bool] | None = None


class LoopSpace:
    """The loops of one group: rows, passes over a row, and the memory they go through."""

    def __init__(
        self,
        group: Group,
        values: Values,
        layout: Callable[[Var], Any],
        steps: Callable[[Var], tuple[int, ...]],
        stored: set[Var],
    ) -> None:
        self.group = group
        self.values = values
        self.layout = layout
        self.steps = steps  # the strides of a value that is written
        self.stored = [e.outs[0] for e in group.members if e.outs[0] in stored]
        self.maker = {e.outs[0]: e for e in group.members}
        self.code = Code()
        self.slots: list[tuple[str, Any]] = []
        self.accesses: list[Access] = []
        self.known_accesses: dict[Any, Access] = {}
        self.uses: dict[tuple[int, int], Any] = {}
        self.outlets: dict[Var, Access] = {}
        self.collect()
        self.arrange()
        self.assign_stages()

    # -- what memory is touched -----------------------------------------------------------------

    def slot(self, kind: str, value: Any) -> int:
        for number, known in enumerate(self.slots):
            if known[0] == kind and known[1] is value:
                return number
        self.slots.append((kind, value))
        return len(self.slots) - 1

    def access(self, kind: str, var: Var, strides: tuple[int, ...]) -> Access:
        key = (kind, var, strides)
        if key not in self.known_accesses:
            made = Access(self.slot(kind, var), var.type.dtype, strides)
            self.known_accesses[key] = made
            self.accesses.append(made)
        return self.known_accesses[key]

    def along(self, var: Var, axes: Sequence[int]) -> tuple[int, ...]:
        """The strides of a value along the dimensions of the space, given those of its own."""
        strides = [0] * len(self.group.shape)
        steps, shape = self.layout(var).strides, var.type.shape
        for axis, step, extent in zip(axes, steps, shape, strict=True):
            if axis >= 0 and extent != 1:
                strides[axis] = step
        return tuple(strides)

    def collect(self) -> None:
        for eqn in self.group.members:
            axes = self.group.maps[id(eqn)]
            for place, arg in enumerate(eqn.args):
                self.uses[id(eqn), place] = self.operand(eqn, place, arg, axes)
            if eqn.op.name in elementwise.NUMBERED:
                self.uses[id(eqn), len(eqn.args)] = self.numbering(eqn.outs[0], axes)
        for var in self.stored:
            if var not in self.group.late:
                strides = [0] * len(self.group.shape)
                for axis, step in zip(self.group.axes[var], self.steps(var), strict=True):
                    if axis >= 0:
                        strides[axis] = step
                self.outlets[var] = self.access("write", var, tuple(strides))
        if any(e.op.name in ("index", "gather") for e in self.group.members):
            self.slot(STATUS, None)

    def operand(self, eqn: Equation, place: int, arg: Any, axes: tuple[int, ...]) -> Any:
        """A constant (text), a value of the group (its variable) or an access."""
        name = eqn.op.name
        if name == "full":
            return elementwise.constant(arg, eqn.specialization.out_types[0].dtype)
        found = eqn.specialization.operands[place].dtype
        if not isinstance(arg, Var):
            return elementwise.constant(arg, found)
        root = self.values.root(arg)
        if root in self.values.literal and root not in self.maker:
            return elementwise.literal(self.values.literal[root], found)
        if arg in self.group.axes and root in self.maker:
            return root
        if name == "index":
            return self.lookup(eqn, place, arg, axes)
        if name in ("gather", "scatter_sum"):
            return self.access("read", arg, self.along(arg, axes))
        aligned = axes[len(axes) - len(arg.type.shape) :] if arg.type.shape else ()
        return self.access("read", arg, self.along(arg, aligned))

    def numbering(self, var: Var, axes: tuple[int, ...]) -> Access:
        """The numbers of a value's elements, in their order."""
        strides = [0] * len(self.group.shape)
        for axis, step in zip(axes, contiguous_strides(var.type.shape), strict=True):
            if axis >= 0:
                strides[axis] = step
        made = Access(NOWHERE, dtypes.uint8, tuple(strides))
        self.accesses.append(made)
        return made

    def sources(self, eqn: Equation) -> list[Any]:
        """What an equation computes with, in the order of its arguments."""
        count = len(eqn.args) + (eqn.op.name in elementwise.NUMBERED)
        return [self.uses[id(eqn), place] for place in range(count)]

    def lookup(self, eqn: Equation, place: int, arg: Var, axes: tuple[int, ...]) -> Any:
        rank = len(eqn.args[1].type.shape)
        if place == 1:
            return self.access("read", arg, self.along(arg, axes[:rank]))
        places = self.access("read", eqn.args[1], self.along(eqn.args[1], axes[:rank]))
        strides = self.along(arg, (-1, *axes[rank:]))
        table = Access(self.slot("read", arg), arg.type.dtype, strides)
        table.lookup = (
            places, self.layout(arg).strides[0], arg.type.shape[0], eqn.attrs["wrap"],
        )  # fmt: skip
        self.accesses.append(table)
        return table

    def structure(self) -> tuple[Any, ...]:
        """All that the text and the numbers of the kernel depend on."""
        group = self.group
        numbers: dict[Any, int] = {var: n for n, var in enumerate(self.maker)}
        numbers |= {access: n for n, access in enumerate(self.accesses)}

        def of(eqn: Equation) -> tuple[Any, ...]:
            out = eqn.outs[0]
            types = [str(getattr(t, "dtype", t)) for t in (*eqn.specialization.operands, out.type)]
            given = [s if isinstance(s, str) else (type(s), numbers[s]) for s in self.sources(eqn)]
            plain = [a for a in eqn.args if not isinstance(a, Var)]
            said = eqn.op.name, repr(eqn.attrs), repr(plain), *types, *given
            return *said, group.axes[out], out in group.late, out.type.shape

        def of_memory(access: Access) -> tuple[Any, ...]:
            places, *table = access.lookup or (None,)
            return access.slot, access.dtype.name, access.strides, numbers.get(places), *table

        return (
            group.shape, group.inner, group.blocks,
            tuple(map(of, group.members)), tuple(map(of_memory, self.accesses)),
            tuple((numbers[var], numbers[access]) for var, access in self.outlets.items()),
            tuple(kind for kind, _ in self.slots),
        )  # fmt: skip

    # -- the loops ------------------------------------------------------------------------------

    def arrange(self) -> None:
        """Order the dimensions, rows first, and join those that lie behind each other."""
        group = self.group
        inner = group.inner
        if inner is None:
            dims = self.collapsed(sorted(group.dims))
            self.row_dims, self.inner_dims = dims[:-1], dims[-1:]
        else:
            self.row_dims = self.collapsed(sorted(group.dims - inner))
            self.inner_dims = self.collapsed(sorted(inner))
        self.row_extents = [prod(group.shape[d] for d in dim) for dim in self.row_dims]
        self.inner_extents = [prod(group.shape[d] for d in dim) for dim in self.inner_dims]
        for access in self.accesses:
            access.rows = tuple(access.strides[dim[-1]] for dim in self.row_dims)
            access.inner = tuple(access.strides[dim[-1]] for dim in self.inner_dims)
        self.flat = inner is None and not self.row_dims
        if not self.inner_dims:
            self.inner_extents = [1]
            for access in self.accesses:
                access.inner = (0,)
        self.rows = prod(self.row_extents)
        self.row_length = prod(self.inner_extents)

    def collapsed(self, dims: list[int]) -> list[list[int]]:
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

    def walk(self, per_chunk: int) -> Walk | None:
        """How a kernel goes through the space, if it may be cut into other chunks."""
        if self.group.blocks > 1 or (STATUS, None) in self.slots:
            return None
        unit, total = (1, self.row_length) if self.flat else (self.row_length, self.rows)
        return Walk(unit, total, per_chunk, self.read_in_order())

    def read_in_order(self) -> frozenset[int]:
        """The pointers to what is read in the order in which it lies, row by row."""
        inner = contiguous_strides(self.inner_extents)
        rows = [self.row_length * s for s in contiguous_strides(self.row_extents)]
        found: set[int] = set()
        others: set[int] = set()
        for access in self.accesses:
            size = access.dtype.itemsize
            steps = tuple(size * s for s in rows), tuple(size * s for s in inner)
            is_so = access.lookup is None and (access.rows, access.inner) == steps
            (found if is_so else others).add(access.slot)
        return frozenset(found - others)

    def is_row(self, var: Var) -> bool:
        """Whether a value of the group is one number per row."""
        inner = self.group.inner
        return inner is not None and not (self.group.varying(self.group.axes[var]) & inner)

    # -- when things are computed ---------------------------------------------------------------

    def assign_stages(self) -> None:
        """``stage``: the pass in which a full value is computed, or after which a row value is."""
        self.stage: dict[Var, int] = {}
        for eqn in self.group.members:
            out = eqn.outs[0]
            if eqn.op.name in FOLDS:
                self.stage[out] = self.readiness(eqn, 0)
                continue
            row = self.is_row(out) and eqn.op.name != "index"
            stage = -1 if row else 0
            for place in range(len(eqn.args)):
                source = self.uses[id(eqn), place]
                if not isinstance(source, Var):
                    continue
                ready = self.stage[source]
                if row and not self.is_row(source):
                    ready -= 1  # one element of it, computed from what the row knows by then
                elif not row and self.is_row(source):
                    ready += 1
                stage = max(stage, ready)
            self.stage[out] = stage
        self.passes = 1 + max(
            [self.stage[e.outs[0]] for e in self.group.members
             if not self.is_row(e.outs[0]) or e.op.name in FOLDS],
            default=-1,
        )  # fmt: skip
        self.keep_for_later()

    def readiness(self, eqn: Equation, place: int) -> int:
        source = self.uses[id(eqn), place]
        return self.stage[source] if isinstance(source, Var) else 0

    def keep_for_later(self) -> None:
        """Choose the full values that are kept in scratch rows between passes."""
        self.scratch: dict[Var, int] = {}
        outlets = set(self.outlets)
        last_use = self.last_uses()
        for eqn in self.group.members:
            out = eqn.outs[0]
            if eqn.op.name in FOLDS or self.is_row(out) or out in outlets:
                continue
            if eqn.op.name not in elementwise.EXPENSIVE:
                continue
            if last_use.get(out, -1) > self.stage[out]:
                self.scratch[out] = len(self.scratch)

    def last_uses(self) -> dict[Var, int]:
        """For each full value the last pass that needs it, directly or to compute another again."""
        last: dict[Var, int] = {}
        for eqn in reversed(self.group.members):
            out = eqn.outs[0]
            stage = -1
            if eqn.op.name in FOLDS or out in self.outlets:
                stage = self.stage[out]
            if eqn.op.name not in FOLDS and not self.is_row(out):
                stage = max(self.stage[out], last.get(out, -1))
            for place in range(len(eqn.args)):
                source = self.uses[id(eqn), place]
                if isinstance(source, Var):
                    last[source] = max(last.get(source, -1), stage)
        return last
