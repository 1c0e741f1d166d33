"""Tools on graphs: hooks on kept values and on several tensors at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextvars import Token
from typing import Any, NamedTuple

from evergrad.core.node import GraphNode, RemovableHandle
from evergrad.core.state import STATE, State
from evergrad.core.tensor import Tensor, current_node

Node = GraphNode


class GradientEdge(NamedTuple):
    """A node and which of its results: the place in a graph a tensor stands for."""

    node: GraphNode
    output_nr: int


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    node = current_node(tensor)
    if node is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    return GradientEdge(node, tensor._index)


class saved_tensors_hooks:  # noqa: N801 - PyTorch's spelling
    """Within it, ``pack_hook`` takes each value kept for backward and ``unpack_hook`` gives it back.

    The innermost pair wins. Values are packed in the order in which ops keep them: arguments in
    their order, then results.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]):
        self.hooks = (pack_hook, unpack_hook)
        self._tokens: list[Token[State]] = []

    def __enter__(self) -> None:
        self._tokens.append(STATE.set(STATE.get().replace(saved_hooks=self.hooks)))

    def __exit__(self, *exc: object) -> None:
        STATE.reset(self._tokens.pop())


class save_on_cpu(saved_tensors_hooks):  # noqa: N801 - PyTorch's spelling
    """Kept values are on the CPU already: stores copies, as PyTorch does."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cpu") -> None:
        super().__init__(lambda t: t.detach().clone(), lambda t: t)


class disable_saved_tensors_hooks:  # noqa: N801 - PyTorch's spelling
    """Within it, a kept value that meets a hook is an error with the given message."""

    def __init__(self, error_message: str) -> None:
        def refuse(tensor: Any) -> Any:
            raise RuntimeError(error_message)

        self._inner = saved_tensors_hooks(refuse, refuse)
        self._active = False

    def __enter__(self) -> None:
        self._active = STATE.get().saved_hooks is not None
        if self._active:
            self._inner.__enter__()

    def __exit__(self, *exc: object) -> None:
        if self._active:
            self._inner.__exit__(*exc)


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., None], *, mode: str = "all"
) -> RemovableHandle:
    """Call ``fn`` when the gradients of all tensors are known (or, mode "any", of the first)."""
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    count = len(tensors)
    arrived: list[Any] = [None] * count
    seen = [0]

    def hook_for(place: int) -> Callable[[Tensor], None]:
        def hook(grad: Tensor) -> None:
            arrived[place] = grad
            seen[0] += 1
            if mode == "any" and seen[0] == 1:
                fn(grad)
            if seen[0] == count:
                given = list(arrived)
                arrived[:], seen[0] = [None] * count, 0
                if mode == "all":
                    fn(given)

        return hook

    handles = [t.register_hook(hook_for(i)) for i, t in enumerate(tensors)]
    group: dict[int, Any] = {}
    whole = RemovableHandle(group, None)

    def remove_all() -> None:
        for handle in handles:
            handle.remove()

    return _GroupHandle(whole, remove_all)


class _GroupHandle(RemovableHandle):
    __slots__ = ("_remove_all",)

    def __init__(self, own: RemovableHandle, remove_all: Callable[[], None]) -> None:
        self.id = own.id
        self._hooks = {}
        self._remove_all = remove_all

    def remove(self) -> None:
        self._remove_all()
