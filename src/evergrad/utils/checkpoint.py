"""Trade time for memory: keep a function's inputs, recompute the rest when backward needs it.

Built on saved-value hooks: inside the function every kept value is replaced by a number, and the
first number that backward asks for runs the function again to find them all. It therefore works
with ``grad``, any order of derivative, nesting, and parameters the function closes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any

import numpy as np

from evergrad.autograd.graph import saved_tensors_hooks
from evergrad.core.functionalize import FunctionalizingTrace
from evergrad.core.rng.default_generator import default_generator
from evergrad.core.rng.generator import Generator
from evergrad.core.saved_values import save_value, verify
from evergrad.core.source_location import describe, user_location
from evergrad.core.state import STATE, Hooks, using
from evergrad.core.tensor import Tensor, current_node, detached
from evergrad.core.thread_variable import thread_variable
from evergrad.core.tree import tree_leaves, tree_map_only
from evergrad.core.types import Array
from evergrad.utils.selective_checkpoint import (
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

Contexts = Callable[[], tuple[Any, Any]]


def noop_context_fn() -> tuple[nullcontext[None], nullcontext[None]]:
    return nullcontext(), nullcontext()


# What :class:`set_checkpoint_early_stop` says; ``None`` leaves it to the call.
_EARLY_STOP: ContextVar[bool | None] = thread_variable("evergrad_checkpoint_early_stop", None)


@contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Whether checkpoints made within it stop the second run as soon as all values are found."""
    token = _EARLY_STOP.set(enable)
    try:
        yield
    finally:
        _EARLY_STOP.reset(token)


class CheckpointError(RuntimeError):
    """The function did something else when it was run again."""


class _Enough(Exception):  # noqa: N818 - a signal, not an error
    """Every value of a frame has been found: the rest of the function need not run."""

    def __init__(self, frame: _Frame) -> None:
        self.frame = frame


class _Frame:
    """One checkpointed call. Stands as the saver of its arguments in messages."""

    def __init__(
        self, function: Callable[..., object], args: Any, kwargs: Any, context: Any,
        preserve_rng_state: bool, early_stop: bool, compare_values: bool,
    ) -> None:  # fmt: skip
        self.function = function
        self.context = context
        self.early_stop = early_stop
        self.compare_values = compare_values
        self.location = user_location(2)
        # What each kept value looked like the first time.
        self.prints: list[_Print] = []
        self.found: dict[int, Tensor] = {}
        # Inputs are kept like any other value, so an enclosing checkpoint drops them as well.
        outer = STATE.get().saved_hooks
        self.args = tree_map_only(Tensor, lambda t: _Input(t, outer), args)
        self.kwargs = tree_map_only(Tensor, lambda t: _Input(t, outer), kwargs)
        self.random_state = _random_state() if preserve_rng_state else None
        self.autocast = STATE.get().autocast

    def run(self, args: Any, kwargs: Any) -> Any:
        """The first run."""
        with saved_tensors_hooks(self.pack, self.unpack):
            result = self.function(*args, **kwargs)
        if self.random_state is not None and (self.random_state == _random_state()).all():
            self.random_state = None  # nothing was drawn
        return result

    def name(self) -> str:
        return "checkpoint"

    def pack(self, tensor: Tensor) -> int:
        self.prints.append(_Print(tensor, self.compare_values))
        return len(self.prints) - 1

    def unpack(self, number: int) -> Tensor:
        if number not in self.found:
            self.run_again()
        if number not in self.found:
            raise self.differs("kept fewer values")
        return self.found.pop(number)

    def differs(self, what: str) -> CheckpointError:
        return CheckpointError(
            f"checkpoint: the function {what} when it was run again for backward than the first "
            "time, so the gradient would be wrong.\n"
            f"  first run: {describe(self.location)}\n"
            "  fix: let it do the same on every call (no counters, no global state, no generator "
            "of its own), and leave parameters and data as they are until backward has run."
        )

    def run_again(self) -> None:
        taken = 0

        def collect(tensor: Tensor) -> Tensor:
            nonlocal taken
            if taken < len(self.prints):
                self.prints[taken].check(tensor, self)
                self.found[taken] = detached(tensor)
            taken += 1
            if self.early_stop and taken >= len(self.prints):
                raise _Enough(self)
            return tensor

        args = tree_map_only(_Input, lambda i: i.get(self), self.args)
        kwargs = tree_map_only(_Input, lambda i: i.get(self), self.kwargs)
        former = None
        if self.random_state is not None:
            former = _random_state()
            Generator.set_state(default_generator(), self.random_state)
        try:
            with (
                using(grad=True, autocast=self.autocast),
                self.context,
                saved_tensors_hooks(collect, lambda t: t),
            ):
                self.function(*args, **kwargs)
        except _Enough as stop:
            if stop.frame is not self:
                raise
        finally:
            if former is not None:
                Generator.set_state(default_generator(), former)


