"""A call of a program that is a single native run, with the arguments already checked.

Addresses of arrays that are others than in the last call are written into the kernels' argument
blocks, the program runs, and what it has computed becomes tensors, gradients and effects.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad.compiler.calls.result_tree import Assemble, assembler, number_outputs
from evergrad.compiler.frontend.effects.outputs import Output
from evergrad.compiler.frontend.effects.sparse_gradients import PartsOutput
from evergrad.compiler.frontend.variant import Call, Variant, contiguous_arrays, mark_freed
from evergrad.compiler.runtime.program import Program
from evergrad.compiler.schedule.buffers import BufferView
from evergrad.core.python_numbers import Expressions
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, new_result
from evergrad.memory.ledger import GRADIENT
from evergrad.memory.pool import allocator

if TYPE_CHECKING:
    from evergrad.core.types import Array, Leaves


Run = Callable[[Sequence[Tensor]], Any]


def assembler_of(variant: Variant, numbers: Collection[int] = ()) -> Assemble:
    """A function that assembles the results of a call from the computed tensors, and stores its
    effects. Idempotent."""
    assemble = assembler(variant.captured.results, numbers)
    effects = variant.captured.effects
    if effects is None or not effects.stores:
        return assemble
    complete = variant.complete
    return lambda computed, arguments: complete(assemble(computed, arguments))


def inputs_of(variant: Variant) -> Callable[[Sequence[Tensor]], Sequence[Tensor]] | None:
    """Extends the tensors among the arguments by the gradients that are inputs, if any are."""
    owners = variant.captured.grad_inputs
    if not owners:
        return None
    return lambda tensors: [*tensors, *[owner._grad for owner in owners]]  # type: ignore[list-item]


def number_setter(variant: Variant) -> Callable[[], None] | None:
    """Sets the runtime numbers of a program, if it has any: those of Python, and options."""
    numbers = variant.captured.numbers
    if not numbers:
        return None
    entries = [(n, holder, index) for n, (holder, index, _) in enumerate(numbers)]
    computed = [entry for entry in entries if isinstance(entry[1], Expressions)]
    guards, words = variant.guards, variant.program.number_words

    def set_numbers() -> None:
        if variant.numbers_token is not guards.options.numbers_token:
            variant.update_numbers()
        for n, table, index in computed:
            words[n] = table.values[index]

    return set_numbers


def run_natively(variant: Variant) -> Run:
    """Runs a program that is a single native run.

    Whether an interrupt comes before the run or after it, the call takes effect as a whole or not
    at all: what follows the run is idempotent.
    """
    program, numbers = variant.program, _plain_numbers(variant)
    assemble = assembler_of(variant, numbers)
    extend, set_numbers = inputs_of(variant), number_setter(variant)
    (segment,) = program.segments or [_NoRun()]
    began = segment.first_counter
    computed = [(n, p.buffer.number, allocator(p.shape, p.dtype.np)) for n, p in program.computed]
    arguments = program.argument_buffers
    arrays: dict[int, Any] = {}
    made_once: list[Leaves] = []
    end = _completion(variant, arrays, made_once, numbers)
    rng_states = program.rng_states if program.executable.streams else None
    needs_arrays = program.needs_arrays

    def run(tensors: Sequence[Tensor]) -> Any:
        inputs = tensors if extend is None else extend(tensors)
        # Referenced until the run has ended: another thread may give a tensor other memory.
        arrays_of_call = [tensor._value for tensor in inputs]
        bound = program.bound_arrays
        for number, owner in arguments:
            array = arrays_of_call[owner]
            if number not in bound or bound[number]() is not array:
                if not array.flags.c_contiguous:
                    arrays_of_call = contiguous_arrays(inputs)
                    program.bind_arguments(arrays_of_call)
                    break
                program.bind_argument(number, array)
        if set_numbers is not None:
            set_numbers()
        for index, number, allocate in computed:
            arrays[index] = array = allocate()
            program.bind_address(number, array)
        if needs_arrays:
            program.results = arrays
            program.set_arrays(arrays_of_call)
        if rng_states is not None:
            rng_states.load()
        began[0] = 0
        try:
            if segment.run(program.threads):
                raise Call(variant, list(tensors)).failed_lookup()
            return assemble(end(inputs), tensors)
        except BaseException:
            if segment.has_succeeded() and (program.segments or made_once):
                assemble(end(inputs), tensors)
            raise
        finally:
            made_once.clear()
            if arrays:
                arrays.clear()
            if needs_arrays:
                program.release_arrays()

    return run


class _NoRun:
    """The native run of a program that only copies."""

    def __init__(self) -> None:
        self.first_counter = [0]

    def run(self, threads: int) -> int:
        return 0

    def has_succeeded(self) -> bool:
        return True


def _plain_numbers(variant: Variant) -> set[int]:
    """The small outputs of which only the number is a result, of a type whose elements NumPy itself
    gives as numbers."""
    captured = variant.captured
    small = {
        number for number, array in variant.program.small_outputs if array.dtype.isbuiltin == 1
    }
    freed = {index for index, *_ in captured.freed}
    return {n for n in number_outputs(captured.results) if n in small} - freed


def _completion(
    variant: Variant, arrays: dict[int, Any], made_once: list[Leaves], numbers: Collection[int]
) -> Callable[[Sequence[Tensor]], Leaves]:
    """A function that completes a native run on some inputs and returns its results: these are
    copied out of the program's memory, or are in ``arrays`` allocated for the run. Idempotent."""
    program = variant.program
    small_buffers = dict(program.small_outputs)
    wrap = wrapper_of(variant, lambda n: partial(arrays.__getitem__, n), small_buffers, numbers)
    copied = [(n, allocator(p.shape, p.dtype.np), _array_of(program, p)) for n, p in program.copied]
    late = [(storage, _array_of(program, view)) for view, storage in program.executable.copies]
    written, copyto = program.executable.written, np.copyto
    rng_states = program.rng_states if program.executable.streams else None

    def end(inputs: Sequence[Tensor]) -> Leaves:
        if not made_once:  # before the late writes: a result may be what a tensor held before
            for number, allocate, source in copied:
                arrays[number] = array = allocate()
                copyto(array, source())
            if rng_states is not None:
                rng_states.store()
            made_once.append(wrap(inputs))
        for storage, source in late:
            copyto(storage.value, source())
        for storage in written:
            storage.version += 1
        return made_once[0]

    return end


