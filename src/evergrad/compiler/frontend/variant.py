"""A variant: the program compiled for one signature, with its guards; and a call of it on the
general path."""

from __future__ import annotations

import copy
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from evergrad.compiler.frontend.arguments.signature import address_of
from evergrad.compiler.frontend.capture import read_number
from evergrad.compiler.frontend.captured import Captured
from evergrad.compiler.frontend.diagnose import FiniteCheck, failed_lookup
from evergrad.compiler.frontend.effects.outputs import Output
from evergrad.compiler.frontend.effects.sparse_gradients import PartsOutput
from evergrad.compiler.frontend.guards.revalidation import Schedule
from evergrad.compiler.frontend.last_call import WHOLE, LastCall
from evergrad.compiler.frontend.partition import CompiledCall
from evergrad.compiler.frontend.state.gradient_flags import set_flags
from evergrad.compiler.program_cache import program_of
from evergrad.compiler.runtime.arena import SharedArena
from evergrad.core.eager.copies import contiguous_copy
from evergrad.core.inplace import assign
from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.node import FreedNode
from evergrad.core.state import using
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor, fresh, from_array, user_attributes
from evergrad.errors import AssumptionError, NonFiniteError
from evergrad.memory.ledger import GRADIENT

if TYPE_CHECKING:
    from evergrad.compiler.frontend.guards.guard import Guards
    from evergrad.compiler.frontend.partition import Derivative
    from evergrad.compiler.runtime.program import Program
    from evergrad.core.types import Array, Leaves

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
        self.program: Program = program_of(captured, limit, arena, on_disk)
        if captured.derivative is not None and arena is not None:
            captured.derivative.arena = arena.for_derivatives
        self.guards: Guards = captured.guards
        reads = [] if captured.path is None else captured.path.reads
        self.last_call: LastCall = (
            LastCall("whole", None, list(map(str, reads))) if reads else WHOLE
        )
        self.storages: list[Storage] = [t._storage for t in captured.outside]
        self.written: set[int] = {id(storage) for storage in captured.written}
        self.is_unwritten = frozenset(captured.written).isdisjoint
        self.is_inside = frozenset(self.storages).isdisjoint
        # A gradient may be an input several times: by itself, and as what is overwritten.
        self.grad_owners: list[Tensor] = list(
            {id(owner): owner for owner in captured.grad_inputs}.values()
        )
        # The token of the guards under which the program's numbers were set; None if they are
        # stale.
        self.numbers_token: object = None
        # When its calls are traced again.
        self.schedule: Schedule = Schedule()
        # Weak references to the arrays that were last found at the addresses in ``fixed``.
        self.located: list[Callable[[], object]] = [_no_array for _ in captured.fixed]
        effects = captured.effects
        makes_calls = effects is not None and bool(effects.calls or effects.outputs)
        # How many values of stages follow the arguments.
        self.carried: int = 0 if captured.path is None else len(captured.path.carried)
        # Whether a call has arguments besides those given and in slots, or makes impure calls.
        self.needs_more: bool = makes_calls or bool(captured.bases) or captured.path is not None

    @property
    def nbytes(self) -> int:
        """The bytes that it holds besides the shared arena."""
        path = self.captured.path
        stages = [] if path is None else path.programs
        return self.program.nbytes + sum(program.nbytes for program in stages)

    def discard_lowering(self) -> None:
        """Drop what only reports read."""
        self.program.discard_lowering()
        for program in () if self.captured.path is None else self.captured.path.programs:
            program.discard_lowering()

    def lowered(self) -> Variant:
        """This variant, or one for a report with a program that is built anew: one loaded from the
        disk cache has no lowering."""
        from evergrad.compiler.build import build_program  # imports all passes

        if self.program.executable.lowering is not None:
            return self
        found = copy.copy(self)
        found.program = build_program(self.captured, self.limit, arena=self.arena)
        found.invalidate_numbers()
        return found

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
        located = self.located
        for n, (i, storage, address) in enumerate(self.captured.fixed):
            if i >= len(tensors):  # drawn by an impure call, later
                continue
            if tensors[i]._storage is not storage:
                return False
            value = tensors[i]._value
            if located[n]() is not value:
                if address_of(value) != address:
                    return False
                located[n] = weakref.ref(value)
        bare = self.captured.bare_arguments
        if bare and any(user_attributes(tensor) for tensor in tensors[:bare]):
            return False
        if not self.captured.same_handles:
            return True
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
        count = captured.arguments - len(captured.grad_inputs) - self.carried
        if len(tensors) < count:
            return False  # checked once the impure calls have returned the others
        tensors = tensors[:count]  # values of stages are nowhere else
        storages = [tensor._storage for tensor in tensors]
        grads = [owner._grad._storage for owner in self.grad_owners if owner._grad is not None]
        given = storages + grads
        if not self.is_unwritten(given):
            return True
        carried = [None] * self.carried
        inputs = [*tensors, *carried, *[owner._grad for owner in captured.grad_inputs]]
        taken = [inputs[i]._storage for i in captured.overwritten]  # type: ignore[union-attr]
        if not self.is_inside(taken):
            return True
        if len(set(given)) < len(given):
            # Arguments on a storage that is one itself are where they were in the traced call.
            whole = {tensors[base.index]._storage for base in captured.bases}
            if any(given.count(storage) > 1 and storage not in whole for storage in taken):
                return True
        return shares_memory([*taken, *captured.written], [*given, *self.storages])

    def inputs_for(self, tensors: Sequence[Tensor], numbers: list[object]) -> list[Tensor] | None:
        """The tensors among the arguments and those in the slots of effects; ``None`` if the slots
        or the numbers among the arguments hold anything that the program is not for."""
        effects = self.captured.effects
        return list(tensors) if effects is None else effects.read(tensors, numbers)

    @property
    def needs_arguments(self) -> bool:
        """Whether containers among the arguments are results, stored into, or distinguished."""
        effects = self.captured.effects
        is_stored = effects is not None and bool(effects.argument_slots)
        has_identities = self.captured.identities is not None
        return is_stored or has_identities or self.captured.results.needs_arguments

    def is_for_objects(self, args: object, kwargs: object) -> bool:
        """Whether the containers among the arguments are those of the program, as far as the
        function can tell."""
        identities = self.captured.identities
        return identities is None or identities.hold(args, kwargs)

    def use_arguments(self, given: object) -> bool:
        """Use the arguments of a call; false if the program is not for them."""
        effects = self.captured.effects
        self.captured.results.given = given
        return effects is None or effects.find_arguments(given)

    def release_arguments(self) -> None:
        self.captured.results.given = None
        for slot in () if self.captured.effects is None else self.captured.effects.argument_slots:
            slot.place = None

    def completed(self, tensors: list[Tensor]) -> list[Tensor] | None:
        """The tensors of a run, with whole storages; its impure calls are made, once
        everything else allows it; ``None`` if the program is not for these."""
        if not self.needs_more:
            return tensors
        effects, path = self.captured.effects, self.captured.path
        wholes = [base.tensor_for(tensors) for base in self.captured.bases]
        if None in wholes:
            return None
        given: Leaves | None
        if path is None:
            given = [*tensors, *wholes] if effects is None else effects.draw(tensors, wholes)
            return given if given is not None and self.is_valid_for(given, tensors) else None
        assert effects is not None
        is_valid = False
        try:
            given = effects.draw(tensors, wholes)
            if given is not None:
                given += path.finish()
                is_valid = self.is_valid_for(given, tensors)
            return given if is_valid else None
        finally:
            if not is_valid:
                path.fail()

    def is_valid_for(self, given: list[Tensor], tensors: list[Tensor]) -> bool:
        """Whether the guards on arguments hold for those of a run that were not checked before."""
        if len(given) == len(tensors) + self.carried:
            return True
        return self.accepts(given) and not self.aliases_written(given)

    def with_carried(self, tensors: list[Tensor]) -> list[Tensor]:
        """The tensors of a run for a report, which does not compute the values of stages: zeros."""
        path, captured = self.captured.path, self.captured
        if path is None:
            return tensors
        end = captured.arguments - len(captured.grad_inputs)
        carried = captured.graph.inputs[end - len(path.carried) : end]
        zeros = [from_array(np.zeros(v.type.shape, v.type.dtype.np)) for v in carried]
        return [*tensors, *zeros]

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

    def is_for_calls(self, data: Sequence[object]) -> bool:
        """Whether the program is for what the impure calls of the present call have returned, and
        for what it has read of the data."""
        effects, path = self.captured.effects, self.captured.path
        if effects is None or (effects.log is None and path is None):
            return True
        if path is None:
            return effects.is_for_log()
        with path.assuming(data):
            return effects.is_for_log()

    def complete(self, assembled: Any) -> Any:
        """Store the effects of a run; returns its result."""
        effects = self.captured.effects
        if effects is None or not effects.stores:
            return assembled
        result, values = assembled
        before = MUTATIONS.count
        if effects.store(values) and not effects.changes_modules:
            self.guards.absorb_mutation(before)
        if effects.outputs:
            effects.emit(values)
        return result

    def run(self, tensors: list[Tensor]) -> Any:
        """Run the program on the tensors of :meth:`completed`."""
        if not self.captured.flags:
            return self.run_parts(tensors)
        with set_flags(tensors, self.captured.flags):
            return self.run_parts(tensors)

    def is_repeated_after(self, error: Exception) -> bool:
        """Whether Python runs a call whose program has failed, which has written nothing: the
        function may handle the exception."""
        if self.check_finite or not isinstance(error, self.captured.handled):
            return isinstance(error, AssumptionError)
        program = self.program
        has_written = not program.status_word[0] and program.has_written()
        return not (has_written or program.calls_user_code)

    def run_parts(self, tensors: list[Tensor]) -> object:
        """Run the stages' last part, or the program."""
        path = self.captured.path
        if path is None:
            return self.run_last(tensors)
        with path.last_part():
            return self.run_last(tensors)

    def run_last(self, tensors: list[Tensor]) -> object:
        """Run the program after the stages."""
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
        self.tensors: Leaves = [*tensors, *(t._grad for t in variant.captured.grad_inputs)]
        self.derivative: Derivative | None = variant.captured.derivative
        self.kept: dict[int, Tensor] = {}

    def results(self) -> _Given:
        """Run the program; returns the results and the residuals."""
        self.save_overwritten()
        found = self.checked_results() if self.variant.check_finite else self.run(self.deliver)
        return cast(_Given, found)

    def run(self, deliver: Callable[[Leaves], _Given | None]) -> Any:
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

    def checked_results(self) -> object:
        """Run the program; if it produces non-finite values, undo it and raise with the reason."""
        captured = self.variant.captured
        count = captured.output_count
        check = FiniteCheck(captured.graph, count, self.inputs(), captured.written)

        def deliver(found: Leaves) -> _Given | None:
            return self.deliver(found) if check.passes(found) else None

        results = self.run(deliver)
        if results is None:
            raise NonFiniteError(check.undo(self.name_of_input))
        return results

    def arrays(self) -> Leaves:
        """The arguments as contiguous arrays."""
        return contiguous_arrays(self.tensors)

    def deliver(self, found: Leaves) -> _Given:
        """Wrap the outputs of a run as tensors and assign writes and gradients. Idempotent."""
        captured = self.variant.captured
        made = [
            None if a is None else fresh(a, o.type)
            for a, o in zip(found, captured.graph.outputs, strict=True)
        ]
        start = captured.result_count + len(captured.written)
        with using(grad=False, no_grad=True):  # traced under the rules for writes
            for index in captured.overwritten:
                assign(self.tensors[index], made[start])  # type: ignore[arg-type]
                start += 1
        for owner, grad in captured.grads:
            tensor = self.tensors[owner] if isinstance(owner, int) else owner
            if isinstance(grad, Output):
                tensor._grad = made[grad.index]
                tensor._grad._storage.tag(GRADIENT)
                start += 1
            elif isinstance(grad, PartsOutput):
                tensor._grad = grad.make(made)
                start += len(grad.indices)
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

    def residuals(self, saved: Leaves) -> list[Tensor]:
        if self.derivative is None:
            return []
        inputs = self.inputs()
        return [
            saved[n] if kind == "saved" else self.kept[n] if n in self.kept else inputs[n]
            for kind, n in self.derivative.residuals
        ]


def mark_freed(freed: Sequence[tuple[int, str, Any, Any, Any]], results: Sequence[Tensor]) -> None:
    """Let results require grad whose graph the function itself has freed or written to."""
    for index, name, type, location, error in freed:
        results[index]._node = FreedNode(name, type, location, error)


def shares_memory(written: Sequence[Storage], others: Sequence[Storage]) -> bool:
    """Whether a storage that is written shares memory with another one, through NumPy."""
    for storage in written:
        if storage.shared:
            break
    else:
        return False
    shared = [storage for storage in others if storage.shared]
    return any(
        other is not storage and np.may_share_memory(storage.value, other.value)
        for storage in written if storage.shared for other in shared
    )  # fmt: skip


def contiguous_arrays(tensors: Iterable[Tensor]) -> list[Array]:
    """The arrays of tensors, copied where they are not contiguous."""
    values = [t._value for t in tensors]
    return [v if v.flags.c_contiguous else contiguous_copy(v) for v in values]


def from_float(value: float) -> Tensor:
    return from_array(np.asarray(value, np.float64))


def _no_array() -> None:
    """A dead reference."""
