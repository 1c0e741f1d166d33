"""Fused elementwise updates of several tensors, in chunks that stay in cache.

An optimizer states its update once, as a formula in ops. While tracing its equations are emitted
into the trace (:mod:`evergrad.core.formula_cache`). Otherwise it is traced once per combination of
types, and the equations run on NumPy over a few thousand elements at a time, into scratch memory
allocated once per thread: a step allocates nothing and reads each tensor from memory once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.eager.fusion import is_large
from evergrad.core.eager.update_loop import LOOP_BELOW, UpdateLoop
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
from evergrad.core.types import Array
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Leaves

# Updates the first of the arrays in place; the numbers may differ from call to call.
Update = Callable[[Sequence[Any], Sequence[Any]], None]

_native_update: ExtensionPoint[[Graph, int], Update | None] = ExtensionPoint("native_update")

_CHUNK = 16384  # elements; several float32 chunks fit the L2 cache

# Elements from which on a native kernel is used, and the most kernels cached for one formula.
_KERNEL_MIN_ELEMENTS = 4096
_MOST_KERNELS = 256
_MOST_IMPLEMENTATIONS = 1024


class _ThreadState(threading.local):
    """The state of a program in one thread: the numbers of its last run, and the values by slot,
    scratch among them. A program serves all optimizers of its kind, which may step in several
    threads at once."""

    numbers: bytes | None = None

    def __init__(self, values: Leaves, scratch: dict[int, Any], size: int) -> None:
        self.values = list(values)
        for slot, kind in scratch.items():
            self.values[slot] = np.empty(size, kind)


class _Program:
    """A traced formula as NumPy calls on numbered slots: tensors, numbers, scratch."""

    def __init__(self, graph: Graph, tensors: int, length: int) -> None:
        self.tensors = tensors
        self.pack = Struct(f"{len(graph.inputs) - tensors}d").pack
        slot: dict[object, int] = {var: i for i, var in enumerate(graph.inputs)}
        self.values: Leaves = [None] * len(graph.inputs)
        self.once: list[tuple[Any, list[int], int]] = []
        self.calls: list[tuple[Any, list[int], int, bool]] = []
        last_use = _last_uses(graph)
        free: dict[np.dtype[np.generic], list[int]] = {}
        self.scratch: dict[int, object] = {}
        for number, eqn in enumerate(graph.equations):
            args = []
            for arg in eqn.args:
                if isinstance(arg, Var):
                    args.append(slot[arg])
                else:
                    args.append(len(self.values))
                    self.values.append(arg)
            out = eqn.outs[0]
            if not out.type.shape:
                slot[out] = self._new_slot()
                self.once.append((eqn.specialization.run, args, slot[out]))
                continue
            kind = out.type.dtype.np
            spare = free.setdefault(kind, [])
            if spare:
                target = spare.pop()
            else:
                target = self._new_slot()
                self.scratch[target] = kind
            slot[out] = target
            direct = eqn.op.takes_out and not eqn.attrs
            self.calls.append(
                (eqn.op.eval if direct else eqn.specialization.run, args, target, direct)
            )
            for arg in {a for a in eqn.args if isinstance(a, Var)}:
                if last_use.get(arg) == number and slot[arg] in self.scratch:
                    free[arg.type.dtype.np].append(slot[arg])
        self.outputs = [slot[out] for out in graph.outputs]
        self.thread_state = _ThreadState(self.values, self.scratch, min(_CHUNK, length))

    def _new_slot(self) -> int:
        self.values.append(None)
        return len(self.values) - 1

    def run(self, arrays: Sequence[Array], numbers: Sequence[object]) -> None:
        """Overwrite the first arrays, one for each output, chunk by chunk."""
        values = self._values_with(numbers)
        length = arrays[0].size
        if 0 < length <= _CHUNK:
            self._run_chunk(values, arrays)
            return
        for start in range(0, length, _CHUNK):
            stop = min(start + _CHUNK, length)
            if stop - start < _CHUNK:
                for slot in self.scratch:
                    values[slot] = values[slot][: stop - start]
            self._run_chunk(values, [array[start:stop] for array in arrays])

    def _values_with(self, numbers: Sequence[Any]) -> Leaves:
        """The values by slot, without the tensors. What depends on the numbers alone is computed
        when they change."""
        state = self.thread_state
        packed = self.pack(*numbers)
        if packed != state.numbers:
            values = state.values
            for i, number in enumerate(numbers, self.tensors):
                values[i] = np.float64(number)
            for function, args, target in self.once:
                values[target] = function(*[values[a] for a in args])
            state.numbers = packed
        return state.values.copy()

    def _run_chunk(self, values: Leaves, arrays: Sequence[Array]) -> None:
        values[: self.tensors] = arrays
        for function, args, target, direct in self.calls:
            if direct:
                function(*[values[a] for a in args], out=values[target])
            else:
                np.copyto(values[target], function(*[values[a] for a in args]))
        for array, slot in zip(arrays, self.outputs, strict=False):
            np.copyto(array, values[slot])


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
    The numbers may differ from call to call. ``differentiable``: the formula runs in ops and is
    recorded, so that the new values have derivatives by the old ones, and by numbers that are
    tensors.
    """

    def __init__(
        self,
        formula: AnyFunction,
        writes: int,
        differentiable: bool = False,
        **options: object,
    ) -> None:
        self.formula = formula
        self.writes = writes
        self.differentiable = differentiable
        self.options = options
        self._formula = Formula(formula, options)
        self._programs: dict[object, _Program | None] = {}
        self._kernels: dict[object, Update | None] = {}
        self._loops: dict[object, Update | None] = {}
        # The implementation for tensors of a type.
        self._implementations: dict[object, Update | None] = {}

    def __call__(self, tensors: Sequence[Tensor], *numbers: float) -> None:
        """Update the tensors in place."""
        if self.differentiable:
            self._run_recorded(tensors, numbers)
            return
        if tensors[0]._type.dtype.is_complex:
            tensors = [_as_pairs(tensor) for tensor in tensors]
        if STATE.get().trace is None and self._run_on_arrays(tensors, numbers):
            return
        with using(grad=False):
            results = self._formula(tensors, numbers)
            for target, value in zip(tensors, results, strict=False):
                assign(target, value)

    def _run_recorded(self, tensors: Sequence[Tensor], numbers: Sequence[object]) -> None:
        with using(grad=True):
            # Copies: what the formula keeps for its derivative is overwritten below.
            pairs = [ops.view_as_real(t) if t.is_complex() else t for t in tensors]
            found = self.formula(*[ops.clone(t) for t in pairs], *numbers, **self.options)
            results = found if isinstance(found, tuple) else (found,)
            for target, value in zip(pairs, results, strict=False):
                target.copy_(value)

    def _run_on_arrays(self, tensors: Sequence[Tensor], numbers: Sequence[object]) -> bool:
        run = self._implementation(tensors[0]._type, len(tensors), len(numbers))
        if run is None or not _uniform(tensors):
            return False
        token = numpy_errors.set(QUIET)
        try:
            run([t._value for t in tensors], numbers)
        finally:
            numpy_errors.reset(token)
        location = user_location(2)
        for tensor in tensors[: self.writes]:
            tensor._storage.version += 1
            tensor._storage.writer = location
        return True

    def _implementation(self, type: TensorType, tensors: int, numbers: int) -> Update | None:
        """The implementation for a type; ``None`` where the formula has to run in ops."""
        key = type, tensors, config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS
        try:
            return self._implementations[key]
        except KeyError:
            if len(self._implementations) >= _MOST_IMPLEMENTATIONS:
                self._implementations.clear()
        run = self._loop(type, tensors, numbers)
        if run is None:
            found = self._kernel(type, tensors, numbers) or self._chunked(type, tensors, numbers)
            run = found and _on_flat(found)
        self._implementations[key] = run
        return run

    def _loop(self, type: TensorType, tensors: int, numbers: int) -> Update | None:
        """The loop for small tensors of any length; ``None`` where there is none."""
        if not config.EAGER_KERNELS or config.EAGER_KERNEL_ELEMENTS is not None:
            return None
        if not 0 < type.numel < LOOP_BELOW:
            return None
        key = type.dtype, tensors, numbers
        if key not in self._loops:
            graph = self._traced(tensor_type((_CHUNK,), type.dtype), tensors, numbers)
            loop = None if graph is None else UpdateLoop(graph, tensors)
            self._loops[key] = None if loop is None or loop.functions is None else loop.run
        return self._loops[key]

    def _kernel(self, type: TensorType, tensors: int, numbers: int) -> Update | None:
        """A native kernel for large tensors of a type; ``None`` where there is none."""
        if not config.EAGER_KERNELS or not is_large(type.numel, _KERNEL_MIN_ELEMENTS):
            return None
        key = type.dtype, type.numel, tensors
        if key not in self._kernels:
            if len(self._kernels) >= _MOST_KERNELS:
                self._kernels.clear()
                self._implementations.clear()
            graph = self._traced(type, tensors, numbers)
            self._kernels[key] = None if graph is None else _native_update(graph, tensors)
        return self._kernels[key]

    def _chunked(self, type: TensorType, tensors: int, numbers: int) -> Update | None:
        key = (type.dtype, type.numel < _CHUNK, type.numel if type.numel < _CHUNK else 0,
               tensors)  # fmt: skip
        if key not in self._programs:
            graph = self._traced(type, tensors, numbers)
            self._programs[key] = (
                None if graph is None else _Program(graph, tensors, max(type.numel, 1))
            )
        program = self._programs[key]
        return None if program is None else program.run

    def _traced(self, type: TensorType, tensors: int, numbers: int) -> Graph | None:
        """The graph of the formula for a type; ``None`` where it is not elementwise."""
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
            eqn.op.family == "linear" and not eqn.op.is_pointwise for eqn in graph.equations
        ):
            return None
        return graph


def _on_flat(run: Update) -> Update:
    """An update of arrays with one dimension for arrays with any."""
    return lambda arrays, numbers: run([a.reshape(-1) for a in arrays], numbers)


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
