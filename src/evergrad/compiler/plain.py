"""The short way of a call.

Nearly all calls of a step are like the one before: tensors of the same types that ask for no
gradient, nothing changed around the function, results and writes to the outside but nothing else.
For these a function is made once that has all it needs at hand (:func:`plain_call`). It says
``UNSERVED`` where a call is not of that kind, before it has changed anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    program, tensors_of = variant.program, _tensors_of(variant)
    put_together = _last_step(variant)

    def run(args: tuple[Any, ...]) -> Any:
        values = [tensor._value for tensor in args]
        arrays = [v if v.flags.c_contiguous else v.copy() for v in values]
        variant.give_numbers()
        try:
            made = program.run(arrays, None, tensors_of)
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
    given, told, outputs = program.given, program.told, program.constants
    tell, tell_argument = program.tell, program.tell_argument
    computed = [(n, p.buffer.number, allocator(p.shape, p.dtype.np)) for n, p in program.computed]
    boxed = [(number, box.copy) for number, box in program.boxed]
    late = [(storage, program.array(place)) for place, storage in program.recipe.copies]
    written, copyto = program.recipe.written, np.copyto
    in_parts, tensors_of = _run_in_parts(variant), _tensors_of(variant)
    put_together = _last_step(variant)

    def end(found: list[Any]) -> list[Tensor]:
        for number, copy in boxed:
            found[number] = copy()
        for storage, source in late:
            copyto(storage.value, source)
        for storage in written:
            storage.version += 1
        return tensors_of(found)

    def run(args: tuple[Any, ...]) -> Any:
        for number, owner in given:
            array = args[owner]._value
            if told[number]() is not array:
                if not array.flags.c_contiguous:
                    return in_parts(args)
                tell_argument(number, array)
        if variant.asked != conditions.asked:
            variant.give_numbers()
        found = outputs.copy()
        for place, number, allocate in computed:
            found[place] = array = allocate()
            tell(number, array)
        first_counter[0] = 0
        try:
            if segment.run(program.threads):
                raise Call(variant, list(args)).failed_lookup()
            made = end(found)
        except BaseException:
            if segment.has_succeeded():
                end(found)
            raise
        return put_together(made, args)

    return run


def _tensors_of(variant: Variant) -> Callable[[list[Any]], list[Tensor]]:
    """Makes tensors of what a plain program has computed. Gradients are left with their owners;
    doing it twice is as good as doing it once."""
    captured = variant.captured
    outputs = captured.graph.outputs
    types = [output.type for output in outputs[: captured.result_count]]
    others = [(t, grad) for t, grad in captured.grads if not isinstance(grad, Output)]
    grads = [
        (t, grad.place, outputs[grad.place].type)
        for t, grad in captured.grads if isinstance(grad, Output)
    ]  # fmt: skip

    def results_of(found: list[Any]) -> list[Tensor]:
        return list(map(fresh, found, types))

    def tensors_of(found: list[Any]) -> list[Tensor]:
        for tensor, place, type in grads:
            tensor._grad = made = fresh(found[place], type)
            made._storage.tag(GRADIENT)
        for tensor, grad in others:
            tensor._grad = grad
        return results_of(found)

    return tensors_of if captured.grads else results_of


def _last_step(variant: Variant) -> Callable[[list[Tensor], Sequence[Tensor]], Any]:
    """Makes what the function gives of the results that were computed."""
    results = variant.captured.results
    if results.form is Form.ONE:
        return lambda computed, arguments: computed[0]
    if results.form is Form.TUPLE:
        return lambda computed, arguments: tuple(computed)
    return results.put_together
