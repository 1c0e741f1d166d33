"""Kernels of elementwise groups that were lowered before, with their arguments.

The update of a parameter is the same group in the program of each batch size. Its loop nest is not
arranged again: the kernel with its arguments is looked up by everything it follows from, which are
the specializations of its equations, index maps, strides and which values are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from evergrad import config
from evergrad.compiler.codegen.emit_loops import LoopEmitter
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.schedule.inplace_reuse import reuse_buffers
from evergrad.compiler.schedule.nodes import Group
from evergrad.core.op import Specialization
from evergrad.core.trace import Equation, Var
from evergrad.errors import VerificationError

if TYPE_CHECKING:
    from evergrad.compiler.schedule.lower import Lowering

# The most kernels kept; when there are more all are dropped, and those in use come back.
_MOST_KEPT = 2048


class _Known(NamedTuple):
    """A kernel whose slots are numbers of values, and what its key refers to by ``id``."""

    kernel: Kernel
    slots: list[tuple[str, int]]
    specializations: list[Specialization]


_known: dict[tuple[object, ...], _Known] = {}


def group_kernel(lowering: Lowering, group: Group, stored: set[Var]) -> Kernel:
    """The kernel of a group with its arguments; results are assigned to buffers of operands that
    die in it."""
    described = _Description(lowering, group, stored)
    key = tuple(described.parts) if described.describe() else None
    known = None if key is None else _known.get(key)
    if known is not None and not config.VERIFY_EACH_PASS:
        return _with_slots(known, described.values)
    loops = LoopEmitter(group, lowering.values, lambda v: v.layout, lowering.strides, stored)
    reuse_buffers(lowering, loops)
    kernel = loops.kernel()
    if known is not None and not _is_same(_with_slots(known, described.values), kernel):
        raise VerificationError(f"two groups of equations have the key {key}")
    if key is not None and known is None:
        if len(_known) >= _MOST_KEPT:
            _known.clear()
        _known[key] = _kept(kernel, described)
    return kernel


class _Description:
    """What the kernel of a group follows from. ``values`` are numbered in the order of their first
    use."""

    def __init__(self, lowering: Lowering, group: Group, stored: set[Var]) -> None:
        self.lowering = lowering
        self.group = group
        self.stored = stored
        self.inside: set[Var] = {eqn.outs[0] for eqn in group.members}
        self.parts: list[object] = [group.shape, group.inner, group.blocks]
        self.values: list[Var] = []
        self.numbers: dict[Var, int] = {}

    def describe(self) -> bool:
        """Fill ``parts``; ``False`` for a group with other than elementwise equations, or whose
        results may overwrite an operand."""
        for eqn in self.group.members:
            op = eqn.op
            if op.combine or op.indexing is not None or op.random or op.looks_up:
                return False
            self._add_equation(eqn)
        return (
            all(var in self.lowering.buffer_views for var in self.stored) or not self._reads_arena()
        )

    def _add_equation(self, eqn: Equation) -> None:
        parts, group = self.parts, self.group
        parts.append(id(eqn.specialization))
        parts.append(group.maps[id(eqn)])
        literal, root_of = self.lowering.values.literal, self.lowering.values.root
        for arg in eqn.args:
            if not isinstance(arg, Var):
                parts.append((type(arg), repr(arg)))
                continue
            root = root_of(arg)
            if root in self.inside and arg in group.axes:
                parts.append(self.number(root))
            elif root in literal and root not in self.inside:
                parts.append(("literal", type(literal[root]), repr(literal[root])))
            else:
                parts.append((self.number(arg), arg.layout.strides))
        out = eqn.outs[0]
        parts += [self.number(out), group.axes[out]]
        parts.append(self.lowering.strides(out) if out in self.stored else None)

    def number(self, var: Var) -> int:
        found = self.numbers.get(var)
        if found is None:
            found = self.numbers[var] = len(self.values)
            self.values.append(var)
        return found

    def _reads_arena(self) -> bool:
        """Whether an operand is in the arena, so that a result may take its buffer."""
        roots = [self.lowering.values.root(v) for v in self.values if v not in self.inside]
        views = [self.lowering.buffer_views.get(root) for root in roots]
        return any(view is not None and view.buffer.kind == "arena" for view in views)


def _kept(kernel: Kernel, described: _Description) -> _Known:
    made = _copy(kernel)
    slots = [(kind, described.numbers[value]) for kind, value in kernel.slots]
    return _Known(made, slots, [eqn.specialization for eqn in described.group.members])


def _with_slots(known: _Known, values: list[Var]) -> Kernel:
    made = _copy(known.kernel)
    made.slots = [(kind, values[number]) for kind, number in known.slots]
    return made


def _copy(kernel: Kernel) -> Kernel:
    """A kernel with arguments of its own, which a product may change whose epilogue it becomes."""
    made = Kernel(kernel.name, kernel.ir, kernel.helpers)
    made.numbers = list(kernel.numbers)
    made.chunks, made.passes = kernel.chunks, kernel.passes
    made.scratch, made.chunking = kernel.scratch, kernel.chunking
    return made


def _is_same(one: Kernel, other: Kernel) -> bool:
    def facts(kernel: Kernel) -> tuple[object, ...]:
        return (
            kernel.name, kernel.slots, list(kernel.numbers), kernel.chunks, kernel.passes,
            kernel.scratch, kernel.chunking,
        )  # fmt: skip

    return facts(one) == facts(other)
