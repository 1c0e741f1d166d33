"""Serialization of executables.

The format is JSON: lists of numbers and strings, the bytes of constants in base64. References into
the process (storages, random generators, source locations) are written as indices into the step's
:class:`~evergrad.compiler.cache.process_bindings.ProcessBindings`, which the fingerprint covers, so
that they are equal in both processes.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.cache.executable import Executable
from evergrad.compiler.cache.process_bindings import ProcessBindings
from evergrad.compiler.codegen.kernel import Kernel
from evergrad.compiler.kernels.gemm import openblas
from evergrad.compiler.native import jit
from evergrad.compiler.schedule.buffers import Buffer, BufferView
from evergrad.compiler.schedule.instructions import Instruction
from evergrad.core import dtypes
from evergrad.core.op import TABLE
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.storage import Storage
from evergrad.core.tensor import fresh
from evergrad.core.trace import Equation

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

# Executables with more bytes of constants are not written.
_MOST_CONSTANTS = 16 << 20
# Classes of numbers that arguments of a NumPy call have.
_NUMBERS = (int, float, bool)


def serialize(executable: Executable, bindings: ProcessBindings) -> bytes | None:
    """The bytes of an executable whose kernels have machine code; ``None`` if it has calls that are
    not NumPy's, or too many constants."""
    if all(i.kernel is not None or _is_plain_call(i) for i in executable.instructions):
        return _Serializer(executable, bindings).data()
    return None


def _is_plain_call(instruction: Instruction) -> bool:
    """Whether an instruction is a call of NumPy, of an op of the table with plain attributes."""
    eqn = instruction.eqn
    assert eqn is not None
    given = [a for a in instruction.args if not isinstance(a, BufferView)]
    is_known = eqn.op in TABLE.values() and not eqn.op.random
    types = eqn.specialization.types
    is_known = is_known and all(isinstance(t, TensorType) or t in _NUMBERS for t in types)
    return is_known and hasattr(eqn.specialization, "run") and _is_plain((given, eqn.attrs))


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(item) for item in value.items())
    if value.__class__ in (tuple, list):
        return all(map(_is_plain, value))
    return value.__class__ in (int, float, bool, str, type(None))


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
        return json.dumps((
            jit.files_of(sorted(kernels)),
            constants,
            buffers, len(executable.buffers), places, waves, outputs, copies,
            [generators.index(g) for g in executable.streams],
            [generators.index(g) for g in executable.generators],
            executable.plan.peak,
        )).encode()  # fmt: skip

    def form(self, b: Buffer) -> tuple[int | str | None, ...]:
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

    def instruction(self, instruction: Instruction) -> tuple[object, ...]:
        return (
            instruction.label, int(instruction.work), bool(instruction.may_fail),
            [None if p is None else self.place(p) for p in instruction.pointers],
            [self.buffer(b) for b in instruction.reads],
            [self.buffer(b) for b in instruction.writes],
            None if instruction.kernel is None else self.kernel(instruction.kernel),
            None if instruction.eqn is None else self.call(instruction),
        )  # fmt: skip

    def kernel(self, kernel: Kernel) -> tuple[Any, ...]:
        numbers = [0 if n in kernel.products else int(x) for n, x in enumerate(kernel.numbers)]
        return (
            kernel.name, numbers, list(kernel.products.items()),
            [(place, called.name) for place, called in kernel.calls.items()],
            int(kernel.chunks), int(kernel.scratch),
        )  # fmt: skip

    def call(self, instruction: Instruction) -> tuple[Any, ...]:
        eqn = instruction.eqn
        assert eqn is not None
        is_view = [isinstance(a, BufferView) for a in instruction.args]
        return (
            eqn.op.name, _encoded(eqn.attrs), [_type(t) for t in eqn.specialization.types], is_view,
            [self.place(a) if isinstance(a, BufferView) else _encoded(a) for a in instruction.args],
            [self.place(out) for out in instruction.outs],
            self.location_numbers.get(id(eqn.location)),
        )  # fmt: skip


def _number_of(item: Buffer | BufferView | Storage, items: Leaves, numbers: dict[int, int]) -> int:
    number = numbers.get(id(item))
    if number is None:
        number = numbers[id(item)] = len(items)
        items.append(item)
    return number


def _content(storage: Storage) -> str:
    assert isinstance(storage.value, np.ndarray)
    return b64encode(storage.value.tobytes()).decode("ascii")


