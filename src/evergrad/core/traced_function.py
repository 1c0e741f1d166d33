"""A Python function of tensors as a graph: what jvp and vmap interpret.

:func:`trace` runs the function once on symbolic values. The interpreters run the equations of the
graph through ``bind`` again, so that their result can be recorded, traced, differentiated or
batched once more; there are no tracer levels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from evergrad.core.source_location import SourceLocation, describe
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, current_node
from evergrad.core.trace import Graph
from evergrad.core.tracing import tracing
from evergrad.core.tree import TreeSpec, tree_flatten, tree_unflatten
from evergrad.errors import GradientError

if TYPE_CHECKING:
    from evergrad.core.shapes import TensorType
    from evergrad.core.types import Leaves


class TracedFunction:
    """A function as a graph, with the tree of its results.

    ``leaves`` are the leaves of that tree: an :class:`Output`, or a result that is no tensor. The
    last outputs of the graph are the values that the function wrote to its arguments
    ``overwritten``. ``no_grad_write`` is where it overwrote a value under ``no_grad()``.
    ``repeated`` are results that equal an earlier one, and so are one value of the graph with it,
    but have memory of their own.
    """

    __slots__ = ("graph", "leaves", "no_grad_write", "overwritten", "repeated", "spec")

    def __init__(
        self, graph: Graph, leaves: list[object], spec: TreeSpec, overwritten: list[int],
        no_grad_write: SourceLocation | None, repeated: list[int],
    ) -> None:  # fmt: skip
        self.repeated: list[int] = repeated
        self.graph: Graph = graph
        self.leaves: Leaves = leaves
        self.spec: TreeSpec = spec
        self.overwritten: list[int] = overwritten
        self.no_grad_write: SourceLocation | None = no_grad_write

    def refuse_lost_history(self, args: Sequence[Tensor]) -> None:
        """Raise if the graph is recorded around a function that overwrites a value under
        ``no_grad()``: the value would keep its former node, which a functional graph cannot
        express."""
        if self.no_grad_write is None or not STATE.get().grad:
            return
        tensors = [*args, *(tensor for _, tensor in self.graph.captures)]
        if any(current_node(t) is not None for t in tensors):
            raise GradientError(
                "a value was overwritten in place under no_grad(), inside a function given to vmap "
                "or jvp, while a gradient is being recorded around it; that gradient would not be "
                "right.\n"
                f"  overwritten by: {describe(self.no_grad_write)}\n"
                "  fix: use the out-of-place form there, or overwrite a clone()."
            )

    def rebuild(self, results: Sequence[object]) -> Any:
        """The function's result from the graph's outputs."""
        filled = [
            results[leaf.position] if isinstance(leaf, Output) else leaf for leaf in self.leaves
        ]
        return tree_unflatten(filled, self.spec)

    def writes(self, results: Sequence[object]) -> list[tuple[int, Any]]:
        """The arguments that the function wrote to, with their values afterwards."""
        count = len(self.overwritten)
        return list(zip(self.overwritten, results[len(results) - count :], strict=True))


class Output:
    """A tensor among the results: the position of its value in the outputs of the graph."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position: int = position


def trace(function: Callable[..., object], types: Sequence[TensorType]) -> TracedFunction:
    """Run a function of tensors on symbolic values of these types."""
    with tracing(grad=STATE.get().grad) as tracer:
        inputs = [tracer.input(t) for t in types]
        before = [t._storage.value for t in inputs]
        result = function(*inputs)
        leaves, spec = tree_flatten(result)
        tensors: list[Tensor] = []
        outputs: Leaves = []
        for leaf in leaves:
            if isinstance(leaf, Tensor):
                outputs.append(Output(len(tensors)))
                tensors.append(leaf)
            else:
                outputs.append(leaf)
        overwritten = [
            i
            for i, (t, v) in enumerate(zip(inputs, before, strict=True))
            if t._storage.value is not v
        ]
        repeated = _repeated(tensors)
        graph = tracer.finish([*tensors, *(inputs[i] for i in overwritten)])
    return TracedFunction(graph, outputs, spec, overwritten, tracer.trace.no_grad_write, repeated)


def _repeated(tensors: Sequence[Tensor]) -> list[int]:
    """The positions of tensors that equal an earlier one on another storage."""
    first: dict[int, Tensor] = {}
    return [
        i
        for i, t in enumerate(tensors)
        if t._view is None and first.setdefault(id(t._storage.value), t)._storage is not t._storage
    ]