def _array_of(program: Program, view: BufferView) -> Callable[[], Array]:
    """A function that returns a view as an array: of the present run, if it is of an argument or an
    output."""
    if view.buffer.kind == "arena":
        return partial(_itself, program.array(view))
    return partial(program.array, view)


def wrapper_of(
    variant: Variant, source: Callable[[int], Callable[[], Any]],
    small_buffers: dict[int, Any] | None = None, numbers: Collection[int] = (),
) -> Callable[[Sequence[Tensor]], Leaves]:  # fmt: skip
    """A function that wraps a program's outputs as tensors; ``source`` maps each output to a
    function that returns its array, but for those in ``small_buffers``, which are copied. Outputs
    in ``numbers`` are Python numbers. Inputs that the program overwrites get their values, and
    gradients are assigned to their owners. Idempotent."""
    captured, small = variant.captured, small_buffers or {}
    types = [output.type for output in captured.graph.outputs]

    def take(n: int) -> Callable[[], Any]:
        return small[n].copy if n in small else source(n)

    results = [
        (small[n].item, None) if n in numbers else (take(n), types[n])
        for n in range(captured.result_count)
    ]
    first = captured.result_count + len(captured.written)
    overwritten = [
        (i, partial(_itself, small[n]) if n in small else source(n))
        for n, i in enumerate(captured.overwritten, first)
    ]  # fmt: skip
    freed = captured.freed
    kinds = (Output, PartsOutput)
    others = [(t, grad) for t, grad in captured.grads if not isinstance(grad, kinds)]
    in_parts = [
        (t, grad, {n: (take(n), types[n]) for n in grad.indices})
        for t, grad in captured.grads if isinstance(grad, PartsOutput)
    ]  # fmt: skip
    found = [(t, grad.index) for t, grad in captured.grads if isinstance(grad, Output)]
    grads = [(t, take(n), types[n]) for t, n in found]

    def wrap(inputs: Sequence[Tensor]) -> Leaves:
        inference = STATE.get().inference
        made = [
            get() if type is None else new_result(get(), type, inference) for get, type in results
        ]
        for index, get in overwritten:
            tensor = inputs[index]
            tensor._value[...] = get()
            tensor._storage.version += 1
        for owner, get, type in grads:
            tensor = inputs[owner] if owner.__class__ is int else owner
            tensor._grad = grad = new_result(get(), type, inference)
            grad._storage.tag(GRADIENT)
        for owner, sparse, parts in in_parts:
            tensor = inputs[owner] if owner.__class__ is int else owner
            computed = {n: new_result(get(), type, inference) for n, (get, type) in parts.items()}
            tensor._grad = sparse.make(computed)
        for owner, kept in others:
            tensor = inputs[owner] if owner.__class__ is int else owner
            tensor._grad = kept
        if freed:
            mark_freed(freed, made)
        return made

    return wrap


def _itself(array: Any) -> Array:
    result: Array = array
    return result
