"""Eager composites as graphs: their values, and their derivatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from evergrad.autograd import grad
from evergrad.core.shapes import TensorType
from evergrad.core.state import using
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph, Var
from evergrad.core.tracing import tracing


class Structure:
    """A function with attributes, on tensors of given types (``None`` where none is given)."""

    def __init__(
        self, function: Callable[..., Any], types: Sequence[TensorType | None],
        attrs: dict[str, Any],
    ) -> None:  # fmt: skip
        self.function = function
        self.attrs = attrs
        self.present = tuple(type is not None for type in types)
        self.types = tuple(type for type in types if type is not None)

    def apply(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The function itself; its results as a tuple."""
        given = iter(tensors)
        args = [next(given) if is_there else None for is_there in self.present]
        found = self.function(*args, **self.attrs)
        return found if isinstance(found, tuple) else (found,)

    def traced(self) -> Graph:
        """The function as a graph."""
        with using(autocast=None, trace=None), tracing() as tracer:
            inputs = [tracer.input(type) for type in self.types]
            return tracer.finish(self.apply(inputs)).without_dead_code()

    def derivative(
        self, needs: int, hidden: Sequence[TensorType] = (), with_results: bool = False
    ) -> tuple[list[Var], list[Var], Graph]:
        """The gradients by the arguments in the bit set ``needs`` as a graph, with one output for
        each argument, after the results if these are wanted; and the values of arguments and
        cotangents, also of ``hidden`` results, which have no influence."""
        with using(autocast=None, trace=None), tracing(grad=True) as tracer:
            inputs = [tracer.input(type) for type in self.types]
            arguments = list(tracer.trace.inputs)
            targets = [t.requires_grad_() for i, t in enumerate(inputs) if needs >> i & 1]
            outs = self.apply(inputs)
            given = [tracer.input(out._type) for out in outs]
            pairs = [(o, g) for o, g in zip(outs, given, strict=True) if o.requires_grad]
            results, directions = zip(*pairs, strict=True)
            grads = iter(grad(results, targets, directions, allow_unused=True))
            wanted = [next(grads) if needs >> i & 1 else None for i in range(len(inputs))]
            cotangents = [g._value for g in (*given, *map(tracer.input, hidden))]
            graph = tracer.finish([*(outs if with_results else ()), *wanted])
            return arguments, cotangents, graph.without_dead_code()
