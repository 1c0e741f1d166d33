"""Tools on graphs: hooks on kept values and on several tensors at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import ContextVar, Token
from typing import Any, NamedTuple

from evergrad.core.backward import BackwardPass
from evergrad.core.node import GraphNode, RemovableHandle
from evergrad.core.settings import set_data_writes_counted as _set_data_writes_counted
from evergrad.core.state import STATE, State
from evergrad.core.tensor import Tensor, current_node
from evergrad.core.thread_variable import thread_variable

Node = GraphNode
set_data_writes_counted = _set_data_writes_counted

# Why saved-value hooks are not allowed now, if they are not.
_REFUSAL: ContextVar[str | None] = thread_variable("evergrad_hooks_refused", None)


class GradientEdge(NamedTuple):
    """A node and which of its results: the place in a graph that a tensor represents."""

    node: GraphNode
    output_nr: int
    ownership_token: Any = None  # here the type of the tensor, for cotangents of one


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    node = current_node(tensor)
    if node is None:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            "gradients"
        )
    return GradientEdge(node, tensor._index, tensor._type)


class saved_tensors_hooks:  # noqa: N801 - PyTorch's spelling
    """Within it, ``pack_hook`` takes what is kept for backward and ``unpack_hook`` gives it back.

    The innermost pair wins. Values are packed in the order in which ops keep them: arguments in
    their order, then results.
    """

    def __init__(self, pack_hook: Callable[[Tensor], object], unpack_hook: Callable[[Any], Tensor]):
        self.hooks: tuple[Callable[[Tensor], Any], Callable[[Any], Tensor]] = (
            pack_hook,
            unpack_hook,
        )
        self._tokens: list[Token[State]] = []

    def __enter__(self) -> None:
        refusal = _REFUSAL.get()
        if refusal is not None:
            raise RuntimeError(refusal)
        self._tokens.append(STATE.set(STATE.get().replace(saved_hooks=self.hooks)))

    def __exit__(self, *exc: object) -> None:
        STATE.reset(self._tokens.pop())


class save_on_cpu(saved_tensors_hooks):  # noqa: N801 - PyTorch's spelling
    """Kept values are on the CPU already: stores copies, as PyTorch does."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda t: t.detach().clone(), lambda t: t)


class allow_mutation_on_saved_tensors(save_on_cpu):  # noqa: N801 - PyTorch's spelling
    """Within it, tensors that were kept for backward may be written: what is kept are copies."""

    def __enter__(self) -> Any:
        super().__enter__()
        return self

    def clear(self) -> None:
        """Copies belong to the graph and are freed with it."""


def increment_version(tensor: Tensor | Sequence[Tensor]) -> None:
    """Count a write that went around the engine, so that backward notices it."""
    for written in (tensor,) if isinstance(tensor, Tensor) else tensor:
        written._storage.version += 1


class disable_saved_tensors_hooks:  # noqa: N801 - PyTorch's spelling
    """Within it, saved-value hooks are an error with the given message."""

    def __init__(self, error_message: str) -> None:
        self._message = error_message
        self._tokens: list[Token[str | None]] = []

    def __enter__(self) -> None:
        if STATE.get().saved_hooks is not None:
            raise RuntimeError(self._message)
        self._tokens.append(_REFUSAL.set(self._message))

    def __exit__(self, *exc: object) -> None:
        _REFUSAL.reset(self._tokens.pop())


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all"
) -> RemovableHandle:
    """Call ``fn`` when the gradients of all tensors that take part in a backward pass are known
    (``None`` for the others), or, mode "any", when the first is."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    group = _Group(tensors, fn, mode)
    return _GroupHandle([t.register_hook(group.hook_for(i)) for i, t in enumerate(tensors)])


class _Group:
    """Tensors whose gradients are awaited together, with what has arrived in each pass."""

    def __init__(self, tensors: Sequence[Tensor], fn: Callable[..., None], mode: str) -> None:
        self.nodes = [get_gradient_edge(t).node for t in tensors]
        self.fn = fn
        self.mode = mode
        self.last = 0
        self.arrived: dict[int, list[object]] = {}
        self.missing: dict[int, int] = {}

    def hook_for(self, place: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            backward_pass = STATE.get().backward_pass
            assert backward_pass is not None
            if self.mode == "all":
                self.enter(backward_pass, place, grad)
            elif backward_pass.number != self.last:
                self.last = backward_pass.number
                self.fn(grad)

        return hook

    def enter(self, backward_pass: BackwardPass, place: int, grad: Tensor) -> None:
        number = backward_pass.number
        if number not in self.arrived:
            self.arrived[number] = [None] * len(self.nodes)
            self.missing[number] = sum(backward_pass.reaches(self.nodes))
        self.arrived[number][place] = grad
        self.missing[number] -= 1
        if not self.missing[number]:
            del self.missing[number]
            self.fn(self.arrived.pop(number))


class _GroupHandle(RemovableHandle):
    __slots__ = ("_handles",)

    def __init__(self, handles: list[RemovableHandle]) -> None:
        self.id = handles[0].id if handles else 0
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()
