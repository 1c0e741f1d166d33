"""A variant: the program compiled for one signature, with its guards; and a call of it on the
general path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import numpy as np

from evergrad.compiler.cache.program_cache import program_of
from evergrad.compiler.frontend.arguments import address_of
from evergrad.compiler.frontend.capture import Captured, read_number
from evergrad.compiler.frontend.diagnose import FiniteCheck, failed_lookup
from evergrad.compiler.frontend.outputs import Output
from evergrad.compiler.frontend.partition import CompiledCall
from evergrad.compiler.frontend.revalidation import Schedule
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.core.inplace import assign
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.node import FreedNode
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, fresh, from_array
from evergrad.errors import NonFiniteError
from evergrad.memory.ledger import GRADIENT

_Given = tuple[list[Tensor], list[Tensor]]


class Variant:
    """One compiled trace of a signature: its guards and its program."""

    def __init__(
        self, captured: Captured, check_finite: bool = False, limit: int | None = None,
        arena: SharedArena | None = None, on_disk: bool = True,
    ) -> None:  # fmt: skip
        self.captured = captured
        self.check_finite = check_finite
        self.limit = limit
        self.arena = arena
        self.program = program_of(captured, limit, arena, on_disk)
        if captured.derivative is not None and arena is not None:
            captured.derivative.arena = arena.for_derivatives
        self.guards = captured.guards
        self.storages = [t._storage for t in captured.outside]
        self.written = {id(storage) for storage in captured.written}
        # The token of the guards under which the program's numbers were set; None if they are
        # stale.
        self.numbers_token: object = None
        # When its calls are traced again.
        self.schedule = Schedule()
        effects = captured.effects
        makes_calls = effects is not None and bool(effects.calls or effects.outputs)
        # Whether a call has arguments besides those given and in slots, or makes impure calls.
        self.needs_more = makes_calls or bool(captured.bases)

    @property
    def nbytes(self) -> int:
        """The bytes that it holds besides the shared arena."""
        return self.program.nbytes

    def lower(self) -> None:
        """Rebuild a program loaded from the disk cache, which has no lowering to report on."""
        from evergrad.compiler.build import build_program  # imports all passes

        if self.program.executable.lowering is None:
            self.program = build_program(self.captured, self.limit, arena=self.arena)
            self.invalidate_numbers()

    def numbers(self) -> list[float]:
        """The current values of the options and numbers that are read at run time."""
        return [read_number(*entry) for entry in self.captured.numbers]

    def update_numbers(self) -> None:
        """Set the program's runtime numbers, unless they are valid."""
        token = self.guards.options.numbers_token
        if self.numbers_token is not token:
            self.program.set_numbers(self.numbers())
            self.numbers_token = token

    def invalidate_numbers(self) -> None:
        """Have the runtime numbers set again before the next run."""
        self.numbers_token = None

    def accepts(self, tensors: Sequence[Tensor]) -> bool:
        """Whether the guards on the arguments hold."""
        for i, storage, address in self.captured.fixed:
            if i >= len(tensors):  # drawn by an impure call, later
                continue
            if tensors[i]._storage is not storage or address_of(tensors[i]._value) != address:
                return False
        handles = self.captured.handles
        for tensor, known in zip(tensors, self.captured.same_handles, strict=False):
            if (id(tensor) if id(tensor) in handles else None) != known:
                return False
        return True

    def aliases_written(self, tensors: Sequence[Tensor]) -> bool:
        """Whether storage that the program writes is shared with another argument: a program
        assumes that its arguments do not alias."""
        captured = self.captured
        if not (captured.overwritten or captured.written):
            return False
        if len(tensors) < captured.arguments - len(captured.grad_inputs):
            return False  # checked once the impure calls have returned the others
        # A gradient may be an input several times: by itself, and as what is overwritten.
        owners = {id(owner): owner for owner in captured.grad_inputs}
        inputs = [*tensors, *(owner._grad for owner in captured.grad_inputs)]
        once = [*tensors, *(owner._grad for owner in owners.values())]
        given = [t._storage for t in once if t is not None]
        ids = [id(storage) for storage in given]
        if not self.written.isdisjoint(ids):
            return True
        outside = {id(storage) for storage in self.storages}
        taken = [inputs[i]._storage for i in captured.overwritten]  # type: ignore[union-attr]
        # Arguments on a storage that is one itself are where they were in the traced call.
        whole = {id(tensors[base.index]._storage) for base in captured.bases}
        if any(
            (ids.count(id(storage)) > 1 and id(storage) not in whole) or id(storage) in outside
            for storage in taken
        ):
            return True
        return shares_memory([*taken, *captured.written], [*given, *self.storages])

    def inputs_for(self, tensors: Sequence[Tensor], numbers: list[Any]) -> list[Tensor] | None:
        """The tensors among the arguments and those in the slots of effects; ``None`` if the slots
        or the numbers among the arguments hold anything that the program is not for."""
        effects = self.captured.effects
        return list(tensors) if effects is None else effects.read(tensors, numbers)

    def completed(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """The tensors of a run, with whole storages; its impure calls are made, once
        everything else allows it; ``None`` if the program is not for these."""
        if not self.needs_more:
            return tensors
        effects = self.captured.effects
        wholes = [base.tensor_for(tensors) for base in self.captured.bases]
        if None in wholes:
            return None
        given: list[Any] | None = tensors
        if effects is not None and (effects.calls or effects.outputs):
            given = effects.draw(tensors)
        if given is None:
            return None
        given = [*given, *wholes]
        if len(given) == len(tensors):
            return given
        is_valid = self.accepts(given) and not self.aliases_written(given)
        return given if is_valid else None

    def outputs_made(self) -> list[bool]:
        """Which of the impure calls after a run were made for the present call."""
        effects = self.captured.effects
        if effects is None:
            return []
        return [number not in effects.waiting for number in range(len(effects.outputs))]

    def skip_outputs(self, traced: Captured) -> None:
        """The impure calls after the next run were made while it was traced, but for those that
        need what it computes."""
        effects = self.captured.effects
        if effects is not None and traced.effects is not None:
            made = [output.is_deferred for output in traced.effects.outputs]
            effects.waiting = [number for number, is_deferred in enumerate(made) if is_deferred]

    def is_for_calls(self) -> bool:
        """Whether the program is for what the impure calls of the present call have returned."""
        effects = self.captured.effects
        if effects is None or effects.log is None:
            return True
        with effects.log.closed():
            return effects.expressions.evaluate()

    def complete(self, assembled: Any) -> Any:
        """Store the effects of a run; returns its result."""
        effects = self.captured.effects
        if effects is None or not effects.stores:
            return assembled
        result, values = assembled
        before = MUTATIONS.count
        if effects.store(values):
            self.guards.absorb_mutation(before)
        if effects.outputs:
            effects.emit(values)
        return result

    def run(self, tensors: list[Tensor]) -> Any:
        """Run the program on the tensors of :meth:`inputs_for`."""
        call = Call(self, tensors)
        captured = self.captured
        if captured.derivative is None:
            results, _ = call.results()
        else:
            own, leaves = captured.targets
            results = CompiledCall.apply(call, *(tensors[i] for i in own), *leaves)
        mark_freed(captured.freed, results)
        return self.complete(captured.results.assemble(list(results), tensors))


class Call:
    """One run of a variant on given tensors."""

    def __init__(self, variant: Variant, tensors: list[Tensor]) -> None:
        self.variant = variant
        self.tensors: list[Any] = [*tensors, *(t._grad for t in variant.captured.grad_inputs)]
        self.derivative = variant.captured.derivative
        self.kept: dict[int, Tensor] = {}

    def results(self) -> _Given:
        """Run the program; returns the results and the residuals."""
        self.save_overwritten()
        found = self.checked_results() if self.variant.check_finite else self.run(self.deliver)
        return cast(_Given, found)

    def run(self, deliver: Callable[[list[Any]], _Given | None]) -> Any:
        """Run the program; an index out of range is reported with the location of its lookup."""
        variant = self.variant
        variant.invalidate_numbers()  # numbers of Python are written over the options
        try:
            return variant.program.run(self.arrays(), variant.numbers(), deliver)
        except IndexError as error:
            raise self.with_location(error) from None

    def with_location(self, error: IndexError) -> Exception:
        """An error of the run; that of a failed lookup gets its source location."""
        return self.failed_lookup() if self.variant.program.status_word[0] else error

    def failed_lookup(self) -> Exception:
        """The error of a failed lookup or check in the program, with its source location."""
        variant = self.variant
        return failed_lookup(variant.captured.graph, self.inputs(), variant.program.generators())

    def checked_results(self) -> Any:
        """Run the program; if it produces non-finite values, undo it and raise with the reason."""
        captured = self.variant.captured
        count = captured.output_count
        check = FiniteCheck(captured.graph, count, self.inputs(), captured.written)

        def deliver(found: list[Any]) -> _Given | None:
            return self.deliver(found) if check.passes(found) else None

        results = self.run(deliver)
        if results is None:
            raise NonFiniteError(check.undo(self.name_of_input))
        return results

    def arrays(self) -> list[Any]:
        """The arguments as contiguous arrays."""
        return contiguous_arrays(self.tensors)

    def deliver(self, found: list[Any]) -> _Given:
        """Wrap the outputs of a run as tensors and assign writes and gradients. Idempotent."""
        captured = self.variant.captured
        made = [
            None if a is None else fresh(a, o.type)
            for a, o in zip(found, captured.graph.outputs, strict=True)
        ]
        start = captured.result_count + len(captured.written)
        for index in captured.overwritten:
            assign(self.tensors[index], made[start])  # type: ignore[arg-type]
            start += 1
        for owner, grad in captured.grads:
            tensor = self.tensors[owner] if isinstance(owner, int) else owner
            if isinstance(grad, Output):
                tensor._grad = made[grad.index]
                tensor._grad._storage.tag(GRADIENT)
                start += 1
            else:
                tensor._grad = grad
        return made[: captured.result_count], self.residuals(made[start:])  # type: ignore[return-value]

    def inputs(self) -> list[Tensor]:
        """The inputs of the graph as tensors."""
        numbers = [from_float(number) for number in self.variant.numbers()]
        return [*self.tensors, *numbers, *self.variant.captured.outside]

    def name_of_input(self, index: int) -> str:
        """The description of a graph input, for a message."""
        captured = self.variant.captured
        if index < captured.arguments - len(captured.grad_inputs):
            return f"argument {index} (counting tensors), {captured.graph.inputs[index].type}"
        number = index - captured.arguments
        if number < 0:
            return f"an existing gradient, {captured.graph.inputs[index].type}"
        if number < len(captured.numbers):
            container, key, _ = captured.numbers[number]
            return f"the option {key!r}" if isinstance(container, dict) else "a number"
        return f"a captured tensor, {captured.graph.inputs[index].type}"

    def save_overwritten(self) -> None:
        """Copy the residual inputs that the program overwrites."""
        if self.derivative is None:
            return
        captured, inputs = self.variant.captured, self.inputs()
        for kind, n in self.derivative.residuals:
            is_own = kind == "input" and n in captured.overwritten
            if is_own or (kind == "input" and id(inputs[n]._storage) in self.variant.written):
                self.kept[n] = from_array(inputs[n]._value.copy())

    def residuals(self, saved: list[Any]) -> list[Tensor]:
        if self.derivative is None:
            return []
        inputs = self.inputs()
        return [
            saved[n] if kind == "saved" else self.kept[n] if n in self.kept else inputs[n]
            for kind, n in self.derivative.residuals
        ]


def mark_freed(freed: Sequence[tuple[int, str, Any, Any]], results: Sequence[Tensor]) -> None:
    """Let results require grad whose graph the function itself has freed."""
    for index, name, type, location in freed:
        results[index]._node = FreedNode(name, type, location)


def shares_memory(written: Sequence[Storage], others: Sequence[Storage]) -> bool:
    """Whether a storage that is written shares memory with another one, through NumPy."""
    shared = [storage for storage in others if storage.shared]
    return any(
        other is not storage and np.may_share_memory(storage.value, other.value)
        for storage in written if storage.shared for other in shared
    )  # fmt: skip


def contiguous_arrays(tensors: Iterable[Tensor]) -> list[Any]:
    """The arrays of tensors, copied where they are not contiguous."""
    return [v if v.flags.c_contiguous else v.copy() for v in [t._value for t in tensors]]


def from_float(value: float) -> Tensor:
    return from_array(np.asarray(value, np.float64))
