"""Under which name a program is kept on disk: a hash of everything it follows from.

That is the captured graph in a form without names and addresses, how outside tensors lie and which
of them share memory, the modes and options that passes look at, the machine, and the sources of the
passes themselves.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np

import evergrad
from evergrad.compiler.cache.process_bindings import Ties
from evergrad.compiler.frontend.capture import Captured
from evergrad.compiler.native import jit
from evergrad.compiler.passes.random_rows import source_of
from evergrad.compiler.schedule.instructions import address_of, strides_of
from evergrad.core import dtypes
from evergrad.core.composite import Body
from evergrad.core.op import Specialization
from evergrad.core.rng.generator import Generator
from evergrad.core.shapes import TensorType
from evergrad.core.state import STATE
from evergrad.core.trace import Var
from evergrad.core.views import ViewChain

# Versions of the format before this one write equal values in different ways.
_MARSHAL = 2
_AS_THEY_ARE = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis))
# The parts of the package that a program follows from, once its graph has been captured.
_SOURCES = ("compiler", "core", "ops")


class UnwrittenError(Exception):
    """Something cannot be said in a form that another process would find equal."""


def key_of(captured: Captured, ties: Ties, limit: int | None) -> str | None:
    """The name of a captured step's program; ``None`` if something in it has no form."""
    try:
        form = _Form(captured, ties)
    except UnwrittenError:
        return None
    state = STATE.get()
    lower = None if state.autocast is None else state.autocast.dtype.name
    modes = (state.grad, lower, dtypes.get_default_dtype().name, limit)
    said = marshal.dumps((_versions(), modes, form.parts), _MARSHAL)
    return hashlib.sha256(said).hexdigest()


@cache
def _versions() -> tuple[Any, ...]:
    """Everything but the graph."""
    package = Path(evergrad.__file__).parent
    sources = []
    for source in _SOURCES:
        for folder, _, names in os.walk(package / source):
            for name in names:
                if name.endswith(".py"):
                    found = os.stat(os.path.join(folder, name))
                    place = os.path.relpath(folder, package)
                    sources.append((place, name, found.st_size, found.st_mtime_ns))
    sources.sort()
    return evergrad.__version__, np.__version__, sys.version, jit.target_name(), tuple(sources)


class _Form:
    """A captured step as ``parts``: nested tuples of numbers and texts, in which equal means equal.
    A value is a number, counted from the first input on; anything else stands in a tuple."""

    def __init__(self, captured: Captured, ties: Ties) -> None:
        self.ties = ties
        self.numbers: dict[Var, int] = {}
        self.specializations: dict[int, int] = {}
        self.said_rules: list[Any] = []
        self.storage_numbers = {id(s): n for n, s in enumerate(ties.storages)}
        graph = ties.graph
        inputs = [(_type(var.type), self.enter(var)) for var in graph.inputs]
        equations = [self.equation(eqn) for eqn in graph.equations]
        self.parts = (
            inputs,
            equations,
            self.said_rules,
            [self.numbers[out] if isinstance(out, Var) else None for out in graph.outputs],
            [_memory(storage) for storage in ties.storages],
            [self.outside(tensor) for tensor in captured.outside],
            [self.storage_numbers[id(storage)] for storage in captured.written],
            [source_of(generator).algorithm for generator in ties.generators],
            (captured.arguments, len(captured.numbers), captured.result_count),
        )

    def enter(self, var: Var) -> Any:
        """Count a value; says how it lies, if not in order."""
        self.numbers[var] = len(self.numbers)
        if var._layout is None:
            return None
        strides = var._layout.strides
        return None if strides == strides_of(var) else strides

    def equation(self, eqn: Any) -> Any:
        specialization = self.specializations.get(id(eqn.specialization))
        if specialization is None:
            specialization = self.specializations[id(eqn.specialization)] = len(
                self.specializations
            )
            self.said_rules.append(self.specialization(eqn.specialization))
        numbers = self.numbers
        args = [numbers[a] if isinstance(a, Var) else (self.said(a),) for a in eqn.args]
        return specialization, eqn.no_grad, args, [self.enter(out) for out in eqn.outs]

    def specialization(self, specialization: Specialization) -> Any:
        evaluate = specialization.op.eval
        if isinstance(evaluate, FunctionType) and not evaluate.__module__.startswith("evergrad."):
            raise UnwrittenError(f"{specialization.op} is no row of this package")
        types = [
            _type(t) if isinstance(t, TensorType) else t.__name__ for t in specialization.types
        ]
        return (
            specialization.op.name,
            self.said(specialization.attrs),
            types,
            [_type(t) for t in specialization.out_types],
        )

    def outside(self, tensor: Any) -> Any:
        """Where a tensor lies in its storage."""
        value, storage = tensor._value, tensor._storage
        offset = address_of(value) - address_of(storage.value)
        return self.storage_numbers[id(storage)], offset, value.strides

    def said(self, value: Any) -> Any:
        """An attribute or a literal."""
        if value.__class__ in _AS_THEY_ARE:
            return value
        if isinstance(value, tuple | list):
            return (value.__class__.__name__, *map(self.said, value))
        if isinstance(value, dict):
            return ("dict", *((self.said(k), self.said(v)) for k, v in value.items()))
        if isinstance(value, dtypes.dtype):
            return "dtype", value.name
        if isinstance(value, ViewChain):
            return ("view_chain", *((op.name, self.said(attrs)) for op, attrs in value.ops))
        if isinstance(value, Generator):
            return "generator", self.ties.generators.index(value)
        if isinstance(value, Body):
            return ("body", self.said(value.key))
        if isinstance(value, TensorType):
            return "type", *_type(value)
        if isinstance(value, slice):
            return "slice", self.said((value.start, value.stop, value.step))
        if isinstance(value, np.generic):
            return value.dtype.name, value.tobytes()
        raise UnwrittenError(f"a {type(value).__name__} has no form")


def _type(type: TensorType) -> tuple[Any, ...]:
    return type.shape, type.dtype.name


def _memory(storage: Any) -> tuple[Any, ...]:
    array = storage.value
    return storage.nbytes, array.shape, array.strides, array.dtype.name
