"""Serialization of executables.

The format is plain tuples of numbers and strings. References into the process (storages, random
generators, source locations) are written as indices into the step's
:class:`~evergrad.compiler.cache.process_bindings.ProcessBindings`, which the fingerprint covers, so
that they are equal in both processes.
"""

from __future__ import annotations

import marshal
from typing import Any

import numpy as np

from evergrad.compiler.cache.executable import Executable
from evergrad.compiler.cache.process_bindings import ProcessBindings
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm import openblas
from evergrad.compiler.native import jit
from evergrad.compiler.schedule.buffers import Buffer, BufferView
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.core import dtypes
from evergrad.core.shapes import tensor_type
from evergrad.core.storage import Storage
from evergrad.core.tensor import fresh

# Executables with more bytes of constants are not written.
_MOST_CONSTANTS = 16 << 20


def serialize(executable: Executable, bindings: ProcessBindings) -> bytes | None:
    """The bytes of an executable whose kernels have machine code; ``None`` if it has Python calls
    or too many constants."""
    if any(instruction.kernel is None for instruction in executable.instructions):
        return None
    return _Serializer(executable, bindings).data()


class _Serializer:
    """Buffers, buffer views and storages by their numbers."""

    def __init__(self, executable: Executable, bindings: ProcessBindings) -> None:
        self.executable = executable
        self.bindings = bindings
        self.buffers = list(executable.buffers)
        self.buffer_numbers = {id(b): n for n, b in enumerate(self.buffers)}
        self.places: list[BufferView] = []
        self.place_numbers: dict[int, int] = {}
        # The outside storages, then those of folded constants.
        self.storages: list[Storage] = list(bindings.storages)
        self.storage_numbers = {id(s): n for n, s in enumerate(self.storages)}
        locations = enumerate(bindings.locations)
        self.location_numbers = {id(found): n for n, found in locations if found is not None}

    def data(self) -> bytes | None:
        executable, generators = self.executable, self.bindings.generators
        waves = [[self.instruction(i) for i in wave] for wave in executable.waves]
        outputs = [self.place(o) if isinstance(o, BufferView) else None for o in executable.outputs]
        copies = [(self.place(p), self.storage(s)) for p, s in executable.copies]
        places = [
            (self.buffer(p.buffer), int(p.offset), _ints(p.shape), _ints(p.strides), p.dtype.name)
            for p in self.places
        ]
        buffers = [self.form(buffer) for buffer in self.buffers]
        folded = self.storages[len(self.bindings.storages) :]
        if sum(storage.nbytes for storage in folded) > _MOST_CONSTANTS:
            return None
        constants = [(s.type.dtype.name, s.type.shape, _content(s)) for s in folded]
        kernels = {
            kernel.name for i in executable.instructions if i.kernel is not None
            for kernel in (i.kernel, *i.kernel.calls.values())
        }  # fmt: skip
        return marshal.dumps((
            jit.files_of(sorted(kernels)),
            constants,
            buffers, len(executable.buffers), places, waves, outputs, copies,
            [generators.index(g) for g in executable.streams],
            [generators.index(g) for g in executable.generators],
            executable.plan.peak,
        ))  # fmt: skip

    def form(self, b: Buffer) -> tuple[Any, ...]:
        owner = self.storage(b.owner) if b.kind == "outside" else b.owner
        location = self.location_numbers.get(id(b.location))
        return (
            b.number, int(b.nbytes), b.kind, b.label, owner, location, b.first, b.last,
            int(b.offset),
        )  # fmt: skip

    def buffer(self, buffer: Buffer) -> int:
        """The number of a buffer; those that alias another one's memory are added when met."""
        return _number_of(buffer, self.buffers, self.buffer_numbers)

    def place(self, place: BufferView) -> int:
        return _number_of(place, self.places, self.place_numbers)

    def storage(self, storage: Storage) -> int:
        return _number_of(storage, self.storages, self.storage_numbers)

    def instruction(self, instruction: Instruction) -> tuple[Any, ...]:
        kernel = instruction.kernel
        assert kernel is not None
        numbers = [0 if n in kernel.products else int(x) for n, x in enumerate(kernel.numbers)]
        return (
            instruction.label, int(instruction.work), bool(instruction.may_fail),
            [None if p is None else self.place(p) for p in instruction.pointers],
            [self.buffer(b) for b in instruction.reads],
            [self.buffer(b) for b in instruction.writes],
            (
                kernel.name, numbers, kernel.products,
                {place: called.name for place, called in kernel.calls.items()},
                int(kernel.chunks), int(kernel.scratch),
            ),
        )  # fmt: skip


