"""The fingerprint of a captured step: a hash of everything its executable depends on.

That is the captured graph in a form without names and addresses, the layouts of outside tensors and
which of them share memory, the modes and options that passes read, the machine, and the sources of
the compiler.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numpy as np

import evergrad
from evergrad.compiler.cache.process_bindings import ProcessBindings
from evergrad.compiler.kernels.random_rows import source_of
from evergrad.compiler.native import jit, target
from evergrad.compiler.schedule.buffers import address_of, strides_of
from evergrad.core import dtypes
from evergrad.core.composite import Body
from evergrad.core.op import Specialization
from evergrad.core.rng.generator import Generator
from evergrad.core.shapes import TensorType
from evergrad.core.state import STATE
from evergrad.core.trace import Var
from evergrad.core.views import ViewChain

if TYPE_CHECKING:
    from evergrad.compiler.frontend.captured import Captured
    from evergrad.core.storage import Storage
    from evergrad.core.tensor import Tensor
    from evergrad.core.trace import Equation

# Later versions of the format write equal values in different ways.
_MARSHAL = 2
_PLAIN = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis))
# The packages whose sources an executable depends on, once its graph has been captured.
_SOURCES = ("compiler", "core", "ops")


class UnhashableError(Exception):
    """A value has no form that is equal in another process."""


def fingerprint_of(captured: Captured, bindings: ProcessBindings, limit: int | None) -> str | None:
    """The fingerprint of a captured step; ``None`` if it holds a value that has no form, or if the
    version of the compiler is unknown."""
    versions = _versions()
    if versions is None:
        return None
    try:
        form = _Form(captured, bindings)
    except UnhashableError:
        return None
    state = STATE.get()
    lower = None if state.autocast is None else state.autocast.dtype.name
    modes = (state.grad, lower, dtypes.get_default_dtype().name, limit)
    data = marshal.dumps((versions, modes, form.parts), _MARSHAL)
    return hashlib.sha256(data).hexdigest()


@cache
def _versions() -> tuple[Any, ...] | None:
    """Versions of the package, its sources, NumPy and Python, and the machine; ``None`` if the
    sources of this package cannot be distinguished from those of another version."""
    sources = _sources()
    if not sources:
        return None
    machine = jit.target_name(), *target.machine()
    return evergrad.__version__, np.__version__, sys.version, *machine, sources


def _sources() -> tuple[object, ...]:
    """Size and time of the files that the compiler is in: its sources, the archive it was imported
    from, or the executable of a frozen application. Empty if there are none of these."""
    archive = getattr(evergrad.__loader__, "archive", None)
    if getattr(sys, "frozen", False):
        archive = sys.executable
    if archive is not None:
        return ((archive, *_stamp(archive)),) if os.path.exists(archive) else ()
    package = Path(evergrad.__file__).parent
    sources = []
    for source in _SOURCES:
        for folder, _, names in os.walk(package / source):
            place = os.path.relpath(folder, package)
            sources += [
                (place, name, *_stamp(os.path.join(folder, name)))
                for name in names
                if name.endswith(".py")
            ]
    return tuple(sorted(sources))


def _stamp(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns


class _Form:
    """A captured step as ``parts``: nested tuples of numbers and strings with a canonical form.
    A value is a number, counted from the first input on; anything else is inside a tuple."""

    def __init__(self, captured: Captured, bindings: ProcessBindings) -> None:
        self.bindings = bindings
        self.numbers: dict[Var, int] = {}
        self.specializations: dict[int, int] = {}
        self.specialization_forms: list[object] = []
        self.storage_numbers = {id(s): n for n, s in enumerate(bindings.storages)}
        graph = bindings.graph
        inputs = [(_type(var.type), self.enter(var)) for var in graph.inputs]
        equations = [self.equation(eqn) for eqn in graph.equations]
        self.parts = (
            inputs,
            equations,
            self.specialization_forms,
            [self.numbers[out] if isinstance(out, Var) else None for out in graph.outputs],
            [_memory(storage) for storage in bindings.storages],
            [self.outside(tensor) for tensor in captured.outside],
            [self.storage_numbers[id(storage)] for storage in captured.written],
            [source_of(generator).algorithm for generator in bindings.generators],
            (captured.arguments, len(captured.numbers), captured.result_count),
        )

    def enter(self, var: Var) -> tuple[int, ...] | None:
        """Number a value; its strides if it is not contiguous."""
        self.numbers[var] = len(self.numbers)
        if var._layout is None:
            return None
        strides = var._layout.strides
        return None if strides == strides_of(var) else strides

    def equation(self, eqn: Equation) -> object:
        number = self.specializations.get(id(eqn.specialization))
        if number is None:
            number = self.specializations[id(eqn.specialization)] = len(self.specializations)
            self.specialization_forms.append(self.specialized(eqn.specialization))
        numbers = self.numbers
        args = [numbers[a] if isinstance(a, Var) else (self.literal(a),) for a in eqn.args]
        return number, eqn.no_grad, args, [self.enter(out) for out in eqn.outs]

    def specialized(self, found: Specialization) -> object:
        evaluate = found.op.eval
        if isinstance(evaluate, FunctionType) and not evaluate.__module__.startswith("evergrad."):
            raise UnhashableError(f"{found.op} is no row of this package")
        types = [_type(t) if isinstance(t, TensorType) else t.__name__ for t in found.types]
        return found.op.name, self.literal(found.attrs), types, [_type(t) for t in found.out_types]

    def outside(self, tensor: Tensor) -> tuple[int, int, tuple[int, ...]]:
        """The storage, offset and strides of an outside tensor."""
        value, storage = tensor._value, tensor._storage
        offset = address_of(value) - address_of(storage.value)
        return self.storage_numbers[id(storage)], offset, value.strides

    def literal(self, value: object) -> object:
        """An attribute or a literal."""
        if value.__class__ in _PLAIN:
            return value
        if isinstance(value, tuple | list):
            return (value.__class__.__name__, *map(self.literal, value))
        if isinstance(value, dict):
            return ("dict", *((self.literal(k), self.literal(v)) for k, v in value.items()))
        if isinstance(value, dtypes.dtype):
            return "dtype", value.name
        if isinstance(value, ViewChain):
            return ("view_chain", *((op.name, self.literal(attrs)) for op, attrs in value.ops))
        if isinstance(value, Generator):
            return "generator", self.bindings.generators.index(value)
        if isinstance(value, Body):
            return ("body", self.literal(value.key))
        if isinstance(value, TensorType):
            return "type", *_type(value)
        if isinstance(value, slice):
            return "slice", self.literal((value.start, value.stop, value.step))
        if isinstance(value, np.generic):
            return value.dtype.name, value.tobytes()
        raise UnhashableError(f"a {type(value).__name__} has no form")


def _type(type: TensorType) -> tuple[tuple[int, ...], str]:
    return type.shape, type.dtype.name


def _memory(storage: Storage) -> tuple[int | str | tuple[int, ...], ...]:
    array = storage.value
    return storage.nbytes, array.shape, array.strides, array.dtype.name
