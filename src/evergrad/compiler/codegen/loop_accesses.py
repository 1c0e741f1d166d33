"""Memory accesses of a loop nest: the pointers of a kernel, and strides along its domain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.compiler.codegen import elementwise
from evergrad.core import dtypes
from evergrad.core.dtypes import dtype
from evergrad.core.row_facts import Indexing
from evergrad.core.shapes import contiguous_strides
from evergrad.core.trace import Equation, Var
from evergrad.ops.rows.creation.constants import FULL
from evergrad.ops.rows.elementwise.basic import DIV, MUL

if TYPE_CHECKING:
    from evergrad.compiler.schedule.def_use import DefUse
    from evergrad.compiler.schedule.nodes import Group
    from evergrad.core.types import Leaves

STATUS = "status"
# Of memory accesses in loops whose iterations do not depend on one another.
PARALLEL = ", !llvm.access.group !M0"
# The slot of an access without memory: its address is the index of the element.
NO_SLOT = -1
# Factors that stay in the IR, where LLVM simplifies the product.
_SIMPLE = {
    elementwise.constant(sign * number, dtypes.float64)
    for number in (0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
    for sign in (1, -1)
}


class Lookup:
    """A table whose slices are looked up along one dimension."""

    __slots__ = ("extent", "indices", "stride", "wraps")

    def __init__(self, indices: Access, stride: int, extent: int, wraps: bool) -> None:
        self.indices: Access = indices
        self.stride: int = stride
        self.extent: int = extent
        self.wraps: bool = wraps  # negative indices count from the end


class Factor:
    """A literal factor or divisor that a kernel takes as an argument: those of means and variances
    change with the extents."""

    __slots__ = ("bits", "type")

    def __init__(self, constant: str, type: str) -> None:
        self.type: str = type  # "float" or "double"; as IR, a constant of both is that of a float64
        bits = int(constant, 16)
        self.bits: int = bits - (1 << 64) if bits >> 63 else bits


class Access:
    """Memory that a kernel reads or writes: strides in bytes along the dimensions of the domain,
    and along its collapsed outer and inner loops. ``column``: the stride of the columns of a tile
    of which a transposed copy is read or written instead."""

    __slots__ = ("column", "dtype", "inner", "lookup", "outer", "slot", "strides")

    def __init__(self, slot: int, dtype: dtype, strides: tuple[int, ...]) -> None:
        self.slot: int = slot
        self.dtype: dtypes.dtype = dtype
        self.strides: tuple[int, ...] = strides
        self.outer: tuple[int, ...] = ()
        self.inner: tuple[int, ...] = ()
        self.lookup: Lookup | None = None
        self.column: int | None = None

    def stage(self, columns: int) -> None:
        """Go through a transposed copy of a tile, with rows of that many elements."""
        size = self.dtype.itemsize
        self.column, self.inner = self.inner[1], (columns * size, size)


class LoopAccesses:
    """The operands of a group's equations, and the memory accesses of its loop nest.

    ``slots`` are the pointer arguments of the kernel; ``stores`` the accesses of the values that it
    writes (``stored``), but for outer reductions.
    """

    def __init__(
        self,
        group: Group,
        values: DefUse,
        layout: Callable[[Var], Any],
        strides: Callable[[Var], tuple[int, ...]],
        stored: set[Var],
    ) -> None:
        self.group = group
        self.values = values
        self.layout = layout
        self.store_strides = strides
        self.stored: list[Var] = [e.outs[0] for e in group.members if e.outs[0] in stored]
        self.producer: dict[Var, Equation] = {e.outs[0]: e for e in group.members}
        self.slots: list[tuple[str, Any]] = []
        self.accesses: list[Access] = []
        self.known_accesses: dict[object, Access] = {}
        self.uses: dict[tuple[int, int], Any] = {}
        self.factors: list[Factor] = []
        self.stores: dict[Var, Access] = {}
        self.collect()

    def collect(self) -> None:
        for eqn in self.group.members:
            axes = self.group.maps[id(eqn)]
            for number, arg in enumerate(eqn.args):
                self.uses[id(eqn), number] = self.operand(eqn, number, arg, axes)
            if eqn.op.emit.numbered:
                self.uses[id(eqn), len(eqn.args)] = self.element_index(eqn.outs[0], axes)
        for var in self.stored:
            if var not in self.group.outer_reductions:
                strides = [0] * len(self.group.shape)
                for axis, stride in zip(self.group.axes[var], self.store_strides(var), strict=True):
                    if axis >= 0:
                        strides[axis] = stride
                self.stores[var] = self.access("write", var, tuple(strides))
        if any(e.op.looks_up for e in self.group.members):
            self.slot(STATUS, None)

    def slot(self, kind: str, value: Var | None) -> int:
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

    def strides_along(self, var: Var, axes: Sequence[int]) -> tuple[int, ...]:
        """The strides of a value along the dimensions of the domain, given its index map."""
        strides = [0] * len(self.group.shape)
        own, shape = self.layout(var).strides, var.type.shape
        for axis, stride, extent in zip(axes, own, shape, strict=True):
            if axis >= 0 and extent != 1:
                strides[axis] = stride
        return tuple(strides)

    def operand(
        self, eqn: Equation, number: int, arg: Var | float, axes: tuple[int, ...]
    ) -> str | Factor | Var | Access:
        """An argument of an equation: a constant (IR), a factor, a value of the group or an
        access."""
        if eqn.op is FULL:
            return elementwise.constant(arg, eqn.specialization.out_types[0].dtype)
        found = eqn.specialization.operands[number].dtype
        if not isinstance(arg, Var):
            return self.constant(eqn, number, elementwise.constant(arg, found))
        root = self.values.root(arg)
        if root in self.values.literal and root not in self.producer:
            literal = elementwise.literal(self.values.literal[root], found)
            return self.constant(eqn, number, literal)
        if arg in self.group.axes and root in self.producer:
            return root
        if eqn.op.indexing is Indexing.LOOKUP:
            return self.lookup_operand(eqn, number, arg, axes)
        if eqn.op.indexing is not None:
            return self.access("read", arg, self.strides_along(arg, axes))
        aligned = axes[len(axes) - len(arg.type.shape) :] if arg.type.shape else ()
        return self.access("read", arg, self.strides_along(arg, aligned))

    def constant(self, eqn: Equation, number: int, constant: str) -> str | Factor:
        """A literal operand: part of the IR, or an argument of the kernel."""
        kind = elementwise.KINDS[eqn.specialization.operands[number].dtype]
        is_factor = eqn.op is MUL or (eqn.op is DIV and number == 1)
        if not is_factor or not kind.is_float or constant in _SIMPLE:
            return constant
        self.factors.append(Factor(constant, kind.compute))
        return self.factors[-1]

    def element_index(self, var: Var, axes: tuple[int, ...]) -> Access:
        """The linear indices of a value's elements, as an access without memory."""
        strides = [0] * len(self.group.shape)
        for axis, stride in zip(axes, contiguous_strides(var.type.shape), strict=True):
            if axis >= 0:
                strides[axis] = stride
        made = Access(NO_SLOT, dtypes.uint8, tuple(strides))
        self.accesses.append(made)
        return made

    def lookup_operand(self, eqn: Equation, number: int, arg: Var, axes: tuple[int, ...]) -> Access:
        """The indices of a lookup, or its table."""
        start, index = eqn.attrs["start"], eqn.args[1]
        end = start + len(index.type.shape)
        indices = self.access("read", index, self.strides_along(index, axes[start:end]))
        if number == 1:
            return indices
        strides = self.strides_along(arg, (*axes[:start], -1, *axes[end:]))
        table = Access(self.slot("read", arg), arg.type.dtype, strides)
        table.lookup = Lookup(
            indices, self.layout(arg).strides[start], arg.type.shape[start], eqn.attrs["wrap"]
        )
        self.accesses.append(table)
        return table

    def operands(self, eqn: Equation) -> Leaves:
        """The operands of an equation, in the order of its arguments."""
        count = len(eqn.args) + eqn.op.emit.numbered
        return [self.uses[id(eqn), number] for number in range(count)]
