"""Elementwise updates of several tensors at once, in pieces that stay in cache.

An optimizer states its update once, as a formula in ops. While tracing its equations are written
into the trace (:mod:`.formula`). Otherwise it is traced once per combination of types, and the
equations run on NumPy over a few thousand elements at a time, into scratch memory made once for
each thread: the step allocates nothing and each tensor passes through memory once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.fusion import is_large
from evergrad.core.errstate import QUIET, numpy_errors
from evergrad.core.formula_cache import Formula
from evergrad.core.inplace import assign
from evergrad.core.namespace import ops
from evergrad.core.shapes import TensorType, tensor_type
from evergrad.core.source_location import user_location
from evergrad.core.state import STATE, using
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var
from evergrad.core.tracing import tracing
from evergrad.extension import ExtensionPoint

Array = np.ndarray[Any, Any]
# Overwrites the first of the arrays, with numbers that may differ from call to call.
Update = Callable[[Sequence[Any], Sequence[Any]], None]

_native_update: ExtensionPoint[[Graph, int], Update | None] = ExtensionPoint("native_update")

_PIECE = 16384  # elements; a handful of float32 pieces fit the second-level cache

# From how many elements on a native kernel gains, and how many are kept for one formula.
_LEAST_KERNEL = 4096
_MOST_KERNELS = 256
_MOST_WAYS = 1024


class _Own(threading.local):
    """What a thread has of a program: the numbers it last ran with, and the values by place, among
    them scratch. A program serves all optimizers of its kind, and these may step in several threads
    at once."""

    numbers: bytes | None = None

    def __init__(self, values: list[Any], scratch: dict[int, Any], size: int) -> None:
        self.values = list(values)
        for place, kind in scratch.items():
            self.values[place] = np.empty(size, kind)


class _Program:
    """A traced formula as calls on numbered places: tensors, numbers, scratch."""

    def __init__(self, graph: Graph, tensors: int, length: int) -> None:
        self.tensors = tensors
        self.pack = Struct(f"{len(graph.inputs) - tensors}d").pack
        place: dict[Any, int] = {var: i for i, var in enumerate(graph.inputs)}
        self.values: list[Any] = [None] * len(graph.inputs)
        self.once: list[tuple[Any, list[int], int]] = []
        self.calls: list[tuple[Any, list[int], int, bool]] = []
        last_use = _last_uses(graph)
        free: dict[Any, list[int]] = {}
        self.scratch: dict[int, Any] = {}
        for number, eqn in enumerate(graph.equations):
            args = []
            for arg in eqn.args:
                if isinstance(arg, Var):
                    args.append(place[arg])
                else:
                    args.append(len(self.values))
                    self.values.append(arg)
            out = eqn.outs[0]
            if not out.type.shape:
                place[out] = self._new_place()
                self.once.append((eqn.specialization.run, args, place[out]))
                continue
            kind = out.type.dtype.np
            spare = free.setdefault(kind, [])
            if spare:
                target = spare.pop()
            else:
                target = self._new_place()
                self.scratch[target] = kind
            place[out] = target
            direct = eqn.op.takes_out and not eqn.attrs
            self.calls.append(
                (eqn.op.eval if direct else eqn.specialization.run, args, target, direct)
            )
            for arg in {a for a in eqn.args if isinstance(a, Var)}:
                if last_use.get(arg) == number and place[arg] in self.scratch:
                    free[arg.type.dtype.np].append(place[arg])
        self.outputs = [place[out] for out in graph.outputs]
        self.own = _Own(self.values, self.scratch, min(_PIECE, length))

    def _new_place(self) -> int:
        self.values.append(None)
        return len(self.values) - 1

    def run(self, arrays: Sequence[Array], numbers: Sequence[Any]) -> None:
        """Overwrite the first arrays, one for each output, piece by piece."""
        values = self._values_with(numbers)
        length = arrays[0].size
        if 0 < length <= _PIECE:
            self._run_piece(values, arrays)
            return
        for start in range(0, length, _PIECE):
            stop = min(start + _PIECE, length)
            if stop - start < _PIECE:
                for place in self.scratch:
                    values[place] = values[place][: stop - start]
            self._run_piece(values, [array[start:stop] for array in arrays])

    def _values_with(self, numbers: Sequence[Any]) -> list[Any]:
        """The values by place, for tensors to be put in. What depends on the numbers alone is
        computed when they change."""
        own = self.own
        packed = self.pack(*numbers)
        if packed != own.numbers:
            values = own.values
            for i, number in enumerate(numbers, self.tensors):
                values[i] = np.float64(number)
            for function, args, target in self.once:
                values[target] = function(*[values[a] for a in args])
            own.numbers = packed
        return own.values.copy()

    def _run_piece(self, values: list[Any], arrays: Sequence[Array]) -> None:
        values[: self.tensors] = arrays
        for function, args, target, direct in self.calls:
            if direct:
                function(*[values[a] for a in args], out=values[target])
            else:
                np.copyto(values[target], function(*[values[a] for a in args]))
        for array, place in zip(arrays, self.outputs, strict=False):
            np.copyto(array, values[place])


def _last_uses(graph: Graph) -> dict[Var, int]:
    uses: dict[Var, int] = {}
    for number, eqn in enumerate(graph.equations):
        for arg in eqn.args:
            if isinstance(arg, Var):
                uses[arg] = number
    for out in graph.outputs:
        uses[out] = len(graph.equations)
    return uses


class FusedUpdate:
    """``formula(*tensors, *numbers)`` gives new values for the first ``writes`` tensors.

    The tensors have one shape and element type; complex ones are updated as pairs of real numbers.
    The numbers may differ from call to call.
    """

    def __init__(self, formula: Callable[..., Any], writes: int, **options: Any) -> None:
        self.formula = formula
        self.writes = writes
        self.options = options
        self._formula = Formula(formula, options)
        self._programs: dict[Any, _Program | None] = {}
        self._kernels: dict[Any, Update | None] = {}
        # What is done for tensors of a type, so that one look tells.
        self._ways: dict[Any, Update | None] = {}

    def __call__(self, tensors: Sequence[Tensor], *numbers: float) -> None:
        """Update the tensors in place."""
        if tensors[0]._type.dtype.is_complex:
            tensors = [_as_pairs(tensor) for tensor in tensors]
        if STATE.get().trace is None and self._run_in_pieces(tensors, numbers):
            return
        with using(grad=False):
            results = self._formula(tensors, numbers)
            for target, value in zip(tensors, results, strict=False):
                assign(target, value)

    def _run_in_pieces(self, tensors: Sequence[Tensor], numbers: Sequence[Any]) -> bool:
        run = self._way(tensors[0]._type, len(tensors), len(numbers))
        if run is None or not _uniform(tensors):
            return False
        arrays = [t._value.reshape(-1) for t in tensors]
        token = numpy_errors.set(QUIET)
        try:
            run(arrays, numbers)
        finally:
            numpy_errors.reset(token)
        location = user_location(2)
        for tensor in tensors[: self.writes]:
            tensor._storage.version += 1
            tensor._storage.writer = location
        return True

    def _way(self, type: TensorType, tensors: int, numbers: int) -> Update | None:
        """How to update tensors of a type; ``None`` where only the plain way is right."""
        key = type, tensors, config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS
        try:
            return self._ways[key]
        except KeyError:
            if len(self._ways) >= _MOST_WAYS:
                self._ways.clear()
        run = self._kernel(type, tensors, numbers) or self._in_pieces(type, tensors, numbers)
        self._ways[key] = run
        return run

    def _kernel(self, type: TensorType, tensors: int, numbers: int) -> Update | None:
        """One kernel for large tensors of a type; ``None`` where none is worth it or can do it."""
        if not config.EAGER_KERNELS or not is_large(type.numel, _LEAST_KERNEL):
            return None
        key = type.dtype, type.numel, tensors
        if key not in self._kernels:
            if len(self._kernels) >= _MOST_KERNELS:
                self._kernels.clear()
                self._ways.clear()
            graph = self._traced(type, tensors, numbers)
            self._kernels[key] = None if graph is None else _native_update(graph, tensors)
        return self._kernels[key]

    def _in_pieces(self, type: TensorType, tensors: int, numbers: int) -> Update | None:
        key = (type.dtype, type.numel < _PIECE, type.numel if type.numel < _PIECE else 0,
               tensors)  # fmt: skip
        if key not in self._programs:
            graph = self._traced(type, tensors, numbers)
            self._programs[key] = (
                None if graph is None else _Program(graph, tensors, max(type.numel, 1))
            )
        program = self._programs[key]
        return None if program is None else program.run

    def _traced(self, type: TensorType, tensors: int, numbers: int) -> Graph | None:
        """The formula for an element type; ``None`` where only the plain way is right."""
        if type.dtype.compute is not type.dtype.np:
            return None
        flat = tensor_type((max(type.numel, 1),), type.dtype)
        scalar = tensor_type((), dtypes.float64)
        with tracing() as tracer:
            inputs = [tracer.input(flat) for _ in range(tensors)]
            inputs += [tracer.input(scalar) for _ in range(numbers)]
            found = self.formula(*inputs, **self.options)
            results = found if isinstance(found, tuple) else (found,)
            graph = tracer.finish(results).without_dead_code()
        if any(eqn.op.family not in ("elementwise", "linear") for eqn in graph.equations) or any(
            eqn.op.name not in ("cast", "where", "clone") and eqn.op.family == "linear"
            for eqn in graph.equations
        ):
            return None
        return graph


def _as_pairs(tensor: Tensor) -> Tensor:
    with using(grad=False):
        return ops.view_as_real(tensor)


def _uniform(tensors: Sequence[Tensor]) -> bool:
    first = tensors[0]._type
    for tensor in tensors:
        if not tensor._type.same(first) or not isinstance(tensor._value, np.ndarray):
            return False
        flags = tensor._value.flags
        if not (flags.c_contiguous and flags.writeable):
            return False
    return True
