"""The fast path of a call.

Nearly all calls of a step are like the one before: arguments of the same structure and types, and
no guard has changed. For these a specialized function is made once (:func:`make_fast_path`): it
checks the arguments and the guards, patches addresses into the kernels' argument blocks, runs the
program and wraps its results as tensors. It returns ``NOT_HANDLED`` for any other call, before it
has changed anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from time import perf_counter
from typing import Any

import numpy as np

from evergrad.compiler.frontend.arguments import PythonCall, modes_of
from evergrad.compiler.frontend.match_arguments import matcher
from evergrad.compiler.frontend.outputs import Form, Output
from evergrad.compiler.frontend.variant import Call, Variant, contiguous_arrays, mark_freed
from evergrad.compiler.native import jit
from evergrad.compiler.runtime import thread_pool_code
from evergrad.core.python_numbers import Expressions
from evergrad.core.state import STATE, State
from evergrad.core.tensor import Tensor, fresh
from evergrad.memory.ledger import GRADIENT
from evergrad.memory.pool import allocator

FastPath = Callable[[tuple[Any, ...], dict[str, Any], State], Any]
Run = Callable[[Sequence[Tensor], list[float]], Any]

# Sentinel: the call has to take the general path.
NOT_HANDLED: Any = object()


@cache
def begin() -> None:
    """Compile the thread pool's code in the background while the first call is traced."""
    jit.compile_ir_async(thread_pool_code.ir())


def make_fast_path(variant: Variant, call: PythonCall) -> FastPath:
    """A fast path for calls like this one, which the variant has just run on the general path."""
    captured, program, guards = variant.captured, variant.program, variant.guards
    modes = modes_of(STATE.get())
    match, run = matcher(call, captured.written), _runner(variant)
    checks_arguments = bool(captured.fixed or captured.number_guards or captured.same_handles)
    overwrites = bool(captured.overwritten or captured.grad_inputs)
    effects, schedule = captured.effects, variant.schedule

    binds_numbers = effects is not None or captured.results.has_given

    def serve(args: tuple[Any, ...], kwargs: dict[str, Any], state: State) -> Any:
        if variant.program is not program or modes_of(state) != modes:
            return NOT_HANDLED
        matched = match(args, kwargs)
        if matched is None:
            return NOT_HANDLED
        tensors, numbers = matched
        if numbers and binds_numbers:
            variant.bind_numbers(numbers)
        if effects is not None:
            given = effects.read(tensors)
            if given is None:
                return NOT_HANDLED
            tensors = given
        if checks_arguments and not variant.accepts(tensors, numbers):
            return NOT_HANDLED
        if not (guards.fast_check() or guards.hold()):
            return NOT_HANDLED
        may_alias = overwrites or any([tensor._storage.shared for tensor in tensors])  # noqa: C419
        if may_alias and variant.aliases_written(tensors):
            return NOT_HANDLED
        schedule.calls += 1
        if schedule.calls >= schedule.due:
            if schedule.is_ready:  # to be traced again
                return NOT_HANDLED
            if variant.needs_more:
                given = variant.completed(list(tensors), numbers)
                if given is None:
                    return NOT_HANDLED
                tensors = given
            began = perf_counter()
            result = run(tensors, numbers)
            schedule.note_duration(perf_counter() - began)
            return result
        if variant.needs_more:
            given = variant.completed(list(tensors), numbers)
            if given is None:
                return NOT_HANDLED
            tensors = given
        return run(tensors, numbers)

    return serve


def _runner(variant: Variant) -> Run:
    """Runs the program of a variant in the way that suits it."""
    if variant.captured.derivative is not None or variant.check_finite:
        return _run_generally(variant)
    return _run_natively(variant) if variant.program.is_native else _run_in_parts(variant)


def _run_generally(variant: Variant) -> Run:
    def run(tensors: Sequence[Tensor], numbers: list[float]) -> Any:
        variant.bind_numbers(numbers)
        return variant.run(list(tensors))

    return run


def is_native_only(variant: Variant) -> bool:
    """Whether a call only runs the program and wraps its outputs (and gradients) as tensors."""
    found = variant.captured
    of_arguments = [owner for owner, _ in found.grads if isinstance(owner, int)]
    unusual = (found.derivative, found.grad_inputs, found.overwritten, of_arguments, found.effects,
               found.bases)  # fmt: skip
    given = any(isinstance(container, list) for container, *_ in found.numbers)
    return not (any(unusual) or given or variant.check_finite)


def _inputs_of(variant: Variant) -> Callable[[Sequence[Tensor]], Sequence[Tensor]]:
    """Extends the tensors among the arguments by the gradients that are inputs."""
    owners = variant.captured.grad_inputs
    if not owners:
        return lambda tensors: tensors
    return lambda tensors: [*tensors, *[owner._grad for owner in owners]]  # type: ignore[list-item]


def _set_numbers(variant: Variant) -> Callable[[list[float]], None]:
    """Sets the runtime numbers of a program: floats among the arguments, and options."""
    numbers = enumerate(variant.captured.numbers)
    entries = [(n, holder, index) for n, (holder, index, _) in numbers]
    given = [(n, index) for n, holder, index in entries if isinstance(holder, list)]
    computed = [entry for entry in entries if isinstance(entry[1], Expressions)]
    guards, words = variant.guards, variant.program.number_words

    def set_numbers(numbers: list[float]) -> None:
        if variant.numbers_token is not guards.options.numbers_token:
            variant.update_numbers()
        for n, index in given:
            words[n] = numbers[index]
        for n, table, index in computed:
            words[n] = table.values[index]

    return set_numbers