class _Print:
    """The type of a kept value and a few of its elements: enough to tell another value by."""

    __slots__ = ("elements", "type")

    def __init__(self, tensor: Tensor, with_elements: bool) -> None:
        self.type = tensor._type
        self.elements = _few_elements(tensor) if with_elements else None

    def check(self, tensor: Tensor, frame: _Frame) -> None:
        if not tensor._type.same(self.type):
            raise frame.differs(f"kept a {tensor._type} in place of a {self.type}")
        if self.elements is None:
            return
        few = _few_elements(tensor)
        if not (few == self.elements).all() and not np.allclose(
            few, self.elements, rtol=_CLOSE, atol=1e-30, equal_nan=True
        ):
            raise frame.differs(f"kept another {self.type}")


# Sums may come out differently in their last places, depending on where in memory they are made.
_CLOSE = 1e-2


def _few_elements(tensor: Tensor) -> Array:
    array = tensor.array()
    step = max(1, array.size // 16)
    few = array.reshape(-1)[::step] if array.flags.c_contiguous else array.flat[::step]
    return few.astype(np.complex128 if tensor.dtype.is_complex else np.float64)


class _Input:
    """A tensor argument: watched like a saved value, or packed by the hooks that held outside."""

    def __init__(self, tensor: Tensor, hooks: Hooks | None) -> None:
        self.unpack: Callable[[object], Tensor] | None = None
        self.value: Any = tensor
        self.node, self.index = current_node(tensor), tensor._index
        if hooks is None:
            self.kept = save_value(tensor._value, tensor._storage)
        else:
            with using(saved_hooks=None):
                self.value, self.unpack = hooks[0](tensor), hooks[1]

    def get(self, frame: _Frame) -> Tensor:
        if self.unpack is None:
            verify(frame, self.kept)
            return self.value  # type: ignore[no-any-return]
        tensor = detached(self.unpack(self.value))
        tensor._node, tensor._index = self.node, self.index
        return tensor


def _random_state() -> Array:
    return Generator.get_state(default_generator())


def checkpoint(
    function: Callable[..., object],
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
    exact in every case. The second run is compared with the first by the types of the values it
    keeps and a few elements of each; ``determinism_check="none"`` leaves out the elements.
    """
    if determinism_check not in ("default", "none"):
        raise ValueError(
            f"determinism_check should be one of ['default', 'none'], but got {determinism_check!r}"
        )
    state = STATE.get()
    if isinstance(state.trace, FunctionalizingTrace) and state.grad:
        return _traced(state.trace, function, args, kwargs)
    if not state.grad or state.trace is not None:  # a traced program has no memory to save yet
        return function(*args, **kwargs)
    stated = _EARLY_STOP.get()
    early_stop = early_stop if stated is None else stated
    forward_context, recompute_context = context_fn()
    frame = _Frame(
        function, args, kwargs, recompute_context, preserve_rng_state, early_stop,
        compare_values=determinism_check == "default",
    )  # fmt: skip
    with forward_context:
        return frame.run(args, kwargs)


def _traced(
    trace: FunctionalizingTrace, function: Callable[..., object], args: Any, kwargs: Any
) -> object:
    """A call in a program that is being compiled. The compiler finds by itself what is better
    computed again; what the second run writes (running statistics) is written nevertheless."""
    start = len(trace.equations)
    result = function(*args, **kwargs)
    first = trace.equations[start:]
    results = [t for t in tree_leaves(result) if isinstance(t, Tensor) and t.requires_grad]
    has_run_again = False

    def run_again(gradient: Tensor) -> None:
        nonlocal has_run_again
        if not has_run_again:
            has_run_again = True
            with using(grad=True):
                trace.repeat(first, lambda: function(*args, **kwargs))

    for tensor in results:
        tensor.register_hook(run_again)
    return result


def checkpoint_sequential(
    functions: Any, segments: int, input: object, use_reentrant: bool | None = None, **kwargs: Any
) -> Any:
    """Run a sequence of modules in ``segments`` checkpointed parts; the last is kept."""
    modules: Sequence[Any] = list(
        functions.children() if hasattr(functions, "children") else functions
    )

    def run(start: int, stop: int) -> Callable[[Any], Any]:
        def part(value: object) -> Any:
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


__all__ = [
    "CheckpointError", "CheckpointPolicy", "SelectiveCheckpointContext", "checkpoint",
    "checkpoint_sequential", "create_selective_checkpoint_contexts", "noop_context_fn",
    "set_checkpoint_early_stop",
]  # fmt: skip
