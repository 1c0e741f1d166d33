"""``evergrad.compile``: a Python function that runs as native code from its second look on."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from evergrad.compiler.capture import Captured, Output, capture, read_number
from evergrad.compiler.derivative import CompiledCall
from evergrad.compiler.lowering import Lowering
from evergrad.compiler.program import Program
from evergrad.core import dtypes
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, fresh, from_array
from evergrad.core.tree import tree_flatten, tree_unflatten
from evergrad.core.writing import assign
from evergrad.memory.ledger import GRADIENT

_MANY = 8


def compile(model: Any = None, **options: Any) -> Any:
    """Compile a training step, a module or a function of tensors.

    The function is traced at its first call with arguments of given types, and the program made of
    the trace runs from then on. Tensors of the outside that it reads or writes (parameters,
    optimizer state) stay where they are; Python floats among its arguments and the options of
    optimizers are read at each call. What else decided the trace is checked at each call, and a
    new program is made where it has changed.
    """
    if model is None:
        return functools.partial(compile, **options)
    if hasattr(model, "parameters") and hasattr(model, "forward"):
        from evergrad.nn.compiled import OptimizedModule

        return OptimizedModule(model)
    return Compiled(model)


class Variant:
    """One traced signature: when it holds, and its program."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        lowering = Lowering(
            captured.graph, captured.arguments, len(captured.numbers), captured.outside,
            captured.result_count, captured.written,
        )  # fmt: skip
        self.program = Program(lowering)
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
        self.tensors = tensors
        self.derivative = variant.captured.derivative

    def results(self) -> tuple[list[Tensor], list[Tensor]]:
        """Run the program; gives the results, and what the derivative reads."""
        captured, program = self.variant.captured, self.variant.program
        arrays = [v if v.flags.c_contiguous else v.copy() for v in (t._value for t in self.tensors)]
        found = program.run(arrays, [read_number(*place) for place in captured.numbers])
        made = [
            None if a is None else fresh(a, o.type)
            for a, o in zip(found, program.graph.outputs, strict=True)
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
        captured = self.variant.captured
        numbers = [from_float(read_number(*place)) for place in captured.numbers]
        return [*self.tensors, *numbers, *captured.outside]

    def read_by_derivative(self, saved: list[Any]) -> list[Tensor]:
        if self.derivative is None:
            return []
        inputs = self.inputs()
        return [inputs[n] if kind == "input" else saved[n] for kind, n in self.derivative.places]


def from_float(value: float) -> Tensor:
    return from_array(np.asarray(value, np.float64))


class Compiled:
    """A function with the programs made of it so far."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.variants: dict[Any, list[Variant]] = {}
        self.lock = threading.RLock()
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if STATE.get().trace is not None:
            return self.function(*args, **kwargs)  # part of a larger program
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        numbers = [leaf for leaf in leaves if leaf.__class__ is float]
        key = _signature(leaves, spec)
        with self.lock:
            variant = self.find(key, leaves, spec, tensors, numbers)
            for container, index, _ in variant.captured.numbers:
                if isinstance(container, list):
                    container[index] = numbers[index]
            return variant.run(tensors)

    def find(self, key: Any, leaves: list[Any], spec: Any, tensors: Any, numbers: Any) -> Variant:
        known = self.variants.setdefault(key, [])
        for variant in known:
            if variant.holds():
                return variant
        if len(known) >= _MANY:
            warnings.warn(
                f"{self.function} was compiled {len(known) + 1} times for the same types; what "
                f"changed: {known[-1].changed()}",
                RuntimeWarning,
                stacklevel=3,
            )
            known.clear()
        variant = Variant(self.trace(leaves, spec, tensors, numbers))
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
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        numbers = [leaf for leaf in leaves if leaf.__class__ is float]
        key = _signature(leaves, spec)
        with self.lock:
            return self.find(key, leaves, spec, tensors, numbers).program.plan


def _signature(leaves: list[Any], spec: Any) -> Any:
    """What a trace depends on: the form and the types of the arguments, and the modes."""
    state = STATE.get()
    return spec, tuple([_key(leaf) for leaf in leaves]), state.grad, dtypes.get_default_dtype()


def _key(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return leaf._type, leaf.requires_grad
    if leaf.__class__ is float:
        return float
    return leaf.__class__, leaf
