"""Trade time for memory: keep a function's inputs, recompute the rest when backward needs it.

Built on saved-value hooks: inside the function every kept value is replaced by a number, and the
first number that backward asks for runs the function again to find them all. It therefore works
with ``grad``, any order of derivative, nesting, and parameters the function closes over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from evergrad.autograd.graph import saved_tensors_hooks
from evergrad.core.state import STATE, Hooks, using
from evergrad.core.tensor import Tensor, detached
from evergrad.core.tree import tree_map_only

Contexts = Callable[[], tuple[Any, Any]]


def noop_context_fn() -> tuple[Any, Any]:
    return nullcontext(), nullcontext()


class CheckpointError(RuntimeError):
    """The function did something else when it was run again."""


class _Enough(Exception):
    """Every value has been found: the rest of the function need not run."""


class _Frame:
    """One checkpointed call."""

    def __init__(
        self, function: Callable[..., Any], args: Any, kwargs: Any, context: Any,
        preserve_rng_state: bool, early_stop: bool,
    ) -> None:  # fmt: skip
        self.function = function
        self.context = context
        self.early_stop = early_stop
        self.count = 0
        self.found: dict[int, Tensor] = {}
        # Inputs are kept like any other value, so an enclosing checkpoint drops them as well.
        outer = STATE.get().saved_hooks
        self.args = tree_map_only(Tensor, lambda t: _Input(t, outer), args)
        self.kwargs = tree_map_only(Tensor, lambda t: _Input(t, outer), kwargs)
        self.random_state = _random_state() if preserve_rng_state else None

    def pack(self, tensor: Tensor) -> int:
        self.count += 1
        return self.count - 1

    def unpack(self, number: int) -> Tensor:
        if number not in self.found:
            self.run_again()
        if number not in self.found:
            raise CheckpointError(
                "checkpoint: the function kept fewer values when it was run again than the first "
                "time, so the gradient would be wrong. It must do the same on every call (no "
                "counters, no global state)."
            )
        return self.found.pop(number)

    def run_again(self) -> None:
        taken = 0

        def collect(tensor: Tensor) -> Any:
            nonlocal taken
            if taken < self.count:
                self.found[taken] = detached(tensor)
            taken += 1
            if self.early_stop and taken >= self.count:
                raise _Enough
            return tensor

        args = tree_map_only(_Input, _Input.get, self.args)
        kwargs = tree_map_only(_Input, _Input.get, self.kwargs)
        former = None
        if self.random_state is not None:
            former = _random_state()
            _set_random_state(self.random_state)
        try:
            with using(grad=True), self.context, saved_tensors_hooks(collect, lambda t: t):
                self.function(*args, **kwargs)
        except _Enough:
            pass
        finally:
            if former is not None:
                _set_random_state(former)


class _Input:
    """A tensor argument, packed by the hooks that held outside."""

    def __init__(self, tensor: Tensor, hooks: Hooks | None) -> None:
        self.unpack: Callable[[Any], Tensor] | None = None
        self.value: Any = tensor
        self.node, self.index = tensor._node, tensor._index
        if hooks is not None:
            with using(saved_hooks=None):
                self.value, self.unpack = hooks[0](tensor), hooks[1]

    def get(self) -> Tensor:
        if self.unpack is None:
            return self.value  # type: ignore[no-any-return]
        tensor = detached(self.unpack(self.value))
        tensor._node, tensor._index = self.node, self.index
        return tensor


def _random_state() -> Any:
    from evergrad.core.generators import default_generator

    return default_generator().clone_state()


def _set_random_state(state: Any) -> None:
    from evergrad.core.generators import default_generator

    default_generator().set_state(state.get_state())


def checkpoint(
    function: Callable[..., Any],
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Contexts = noop_context_fn,
    determinism_check: str = "default",
    preserve_rng_state: bool = True,
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """Call ``function`` without keeping what it computes inside; backward runs it again.

    ``use_reentrant`` is accepted and makes no difference: there is one implementation, and it is
    exact in every case.
    """
    if not STATE.get().grad:
        return function(*args, **kwargs)
    forward_context, recompute_context = context_fn()
    frame = _Frame(function, args, kwargs, recompute_context, preserve_rng_state, early_stop)
    with forward_context, saved_tensors_hooks(frame.pack, frame.unpack):
        return function(*args, **kwargs)


def checkpoint_sequential(
    functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a sequence of modules in ``segments`` checkpointed parts; the last is kept."""
    modules: Sequence[Any] = list(
        functions.children() if hasattr(functions, "children") else functions
    )

    def run(start: int, stop: int) -> Callable[[Any], Any]:
        def part(value: Any) -> Any:
            for module in modules[start:stop]:
                value = module(value)
            return value

        return part

    size = len(modules) // segments
    stop = 0
    for start in range(0, size * (segments - 1), size):
        stop = start + size
        input = checkpoint(run(start, stop), input, use_reentrant=use_reentrant, **kwargs)
    return run(stop, len(modules))(input)
