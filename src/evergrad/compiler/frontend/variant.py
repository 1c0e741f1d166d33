"""A traced signature with its program, and a call of it in the long way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

import numpy as np

from evergrad.compiler.cache.program_cache import program_of
from evergrad.compiler.frontend.capture import Captured, read_number
from evergrad.compiler.frontend.diagnose import FiniteCheck, failed_lookup
from evergrad.compiler.frontend.outputs import Output
from evergrad.compiler.frontend.partition import CompiledCall
from evergrad.core.inplace import assign
from evergrad.core.tensor import Tensor, fresh, from_array
from evergrad.errors import NonFiniteError
from evergrad.memory.ledger import GRADIENT

_Given = tuple[list[Tensor], list[Tensor]]


class Variant:
    """One traced signature: when it holds, and its program."""

    def __init__(
        self, captured: Captured, check_finite: bool = False, limit: int | None = None
    ) -> None:
        self.captured = captured
        self.check_finite = check_finite
        self.limit = limit
        self.program = program_of(captured, limit)
        self.conditions = captured.conditions
        self.storages = [t._storage for t in captured.outside]
        self.written = {id(storage) for storage in captured.written}
        # What tells whether the options are still those that the program has.
        self.current: Callable[[], bool] | None = None

    def lower(self) -> None:
        """Have a program that can tell what it was made of, in place of one from the disk."""
        from evergrad.compiler.build import build_program  # imports all passes

        if self.program.executable.lowering is None:
            self.program = build_program(self.captured, self.limit)
            self.forget_numbers()

    def numbers(self) -> list[float]:
        """The options that are read at run time, as they are now."""
        return [read_number(*place) for place in self.captured.numbers]

    def give_numbers(self) -> None:
        """Give the program the options that are read at run time, unless it has them already."""
        are_untouched = self.conditions.are_untouched
        if self.current is not are_untouched:
            self.program.set_numbers(self.numbers())
            self.current = are_untouched

    def forget_numbers(self) -> None:
        """Have the program given its options anew."""
        self.current = None

    def is_entangled(self, tensors: list[Tensor]) -> bool:
        """Whether memory that the program writes to is also that of another argument: a program
        takes arguments for values of their own."""
        captured = self.captured
        if not tensors or not (captured.overwritten or captured.written):
            return False
        given = [id(t._storage) for t in tensors]
        if not self.written.isdisjoint(given):
            return True
        taken = [given[i] for i in captured.overwritten if i < len(given)]
        outside = {id(storage) for storage in self.storages}
        return any(given.count(storage) > 1 or storage in outside for storage in taken)

    def run(self, tensors: list[Tensor]) -> Any:
        call = Call(self, tensors)
        captured = self.captured
        if captured.derivative is None:
            results, _ = call.results()
        else:
            own, leaves = captured.targets
            results = CompiledCall.apply(call, *(tensors[i] for i in own), *leaves)
        return captured.results.put_together(list(results), tensors)


class Call:
    """One run of a variant on given tensors."""

    def __init__(self, variant: Variant, tensors: list[Tensor]) -> None:
        self.variant = variant
        self.tensors: list[Any] = [*tensors, *(t._grad for t in variant.captured.fetched)]
        self.derivative = variant.captured.derivative
        self.kept: dict[int, Tensor] = {}

    def results(self) -> _Given:
        """Run the program; gives the results, and what the derivative reads."""
        self.keep_overwritten()
        found = self.checked_results() if self.variant.check_finite else self.run(self.deliver)
        return cast(_Given, found)

    def run(self, deliver: Callable[[list[Any]], _Given | None]) -> Any:
        """Run the program; an index that is out of range is told with the line of its lookup."""
        variant = self.variant
        variant.forget_numbers()  # floats among the arguments are written over the options
        try:
            return variant.program.run(self.arrays(), variant.numbers(), deliver)
        except IndexError as error:
            raise self.told_where(error) from None

    def told_where(self, error: IndexError) -> IndexError:
        """An error of the run; of a lookup in the program, with its line."""
        return self.failed_lookup() if self.variant.program.status_word[0] else error

    def failed_lookup(self) -> IndexError:
        """The error of a lookup in the program, with its line."""
        variant = self.variant
        return failed_lookup(variant.captured.graph, self.inputs(), variant.program.generators())

    def checked_results(self) -> Any:
        """Run the program; if it gives numbers that are not finite, undo it and tell why."""
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
        """The elements of the arguments, as the program takes them."""
        return contiguous_arrays(self.tensors)

    def deliver(self, found: list[Any]) -> _Given:
        """Hand out what a run has computed. Doing it twice is as good as doing it once."""
        captured = self.variant.captured
        made = [
            None if a is None else fresh(a, o.type)
            for a, o in zip(found, captured.graph.outputs, strict=True)
        ]
        start = captured.result_count + len(captured.written)
        for place in captured.overwritten:
            assign(self.tensors[place], made[start])  # type: ignore[arg-type]
            start += 1
        for tensor, grad in captured.grads:
            if isinstance(grad, Output):
                tensor._grad = made[grad.place]
                tensor._grad._storage.tag(GRADIENT)  # type: ignore[union-attr]
                start += 1
            else:
                tensor._grad = grad
        return made[: captured.result_count], self.read_by_derivative(made[start:])  # type: ignore[return-value]

    def inputs(self) -> list[Tensor]:
        """The inputs of the graph as tensors."""
        numbers = [from_float(number) for number in self.variant.numbers()]
        return [*self.tensors, *numbers, *self.variant.captured.outside]

    def name_of_input(self, place: int) -> str:
        """An input of the graph, for a message."""
        captured = self.variant.captured
        if place < captured.arguments - len(captured.fetched):
            return f"argument {place} (counting tensors), {captured.graph.inputs[place].type}"
        number = place - captured.arguments
        if number < 0:
            return f"a gradient that was there, {captured.graph.inputs[place].type}"
        if number < len(captured.numbers):
            container, key, _ = captured.numbers[number]
            return f"the option {key!r}" if isinstance(container, dict) else f"the float {key}"
        return f"a tensor of the outside, {captured.graph.inputs[place].type}"

    def keep_overwritten(self) -> None:
        """Copy the inputs that the derivative reads and the program overwrites."""
        if self.derivative is None:
            return
        captured, inputs = self.variant.captured, self.inputs()
        for kind, n in self.derivative.places:
            is_own = kind == "input" and n in captured.overwritten
            if is_own or (kind == "input" and id(inputs[n]._storage) in self.variant.written):
                self.kept[n] = from_array(inputs[n]._value.copy())

    def read_by_derivative(self, saved: list[Any]) -> list[Tensor]:
        if self.derivative is None:
            return []
        inputs = self.inputs()
        return [
            saved[n] if kind == "saved" else self.kept[n] if n in self.kept else inputs[n]
            for kind, n in self.derivative.places
        ]


def contiguous_arrays(tensors: Iterable[Tensor]) -> list[Any]:
    """The elements of arguments, as a program takes them."""
    return [v if v.flags.c_contiguous else v.copy() for v in [t._value for t in tensors]]


def from_float(value: float) -> Tensor:
    return from_array(np.asarray(value, np.float64))
