"""A graph as instructions over buffers.

:class:`Lowering` gives every value a place and every unit its instructions. How an equation that is
no loop becomes native code is said by the functions entered with :func:`lowers`: the one place
where an implementation is chosen. What nobody takes runs its NumPy evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from evergrad.compiler.codegen.elementwise import KINDS
from evergrad.compiler.codegen.emit_loops import LoopWriter
from evergrad.compiler.codegen.reductions import combination
from evergrad.compiler.runtime.rng_state import STREAM_BYTES
from evergrad.compiler.schedule.fusion import fuse
from evergrad.compiler.schedule.inplace_reuse import give_places
from evergrad.compiler.schedule.instructions import (
    Instruction,
    Kernel,
    Place,
    address_of,
    strides_of,
    whole,
)
from evergrad.compiler.schedule.memory_plan import Buffer
from evergrad.compiler.schedule.nodes import Group, Single, Unit, Values, equations_of
from evergrad.core import dtypes
from evergrad.core.op import TABLE
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Equation, Graph, Var

# For an op, the functions that may lower an equation of it; the first that says yes does.
LOWERINGS: dict[str, list[Callable[[Lowering, Equation], bool]]] = {}

_PRODUCTS = ("matmul", "linear")
# Ops whose results may lie anyhow, as long as each row lies in one piece.
_BY_ROWS = ("attention_backward",)


def lowers(*names: str) -> Callable[[Any], Any]:
    """Enter a function that lowers equations of these ops, or says ``False``."""

    def enter(function: Any) -> Any:
        for name in names:
            LOWERINGS.setdefault(name, []).append(function)
        return function

    return enter


def enter_lowerings() -> None:
    """Import the modules that register lowerings; they import this module."""
    from evergrad.compiler.kernels import embedding_grad, random_masks  # noqa: F401
    from evergrad.compiler.kernels.attention import lower as attention  # noqa: F401
    from evergrad.compiler.kernels.conv import select as conv  # noqa: F401
    from evergrad.compiler.kernels.gemm import select as gemm  # noqa: F401
    from evergrad.compiler.kernels.pooling import max_pool_grad, reduce, transposes  # noqa: F401
    from evergrad.compiler.kernels.recurrent import lower as recurrent  # noqa: F401


class Lowering:
    """The instructions of a graph.

    The graph (a simplified one) has as inputs ``arguments`` tensors, ``numbers`` numbers and the
    ``outside`` tensors; as outputs ``results`` results, then what each of the ``written`` storages
    ends at, then more results. ``again`` are equations that compute a value for the second time.
    ``when_written`` is told of each kernel as soon as its text is known.
    """

    def __init__(
        self, graph: Graph, arguments: int, numbers: int, outside: Sequence[Tensor],
        results: int, written: Sequence[Storage], again: frozenset[int] = frozenset(),
        when_written: Callable[[Kernel], None] = lambda kernel: None,
    ) -> None:  # fmt: skip
        enter_lowerings()
        self.graph = _own_equations(graph)
        again = frozenset(
            id(own) for own, eqn in zip(self.graph.equations, graph.equations, strict=True)
            if id(eqn) in again
        )  # fmt: skip
        self.arguments = arguments
        self.numbers = numbers
        self.outside = list(outside)
        self.written = list(written)
        self.results = results
        self.generators = list(
            dict.fromkeys(e.attrs.get("generator") for e in graph.equations if e.op.random)
        )
        self.buffers: list[Buffer] = []
        self.homes: dict[Var, Place] = {}
        self.storages: dict[int, Buffer] = {}
        self.streams: list[Any] = []  # generators that kernels draw from
        self.instructions: list[Instruction] = []
        # Products that wait for the group (by ``id``) that reads them.
        self.awaited: dict[int, Any] = {}
        self.lowered: set[int] = set()  # units (by ``id``) whose instructions are there, or awaited
        self.units, self.values = fuse(self.graph, again, self.overwrites())
        self.unit_of = {id(eqn): unit for unit in self.units for eqn in equations_of(unit)}
        self.place_inputs()
        self.choose_targets()
        for unit in self.units:
            if is_join(unit):
                self.join_in_place(unit.eqn)  # type: ignore[attr-defined]
        for unit in self.units:
            first = len(self.instructions)
            self.lower(unit)
            self.lowered.add(id(unit))
            for instruction in self.instructions[first:]:
                instruction.unit = unit
                if instruction.kernel is not None:
                    when_written(instruction.kernel)
        self.lay_aside()
        self.write_after_failures()

    def overwrites(self) -> list[tuple[Var, list[Var]]]:
        """Outputs that end in outside memory, with the inputs that lie there."""
        inputs = self.graph.inputs[self.arguments + self.numbers :]
        lying: dict[int, list[Var]] = {}
        for var, tensor in zip(inputs, self.outside, strict=True):
            lying.setdefault(id(tensor._storage), []).append(var)
        outputs = self.graph.outputs[self.results :]
        pairs = zip(outputs, self.written, strict=False)
        return [(out, lying.get(id(s), [])) for out, s in pairs if isinstance(out, Var)]

    # -- places ---------------------------------------------------------------------------------

    def buffer(self, nbytes: int, home: str, label: str, owner: Any = None) -> Buffer:
        made = Buffer(len(self.buffers), nbytes, home, label, owner)
        self.buffers.append(made)
        return made

    def place_inputs(self) -> None:
        for number, var in enumerate(self.graph.inputs):
            if number < self.arguments:
                buffer = self.buffer(var.type.nbytes, "input", "argument", number)
                self.homes[var] = whole(buffer, var)
            elif number < self.arguments + self.numbers:
                buffer = self.buffer(8, "number", "number", number - self.arguments)
                self.homes[var] = whole(buffer, var)
            else:
                self.homes[var] = self.place_outside(
                    self.outside[number - self.arguments - self.numbers], var
                )

    def place_outside(self, tensor: Tensor, var: Var) -> Place:
        storage = tensor._storage
        buffer = self.storages.get(id(storage))
        if buffer is None:
            buffer = self.buffer(storage.nbytes, "outside", "outside tensor", storage)
            self.storages[id(storage)] = buffer
        value = tensor._value
        offset = address_of(value) - address_of(storage.value)
        return Place(buffer, offset, var.type.shape, value.strides, var.type.dtype)

    def choose_targets(self) -> None:
        """Values that are results or end in outside memory are computed right there if nothing
        else needs what is overwritten."""
        order = {id(unit): number for number, unit in enumerate(self.units)}
        maker = {out: unit for unit in self.units for eqn in equations_of(unit) for out in eqn.outs}
        self.copies: list[tuple[Var, Any]] = []  # what is copied to its place at the end
        self.in_place: list[tuple[Var, Buffer]] = []  # what is computed right in outside memory
        taken: set[Var] = set()
        sources: dict[int, list[Var]] = {}
        for source, place in self.homes.items():
            sources.setdefault(place.buffer.number, []).append(source)
        outputs = self.graph.outputs
        for number, var in enumerate(outputs):
            at = number - self.results
            is_write = 0 <= at < len(self.written)
            if not isinstance(var, Var):
                continue
            root = self.values.root(var)
            free = root is var and var in maker and var not in taken
            if is_write:
                storage = self.written[at]
                if free and self.may_overwrite(maker[var], var, storage, sources, order):
                    self.homes[var] = whole(self.overwriting(storage), var)
                    self.in_place.append((var, self.homes[var].buffer))
                    taken.add(var)
                else:
                    self.copies.append((var, storage))
            elif free:
                self.homes[var] = whole(
                    self.buffer(var.type.nbytes, "output", "result", number), var
                )
                taken.add(var)

    def may_overwrite(
        self, unit: Unit, var: Var, storage: Storage, sources: dict[int, list[Var]],
        order: dict[int, int],
    ) -> bool:  # fmt: skip
        """Whether a unit may compute a value right in outside memory; ``sources`` are the values
        that lie in each buffer before, ``order`` is that of the units."""
        buffer = self.storages.get(id(storage))
        array = storage.value
        if buffer is None or not isinstance(unit, Group) or not array.flags.c_contiguous:
            return False
        if array.shape != var.type.shape or var in unit.late:
            return False
        mine = order[id(unit)]
        for source in sources.get(buffer.number, ()):
            for eqn in self.values.users(source):
                reader = self.unit_of[id(eqn)]
                if reader is unit:
                    if not same_element(unit, eqn, var, source, self.values):
                        return False
                elif order[id(reader)] > mine:
                    return False
            if self.values.escapes(source):
                return False
        return True

    def overwriting(self, storage: Storage) -> Buffer:
        """A storage as the home of what it ends at: the memory, and so the number, of what it
        held, but another buffer that may still be moved."""
        held = self.storages[id(storage)]
        return Buffer(held.number, held.nbytes, "outside", held.label, storage)

    def home(self, var: Var) -> Place:
        """Where a value lies; a value that has no place yet gets one in the arena."""
        found = self.homes.get(var)
        if found is not None:
            return found
        root = self.values.root(var)
        if root is not var:
            base = self.home(root)
            offset = address_of(var.layout) - address_of(root.layout)
            return Place(
                base.buffer,
                base.offset + offset,
                var.type.shape,
                var.layout.strides,
                var.type.dtype,
            )
        eqn = self.values.maker[root]
        buffer = self.buffer(root.type.nbytes, "arena", f"{eqn.op.name} {root.type}")
        buffer.location = eqn.location
        self.homes[root] = whole(buffer, root)
        return self.homes[root]

    def steps(self, var: Var) -> tuple[int, ...]:
        """The strides of a value that has a place, or will have one by itself."""
        found = self.homes.get(var)
        return strides_of(var) if found is None else found.strides

    # -- instructions ---------------------------------------------------------------------------

    def lower(self, unit: Unit) -> None:
        first = len(self.instructions)
        self.lower_unit(unit)
        risky = may_fail(unit, self.values)
        for instruction in self.instructions[first:]:
            instruction.unit = unit
            native = instruction.kernel is not None
            instruction.may_fail = risky and None in instruction.pointers if native else True

    def lay_aside(self) -> None:
        """What an outside tensor held before is laid aside if another one is to hold it at the end
        and the former is written as well: two tensors may change places."""
        written = {id(storage) for storage in self.written}
        held = set(self.graph.inputs)
        for number, (var, storage) in enumerate(self.copies):
            source = self.home(var).buffer
            is_held = self.values.root(var) in held and source.owner is not storage
            if is_held and id(source.owner) in written and var.type.numel:
                aside = self.buffer(var.type.nbytes, "arena", f"laid aside {var.type}")
                self.copies[number] = self.copy(var, whole(aside, var)), storage

    def write_after_failures(self) -> None:
        """Nothing outside is written before the last instruction that may fail: a step that fails
        leaves everything as it was. What would be written earlier waits in the arena."""
        last = max((n for n, i in enumerate(self.instructions) if i.may_fail), default=0)
        early = {id(b) for i in self.instructions[:last] for b in i.writes}
        for var, buffer in self.in_place:
            if id(buffer) in early:
                storage = buffer.owner
                buffer.home, buffer.number, buffer.owner = "arena", len(self.buffers), None
                buffer.label = f"{self.values.maker[var].op.name} {var.type}"
                buffer.location = self.values.maker[var].location
                self.buffers.append(buffer)
                self.copy(var, whole(self.storages[id(storage)], var))

    def lower_unit(self, unit: Unit) -> None:
        if isinstance(unit, Group):
            self.lower_group(unit)
            return
        assert isinstance(unit, Single)
        if is_join(unit):
            self.lower_join(unit.eqn)
        elif not any(lower(self, unit.eqn) for lower in LOWERINGS.get(unit.eqn.op.name, ())):
            self.lower_call(unit.eqn)

    def native(
        self, label: str, kernel: Kernel, reads: Sequence[Any], writes: Sequence[Any], work: int = 0
    ) -> None:
        """Add a kernel that takes pointers to what it reads, then to what it writes (values or
        places; ``None`` for the word that tells of failures)."""
        instruction = Instruction(label)
        instruction.kernel = kernel
        instruction.work = work
        for given, used in ((reads, instruction.reads), (writes, instruction.writes)):
            for value in given:
                place = self.home(value) if isinstance(value, Var) else value
                instruction.pointers.append(place)
                if place is not None:
                    used.append(place.buffer)
        self.instructions.append(instruction)

    def scratch(self, nbytes: int, label: str) -> Place:
        """Memory for one instruction or between a few of them."""
        return Place(self.buffer(nbytes, "arena", label), 0, (nbytes,), (1,), dtypes.uint8)

    def stream(self, generator: Any) -> Place:
        """The state of a generator, which kernels that draw from it move on."""
        for buffer in self.buffers:
            if buffer.home == "stream" and self.streams[buffer.owner] is generator:
                return Place(buffer, 0, (), (), dtypes.uint8)
        self.streams.append(generator)
        made = self.buffer(STREAM_BYTES, "stream", "state of a generator", len(self.streams) - 1)
        return Place(made, 0, (), (), dtypes.uint8)

    def lower_join(self, eqn: Equation) -> None:
        """Copy the parts that were not computed in their place."""
        for var, place in self.parts_of_join(eqn):
            root = self.values.root(var)
            if root not in self.homes or self.homes[root].buffer is not place.buffer:
                self.copy(var, place)

    def parts_of_join(self, eqn: Equation) -> list[tuple[Var, Place]]:
        """The arguments of a ``cat``, each with its part of the result."""
        whole = self.home(eqn.outs[0])
        dim = eqn.attrs["dim"] % len(whole.shape)
        parts = []
        offset = whole.offset
        for var in eqn.args:
            place = Place(whole.buffer, offset, var.type.shape, whole.strides, var.type.dtype)
            if var.type.numel:
                parts.append((var, place))
                offset += var.type.shape[dim] * whole.strides[dim]
        return parts

    def join_in_place(self, eqn: Equation) -> None:
        """Let the parts of a ``cat`` be computed right in their place, if they are for it alone."""
        for var, place in self.parts_of_join(eqn):
            root = self.values.root(var)
            if root in self.homes or self.values.escapes(root) or not self.is_reshaped(var):
                continue
            made_by = self.values.maker.get(root)
            if made_by is None or len(list(self.values.users(root))) != 1:
                continue
            unit = self.unit_of[id(made_by)]
            if isinstance(unit, Single) and made_by.op.name not in (*_PRODUCTS, *_BY_ROWS):
                continue
            if isinstance(unit, Group) and root in unit.late:
                continue
            laid = np.lib.stride_tricks.as_strided(
                np.empty(1, place.dtype.np), place.shape, place.strides
            )
            try:
                shaped = laid.reshape(root.type.shape, copy=False)
            except ValueError:
                continue  # it does not lie there as one piece
            if isinstance(unit, Single) and shaped.strides[-1] != shaped.itemsize:
                continue
            if made_by.op.name in _PRODUCTS and len(root.type.shape) != 2:
                continue
            self.homes[root] = Place(
                place.buffer, place.offset, root.type.shape, shaped.strides, place.dtype
            )

    def is_reshaped(self, var: Var) -> bool:
        """Whether a value is all of its root, in its order, in another shape."""
        root = self.values.root(var)
        laid = (var.layout, root.layout)
        return var.type.numel == root.type.numel and all(x.flags.c_contiguous for x in laid)

    def copy(self, var: Var, place: Place) -> Var:
        """Write a value to another place; gives it as a value that lies there."""
        specialization = TABLE["clone"].resolve((var.type,), (var.type,), {})
        out = Var(var.type, var.trace)
        eqn = Equation(specialization, (var,), (out,), None)
        group = Group(0, var.type.shape)
        group.members.append(eqn)
        group.axes[out] = group.maps[id(eqn)] = tuple(range(len(var.type.shape)))
        self.homes[out] = place
        self.lower_group(group)
        return out

    def lower_group(self, group: Group) -> None:
        made = {e.outs[0] for e in group.members}
        stored = {v for v in made if self.needed_outside(v, group)}
        writer = LoopWriter(group, self.values, lambda v: v.layout, self.steps, stored)
        give_places(self, writer)
        kernel = writer.write()
        awaited = self.awaited.pop(id(group), None)
        meets = awaited is not None and awaited.fuses(self, kernel)
        instruction = Instruction("+".join(e.op.name for e in group.members[:6]))
        instruction.kernel = kernel
        instruction.work = prod(group.shape) * len(group.members)
        parts: dict[Var, Place] = {}
        for kind, value in kernel.slots:
            if kind == "status":
                instruction.pointers.append(None)
                continue
            if kind == "partial":
                place = self.partial(value, kernel, parts)
            else:
                place = self.home(value)
            instruction.pointers.append(place)
            (instruction.reads if kind == "read" else instruction.writes).append(place.buffer)
        if meets:
            instruction = awaited.fused(self, group, instruction)
        self.instructions.append(instruction)
        for var, name, length in kernel.partials:
            self.combine(var, name, length, kernel, parts[var])

    def needed_outside(self, var: Var, group: Group) -> bool:
        if var in self.homes or self.values.escapes(var) or var in group.late:
            return True
        return any(self.unit_of[id(e)] is not group for e in self.values.users(var))

    def partial(self, var: Var, kernel: Kernel, parts: dict[Var, Place]) -> Place:
        length = next(n for v, _, n in kernel.partials if v is var)
        size = 8 if var.type.dtype is dtypes.float64 or var.type.dtype is dtypes.int64 else 4
        buffer = self.buffer(size * length * kernel.chunks, "arena", f"partial sums {var.type}")
        parts[var] = Place(buffer, 0, (), (), var.type.dtype)
        return parts[var]

    def combine(self, var: Var, name: str, length: int, kernel: Kernel, parts: Place) -> None:
        blocks = var.type.numel // length
        combined = combination(name, var.type.dtype, kernel.chunks // blocks, length)
        combined.chunks = blocks
        self.native(f"combine {name}", combined, [parts], [var])

    def lower_call(self, eqn: Equation) -> None:
        instruction = Instruction(f"call {eqn.op.name}")
        instruction.eqn = eqn
        instruction.args = [self.home(a) if isinstance(a, Var) else a for a in eqn.args]
        instruction.outs = [self.home(out) for out in eqn.outs]
        instruction.reads = [a.buffer for a in instruction.args if isinstance(a, Place)]
        instruction.writes = [p.buffer for p in instruction.outs]
        self.instructions.append(instruction)


def _own_equations(graph: Graph) -> Graph:
    """The graph with equations that may be changed: values are computed again in other units."""
    equations = [
        Equation(e.specialization, e.args, e.outs, e.location, e.no_grad) for e in graph.equations
    ]
    return Graph(graph.inputs, (), equations, graph.outputs)


def is_join(unit: Unit) -> bool:
    """Whether a unit only puts parts together that kernels can write."""
    if not isinstance(unit, Single) or unit.eqn.op.name != "cat":
        return False
    return unit.eqn.outs[0].type.dtype in KINDS and unit.eqn.outs[0].type.numel > 0


def may_fail(unit: Unit, values: Values) -> bool:
    """Whether a unit's lookups may meet an index out of range. The gradient of a lookup takes the
    indices that the lookup has seen."""
    if not isinstance(unit, Single) or unit.eqn.op.name != "index_sum":
        return True
    _, *indices = unit.eqn.args
    return not any(
        e.op.name == "index"
        and list(e.args[1:]) == indices
        and e.attrs["start"] == unit.eqn.attrs["start"] == 0
        and e.args[0].type.shape[: len(indices)] == unit.eqn.attrs["extents"][: len(indices)]
        for e in values.uses.get(indices[0], ())
    )


def same_element(group: Group, eqn: Equation, var: Var, source: Var, values: Values) -> bool:
    """Whether a kernel that overwrites ``source`` by ``var`` reads each element of it only to
    compute the one that takes its place."""
    if group.inner is not None or eqn.op.name in ("index", "gather"):
        return False
    if group.varying(group.axes[var]) != group.dims:
        return False
    for arg in eqn.args:
        if isinstance(arg, Var) and values.root(arg) is source:
            if arg.type.shape != var.type.shape or arg.layout.strides != strides_of(var):
                return False
            if group.maps[id(eqn)] != group.axes[var]:
                return False
    return True
