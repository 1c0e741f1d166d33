"""``evergrad.compile``: a Python function that runs as native code from its second look on."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from types import MethodType
from typing import Any, cast

import numpy as np

from evergrad.compiler.capture import Captured, InsideGraphError, Output, capture, read_number
from evergrad.compiler.checks import FiniteCheck, failed_lookup
from evergrad.compiler.derivative import CompiledCall
from evergrad.compiler.lowering import Lowering
from evergrad.compiler.program import Program
from evergrad.compiler.remat import within
from evergrad.compiler.rewrite import simplify
from evergrad.core import dtypes
from evergrad.core.state import STATE
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor, fresh, from_array
from evergrad.core.trace import Graph
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
        graph, constants = simplify(captured.graph)

        def build(graph: Graph, again: frozenset[int] = frozenset()) -> Program:
            return Program(Lowering(
                graph, captured.arguments, len(captured.numbers), [*captured.outside, *constants],
                captured.result_count, captured.written, again,
            ))  # fmt: skip

        self.program = build(graph) if limit is None else within(limit, graph, build)
        self.storages = [t._storage for t in captured.outside]
        self.questions = [(ask, answer) for ask, answer, _ in captured.conditions]

    def holds(self) -> bool:
        for ask, answer in self.questions:
            if ask() != answer:
                return False
        for tensor, storage in zip(self.captured.outside, self.storages, strict=True):
            if tensor._storage is not storage:
                return False
        return True

    def is_entangled(self, tensors: list[Tensor]) -> bool:
        """Whether memory that the program writes to is also that of another argument: a program
        takes arguments for values of their own."""
        captured = self.captured
        if not tensors or not (captured.overwritten or captured.written):
            return False
        given = [id(t._storage) for t in tensors]
        if not {id(storage) for storage in captured.written}.isdisjoint(given):
            return True
        taken = [given[i] for i in captured.overwritten if i < len(given)]
        outside = {id(storage) for storage in self.storages}
        return any(given.count(storage) > 1 or storage in outside for storage in taken)

    def changed(self) -> str:
        """What does not hold any more, for a message."""
        for ask, answer, name in self.captured.conditions:
            if ask() != answer:
                return name
        return "the memory of a tensor"

    def run(self, tensors: list[Tensor]) -> Any:
        call = Call(self, tensors)
        captured = self.captured
        if captured.derivative is None:
            results, _ = call.results()
        else:
            own, leaves = captured.targets
            results = CompiledCall.apply(call, *(tensors[i] for i in own), *leaves)
        filled = [
            r if not isinstance(r, Output)
            else results[r.place].item() if r.is_number else results[r.place]
            for r in captured.results
        ]  # fmt: skip
        return tree_unflatten(filled, captured.spec)


class Call:
    """One run of a variant on given tensors."""

    def __init__(self, variant: Variant, tensors: list[Tensor]) -> None:
        self.variant = variant
        self.tensors: list[Any] = [*tensors, *(t._grad for t in variant.captured.fetched)]
        self.derivative = variant.captured.derivative

    def results(self) -> _Given:
        """Run the program; gives the results, and what the derivative reads."""
        found = self.checked_results() if self.variant.check_finite else self.run(self.deliver)
        return cast(_Given, found)

    def run(self, deliver: Callable[[list[Any]], _Given | None]) -> Any:
        """Run the program; an index that is out of range is told with the line of its lookup."""
        program = self.variant.program
        try:
            return program.run(self.arrays(), self.numbers(), deliver)
        except IndexError:
            if not program.status[0]:
                raise
            place = failed_lookup(self.variant.captured.graph, self.inputs(), program.generators())
            raise IndexError(
                "an index is out of range in a lookup inside a compiled function; nothing was "
                f"written.\n  {place}"
            ) from None

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

    def read_by_derivative(self, saved: list[Any]) -> list[Tensor]:
        if self.derivative is None:
            return []
        inputs = self.inputs()
        return [inputs[n] if kind == "input" else saved[n] for kind, n in self.derivative.places]


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
        # Signatures whose calls stand inside a graph that is being recorded around them.
        self.inside_graphs: set[Any] = set()
        self.lock = threading.RLock()
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if STATE.get().trace is not None:
            return self.function(*args, **kwargs)  # part of a larger program
        with self.lock:
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
        return variant, tensors

    def find(
        self, key: Any, leaves: list[Any], spec: Any, tensors: Any, numbers: Any
    ) -> Variant | None:
        if key in self.inside_graphs:
            return None
        known = self.variants.setdefault(key, [])
        for variant in known:
            if variant.holds():
                return variant
        if len(known) >= _MANY:
            warnings.warn(
                f"{self.function} was compiled {len(known) + 1} times for the same types; what "
                f"changed: {known[-1].changed()}",
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

        return capture(call, tensors, list(numbers))

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
