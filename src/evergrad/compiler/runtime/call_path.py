"""The fast path of a call.

Nearly all calls of a step are like the one before: tensors of the same types that require no
gradient, no guard has changed, results and writes to the outside but nothing else. For these a
function is made once that has everything at hand (:func:`plain_call`): it checks the arguments and
the guards, writes addresses into the kernels' argument blocks, runs the program and makes tensors
of its results. It returns ``UNSERVED`` where a call is not of that kind, before it has changed
anything.
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

Serve = Callable[[tuple[Any, ...], State], Any]
Run = Callable[[tuple[Any, ...]], Any]

# Stands for the result of a call that has to go another way.
UNSERVED: Any = object()


@cache
def begin() -> None:
    """Let what every call needs be compiled while the first is traced, if it has to be."""
    jit.begin_text(thread_pool_code.text())


def plain_call(variant: Variant, args: Sequence[Any]) -> Serve | None:
    """A function that serves calls like this one, which the variant has just served in the long
    way; ``None`` if it is not of the usual kind."""
    state = STATE.get()
    if state.autocast is not None or not is_plain(variant):
        return None
    if not all(isinstance(a, Tensor) and not a.requires_grad for a in args):
        return None
    types, written = [a._type for a in args], frozenset(variant.captured.written)
    grad, program, conditions = state.grad, variant.program, variant.conditions
    run = _run_natively(variant) if program.is_native else _run_in_parts(variant)

    def serve(args: tuple[Any, ...], state: State) -> Any:
        if state.grad is not grad or state.autocast is not None or variant.program is not program:
            return UNSERVED
        if len(args) != len(types):
            return UNSERVED
        for tensor, type in zip(args, types):  # noqa: B905 - as long as each other
            if tensor.__class__ is not Tensor and not isinstance(tensor, Tensor):
                return UNSERVED
            if tensor._type is not type or tensor._storage in written:
                return UNSERVED
            if tensor._node is not None or (tensor._view is not None and current_node(tensor)):
                return UNSERVED
        return run(args) if conditions.are_untouched() or conditions.hold() else UNSERVED

    return serve


def is_plain(variant: Variant) -> bool:
    """Whether a call has only to run the program and to make its results tensors (and
    gradients)."""
    found = variant.captured
    unusual = (found.derivative, found.fetched, found.overwritten, found.once)
    given = any(isinstance(container, list) for container, *_ in found.numbers)
    return not (any(unusual) or given or variant.check_finite)


def _run_in_parts(variant: Variant) -> Run:
    """Runs a program of any kind."""
    program, put_together = variant.program, _last_step(variant)
    arrays: dict[int, Any] = {}
    hand_out = _tensors_of(variant, lambda place: partial(arrays.__getitem__, place))

    def deliver(found: list[Any]) -> list[Tensor]:
        arrays.update(enumerate(found))
        made = hand_out()
        arrays.clear()
        return made

    def run(args: tuple[Any, ...]) -> Any:
        variant.give_numbers()
        try:
            made = program.run(contiguous_arrays(args), None, deliver)
        except IndexError as error:
            raise Call(variant, list(args)).told_where(error) from None
        return put_together(made, args)

    return run


def _run_natively(variant: Variant) -> Run:
    """Runs a program that is one native run from its beginning to its end.

    Whether an interrupt comes before the run or after it, the call has happened as a whole or not
    at all: what follows the run can be done twice.
    """
    program, conditions, put_together = variant.program, variant.conditions, _last_step(variant)
    (segment,) = program.segments
    computed = [(n, p.buffer.number, allocator(p.shape, p.dtype.np)) for n, p in program.computed]
    arrays: dict[int, Any] = {}
    end = _end_of(variant, arrays)

    def run(args: tuple[Any, ...]) -> Any:
        told = program.told
        for number, owner in program.given:
            if number not in told or told[number]() is not args[owner]._value:
                contiguous = contiguous_arrays(args)  # has to live until the run has ended
                program.tell_arguments(contiguous)
                break
        if variant.current is not conditions.are_untouched:
            variant.give_numbers()
        for place, number, allocate in computed:
            arrays[place] = array = allocate()
            program.tell(number, array)
        segment.forget()
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
        return put_together(made, args)

    return run


def _end_of(variant: Variant, arrays: dict[int, Any]) -> Callable[[], list[Tensor]]:
    """A function that does what is left after a native run, and gives its results: these are copied
    out of the program's memory, or are in ``arrays`` that were taken for the run. To call it twice
    is as good as once."""
    program = variant.program
    boxes = dict(program.boxed)
    hand_out = _tensors_of(
        variant, lambda n: boxes[n].copy if n in boxes else partial(arrays.__getitem__, n)
    )
    late = [(storage, program.array(place)) for place, storage in program.executable.copies]
    written, copyto = program.executable.written, np.copyto

    def end() -> list[Tensor]:
        for storage, source in late:
            copyto(storage.value, source)
        for storage in written:
            storage.version += 1
        return hand_out()

    return end


def _tensors_of(
    variant: Variant, source: Callable[[int], Callable[[], Any]]
) -> Callable[[], list[Tensor]]:
    """A function that makes tensors of what a plain program has computed; ``source`` tells for each
    output what gives its array. Gradients are left with their owners. To call it twice is as good
    as once."""
    captured = variant.captured
    types = [output.type for output in captured.graph.outputs]
    results = [(source(place), types[place]) for place in range(captured.result_count)]
    others = [(t, grad) for t, grad in captured.grads if not isinstance(grad, Output)]
    grads = [
        (t, source(grad.place), types[grad.place])
        for t, grad in captured.grads if isinstance(grad, Output)
    ]  # fmt: skip

    def hand_out() -> list[Tensor]:
        for tensor, take, type in grads:
            tensor._grad = grad = fresh(take(), type)
            grad._storage.tag(GRADIENT)
        for tensor, kept in others:
            tensor._grad = kept
        made = []
        for take, type in results:
            made.append(fresh(take(), type))
        return made

    return hand_out


def _last_step(variant: Variant) -> Callable[[list[Tensor], Sequence[Tensor]], Any]:
    """Makes what the function gives of the results that were computed."""
    results = variant.captured.results
    if results.form is Form.ONE:
        return lambda computed, arguments: computed[0]
    if results.form is Form.TUPLE:
        return lambda computed, arguments: tuple(computed)
    return results.put_together