def _ints(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([int(value) for value in values])


def deserialize(data: bytes, bindings: ProcessBindings) -> Executable | None:
    """An executable of the same step, bound to this process; ``None`` if object code of its kernels
    is missing."""
    (
        files, constants, buffer_forms, planned, place_forms, wave_forms, outputs, copies, streams,
        generators, peak,
    ) = json.loads(data)  # fmt: skip
    if not jit.load_files(files):
        return None
    storages = [*bindings.storages, *(_constant(*constant) for constant in constants)]
    buffers = [_buffer(form, storages, bindings) for form in buffer_forms]
    places = [
        BufferView(buffers[number], offset, tuple(shape), tuple(strides), dtypes.BY_NAME[name])
        for number, offset, shape, strides, name in place_forms
    ]
    made = Executable(
        buffers[:planned],
        [[_instruction(form, buffers, places, bindings) for form in wave] for wave in wave_forms],
        [
            constant if number is None else places[number]
            for number, constant in zip(outputs, bindings.constants, strict=True)
        ],
        [(places[place], storages[storage]) for place, storage in copies],
        bindings.written, bindings.results, bindings.numbers,
        [bindings.generators[n] for n in streams], [bindings.generators[n] for n in generators],
        peak,
    )  # fmt: skip
    made.constant_bytes = sum(s.nbytes for s in storages[len(bindings.storages) :])
    return made


def _constant(name: str, extents: list[int], data: str) -> Storage:
    dtype, shape = dtypes.BY_NAME[name], tuple(extents)
    array = np.frombuffer(bytearray(b64decode(data)), dtype.np).reshape(shape)
    return fresh(array, tensor_type(shape, dtype))._storage


def _buffer(form: tuple[Any, ...], storages: list[Storage], bindings: ProcessBindings) -> Buffer:
    number, nbytes, home, label, owner, location, first, last, offset = form
    made = Buffer(number, nbytes, home, label, storages[owner] if home == "outside" else owner)
    made.location = None if location is None else bindings.locations[location]
    made.first, made.last, made.offset = first, last, offset
    return made


def _instruction(
    form: tuple[Any, ...], buffers: list[Buffer], places: list[BufferView],
    bindings: ProcessBindings,
) -> Instruction:  # fmt: skip
    label, work, may_fail, pointers, reads, writes, kernel, call = form
    made = Instruction(label)
    if kernel is not None:
        made.kernel = _kernel(*kernel)
    if call is not None:
        _set_call(made, call, places, bindings)
    made.work, made.may_fail = work, may_fail
    made.pointers = [None if number is None else places[number] for number in pointers]
    made.reads = [buffers[number] for number in reads]
    made.writes = [buffers[number] for number in writes]
    return made


def _set_call(
    made: Instruction, call: tuple[Any, ...], places: list[BufferView], bindings: ProcessBindings
) -> None:
    name, attr_forms, type_forms, is_view, args, outs, location = call
    op, attrs = TABLE[name], _decoded(attr_forms)
    types = tuple([_from_type(form) for form in type_forms])
    key: Any = (types, tuple(attrs.items())) if attrs else types
    specialization = op.specializations.get(key) or op.resolve(key, types, attrs)
    place = None if location is None else bindings.locations[location]
    made.eqn = Equation(specialization, (), (), place)
    made.args = [
        places[a] if is_place else _decoded(a) for a, is_place in zip(args, is_view, strict=True)
    ]
    made.outs = [places[number] for number in outs]


def _encoded(value: object) -> object:
    """A plain value in a form that keeps tuples apart from lists."""
    if isinstance(value, dict):
        return {"dict": [(_encoded(k), _encoded(v)) for k, v in value.items()]}
    if isinstance(value, (tuple, list)):
        return {value.__class__.__name__: list(map(_encoded, value))}
    return value


def _decoded(form: Any) -> Any:
    if not isinstance(form, dict):
        return form
    ((kind, members),) = form.items()
    if kind == "dict":
        return {_decoded(k): _decoded(v) for k, v in members}
    return tuple(map(_decoded, members)) if kind == "tuple" else list(map(_decoded, members))


def _type(type: TensorType | type) -> Any:
    """A tensor type, or the class of a number."""
    if isinstance(type, TensorType):
        return tuple(map(int, type.shape)), type.dtype.name
    return _NUMBERS.index(type)


def _from_type(form: Any) -> Any:
    if isinstance(form, int):
        return _NUMBERS[form]
    shape, name = form
    return tensor_type(tuple(shape), dtypes.BY_NAME[name])


def _kernel(
    name: str, numbers: list[int], products: list[tuple[int, str]], calls: list[tuple[int, str]],
    chunks: int, scratch: int,
) -> Kernel:  # fmt: skip
    """A kernel that has an address, without its IR."""
    made = Kernel(name, "")
    made.calls = {place: Kernel(called, "") for place, called in calls}
    made.numbers, made.products = numbers, dict(products)
    made.chunks, made.scratch = chunks, scratch
    for place, element in products:
        numbers[place] = openblas.address(dtypes.BY_NAME[element])
    return made
