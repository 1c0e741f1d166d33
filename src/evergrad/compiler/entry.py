"""``evergrad.compile``: a Python function that runs as native code from its second look on."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any, cast

import numpy as np

from evergrad.compiler.capture import Captured, InsideGraphError, capture, read_number
from evergrad.compiler.checks import FiniteCheck, failed_lookup
from evergrad.compiler.derivative import CompiledCall
from evergrad.compiler.results import Output
from evergrad.compiler.surroundings import Surroundings
from evergrad.compiler.warm import built, program_of
from evergrad.core import dtypes
from evergrad.core.state import STATE, State
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor, current_node, fresh, from_array
from evergrad.core.tree import tree_flatten, tree_unflatten
from evergrad.core.writing import assign
from evergrad.errors import NonFiniteError
from evergrad.memory.ledger import GRADIENT

_MANY = 8
_Given = tuple[list[Tensor], list[Tensor]]


def compile(
    model: Any = None, *, check_finite: bool = False, memory_limit: int | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """Compile a training step, a module or a function of tensors.

    The function is traced at its first call with arguments of given types, and the program made of
    the trace runs from then on. Tensors of the outside that it reads or writes (parameters,
    optimizer state) stay where they are; Python floats among its arguments and the options of
    optimizers are read at each call. What else decided the trace is checked at each call, and a
    new program is made where it has changed.

    A call that fails leaves tensors and random streams as they were before it. With
    ``check_finite`` a call that gives an infinity or a NaN fails, and its error names the op and
    the line they came from. With ``memory_limit`` values are computed again until what the program
    needs beside its arguments and results fits into so many bytes; if that cannot be, the first
    call raises ``MemoryLimitError`` before it runs anything.

    Other options of ``torch.compile`` are accepted; there is one way to compile here.
    """
    if model is None:
        return functools.partial(
            compile, check_finite=check_finite, memory_limit=memory_limit, **options
        )
    if hasattr(model, "parameters") and hasattr(model, "forward"):
        from evergrad.nn.compiled import OptimizedModule

        return OptimizedModule(model, check_finite, memory_limit)
    return Compiled(model, check_finite, memory_limit)


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
        self.result_types = [o.type for o in captured.graph.outputs[: captured.result_count]]
        self.written = {id(storage) for storage in captured.written}
        # The modes of the calls that it serves in the short way.
        self.mode: Any = None
        # For which questions about the options the program has their numbers.
        self.asked = 0

    def lower(self) -> None:
        """Have a program that can tell what it was made of, in place of one from the disk."""
        if self.program.recipe.lowering is None:
            self.program = built(self.captured, self.limit)
            self.asked = 0

    @property
    def is_plain(self) -> bool:
        """Whether a call has only to run the program and to make its results tensors (and
        gradients)."""
        found = self.captured
        unusual = (found.derivative, found.fetched, found.overwritten, found.once)
        given = any(isinstance(container, list) for container, *_ in found.numbers)
        return not (any(unusual) or given or self.check_finite)

    def run_plain(self, tensors: Sequence[Tensor]) -> Any:
        """As :meth:`run`, where a program :attr:`is_plain`."""
        values = [t._value for t in tensors]
        arrays = [v if v.flags.c_contiguous else v.copy() for v in values]
        asked = self.conditions.asked
        numbers = None
        if self.asked != asked:
            numbers = [read_number(*place) for place in self.captured.numbers]
        try:
            results = self.program.run(arrays, numbers, self.results_of)
        except IndexError as error:
            raise Call(self, list(tensors)).told_where(error) from None
        self.asked = asked
        return self.captured.results.put_together(results, tensors)

    def results_of(self, found: list[Any]) -> list[Tensor]:
        """What a plain program has computed, as tensors. Gradients are left with their owners;
        doing it twice is as good as doing it once."""
        outputs = self.captured.graph.outputs
        for tensor, grad in self.captured.grads:
            if grad.__class__ is Output:
                grad = fresh(found[grad.place], outputs[grad.place].type)
                grad._storage.tag(GRADIENT)
            tensor._grad = grad
        return [fresh(*pair) for pair in zip(found, self.result_types, strict=False)]

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
        variant.asked = 0  # floats among the arguments are written over the options
        try:
            return variant.program.run(self.arrays(), self.numbers(), deliver)
        except IndexError as error:
            raise self.told_where(error) from None

    def told_where(self, error: IndexError) -> IndexError:
        """An error of the run; of a lookup in the program, with its line."""
        program = self.variant.program
        if not program.status_word[0]:
            return error
        return failed_lookup(self.variant.captured.graph, self.inputs(), program.generators())

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
        return [v if v.flags.c_contiguous else v.copy() for v in (t._value for t in self.tensors)]

    def numbers(self) -> list[float]:
        return [read_number(*place) for place in self.variant.captured.numbers]

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
        numbers = [from_float(number) for number in self.numbers()]
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


def from_float(value: float) -> Tensor:
    return from_array(np.asarray(value, np.float64))


class Compiled:
    """A function with the programs made of it so far."""

    def __init__(
        self, function: Callable[..., Any], check_finite: bool = False,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        self.function = function
        self.check_finite = check_finite
        self.memory_limit = memory_limit
        self.variants: dict[Any, list[Variant]] = {}
        # The plain ones last used, by the types of arguments that are tensors without gradients.
        self.plain: dict[tuple[Any, ...], Variant] = {}
        # Signatures whose calls stand inside a graph that is being recorded around them.
        self.inside_graphs: set[Any] = set()
        self.lock = threading.RLock()
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = STATE.get()
        if state.trace is not None:
            return self.function(*args, **kwargs)  # part of a larger program
        with self.lock:
            plain = None if kwargs else self.plain_variant_for(args, state)
            if plain is not None:
                return plain.run_plain(args)
            variant, tensors = self.variant_for(args, kwargs)
            if variant is not None and not variant.is_entangled(tensors):
                return variant.run(tensors)
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method, like the function itself."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """A copy has no programs yet."""
        return type(self), (self.function, self.check_finite, self.memory_limit)

    def plain_variant_for(self, args: Sequence[Any], state: State) -> Variant | None:
        """The plain variant that served such arguments last, if it holds for these: the short way
        to what :meth:`variant_for` gives."""
        try:
            variant = self.plain.get(tuple([a._type for a in args]))
        except (AttributeError, TypeError):  # other arguments than tensors
            return None
        if variant is None or variant.mode != (state.grad, dtypes.get_default_dtype()):
            return None
        written = variant.written
        for tensor in args:
            if tensor._node is not None or id(tensor._storage) in written:
                return None
            if tensor._view is not None and current_node(tensor) is not None:
                return None
        if state.autocast is not None or not variant.conditions.hold():
            return None
        return variant

    def note_plain(self, args: Any, kwargs: Any, variant: Variant) -> None:
        """Let further calls with such arguments find a variant in the short way."""
        state = STATE.get()
        if kwargs or state.autocast is not None or not variant.is_plain:
            return
        if all(isinstance(a, Tensor) and not a.requires_grad for a in args):
            variant.mode = (state.grad, dtypes.get_default_dtype())
            self.plain[tuple([a._type for a in args])] = variant

    def variant_for(self, args: Any, kwargs: Any) -> tuple[Variant | None, list[Tensor]]:
        """The variant that holds for these arguments, told of the floats among them (``None`` if
        they are to run eagerly); and the tensors among them."""
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        numbers = [leaf for leaf in leaves if leaf.__class__ is float]
        if any(t._value is NO_ARRAY for t in tensors):  # sparse or ragged
            return None, tensors
        variant = self.find(_signature(leaves, spec), leaves, spec, tensors, numbers)
        if variant is None:
            return None, tensors
        for container, index, _ in variant.captured.numbers:
            if isinstance(container, list):
                container[index] = numbers[index]
        self.note_plain(args, kwargs, variant)
        return variant, tensors

    def find(
        self, key: Any, leaves: list[Any], spec: Any, tensors: Any, numbers: Any
    ) -> Variant | None:
        if key in self.inside_graphs:
            return None
        known = self.variants.setdefault(key, [])
        for variant in reversed(known):  # the one used last comes last
            if variant.conditions.hold():
                known.remove(variant)
                known.append(variant)
                return variant
        if len(known) >= _MANY:
            warnings.warn(
                f"{self.function} was compiled {len(known) + 1} times for the same types; what "
                f"changed: {known[-1].conditions.changed()}",
                RuntimeWarning,
                stacklevel=4,
            )
            known.clear()
        try:
            captured = self.trace(leaves, spec, tensors, numbers)
        except InsideGraphError:
            self.inside_graphs.add(key)
            return None
        variant = Variant(captured, self.check_finite, self.memory_limit)
        if variant.captured.once is None:
            known.append(variant)
        return variant

    def trace(self, leaves: list[Any], spec: Any, tensors: Any, numbers: Any) -> Captured:
        def call(symbolic: Any, runtime: Any) -> Any:
            given, floats = iter(symbolic), iter(runtime)
            filled = [
                next(given) if isinstance(leaf, Tensor)
                else next(floats) if leaf.__class__ is float else leaf
                for leaf in leaves
            ]  # fmt: skip
            args, kwargs = tree_unflatten(filled, spec)
            return self.function(*args, **kwargs)

        args, kwargs = tree_unflatten(leaves, spec)
        return capture(call, tensors, list(numbers), Surroundings(self.function, args, kwargs))

    def plan(self, *args: Any, **kwargs: Any) -> Any:
        """The memory plan for these arguments, without running anything."""
        with self.lock:
            return self.compiled_for(args, kwargs)[0].program.plan

    def compiled_for(self, args: Any, kwargs: Any) -> tuple[Variant, list[Tensor]]:
        """As :meth:`variant_for`, for questions about a program that must exist."""
        variant, tensors = self.variant_for(args, kwargs)
        if variant is None:
            raise RuntimeError(
                "calls with these arguments run eagerly: they take sparse or ragged tensors, or "
                "the function uses tensors that are computed from others with gradients"
            )
        return variant, tensors

    def explain(self, *args: Any, **kwargs: Any) -> Any:
        """What the program for these arguments is, needs and spends its time on; see
        :class:`~evergrad.compiler.explain.Explanation`. Changes nothing outside."""
        from evergrad.compiler.explain import Explanation

        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        with self.lock:
            variant, tensors = self.compiled_for(args, kwargs)
            variant.lower()
            return Explanation(Call(variant, tensors), name)


def _signature(leaves: list[Any], spec: Any) -> Any:
    """What a trace depends on: the form and the types of the arguments, and the modes."""
    state = STATE.get()
    lower = None if state.autocast is None else state.autocast.dtype
    keys = tuple([_key(leaf) for leaf in leaves])
    return spec, keys, state.grad, lower, dtypes.get_default_dtype()


def _key(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf._type, leaf.requires_grad
    if leaf.__class__ is float:
        return float
    try:
        hash(leaf)
    except TypeError:
        raise TypeError(
            f"an argument of a compiled function is a {type(leaf).__name__}, which cannot be told "
            "from others of its kind.\n  fix: give a tensor, a number, a string or a tuple."
        ) from None
    return leaf.__class__, leaf