def _number_of(item: Any, items: list[Any], numbers: dict[int, int]) -> int:
    number = numbers.get(id(item))
    if number is None:
        number = numbers[id(item)] = len(items)
        items.append(item)
    return number


def _content(storage: Storage) -> bytes:
    assert isinstance(storage.value, np.ndarray)
    return storage.value.tobytes()


def _ints(values: Any) -> tuple[int, ...]:
    return tuple([int(value) for value in values])


def deserialize(data: bytes, bindings: ProcessBindings) -> Executable | None:
    """An executable of the same step, bound to this process; ``None`` if object code of its kernels
    is missing."""
    (
        files, constants, buffer_forms, planned, place_forms, wave_forms, outputs, copies, streams,
        generators, peak,
    ) = marshal.loads(data)  # fmt: skip
    if not jit.load_files(files):
        return None
    storages = [*bindings.storages, *(_constant(*constant) for constant in constants)]
    buffers = [_buffer(form, storages, bindings) for form in buffer_forms]
    places = [
        BufferView(buffers[number], offset, shape, strides, dtypes.BY_NAME[name])
        for number, offset, shape, strides, name in place_forms
    ]
    return Executable(
        buffers[:planned],
        [[_instruction(form, buffers, places) for form in wave] for wave in wave_forms],
        [
            constant if number is None else places[number]
            for number, constant in zip(outputs, bindings.constants, strict=True)
        ],
        [(places[place], storages[storage]) for place, storage in copies],
        bindings.written, bindings.results, bindings.numbers,
        [bindings.generators[n] for n in streams], [bindings.generators[n] for n in generators],
        peak,
    )  # fmt: skip


def _constant(name: str, shape: tuple[int, ...], data: bytes) -> Storage:
    dtype = dtypes.BY_NAME[name]
    array = np.frombuffer(bytearray(data), dtype.np).reshape(shape)
    return fresh(array, tensor_type(shape, dtype))._storage


def _buffer(form: tuple[Any, ...], storages: list[Storage], bindings: ProcessBindings) -> Buffer:
    number, nbytes, home, label, owner, location, first, last, offset = form
    made = Buffer(number, nbytes, home, label, storages[owner] if home == "outside" else owner)
    made.location = None if location is None else bindings.locations[location]
    made.first, made.last, made.offset = first, last, offset
    return made


def _instruction(
    form: tuple[Any, ...], buffers: list[Buffer], places: list[BufferView]
) -> Instruction:
    label, work, may_fail, pointers, reads, writes, kernel = form
    made = Instruction(label)
    made.kernel = _kernel(*kernel)
    made.work, made.may_fail = work, may_fail
    made.pointers = [None if number is None else places[number] for number in pointers]
    made.reads = [buffers[number] for number in reads]
    made.writes = [buffers[number] for number in writes]
    return made


def _kernel(
    name: str, numbers: list[int], products: dict[int, str], calls: dict[int, str], chunks: int,
    scratch: int,
) -> Kernel:  # fmt: skip
    """A kernel that has an address, without its IR."""
    made = Kernel(name, "")
    made.calls = {place: Kernel(called, "") for place, called in calls.items()}
    made.numbers, made.products = numbers, products
    made.chunks, made.scratch = chunks, scratch
    for place, element in products.items():
        numbers[place] = openblas.address(dtypes.BY_NAME[element])
    return made