def _run_in_parts(variant: Variant) -> Run:
    """Runs a program of any kind."""
    program, assemble = variant.program, _assembler(variant)
    inputs_of, set_numbers = _inputs_of(variant), _set_numbers(variant)
    arrays: dict[int, Any] = {}
    wrap = _tensors_of(variant, lambda index: partial(arrays.__getitem__, index))

    def run(tensors: Sequence[Tensor], numbers: list[float]) -> Any:
        inputs = inputs_of(tensors)

        def deliver(found: list[Any]) -> list[Tensor]:
            arrays.update(enumerate(found))
            made = wrap(inputs)
            arrays.clear()
            return made

        set_numbers(numbers)
        try:
            made = program.run(contiguous_arrays(inputs), None, deliver)
        except IndexError as error:
            variant.bind_numbers(numbers)
            raise Call(variant, list(tensors)).with_location(error) from None
        return assemble(made, tensors)

    return run


def _run_natively(variant: Variant) -> Run:
    """Runs a program that is a single native run.

    Whether an interrupt comes before the run or after it, the call takes effect as a whole or not
    at all: what follows the run is idempotent.
    """
    program, assemble = variant.program, _assembler(variant)
    inputs_of, set_numbers = _inputs_of(variant), _set_numbers(variant)
    (segment,) = program.segments
    computed = [(n, p.buffer.number, allocator(p.shape, p.dtype.np)) for n, p in program.computed]
    arrays: dict[int, Any] = {}
    made_once: list[list[Tensor]] = []
    end = _completion(variant, arrays, made_once)

    def run(tensors: Sequence[Tensor], numbers: list[float]) -> Any:
        inputs = inputs_of(tensors)
        # Referenced until the run has ended: another thread may give a tensor other memory.
        arrays_of_call = [tensor._value for tensor in inputs]
        bound = program.bound_arrays
        for number, owner in program.argument_buffers:
            if number not in bound or bound[number]() is not arrays_of_call[owner]:
                contiguous = contiguous_arrays(inputs)  # referenced as well
                program.bind_arguments(contiguous)
                break
        set_numbers(numbers)
        for index, number, allocate in computed:
            arrays[index] = array = allocate()
            program.bind_address(number, array)
        segment.reset()
        made_once.clear()
        try:
            if segment.run(program.threads):
                variant.bind_numbers(numbers)
                raise Call(variant, list(tensors)).failed_lookup()
            return assemble(end(inputs), tensors)
        except BaseException:
            if segment.has_succeeded():
                assemble(end(inputs), tensors)
            raise
        finally:
            made_once.clear()
            if computed:
                arrays.clear()

    return run


def _completion(
    variant: Variant, arrays: dict[int, Any], made_once: list[list[Tensor]]
) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """A function that completes a native run on some inputs and returns its results: these are
    copied out of the program's memory, or are in ``arrays`` allocated for the run. Idempotent."""
    program = variant.program
    small_buffers = dict(program.small_outputs)
    wrap = _tensors_of(
        variant,
        lambda n: small_buffers[n].copy if n in small_buffers else partial(arrays.__getitem__, n),
    )
    late = [(storage, program.array(view)) for view, storage in program.executable.copies]
    written, copyto = program.executable.written, np.copyto

    def end(inputs: Sequence[Tensor]) -> list[Tensor]:
        if not made_once:  # before the late writes: a result may be what a tensor held before
            made_once.append(wrap(inputs))
        for storage, source in late:
            copyto(storage.value, source)
        for storage in written:
            storage.version += 1
        return made_once[0]

    return end


def _tensors_of(
    variant: Variant, source: Callable[[int], Callable[[], Any]]
) -> Callable[[Sequence[Tensor]], list[Tensor]]:
    """A function that wraps a program's outputs as tensors; ``source`` maps each output to a
    function that returns its array. Inputs that the program overwrites get their values, and
    gradients are assigned to their owners. Idempotent."""
    captured = variant.captured
    types = [output.type for output in captured.graph.outputs]
    results = [(source(index), types[index]) for index in range(captured.result_count)]
    first = captured.result_count + len(captured.written)
    overwritten = [(source(first + n), i) for n, i in enumerate(captured.overwritten)]
    freed = captured.freed
    others = [(t, grad) for t, grad in captured.grads if not isinstance(grad, Output)]
    grads = [
        (t, source(grad.index), types[grad.index])
        for t, grad in captured.grads if isinstance(grad, Output)
    ]  # fmt: skip

    def wrap(inputs: Sequence[Tensor]) -> list[Tensor]:
        made = []
        for take, type in results:
            made.append(fresh(take(), type))
        for take, index in overwritten:
            _overwrite(inputs[index], take())
        for owner, take, type in grads:
            tensor = inputs[owner] if owner.__class__ is int else owner
            tensor._grad = grad = fresh(take(), type)
            grad._storage.tag(GRADIENT)
        for owner, kept in others:
            tensor = inputs[owner] if owner.__class__ is int else owner
            tensor._grad = kept
        if freed:
            mark_freed(freed, made)
        return made

    return wrap


def _overwrite(tensor: Tensor, array: Any) -> None:
    """Write the elements of an input; it has no history, and the program was traced under the rules
    for writes."""
    np.copyto(tensor._value, array)
    tensor._storage.version += 1


def _assembler(variant: Variant) -> Callable[[list[Tensor], Sequence[Tensor]], Any]:
    """A function that assembles the results of a call from the computed tensors, and stores its
    effects. Idempotent."""
    results = variant.captured.results
    if variant.captured.effects is not None:
        return lambda computed, arguments: variant.complete(results.assemble(computed, arguments))
    if results.form is Form.ONE:
        return lambda computed, arguments: computed[0]
    if results.form is Form.TUPLE:
        return lambda computed, arguments: tuple(computed)
    return results.assemble
