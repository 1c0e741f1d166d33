"""A graph as native code with a planned memory, ready to run.

:class:`Program` puts the parts together: units become instructions over buffers, instructions are
put into waves, buffers into the arena, kernels into machine code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod
from typing import Any

import numpy as np

from evergrad.compiler import llvm
from evergrad.compiler.fuse import Group, Single, Unit, Values, fuse
from evergrad.compiler.gemm import gemm_kernel, product_of
from evergrad.compiler.loops import Kernel, LoopWriter, combination
from evergrad.compiler.plan import Buffer, Plan
from evergrad.compiler.rewrite import fold, rewrite
from evergrad.compiler.team import Run
from evergrad.compiler.scalar import KINDS
from evergrad.compiler.row_sums import row_sum_fits, row_sum_kernel
from evergrad.core import dtypes
from evergrad.core.op import TABLE
from evergrad.core.quiet import QUIET, numpy_errors
from evergrad.core.shapes import contiguous_strides, tensor_type
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, fresh, from_array
from evergrad.core.trace import Equation, Graph, Var
from evergrad.memory import pool

# Programs with less work than this (elements and products) run on the calling thread alone.
_WORTH_THREADS = 1 << 17


class Place:
    """A value in a buffer."""

    __slots__ = ("buffer", "dtype", "offset", "shape", "strides")

    def __init__(
        self,
        buffer: Buffer,
        offset: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        found: Any,
    ) -> None:
        self.buffer = buffer
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.dtype = found


class Instruction:
    """One kernel with its arguments, or one call of a NumPy evaluation."""

    __slots__ = ("args", "eqn", "kernel", "label", "outs", "pointers", "reads", "work", "writes")

    def __init__(self, label: str) -> None:
        self.label = label
        self.kernel: Kernel | None = None
        self.pointers: list[Place | None] = []  # None: the word that tells of failures
        self.eqn: Equation | None = None
        self.args: list[Any] = []
        self.outs: list[Place] = []
        self.reads: list[Buffer] = []
        self.writes: list[Buffer] = []
        self.work = 0


class Program:
    """A compiled graph.

    ``outside`` gives for each outside tensor of the graph its array; ``written`` the arrays that
    take the outputs after the results.
    """

    def __init__(
        self, graph: Graph, arguments: int, numbers: int, outside: Sequence[Tensor],
        results: int, written: Sequence[Storage],
    ) -> None:  # fmt: skip
        self.graph, constants = fold(rewrite(graph))
        self.arguments = arguments
        self.numbers = numbers
        self.outside = [*outside, *constants]
        self.written = list(written)
        self.results = results
        self.buffers: list[Buffer] = []
        self.homes: dict[Var, Place] = {}
        self.storages: dict[int, Buffer] = {}
        self.constants: list[Any] = []
        self.status = np.zeros(8, np.int64)
        self.units, self.values = fuse(self.graph)
        self.place_inputs()
        self.choose_targets()
        self.instructions: list[Instruction] = []
        for unit in self.units:
            if is_join(unit):
                self.join_in_place(unit.eqn)  # type: ignore[attr-defined]
        for unit in self.units:
            self.lower(unit)
        self.waves = in_waves(self.instructions)
        self.plan = self.make_plan()
        self.bound = False

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
        maker = {
            out: unit
            for unit in self.units
            for out in (
                [e.outs[0] for e in unit.members] if isinstance(unit, Group) else unit.eqn.outs  # type: ignore[attr-defined]
            )
        }
        self.copies: list[tuple[Var, Any]] = []  # what is copied to its place at the end
        self.fresh_outputs: list[tuple[int, Var]] = []
        taken: set[Var] = set()
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
                if free and self.may_overwrite(maker[var], var, storage, order):
                    buffer = self.storages[id(storage)]
                    self.homes[var] = whole(buffer, var)
                    taken.add(var)
                else:
                    self.copies.append((var, storage))
            elif free:
                self.homes[var] = whole(
                    self.buffer(var.type.nbytes, "output", "result", number), var
                )
                taken.add(var)

    def may_overwrite(self, unit: Unit, var: Var, storage: Storage, order: dict[int, int]) -> bool:
        buffer = self.storages.get(id(storage))
        array = storage.value
        if buffer is None or not isinstance(unit, Group) or not array.flags.c_contiguous:
            return False
        if array.shape != var.type.shape or var in unit.late:
            return False
        mine = order[id(unit)]
        for source, place in self.homes.items():
            if place.buffer is not buffer:
                continue
            for eqn in self.values.users(source):
                reader = self.unit_using(eqn)
                if reader is unit:
                    if not same_element(unit, eqn, var, source, self.values):
                        return False
                elif order[id(reader)] > mine:
                    return False
            if self.values.escapes(source):
                return False
        return True

    def unit_using(self, eqn: Equation) -> Unit:
        if not hasattr(self, "_unit_of"):
            self._unit_of: dict[int, Unit] = {}
            for unit in self.units:
                members = unit.members if isinstance(unit, Group) else [unit.eqn]  # type: ignore[attr-defined]
                for member in members:
                    self._unit_of[id(member)] = unit
        return self._unit_of[id(eqn)]

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
        buffer.site = eqn.site
        self.homes[root] = whole(buffer, root)
        return self.homes[root]

    # -- instructions ---------------------------------------------------------------------------

    def lower(self, unit: Unit) -> None:
        if isinstance(unit, Group):
            self.lower_group(unit)
            return
        assert isinstance(unit, Single)
        eqn = unit.eqn
        if eqn.op.name in ("matmul", "linear"):
            product = product_of(eqn, eqn.args[0].layout, eqn.args[1].layout)
            if product is not None:
                self.lower_product(eqn, product)
                return
        if is_join(unit):
            self.lower_join(eqn)
        elif eqn.op.name == "index_sum" and row_sum_fits(eqn):
            self.lower_row_sum(eqn)
        else:
            self.lower_call(eqn)

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
        """Let the parts of a ``cat`` be computed right in their place, if it is all they are for."""
        for var, place in self.parts_of_join(eqn):
            root = self.values.root(var)
            if root in self.homes or self.values.escapes(root) or not self.is_reshaped(var):
                continue
            made_by = self.values.maker.get(root)
            if made_by is None or len(list(self.values.users(root))) != 1:
                continue
            unit = self.unit_using(made_by)
            if isinstance(unit, Single) and made_by.op.name not in ("matmul", "linear"):
                continue
            if isinstance(unit, Group) and root in unit.late:
                continue
            laid = np.lib.stride_tricks.as_strided(
                np.empty(1, place.dtype.np), place.shape, place.strides
            )
            shaped = laid.view()
            try:
                shaped.shape = root.type.shape
            except (AttributeError, ValueError):
                continue  # it does not lie there as one piece
            if isinstance(unit, Single) and shaped.strides[-1] != shaped.itemsize:
                continue
            if isinstance(unit, Single) and len(root.type.shape) != 2:
                continue
            self.homes[root] = Place(
                place.buffer, place.offset, root.type.shape, shaped.strides, place.dtype
            )

    def is_reshaped(self, var: Var) -> bool:
        """Whether a value is all of its root, in another shape."""
        while (source := self.values.view_of(var)) is not None:
            if self.values.maker[var].op.name != "reshape":
                return False
            var = source
        return True

    def copy(self, var: Var, place: Place) -> None:
        """Write a value to another place."""
        rule = TABLE["clone"].resolve((var.type,), (var.type,), {})
        out = Var(var.type, var.trace)
        eqn = Equation(rule, (var,), (out,), None)
        group = Group(0, var.type.shape)
        group.members.append(eqn)
        group.axes[out] = group.maps[id(eqn)] = tuple(range(len(var.type.shape)))
        self.homes[out] = place
        self.lower_group(group)

    def lower_row_sum(self, eqn: Equation) -> None:
        instruction = Instruction("index_sum")
        instruction.kernel = row_sum_kernel(eqn)
        places = [self.home(v) for v in (*eqn.args, eqn.outs[0])]
        instruction.pointers = [*places, None]
        instruction.reads = [p.buffer for p in places[:2]]
        instruction.writes = [places[2].buffer]
        instruction.work = eqn.args[0].type.numel
        self.instructions.append(instruction)

    def lower_group(self, group: Group) -> None:
        made = {e.outs[0] for e in group.members}
        stored = {v for v in made if self.needed_outside(v, group)}
        kernel = LoopWriter(
            group, self.values, lambda v: v.layout, lambda v: self.home(v).strides, stored
        ).write()
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
        self.instructions.append(instruction)
        for var, name, length in kernel.partials:
            self.combine(var, name, length, kernel, parts[var])

    def needed_outside(self, var: Var, group: Group) -> bool:
        if var in self.homes or self.values.escapes(var) or var in group.late:
            return True
        return any(self.unit_using(e) is not group for e in self.values.users(var))

    def partial(self, var: Var, kernel: Kernel, parts: dict[Var, Place]) -> Place:
        length = next(n for v, _, n in kernel.partials if v is var)
        size = 8 if var.type.dtype is dtypes.float64 or var.type.dtype is dtypes.int64 else 4
        buffer = self.buffer(size * length * kernel.chunks, "arena", f"partial sums {var.type}")
        parts[var] = Place(buffer, 0, (), (), var.type.dtype)
        return parts[var]

    def combine(self, var: Var, name: str, length: int, kernel: Kernel, parts: Place) -> None:
        instruction = Instruction(f"combine {name}")
        instruction.kernel = combination(name, var.type.dtype, kernel.chunks, length)
        target = self.home(var)
        instruction.pointers = [parts, target]
        instruction.reads, instruction.writes = [parts.buffer], [target.buffer]
        self.instructions.append(instruction)

    def lower_product(self, eqn: Equation, product: Any) -> None:
        instruction = Instruction(f"{eqn.op.name} {product.m}x{product.n}x{product.k}")
        places = [self.home(v) for v in (*eqn.args, eqn.outs[0])]
        found = eqn.outs[0].type.dtype
        leading = places[2].strides[-2] // found.itemsize if len(places[2].shape) > 1 else product.n
        instruction.kernel = gemm_kernel(product, found, max(leading, product.n))
        instruction.pointers = list(places)
        instruction.reads = [p.buffer for p in places[:2]]
        instruction.writes = [places[2].buffer]
        instruction.work = product.m * product.n * product.k * prod(product.batch) // 8
        self.instructions.append(instruction)

    def lower_call(self, eqn: Equation) -> None:
        instruction = Instruction(f"call {eqn.op.name}")
        instruction.eqn = eqn
        instruction.args = [self.home(a) if isinstance(a, Var) else a for a in eqn.args]
        instruction.outs = [self.home(out) for out in eqn.outs]
        instruction.reads = [a.buffer for a in instruction.args if isinstance(a, Place)]
        instruction.writes = [p.buffer for p in instruction.outs]
        self.instructions.append(instruction)

    # -- memory ---------------------------------------------------------------------------------

    def make_plan(self) -> Plan:
        for wave, instructions in enumerate(self.waves):
            for instruction in instructions:
                for buffer in (*instruction.reads, *instruction.writes):
                    buffer.used_in(wave)
        for var in self.graph.outputs:  # what is copied out at the end lives to the end
            if isinstance(var, Var):
                buffer = self.home(var).buffer
                buffer.used_in(len(self.waves) - 1)
        return Plan(self.buffers, len(self.waves))

    def bind(self) -> None:
        """Take memory and compile; the program can run afterwards."""
        size = max(self.plan.peak, 64)
        memory = pool.empty((size + 64,), np.dtype(np.uint8))
        shift = -address_of(memory) % 64
        self.arena = fresh(memory, tensor_type((size + 64,), dtypes.uint8))
        self.arena_address = address_of(memory) + shift
        self.arena_bytes = memory[shift : shift + size]
        self.number_values = np.zeros(max(self.numbers, 1), np.float64)
        kernels = [i.kernel for i in self.instructions if i.kernel is not None]
        addresses = llvm.addresses(kernels)
        self.patches: dict[int, list[tuple[Any, int, int]]] = {}
        self.segments: list[Any] = []
        self.keep: list[Any] = []
        tasks: list[tuple[int, int, int]] = []
        ends: list[int] = []
        scratch = 64

        def close() -> None:
            nonlocal tasks, ends, scratch
            if tasks:
                table = np.array(tasks, np.int64).reshape(-1)
                self.segments.append(Run(table, ends, scratch, self.status))
            tasks, ends, scratch = [], [], 64

        for wave in self.waves:
            if wave[0].kernel is None:
                close()
                self.segments.append(self.python_call(wave[0]))
                continue
            for instruction in wave:
                kernel = instruction.kernel
                assert kernel is not None
                args = self.argument_block(instruction)
                scratch = max(scratch, kernel.scratch)
                for chunk in range(kernel.chunks):
                    tasks.append((addresses[kernel.name], address_of(args), chunk))
            ends.append(len(tasks))
        close()
        work = sum(i.work for i in self.instructions)
        self.threads = 2 if work > _WORTH_THREADS else 1
        self.bound = True

    def argument_block(self, instruction: Instruction) -> Any:
        kernel = instruction.kernel
        assert kernel is not None
        block = np.zeros(len(instruction.pointers) + len(kernel.numbers), np.int64)
        self.keep.append(block)
        for slot, place in enumerate(instruction.pointers):
            if place is None:
                block[slot] = address_of(self.status)
                continue
            buffer = place.buffer
            if buffer.home in ("input", "output"):
                self.patches.setdefault(buffer.number, []).append((block, slot, place.offset))
            else:
                block[slot] = self.fixed_address(buffer) + place.offset
        block[len(instruction.pointers) :] = kernel.numbers
        return block

    def fixed_address(self, buffer: Buffer) -> int:
        if buffer.home == "arena":
            return self.arena_address + buffer.offset
        if buffer.home == "number":
            return address_of(self.number_values) + 8 * int(buffer.owner)
        return address_of(buffer.owner.value)

    # -- running --------------------------------------------------------------------------------

    def run(self, arguments: Sequence[Any], numbers: Iterable[float]) -> list[Any]:
        """Run on arrays; gives the arrays of the outputs that are not written in place."""
        if not self.bound:
            self.bind()
        for number, value in enumerate(numbers):
            self.number_values[number] = value
        current: dict[int, Any] = {}
        for buffer in self.buffers:
            if buffer.home == "input":
                current[buffer.number] = arguments[buffer.owner]
            elif buffer.home == "output":
                var = self.graph.outputs[buffer.owner]
                current[buffer.number] = pool.empty(var.type.shape, var.type.dtype.np)
        for number, array in current.items():
            start = address_of(array)
            for block, slot, offset in self.patches.get(number, ()):
                block[slot] = start + offset
        self.current = current
        self.status[0] = 0
        token = numpy_errors.set(QUIET)
        try:
            for segment in self.segments:
                if isinstance(segment, Run):
                    segment.run(self.threads)
                    if self.status[0]:
                        raise IndexError(
                            "an index is out of range in a lookup inside the compiled program; "
                            "nothing was written"
                        )
                else:
                    segment()
            return self.outputs()
        finally:
            numpy_errors.reset(token)
            self.current = {}

    def outputs(self) -> list[Any]:
        for var, storage in self.copies:
            np.copyto(storage.value, self.array(self.home(var)))
        for storage in self.written:
            storage.version += 1
        found: list[Any] = []
        for number, var in enumerate(self.graph.outputs):
            is_write = 0 <= number - self.results < len(self.written)
            if is_write or not isinstance(var, Var):
                found.append(None if is_write else var)
                continue
            place = self.home(var)
            array = self.array(place)
            if place.buffer.home != "output" or place.buffer.owner != number:
                array = pool.copy(array)
            found.append(array)
        return found

    def array(self, place: Place) -> Any:
        """A place as an array."""
        buffer = place.buffer
        if buffer.home == "arena":
            base, start = self.arena_bytes, self.arena_address + buffer.offset
        elif buffer.home == "number":
            base = self.number_values
            start = address_of(base) + 8 * int(buffer.owner)
        else:
            inside = buffer.home in ("input", "output")
            base = self.current[buffer.number] if inside else buffer.owner.value
            start = address_of(base)
        return np.asarray(_Window(base, start + place.offset, place)).view(place.dtype.np)

    def python_call(self, instruction: Instruction) -> Callable[[], None]:
        eqn = instruction.eqn
        assert eqn is not None

        def call() -> None:
            given = [self.array(a) if isinstance(a, Place) else a for a in instruction.args]
            if hasattr(eqn.rule, "run"):
                result = eqn.rule.run(*given)
            else:
                found = eqn.apply(
                    *[from_array(g) if isinstance(g, np.ndarray) else g for g in given]
                )
                result = found._value if eqn.op.outputs == 1 else tuple(f._value for f in found)
            results = (result,) if eqn.op.outputs == 1 else result
            for place, value in zip(instruction.outs, results, strict=True):
                np.copyto(self.array(place), value)

        return call


def is_join(unit: Unit) -> bool:
    """Whether a unit only puts parts together that kernels can write."""
    if not isinstance(unit, Single) or unit.eqn.op.name != "cat":
        return False
    return unit.eqn.outs[0].type.dtype in KINDS and unit.eqn.outs[0].type.numel > 0


def in_waves(instructions: Sequence[Instruction]) -> list[list[Instruction]]:
    """Instructions that may run at the same time, in their order; a Python call stands alone."""
    waves: list[list[Instruction]] = []
    read: set[int] = set()
    written: set[int] = set()
    for instruction in instructions:
        reads = {b.number for b in instruction.reads}
        writes = {b.number for b in instruction.writes}
        clash = reads & written or writes & written or writes & read
        alone = instruction.kernel is None
        if not waves or clash or alone or waves[-1][0].kernel is None:
            waves.append([])
            read, written = set(), set()
        waves[-1].append(instruction)
        read |= reads
        written |= writes
    return waves


def same_element(group: Group, eqn: Equation, var: Var, source: Var, values: Values) -> bool:
    """Whether a kernel that overwrites ``source`` by ``var`` reads each element of it only to
    compute the one that takes its place."""
    if group.inner is not None or eqn.op.name in ("index", "gather"):
        return False
    if group.varying(group.axes[var]) != group.dims:
        return False
    for arg in eqn.args:
        if isinstance(arg, Var) and values.root(arg) is source:
            if arg.type.shape != var.type.shape or arg.layout.strides != _strides(var):
                return False
            if group.maps[id(eqn)] != group.axes[var]:
                return False
    return True


def _strides(var: Var) -> tuple[int, ...]:
    size = var.type.dtype.itemsize
    return tuple(s * size for s in contiguous_strides(var.type.shape))


def whole(buffer: Buffer, var: Var) -> Place:
    return Place(buffer, 0, var.type.shape, _strides(var), var.type.dtype)


def address_of(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


class _Window:
    """Memory of an array, seen with another shape."""

    def __init__(self, base: Any, start: int, place: Place) -> None:
        self.base = base
        self.__array_interface__ = {
            "shape": place.shape, "strides": place.strides, "data": (start, False), "version": 3,
            "typestr": f"|V{place.dtype.itemsize}",
        }  # fmt: skip
