"""The short way of a call.

Nearly all calls of a step are like the one before: tensors of the same types that ask for no
gradient, nothing changed around the function, results and writes to the outside but nothing else.
For these a function is made once that has all it needs at hand (:func:`plain_call`). It says
``UNSERVED`` where a call is not of that kind, before it has changed anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from evergrad.compiler.results import Form, Output
from evergrad.compiler.variant import Call, Variant
from evergrad.core.dtypes import get_default_dtype
from evergrad.core.state import STATE, State
from evergrad.core.tensor import Tensor, current_node, fresh
from evergrad.memory.ledger import GRADIENT
from evergrad.memory.pool import allocator

Serve = Callable[[tuple[Any, ...], State], Any]
Run = Callable[[tuple[Any, ...]], Any]

# Stands for the result of a call that has to go the long way.
UNSERVED: Any = object()


def plain_call(variant: Variant, args: Sequence[Any]) -> Serve | None:
    """A function that serves calls like this one, which the variant has just served in the long
    way; ``None`` if it is not of the usual kind."""
    state = STATE.get()
    if state.autocast is not None or not _is_plain(variant):
        return None
    if not all(isinstance(a, Tensor) and not a.requires_grad for a in args):
        return None
    types = tuple(a._type for a in args)
    count, grad, default = len(types), state.grad, get_default_dtype()
    program, written, conditions = variant.program, variant.written, variant.conditions
    run = _run_natively(variant) if program.is_native else _run_in_parts(variant)

    def serve(args: tuple[Any, ...], state: State) -> Any:
        if state.grad is not grad or state.autocast is not None or len(args) != count:
            return UNSERVED
        if get_default_dtype() is not default or variant.program is not program:
            return UNSERVED
        try:
            for tensor, type in zip(args, types):  # noqa: B905 - as many, and faster
                if tensor._type is not type or tensor._node is not None:
                    return UNSERVED
                if tensor._view is not None and current_node(tensor) is not None:
                    return UNSERVED
                if written and id(tensor._storage) in written:
                    return UNSERVED
        except AttributeError:  # no tensor
            return UNSERVED
        return run(args) if conditions.are_untouched() or conditions.hold() else UNSERVED

    return serve


def _is_plain(variant: Variant) -> bool:
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
    program, conditions = variant.program, variant.conditions
    (segment,) = program.segments
    first_counter = segment.first_counter
    given, told, tell, tell_argument = (
        program.given, program.told, program.tell, program.tell_argument,
    )  # fmt: skip
    in_parts, put_together = _run_in_parts(variant), _last_step(variant)
    # Results are copied out of the program's memory, or computed in memory that each run takes.
    boxes = dict(program.boxed)
    computed = [(n, p.buffer.number, allocator(p.shape, p.dtype.np)) for n, p in program.computed]
    arrays: dict[int, Any] = {}
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

    def run(args: tuple[Any, ...]) -> Any:
        for number, owner in given:
            array = args[owner]._value
            if told[number]() is not array:
                if not array.flags.c_contiguous:
                    return in_parts(args)
                tell_argument(number, array)
        if variant.asked != conditions.asked:
            variant.give_numbers()
        for place, number, allocate in computed:
            arrays[place] = array = allocate()
            tell(number, array)
        first_counter[0] = 0
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
