"""The loop IR: a fusion group between fusion and LLVM, as data.

A :class:`LoopProgram` has an iteration domain with its loops, the memory that these read and write
with index maps, and statements: values that are computed, and reductions. Each belongs to a pass
over the inner loops. It is made from an arranged loop nest (:func:`loop_program`); printed it is
what ``EVERGRAD_SHOW_PASSES=1`` and ``explain(passes=True)`` show after the graphs. The IR that
:class:`~.codegen.emit_loops.LoopEmitter` emits depends on :meth:`LoopProgram.structure` alone:
kernels are shared by it. :func:`verify` checks a program by itself.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from evergrad.compiler.codegen.loop_accesses import NO_SLOT, Access, Factor
from evergrad.core.dtypes import dtype
from evergrad.core.trace import Equation, Var
from evergrad.errors import VerificationError

if TYPE_CHECKING:
    from evergrad.compiler.codegen.emit_loops import LoopEmitter
    from evergrad.core.types import Args, Key


class Tile(NamedTuple):
    """Of tiled loops: the extents of the whole loops, whether lanes are outer iterations of a
    reduction, and whether its sums are in double precision."""

    extents: tuple[int, ...]
    by_lanes: bool
    in_double: bool


class Domain(NamedTuple):
    """The loops over an iteration domain: extents of outer and inner ones, in ``passes`` over the
    inner ones. ``flat``: there is one loop, over elements. ``blocks`` of outer iterations have
    reductions of their own. ``splits``: the inner loops are those of a reduction or a lookup."""

    shape: tuple[int, ...]
    outer: tuple[int, ...]
    inner: tuple[int, ...]
    passes: int
    flat: bool
    blocks: int
    splits: bool
    tile: Tile

    def __str__(self) -> str:
        parts = [f"domain {list(self.shape)}: outer {list(self.outer)}, inner {list(self.inner)}"]
        parts += [f"passes {self.passes}"] if self.passes > 1 else []
        parts += [f"blocks {self.blocks}"] if self.blocks > 1 else []
        if self.tile.extents:
            parts.append(f"{'lanes' if self.tile.by_lanes else 'tiles'} of {self.tile.extents}")
        return ", ".join(parts)


class IndexMap(NamedTuple):
    """Where an element is: strides in bytes along outer and inner loops."""

    outer: tuple[int, ...]
    inner: tuple[int, ...]

    def structure(self, size: int) -> tuple[object, ...]:
        """Along which loops it does not vary, and along which inner ones it is contiguous."""
        known = [stride if stride in (0, size, -size) else None for stride in self.inner]
        return tuple([stride != 0 for stride in self.outer]), tuple(known)


class Memory(NamedTuple):
    """What is loaded or stored: a pointer by number (``NO_SLOT``: the index of the element itself),
    and its index map. A table is looked up by indices that are loaded from elsewhere; ``copied``
    memory goes through a transposed copy of a tile. A value has ``elements`` over ``span``
    bytes."""

    kind: str
    slot: int
    dtype: dtype
    map: IndexMap
    table: tuple[int, bool] | None
    copied: bool
    elements: int
    span: int

    def __str__(self) -> str:
        looked_up = "" if self.table is None else f" at load {self.table[0]}"
        copied = " through a copy" if self.copied else ""
        maps = f"outer {self.map.outer} inner {self.map.inner}"
        return f"{self.kind} {self.dtype.name}, {maps}{looked_up}{copied}"


class Operand(NamedTuple):
    """A ``value`` or a ``load`` by number, a ``factor`` that is an argument, or a ``constant``."""

    kind: str
    what: int | str
    type: str = ""

    def __str__(self) -> str:
        if self.kind == "value":
            return f"%{self.what}"
        return str(self.what) if self.kind == "constant" else f"{self.kind} {self.what}"


class Compute(NamedTuple):
    """A value: an op on operands, full or outer (constant along the inner loops), in a pass or
    after it. A value that a later pass reads again may be kept in a row of ``scratch``."""

    op: str
    attrs: str
    types: Key
    out: dtype
    operands: tuple[Operand, ...]
    stage: int
    is_outer: bool
    scratch: int | None

    def __str__(self) -> str:
        given = ", ".join([*map(str, self.operands), *([self.attrs] if self.attrs else [])])
        kept = "" if self.scratch is None else ", kept"
        return f"{self.op}({given}) -> {self.out.name}{' outer' if self.is_outer else ''}{kept}"


class Reduce(NamedTuple):
    """A reduction over the inner loops, or ``partial``: over outer iterations of a chunk. It is of
    full values or of outer ones, and may have one result for each inner index."""

    compute: Compute
    partial: bool
    of_full: bool
    keeps_inner: bool

    def __str__(self) -> str:
        over = "outer" if self.partial else "inner"
        each = " for each inner index" if self.partial and self.keeps_inner else ""
        return f"{self.compute} over {over}{each}"


class Store(NamedTuple):
    """A value that is written to memory, both by number."""

    value: int
    memory: int


class LoopProgram(NamedTuple):
    """The loops of a fusion group. ``scratch``: the bytes of a row of kept values, if there are
    any; ``blocked``: which loops and sums go by blocks."""

    domain: Domain
    memory: tuple[Memory, ...]
    statements: tuple[Compute | Reduce, ...]
    stores: tuple[Store, ...]
    slots: tuple[str, ...]
    scratch: int
    blocked: tuple[bool, ...]

    @property
    def name(self) -> str:
        """The ops of its statements."""
        return "+".join([self.computed(n).op for n in range(len(self.statements))])

    def computed(self, value: int) -> Compute:
        """How a value is computed."""
        found = self.statements[value]
        return found.compute if isinstance(found, Reduce) else found

    def structure(self) -> Args:
        """All that the emitted IR depends on: extents and strides are arguments of a kernel, but
        which of them are 0 or contiguous is not, and neither is the size of scratch memory."""
        domain = self.domain
        return (
            domain.flat, domain.splits, domain.blocks > 1, domain.passes, len(domain.outer),
            len(domain.inner), bool(domain.tile.extents), domain.tile[1:], self.scratch,
            self.blocked, self.statements, self.stores, self.slots,
            tuple([
                (m.slot, m.dtype, m.map.structure(m.dtype.itemsize), m.table, m.copied)
                for m in self.memory
            ]),
        )  # fmt: skip

    def __str__(self) -> str:
        lines = [str(self.domain)]
        lines += [f"  {number}: {memory}" for number, memory in enumerate(self.memory)]
        stored = {store.value: store.memory for store in self.stores}
        for value, statement in enumerate(self.statements):
            stage = self.computed(value).stage
            where = "before" if stage < 0 else f"pass {stage}"
            target = f", store {stored[value]}" if value in stored else ""
            lines.append(f"  {where}: %{value} = {statement}{target}")
        return "\n".join(lines)


# -- of a loop nest -----------------------------------------------------------------------------


def loop_program(loops: LoopEmitter, blocked: tuple[bool, ...] = ()) -> LoopProgram:
    """The loops of a fusion group, once they are arranged."""
    group = loops.group
    values = {var: n for n, var in enumerate(loops.producer)}
    places = {id(access): n for n, access in enumerate(loops.accesses)}
    factors = {id(factor): n for n, factor in enumerate(loops.factors)}
    tile = Tile(loops.tiled_extents, loops.by_lanes, loops.sums_in_double)
    domain = Domain(
        group.shape, tuple(loops.outer_extents), tuple(loops.inner_extents), loops.passes,
        loops.flat, group.blocks, group.inner is not None, tile,
    )  # fmt: skip

    def operand(use: Any) -> Operand:
        if isinstance(use, str):
            return Operand("constant", use)
        if isinstance(use, Factor):
            return Operand("factor", factors[id(use)], use.type)
        if isinstance(use, Var):
            return Operand("value", values[use])
        return Operand("load", places[id(use)])

    def statement(eqn: Equation) -> Compute | Reduce:
        out, found = eqn.outs[0], eqn.specialization
        made = Compute(
            eqn.op.name, ", ".join([f"{name}={value!r}" for name, value in eqn.attrs.items()]),
            tuple([getattr(t, "dtype", t) for t in found.operands]), out.type.dtype,
            tuple(map(operand, loops.operands(eqn))), loops.stage[out], loops.is_outer(out),
            loops.scratch.get(out),
        )  # fmt: skip
        if eqn.op.combine is None:
            return made
        is_partial = out in group.outer_reductions
        return Reduce(made, is_partial, loops.reduces_full(eqn), loops.keeps_inner(eqn))

    needs_scratch = loops.scratch or loops.tall_sums
    return LoopProgram(
        domain, tuple([_memory(loops, access, places) for access in loops.accesses]),
        tuple(map(statement, group.members)),
        tuple([Store(values[v], places[id(access)]) for v, access in loops.stores.items()]),
        tuple([kind for kind, _ in loops.slots]), loops.scratch_stride() if needs_scratch else 0,
        blocked,
    )  # fmt: skip


def _memory(loops: LoopEmitter, access: Access, places: dict[int, int]) -> Memory:
    table, span, elements = access.lookup, 0, 0
    kind = "index"
    if access.slot != NO_SLOT:
        kind, var = loops.slots[access.slot]
        strides = loops.store_strides(var) if kind == "write" else loops.layout(var).strides
        reach = [abs(s) * (n - 1) for s, n in zip(strides, var.type.shape, strict=True)]
        span, elements = sum(reach) + access.dtype.itemsize, var.type.numel
    return Memory(
        kind, access.slot, access.dtype, IndexMap(access.outer, access.inner),
        None if table is None else (places[id(table.indices)], table.wraps),
        access.column is not None, elements, span,
    )  # fmt: skip


# -- verification -------------------------------------------------------------------------------


def verify(program: LoopProgram) -> None:
    """Raise :class:`VerificationError` if a program is not consistent: its loops are not those of
    the domain, a value is used before it is known, memory is read outside of a value, or a result
    is not written once in each element."""
    for fault in (*_loops(program.domain), *_order(program), *_bounds(program), *_writes(program)):
        raise VerificationError(f"loops of {program.name}: {fault}\n{program}")


def _loops(domain: Domain) -> list[str]:
    whole = (*domain.outer, *domain.inner)
    if not domain.tile.extents:
        is_whole = prod(whole) == prod(domain.shape)
        return [] if is_whole else ["the loops have another size than the domain"]
    over, within = domain.outer[-2:], domain.inner[-2:]
    tiles = tuple(-(-n // tile) for n, tile in zip(domain.tile.extents, within, strict=True))
    covered = prod(domain.outer[:-2]) * prod(domain.tile.extents) == prod(domain.shape)
    return [] if tiles == over and covered else ["tiles do not cover the domain once"]


def _order(program: LoopProgram) -> list[str]:
    faults, last = [], -1
    for number, statement in enumerate(program.statements):
        own = program.computed(number)
        if not own.is_outer or isinstance(statement, Reduce):
            last = max(last, own.stage)
        for operand in own.operands:
            if operand.kind != "value":
                continue
            source = int(operand.what)
            if source >= number:
                faults.append(f"%{number} uses %{source} before it is computed")
                continue
            used, given = program.statements[source], program.computed(source)
            if isinstance(used, Reduce) and used.partial:
                faults.append(f"%{number} uses %{source}, which is complete after all chunks")
            is_late = own.stage <= given.stage if given.is_outer else own.stage < given.stage
            if not own.is_outer and is_late:
                faults.append(f"%{number} uses %{source}, which a later pass knows")
    if program.domain.passes != 1 + last:
        faults.append(f"there are statements of {1 + last} passes")
    return faults


def _bounds(program: LoopProgram) -> list[str]:
    domain, faults = program.domain, []
    tiled = len(domain.tile.extents)
    extents = (*domain.outer[: len(domain.outer) - tiled], *(domain.tile.extents or domain.inner))
    for number, memory in enumerate(program.memory):
        if memory.slot == NO_SLOT or memory.table is not None or memory.copied:
            continue
        outer = memory.map.outer[: len(domain.outer) - tiled]
        steps = zip(extents, (*outer, *memory.map.inner), strict=True)
        reach = sum(abs(stride) * (extent - 1) for extent, stride in steps)
        if reach + memory.dtype.itemsize > memory.span:
            faults.append(f"{number} reaches over {reach} bytes, its value over {memory.span}")
    return faults


def _writes(program: LoopProgram) -> list[str]:
    domain, faults = program.domain, []
    for value, place in program.stores:
        memory, is_outer = program.memory[place], program.computed(value).is_outer
        if memory.kind != "write":
            faults.append(f"%{value} is stored to {memory.kind} memory")
        if domain.tile.extents:
            continue
        extents = (*domain.outer, *(() if is_outer else domain.inner))
        strides = (*memory.map.outer, *(() if is_outer else memory.map.inner))
        steps = sorted((abs(s), n) for s, n in zip(strides, extents, strict=True) if n > 1)
        if prod(n for _, n in steps) != memory.elements:
            faults.append(f"%{value} is written {prod(extents)} times, not {memory.elements}")
        reach = memory.dtype.itemsize
        for stride, extent in steps:
            if stride < reach:
                faults.append(f"elements of %{value} are written more than once")
                break
            reach = stride * (extent - 1) + reach
    return faults
