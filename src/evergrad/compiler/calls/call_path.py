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
from time import process_time
from typing import TYPE_CHECKING, Any

from evergrad.compiler.calls.native_run import (
    Run,
    assembler_of,
    inputs_of,
    number_setter,
    run_natively,
    wrapper_of,
)
from evergrad.compiler.frontend.arguments.match_arguments import container_collector, matcher
from evergrad.compiler.frontend.arguments.signature import PythonCall, modes_of
from evergrad.compiler.frontend.guards import native_guards
from evergrad.compiler.frontend.variant import Call, Variant, contiguous_arrays
from evergrad.compiler.native import jit
from evergrad.compiler.runtime import thread_pool_code
from evergrad.core.state import STATE, State
from evergrad.core.tensor import Tensor
from evergrad.core.types import Args, Array, Kwargs

if TYPE_CHECKING:
    from evergrad.compiler.frontend.paths.path import StageMemo

FastPath = Callable[[Args, Kwargs, State], Any]

# Sentinel: the call has to take the general path.
NOT_HANDLED: object = object()


@cache
def begin() -> None:
    """Compile what every program needs in the background while the first call is traced."""
    jit.compile_ir_async(thread_pool_code.ir())
    jit.compile_ir_async(native_guards.ir())


def make_fast_path(variant: Variant, call: PythonCall) -> FastPath:
    """A fast path for calls like this one, which the variant has just run on the general path."""
    captured, program, guards = variant.captured, variant.program, variant.guards
    modes = modes_of(STATE.get())
    has_grad, has_autocast = modes[0], modes[1] is not None
    match, run = matcher(call, captured.written), _runner(variant)
    if captured.path is not None:
        run = _after_stages(run, captured.path.memo)
    checks_arguments = bool(captured.fixed or captured.same_handles or captured.bare_arguments)
    overwrites = bool(captured.overwritten or captured.grad_inputs)
    read = None if captured.effects is None else captured.effects.read
    schedule, path = variant.schedule, captured.path
    makes_calls = variant.needs_more and path is None
    needs_arguments, identities = variant.needs_arguments, captured.identities
    collect = container_collector(call.spec)

    def serve(args: Args, kwargs: Kwargs, state: State) -> object:
        if variant.program is not program or state.grad is not has_grad:
            return NOT_HANDLED
        if (has_autocast or state.autocast is not None) and modes_of(state) != modes:
            return NOT_HANDLED
        matched = match(args, kwargs)
        if matched is None:
            return NOT_HANDLED
        tensors: Any
        tensors, numbers = matched
        if read is not None:
            tensors = read(tensors, numbers)
            if tensors is None:
                return NOT_HANDLED
        if checks_arguments and not variant.accepts(tensors):
            return NOT_HANDLED
        if not (guards.fast_check() or guards.hold()):
            return NOT_HANDLED
        if identities is not None and not identities.hold_for(collect(args, kwargs)):
            return NOT_HANDLED
        if needs_arguments and not variant.use_arguments((args, kwargs)):
            return NOT_HANDLED
        may_alias = overwrites
        for tensor in tensors:
            if tensor._storage.shared:
                may_alias = True
        if may_alias and variant.aliases_written(tensors):
            return NOT_HANDLED
        if path is not None:  # whether it is taken, before it counts as a call
            tensors = variant.completed(list(tensors))
            if tensors is None:
                return NOT_HANDLED
        schedule.calls = calls = schedule.calls + 1
        is_due = calls >= schedule.due
        if is_due and schedule.is_ready:  # to be traced again
            if path is not None:
                path.memo.undo()
            return NOT_HANDLED
        if makes_calls:
            tensors = variant.completed(list(tensors))
            if tensors is None:
                return NOT_HANDLED
        if not is_due:
            return run(tensors)
        began = process_time()
        result = run(tensors)
        schedule.note_duration(process_time() - began)
        return result

    return _with_arguments(serve, variant) if needs_arguments else serve


def _with_arguments(serve: FastPath, variant: Variant) -> FastPath:
    """A fast path of a variant that uses the containers among the arguments, which are released
    after the call."""

    def serve_and_release(
        args: tuple[object, ...], kwargs: dict[str, object], state: State
    ) -> object:
        try:
            return serve(args, kwargs, state)
        finally:
            variant.release_arguments()

    return serve_and_release


def _runner(variant: Variant) -> Run:
    """Runs the program of a variant in the way that suits it."""
    if variant.captured.derivative is not None or variant.check_finite:
        return _run_generally(variant)
    return run_natively(variant) if variant.program.is_one_segment else _run_in_parts(variant)


def _after_stages(run: Run, memo: StageMemo) -> Run:
    """Runs the last part of a path; if it fails, generators are as before the call."""

    def run_last(tensors: Sequence[Tensor]) -> Tensor | tuple[Tensor, Tensor]:
        try:
            result: Tensor | tuple[Tensor, Tensor] = run(tensors)
            return result
        except Exception:
            memo.undo()
            raise
        finally:
            memo.clear()

    return run_last


def _run_generally(variant: Variant) -> Run:
    def run(tensors: Sequence[Tensor]) -> Any:
        return variant.run_last(list(tensors))

    return run


def is_native_only(variant: Variant) -> bool:
    """Whether a call only runs the program and wraps its outputs (and gradients) as tensors."""
    found = variant.captured
    of_arguments = [owner for owner, _ in found.grads if isinstance(owner, int)]
    unusual = (found.derivative, found.grad_inputs, found.overwritten, of_arguments, found.effects,
               found.bases, found.flags)  # fmt: skip
    return not (any(unusual) or variant.check_finite)


def _run_in_parts(variant: Variant) -> Run:
    """Runs a program of any kind."""
    program, assemble = variant.program, assembler_of(variant)
    extend, set_numbers = inputs_of(variant), number_setter(variant)
    arrays: dict[int, Any] = {}
    wrap = wrapper_of(variant, lambda index: partial(arrays.__getitem__, index))

    def run(tensors: Sequence[Tensor]) -> Any:
        inputs = tensors if extend is None else extend(tensors)

        def deliver(found: list[Array | None]) -> list[Tensor]:
            arrays.update(enumerate(found))
            made = wrap(inputs)
            arrays.clear()
            return made

        if set_numbers is not None:
            set_numbers()
        try:
            made = program.run(contiguous_arrays(inputs), None, deliver)
        except IndexError as error:
            raise Call(variant, list(tensors)).with_location(error) from None
        return assemble(made, tensors)

    return run
