"""The fast path of a call.

Nearly all calls of a step are like the one before: tensors of the same types that require no
gradient, no guard has changed, results and writes but nothing else. For these a specialized
function is made once (:func:`make_fast_path`): it checks the arguments and the guards, patches
addresses into the kernels' argument blocks, runs the program and wraps its results as tensors. It
returns ``NOT_HANDLED`` for any other call, before it has changed anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from evergrad.compiler.frontend.outputs import Form, Output
from evergrad.compiler.frontend.variant import Call, Variant, contiguous_arrays
from evergrad.compiler.native import jit
from evergrad.compiler.runtime import thread_pool_code
from evergrad.core.state import STATE, State
from evergrad.core.tensor import Tensor, current_node, fresh
from evergrad.memory.ledger import GRADIENT
from evergrad.memory.pool import allocator

FastPath = Callable[[tuple[Any, ...], State], Any]
Run = Callable[[tuple[Any, ...]], Any]

# Sentinel: the call has to take the general path.
NOT_HANDLED: Any = object()


@cache
def begin() -> None:
    """Compile the thread pool's code in the background while the first call is traced."""
    jit.compile_ir_async(thread_pool_code.ir())


def make_fast_path(variant: Variant, args: Sequence[Any]) -> FastPath | None:
    """A fast path for calls like this one, which the variant has just run on the general path;
    ``None`` if the variant does not qualify."""
    state = STATE.get()
    if state.autocast is not None or not is_native_only(variant):
        return None
    if not all(isinstance(a, Tensor) and not a.requires_grad for a in args):
        return None
    types, written = [a._type for a in args], frozenset(variant.captured.written)
    grad, program, guards = state.grad, variant.program, variant.guards
    run = _run_natively(variant) if program.is_native else _run_in_parts(variant)

    def serve(args: tuple[Any, ...], state: State) -> Any:
        if state.grad is not grad or state.autocast is not None or variant.program is not program:
            return NOT_HANDLED
        if len(args) != len(types):
            return NOT_HANDLED
        for tensor, type in zip(args, types):  # noqa: B905 - equal lengths
            if tensor.__class__ is not Tensor and not isinstance(tensor, Tensor):
                return NOT_HANDLED
            if tensor._type is not type or tensor._storage in written:
                return NOT_HANDLED
            if tensor._node is not None or (tensor._view is not None and current_node(tensor)):
                return NOT_HANDLED
        return run(args) if guards.fast_check() or guards.hold() else NOT_HANDLED

    return serve


def is_native_only(variant: Variant) -> bool:
    """Whether a call only runs the program and wraps its outputs (and gradients) as tensors."""
    found = variant.captured
    unusual = (found.derivative, found.grad_inputs, found.overwritten, found.once)
    given = any(isinstance(container, list) for container, *_ in found.numbers)
    return not (any(unusual) or given or variant.check_finite)


def _run_in_parts(variant: Variant) -> Run:
    """Runs a program of any kind."""
    program, assemble = variant.program, _assembler(variant)
    arrays: dict[int, Any] = {}
    wrap = _tensors_of(variant, lambda index: partial(arrays.__getitem__, index))

    def deliver(found: list[Any]) -> list[Tensor]:
        arrays.update(enumerate(found))
        made = wrap()
        arrays.clear()
        return made

    def run(args: tuple[Any, ...]) -> Any:
        variant.update_numbers()
        try:
            made = program.run(contiguous_arrays(args), None, deliver)
        except IndexError as error:
            raise Call(variant, list(args)).with_location(error) from None
        return assemble(made, args)

    return run


def _run_natively(variant: Variant) -> Run:
    """Runs a program that is a single native run.

    Whether an interrupt comes before the run or after it, the call takes effect as a whole or not
    at all: what follows the run is idempotent.
    """
    program, guards, assemble = variant.program, variant.guards, _assembler(variant)
    (segment,) = program.segments
    computed = [(n, p.buffer.number, allocator(p.shape, p.dtype.np)) for n, p in program.computed]
    arrays: dict[int, Any] = {}
    end = _completion(variant, arrays)

    def run(args: tuple[Any, ...]) -> Any:
        bound = program.bound_arrays
        for number, owner in program.argument_buffers:
            if number not in bound or bound[number]() is not args[owner]._value:
                contiguous = contiguous_arrays(args)  # referenced until the run has ended
                program.bind_arguments(contiguous)
                break
        if variant.numbers_valid is not guards.fast_check:
            variant.update_numbers()
        for index, number, allocate in computed:
            arrays[index] = array = allocate()
            program.bind_address(number, array)
        segment.reset()
        try:
            if segment.run(program.threads):
                raise Call(variant, list(args)).failed_lookup()
            made = end()
        except BaseException:
            if segment.has_succeeded():
                end()
            raise
        finally:
            if computed:
                arrays.clear()
        return assemble(made, args)

    return run


def _completion(variant: Variant, arrays: dict[int, Any]) -> Callable[[], list[Tensor]]:
    """A function that completes a native run and returns its results: these are copied out of the
    program's memory, or are in ``arrays`` allocated for the run. Idempotent."""
    program = variant.program
    small_buffers = dict(program.small_outputs)
    wrap = _tensors_of(
        variant,
        lambda n: small_buffers[n].copy if n in small_buffers else partial(arrays.__getitem__, n),
    )
    late = [(storage, program.array(view)) for view, storage in program.executable.copies]
    written, copyto = program.executable.written, np.copyto

    def end() -> list[Tensor]:
        for storage, source in late:
            copyto(storage.value, source)
        for storage in written:
            storage.version += 1
        return wrap()

    return end


def _tensors_of(
    variant: Variant, source: Callable[[int], Callable[[], Any]]
) -> Callable[[], list[Tensor]]:
    """A function that wraps a program's outputs as tensors; ``source`` maps each output to a
    function that returns its array. Gradients are assigned to their owners. Idempotent."""
    captured = variant.captured
    types = [output.type for output in captured.graph.outputs]
    results = [(source(index), types[index]) for index in range(captured.result_count)]
    others = [(t, grad) for t, grad in captured.grads if not isinstance(grad, Output)]
    grads = [
        (t, source(grad.index), types[grad.index])
        for t, grad in captured.grads if isinstance(grad, Output)
    ]  # fmt: skip

    def wrap() -> list[Tensor]:
        for tensor, take, type in grads:
            tensor._grad = grad = fresh(take(), type)
            grad._storage.tag(GRADIENT)
        for tensor, kept in others:
            tensor._grad = kept
        made = []
        for take, type in results:
            made.append(fresh(take(), type))
        return made

    return wrap


def _assembler(variant: Variant) -> Callable[[list[Tensor], Sequence[Tensor]], Any]:
    """A function that assembles the results of a call from the computed tensors."""
    results = variant.captured.results
    if results.form is Form.ONE:
        return lambda computed, arguments: computed[0]
    if results.form is Form.TUPLE:
        return lambda computed, arguments: tuple(computed)
    return results.assemble
