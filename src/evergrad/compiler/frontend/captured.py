"""A captured call: the pure graph, and what its inputs and outputs are."""

from __future__ import annotations

from typing import Any

from evergrad.compiler.frontend.arguments.argument_identities import ArgumentIdentities
from evergrad.compiler.frontend.arguments.base_arguments import BaseArgument
from evergrad.compiler.frontend.effects.effect import Effects
from evergrad.compiler.frontend.effects.outputs import Output, Results
from evergrad.compiler.frontend.effects.sparse_gradients import PartsOutput
from evergrad.compiler.frontend.guards.guard import Guards
from evergrad.compiler.frontend.partition import Derivative
from evergrad.compiler.frontend.paths.path import Path
from evergrad.core.storage import Storage
from evergrad.core.tensor import Tensor
from evergrad.core.trace import Graph


class Captured:
    """One traced call.

    ``inputs`` of the graph are the tensor arguments and the current gradients of ``grad_inputs``
    tensors, then ``numbers`` (container, key, part), then ``outside`` (captured) tensors. Its
    outputs are the results, then the final value of each of the ``written`` storages, then
    overwritten arguments, then new gradients, then the residuals.
    """

    def __init__(self) -> None:
        self.graph: Graph
        self.arguments = 0
        self.grad_inputs: list[Tensor] = []
        self.numbers: list[tuple[Any, Any, int | None]] = []
        self.outside: list[Tensor] = []
        self.written: list[Storage] = []
        self.overwritten: list[int] = []
        # Arguments on memory that the function also reaches otherwise, and that they have to be
        # on at each call: (index, storage, address).
        self.fixed: list[tuple[int, Storage, int]] = []
        # The tensors that the function reaches otherwise, by id, if it compares identities, and
        # which of them each argument has to be.
        self.handles: dict[int, Tensor] = {}
        self.same_handles: list[int | None] = []
        # Which containers among the arguments the function reaches otherwise, if it can tell.
        self.identities: ArgumentIdentities | None = None
        # The whole storages of arguments, which follow all other arguments.
        self.bases: list[BaseArgument] = []
        self.results: Results
        self.result_count = 0
        # Final gradients: (tensor or index of an argument; an Output, another tensor, or None).
        self.grads: list[tuple[Any, Any]] = []
        # The backward graph, the indices of differentiable results, and the arguments (by index)
        # and captured leaves they are differentiated by.
        self.derivative: Derivative | None = None
        self.differentiable: list[int] = []
        self.targets: tuple[list[int], list[Tensor]] = ([], [])
        # The results that require grad but whose graph was freed or written to: (index, name of the
        # node, type, location, message in the second case).
        self.freed: list[tuple[int, str, object, object, str | None]] = []
        self.guards: Guards
        # How many arguments must be tensors without attributes: code may look for these.
        self.bare_arguments = 0
        # The arguments for which ``requires_grad`` is set or cleared: (index, value).
        self.flags: list[tuple[int, bool]] = []
        # The places that the call gives other values. Their former tensors follow the arguments of
        # the call; their values are the second part of the results.
        self.effects: Effects | None = None
        # The stages before the graph, of a call that decides by the data. Their results follow the
        # arguments.
        self.path: Path | None = None
        # Whether shapes depend on numbers of the data.
        self.has_sizes: bool = False
        # The exceptions that the function may handle: Python runs calls whose program raises one.
        self.handled: tuple[type[BaseException], ...] = ()

    @property
    def whole_graph(self) -> Graph:
        """The graph with those of the stages."""
        return self.graph if self.path is None else self.path.graph

    @property
    def output_count(self) -> int:
        """The number of outputs without the residuals."""
        made = [grad for _, grad in self.grads if isinstance(grad, (Output, PartsOutput))]
        new_grads = sum(len(g.indices) if isinstance(g, PartsOutput) else 1 for g in made)
        return self.result_count + len(self.written) + len(self.overwritten) + new_grads
