"""The autograd graph: op nodes, leaves, and the hooks on them.

A :class:`Node` references the nodes of its arguments (its edges) and its residuals, never a tensor,
and no array references a node: graphs have no cycles and are freed by reference count alone.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from evergrad.core.mutation_counter import MUTATIONS
from evergrad.core.row_facts import aten_name
from evergrad.core.saved_values import Packed, freed_error, verify
from evergrad.core.shapes import TensorType
from evergrad.core.source_location import SourceLocation, user_location
from evergrad.errors import SavedValueError
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.tensor import Tensor
    from evergrad.core.types import AnyFunction, Leaves
    from evergrad.core.vjp_program import VjpProgram

# Nodes are numbered in the order of their making: a parent has a smaller number than its child.
next_sequence: Callable[[], int] = itertools.count(1).__next__

_unpack: ExtensionPoint[[Packed, object], Tensor] = ExtensionPoint("unpack")


class Hooks:
    """The hooks of one node: on the cotangents of its results, before its vjp and after it."""

    __slots__ = ("after", "before", "metadata", "on_result", "retained")

    def __init__(self) -> None:
        self.on_result: dict[int, dict[int, Callable[..., object]]] = {}
        self.before: dict[int, AnyFunction] = {}
        self.after: dict[int, AnyFunction] = {}
        self.metadata: dict[object, Any] = {}  # what programs note about the node
        # The tensors of retain_grad(), by result. Weak: a gradient that has a graph references this
        # node, which would close a cycle.
        self.retained: dict[int, weakref.ref[Tensor]] = {}


class RemovableHandle:
    """Removes a hook, by :meth:`remove` or at the end of a ``with`` block."""

    __slots__ = ("_hooks", "id")

    def __init__(self, hooks: dict[int, Any], hook: object, first: bool = False) -> None:
        self.id: int = next_sequence()
        self._hooks = hooks
        others = dict(hooks) if first else {}
        if first:
            hooks.clear()
        hooks[self.id] = hook
        hooks.update(others)
        MUTATIONS.advance()

    def remove(self) -> None:
        self._hooks.pop(self.id, None)
        MUTATIONS.advance()

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


class GraphNode:
    """The base class of op nodes, custom functions and leaves."""

    __slots__ = ("__weakref__", "hooks", "seq")

    seq: int
    hooks: Hooks | None
    parents: tuple[GraphNode | None, ...] = ()

    def ensure_hooks(self) -> Hooks:
        if self.hooks is None:
            self.hooks = Hooks()
        return self.hooks

    def register_hook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook(grad_inputs, grad_outputs)`` after the vjp of this node."""
        return RemovableHandle(self.ensure_hooks().after, hook)

    def register_prehook(self, hook: Callable[..., object]) -> RemovableHandle:
        """Call ``hook(grad_outputs)`` before the vjp of this node."""
        return RemovableHandle(self.ensure_hooks().before, hook)

    @property
    def metadata(self) -> dict[object, object]:
        """Notes of programs about this node."""
        return self.ensure_hooks().metadata

    def name(self) -> str:
        raise NotImplementedError

    @property
    def next_functions(self) -> tuple[tuple[GraphNode | None, int], ...]:
        return ()

    def __repr__(self) -> str:
        return f"<{self.name()} object at {id(self):#x}>"


class Leaf(GraphNode):
    """The node of a leaf tensor that requires grad, at which its gradient is accumulated.

    The tensor owns the gradient and the node references the tensor weakly, so that a gradient which
    has a graph itself (``create_graph``) closes no cycle.
    """

    __slots__ = ("accumulated", "owner")

    # Whether any leaf of this process has had hooks after accumulation: backward passes then count
    # edges to call them early.
    has_hooked: bool = False

    def __init__(self, owner: Tensor) -> None:
        self.seq: int = next_sequence()
        self.hooks: Hooks | None = None
        # Hooks called with the tensor after its gradient has been accumulated.
        self.accumulated: dict[int, Callable[..., object]] | None = None
        self.owner: weakref.ref[Tensor] = weakref.ref(owner)

    def name(self) -> str:
        return "AccumulateGrad"

    @property
    def variable(self) -> Tensor | None:
        return self.owner()


# The class's name is what PyTorch's programs print.
Leaf.__name__ = "AccumulateGrad"


class Node(GraphNode):
    """One op of the graph: its vjp program, its edges and its residuals."""

    __slots__ = ("indices", "location", "parents", "saved", "vjp_program")

    def __init__(
        self,
        vjp_program: VjpProgram,
        parents: tuple[GraphNode | None, ...],
        indices: tuple[int, ...] | None,
        saved: object,
    ) -> None:
        self.seq: int = next_sequence()
        self.hooks: Hooks | None = None
        self.vjp_program: VjpProgram = vjp_program
        self.parents: tuple[GraphNode | None, ...] = parents
        # For each edge which result of the parent it comes from; None if all are the first.
        self.indices: tuple[int, ...] | None = indices
        # The residuals: a tuple of Saved, a list if some are Packed, None once released.
        self.saved: Any = saved
        self.location: SourceLocation | None = user_location(1)

    def name(self) -> str:
        specialization = self.vjp_program.specialization
        ranks = [len(t.shape) for t in specialization.types if isinstance(t, TensorType)]
        operator = aten_name(specialization.op, ranks).removesuffix("_forward")
        return operator.title().replace("_", "") + "Backward0"

    @property
    def next_functions(self) -> tuple[tuple[GraphNode | None, int], ...]:
        indices = self.indices or (0,) * len(self.parents)
        return tuple(zip(map(named, self.parents), indices, strict=True))

    def out_types(self) -> tuple[TensorType, ...]:
        return self.vjp_program.specialization.out_types

    def release(self) -> None:
        """Release the residuals; a second backward is then an error."""
        if self.saved:
            self.saved = None

    def saved_arrays(self) -> list[object]:
        """The residuals as arrays and numbers, verified."""
        if self.saved is None:
            raise freed_error(self)
        values = []
        for entry in self.saved:
            if entry.__class__ is Packed:
                values.append(_unpack(entry, self)._value)
                continue
            value, storage, version, _ = entry
            if storage is not None and (storage.version != version or storage.shared):
                verify(self, entry)
            values.append(value)
        return values


_classes: dict[str, type[Node]] = {}


def named(node: GraphNode | None) -> GraphNode | None:
    """The node, in a class of its name: programs that draw graphs read ``type(node).__name__``.
    Only nodes that a program has looked at are of such a class."""
    if node.__class__ is Node:
        name = node.name()
        if name not in _classes:
            _classes[name] = type(name, (Node,), {"__slots__": (), "__doc__": Node.__doc__})
        node.__class__ = _classes[name]
    return node


class FreedNode(GraphNode):
    """The node of a result whose graph was differentiated and freed inside a compiled function, or
    needs what was written to there, which ``error`` says."""

    __slots__ = ("error", "indices", "location", "title", "types")

    def __init__(
        self, title: str, type: TensorType, location: SourceLocation | None,
        error: str | None = None,
    ) -> None:  # fmt: skip
        self.error: str | None = error
        self.seq: int = next_sequence()
        self.hooks: Hooks | None = None
        self.indices: tuple[()] = ()
        self.title: str = title
        self.types: tuple[TensorType] = (type,)
        self.location: SourceLocation | None = location

    def name(self) -> str:
        return self.title

    def out_types(self) -> tuple[TensorType, ...]:
        return self.types

    def run(self, values: list[object], on_tensors: bool, keep_graph: bool) -> Leaves:
        raise freed_error(self) if self.error is None else SavedValueError(self.error)
