"""The short way of a call.

Nearly all calls of a step are like the one before: tensors of the same types that ask for no
gradient, nothing changed around the function, results and writes to the outside but nothing else.
For these a function is made once that has all it needs at hand (:func:`plain_call`), and, where
results are copied out of the program's memory, one that is native until the run has ended
(:func:`quickest_call`). Both say ``UNSERVED`` where a call is not of that kind, before they
have changed anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from evergrad.compiler.frontend import identity_guards, native_predicates
from evergrad.compiler.frontend.outputs import Form, Output
from evergrad.compiler.frontend.variant import Call, Variant
from evergrad.compiler.native import jit
from evergrad.compiler.runtime import (
    argument_blocks,
    native_call,
    native_storages,
    thread_pool_code,
)
from evergrad.compiler.runtime.argument_blocks import fitting, telling
from evergrad.compiler.runtime.native_call import UNSERVED, quick_call
from evergrad.compiler.runtime.native_results import delivery_of
from evergrad.compiler.runtime.step_lock import Turns
from evergrad.core.shapes import TensorType
from evergrad.core.state import STATE, State
from evergrad.core.tensor import Tensor, current_node, fresh
from evergrad.memory.ledger import GRADIENT
from evergrad.memory.pool import allocator

Serve = Callable[[tuple[Any, ...], State], Any]
Quick = Callable[[tuple[Any, ...]], Any]
Run = Callable[[tuple[Any, ...]], Any]


@cache
def begin() -> None:
    """Let what every call needs be compiled while the first is traced, if it has to be."""
    modules = native_predicates, identity_guards, argument_blocks, native_call
    texts = [module.TEXT for module in modules]
    for text in (thread_pool_code.text(), *texts, native_storages.FREED_TEXT):
        jit.begin_text(text)


def plain_call(variant: Variant, args: Sequence[Any]) -> Serve | None:
    """A function that serves calls like this one, which the variant has just served in the long
    way; ``None`` if it is not of the usual kind."""
    state = STATE.get()
    if state.autocast is not None or not is_plain(variant):
        return None
    if not all(isinstance(a, Tensor) and not a.requires_grad for a in args):
        return None
    types = tuple(a._type for a in args)
    grad, program, conditions = state.grad, variant.program, variant.conditions
    fit = fitting(args, variant.captured.written)
    run = _run_natively(variant) if program.is_native else _run_in_parts(variant)

    def serve(args: tuple[Any, ...], state: State) -> Any:
        if state.grad is not grad or state.autocast is not None:
            return UNSERVED
        if variant.program is not program:
            return UNSERVED
        if not (fit(args) or _are_alike(args, types, variant.written)):
            return UNSERVED
        return run(args) if conditions.are_untouched() or conditions.hold() else UNSERVED

    return serve


def quickest_call(variant: Variant, args: Sequence[Any], turns: Turns) -> Quick | None:
    """A function that serves calls like this one, for which there is a short way, natively until
    their results are made; ``None`` if each run needs memory of its own for results."""
    program, captured = variant.program, variant.captured
    if not program.is_native or program.computed:
        return None
    if captured.results.form not in (Form.ONE, Form.TUPLE):
        return None
    boxes = dict(program.boxed)
    natively = delivery_of(variant, _tensors_of(variant, lambda place: boxes[place].copy))
    end, put_together = _end_of(variant, {}), _last_step(variant)

    def deliver() -> Any:
        return put_together(end(), ())

    (segment,) = program.segments

    def run_together() -> int:
        segment.forget()
        try:
            return segment.run(program.threads)  # type: ignore[no-any-return]
        except BaseException:  # an interrupt, before the run or after it
            if segment.has_succeeded():
                end()
            raise

    return quick_call(
        STATE.get(), turns, fitting(args, captured.written), variant.current,
        telling(program.given, program.patches),
        run_together if program.threads > 1 else segment.run_alone, natively or deliver,
        kept=program,
    )  # fmt: skip


def _are_alike(args: tuple[Any, ...], types: Sequence[TensorType], written: set[int]) -> bool:
    """Whether arguments are tensors of these types that ask for no gradient, on memory that is not
    written."""
    if len(args) != len(types):
        return False
    for tensor, type in zip(args, types, strict=True):
        if not isinstance(tensor, Tensor) or tensor._type is not type:
            return False
        if current_node(tensor) is not None or id(tensor._storage) in written:
            return False
    return True


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
        values = [tensor._value for tensor in args]
        given = [v if v.flags.c_contiguous else v.copy() for v in values]
        variant.give_numbers()
        try:
            made = program.run(given, None, deliver)
        except IndexError as error:
            raise Call(variant, list(args)).told_where(error) from None
        return put_together(made, args)

    return run


def _run_natively(variant: Variant) -> Run:
    """Runs a program that is one native run from its beginning to its end.

    Whether an interrupt comes before the run or after it, the call has happened as a whole or not
    at all: what follows the run can be done twice.
    """
    program, conditions, current = variant.program, variant.conditions, variant.current
    (segment,) = program.segments
    tell, tell_arguments = program.tell, telling(program.given, program.patches)
    in_parts, put_together = _run_in_parts(variant), _last_step(variant)
    computed = [(n, p.buffer.number, allocator(p.shape, p.dtype.np)) for n, p in program.computed]
    arrays: dict[int, Any] = {}
    end = _end_of(variant, arrays)

    def run(args: tuple[Any, ...]) -> Any:
        if not tell_arguments(args):
            program.forget_arguments()
            return in_parts(args)
        if current[0] is not conditions.are_untouched:
            variant.give_numbers()
        for place, number, allocate in computed:
            arrays[place] = array = allocate()
            tell(number, array)
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
    out of the program's memory, or lie in ``arrays`` that were taken for the run. To call it twice
    is as good as once."""
    program = variant.program
    boxes = dict(program.boxed)
    hand_out = _tensors_of(
        variant, lambda n: boxes[n].copy if n in boxes else partial(arrays.__getitem__, n)
    )
    late = [(storage, program.array(place)) for place, storage in program.recipe.copies]
    written, copyto = program.recipe.written, np.copyto

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
