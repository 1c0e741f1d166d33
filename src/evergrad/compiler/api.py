"""``evergrad.compile``: a Python function traced at its first call and run as native code."""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

from evergrad.compiler.frontend.capture import Captured, InsideGraphError, capture
from evergrad.compiler.frontend.python_guards import PythonGuards
from evergrad.compiler.frontend.variant import Call, Variant
from evergrad.compiler.runtime import call_path
from evergrad.compiler.runtime.call_path import NOT_HANDLED, FastPath, make_fast_path
from evergrad.compiler.runtime.gc_pause import gc_paused
from evergrad.core import dtypes, fork
from evergrad.core.state import STATE
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor
from evergrad.core.tree import tree_flatten, tree_unflatten
from evergrad.extension import ExtensionPoint, provides

_optimized_module: ExtensionPoint[..., Any] = ExtensionPoint("optimized_module")

# The most variants kept per signature, and the most fast paths.
_VARIANT_LIMIT = 8


def compile(
    model: Any = None, *, check_finite: bool = False, memory_limit: int | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """Compile a training step, a module or a function of tensors.

    The function is traced at its first call with a given signature (structure and types of its
    arguments), and the program compiled from the trace runs from then on. Captured tensors that it
    reads or writes (parameters, optimizer state) keep their storage; Python floats among its
    arguments and the options of optimizers are runtime inputs, read at each call. Guards check at
    each call whatever else decided the trace; where one fails, the function is traced and compiled
    again.

    A call that fails leaves tensors and RNG states as they were before it. With ``check_finite`` a
    call that produces an infinity or a NaN fails, and its error names the op and the source line it
    came from. With ``memory_limit`` (bytes) values are rematerialized until the arena, the memory
    besides arguments and results, fits; if it cannot, the first call raises ``MemoryLimitError``
    before it runs anything.

    Other options of ``torch.compile`` are accepted and have no effect: there is one backend.
    """
    if model is None:
        return functools.partial(
            compile, check_finite=check_finite, memory_limit=memory_limit, **options
        )
    if hasattr(model, "parameters") and hasattr(model, "forward"):
        return _optimized_module(model, check_finite, memory_limit)
    return Compiled(model, check_finite, memory_limit)


@provides("compiled_function")
class Compiled:
    """A function with the variants compiled for it so far."""

    def __init__(
        self, function: Callable[..., Any], check_finite: bool = False,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        self.function = function
        self.check_finite = check_finite
        self.memory_limit = memory_limit
        self.variants: dict[Any, list[Variant]] = {}
        # Fast paths by variant, most recently added first.
        self.fast_paths: dict[Variant, FastPath] = {}
        # Signatures whose calls run eagerly, inside a graph that is recorded around them.
        self.eager_signatures: set[Any] = set()
        # Step lock: held while a variant is looked up and run.
        self.lock = threading.RLock()
        _steps.add(self)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = STATE.get()
        if state.trace is not None:
            return self.function(*args, **kwargs)  # inlined into the trace around it
        with self.lock:
            if not kwargs:
                for serve in self.fast_paths.values():
                    result = serve(args, state)
                    if result is not NOT_HANDLED:
                        return result
            with gc_paused():
                variant, tensors = self.variant_for(args, kwargs)
                if variant is not None and not variant.aliases_written(tensors):
                    result = variant.run(tensors)
                    if not kwargs:
                        self.add_fast_path(args, variant)
                    return result
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """Bind as a method, like the function itself."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """A copy has no variants yet."""
        return type(self), (self.function, self.check_finite, self.memory_limit)

    def add_fast_path(self, args: Any, variant: Variant) -> None:
        """Add the fast path for calls like this one, which a variant has just run."""
        serve = make_fast_path(variant, args)
        if serve is not None:
            others = [pair for pair in self.fast_paths.items() if pair[0] is not variant]
            self.fast_paths = dict([(variant, serve), *others[: _VARIANT_LIMIT - 1]])

    def variant_for(self, args: Any, kwargs: Any) -> tuple[Variant | None, list[Tensor]]:
        """The variant for these arguments, with their floats bound (``None`` if the call runs
        eagerly); and the tensors among the arguments."""
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        numbers = [leaf for leaf in leaves if leaf.__class__ is float]
        if any(t._value is NO_ARRAY for t in tensors):  # sparse or ragged
            return None, tensors
        variant = self.find_variant(signature(leaves, spec), leaves, spec, tensors, numbers)
        if variant is None:
            return None, tensors
        for container, index, _ in variant.captured.numbers:
            if isinstance(container, list):
                container[index] = numbers[index]
        return variant, tensors

    def find_variant(
        self, key: Any, leaves: list[Any], spec: Any, tensors: Any, numbers: Any
    ) -> Variant | None:
        if key in self.eager_signatures:
            return None
        variant = self.valid_variant(key)
        if variant is not None:
            return variant
        known = self.variants.setdefault(key, [])
        if len(known) >= _VARIANT_LIMIT:
            warnings.warn(
                f"{self.function} was recompiled {len(known)} times for the same signature; failed "
                f"guard: {known[-1].guards.first_failed()}",
                RuntimeWarning,
                stacklevel=4,
            )
            known.clear()
            self.fast_paths = {}
        try:
            captured = self.trace(leaves, spec, tensors, numbers)
        except InsideGraphError:
            self.eager_signatures.add(key)
            return None
        variant = Variant(captured, self.check_finite, self.memory_limit)
        if variant.captured.once is None:
            known.append(variant)
        return variant

    def valid_variant(self, key: Any) -> Variant | None:
        """The variant for this signature whose guards hold, if there is one already."""
        known = self.variants.get(key, [])
        for variant in reversed(known):  # most recently used last
            if variant.guards.hold():
                known.remove(variant)
                known.append(variant)
                return variant
        return None

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

        call_path.begin()
        args, kwargs = tree_unflatten(leaves, spec)
        return capture(call, tensors, list(numbers), PythonGuards(self.function, args, kwargs))

    def loop(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function for each row (index of the first dimension) of the tensors among its
        arguments, one after the other, and stack the results: ``loop(xs, ys)`` is ``stack([f(x, y)
        for x, y in zip(xs, ys)])``.

        Once a compiled program handles the rows, all of them are one batched native call without
        Python in between: the per-call overhead of small steps is gone, and threads that train
        models of their own do not contend for the GIL. Options of optimizers are read when the loop
        begins. A row that fails ends the loop; the rows before it are done, and the error names the
        failed row. Pass what is the same for all rows expanded, or as a number.
        """
        from evergrad.compiler.runtime.batched_calls import loop_of  # start-up: rarely used

        return loop_of(self, args, kwargs)

    def plan(self, *args: Any, **kwargs: Any) -> Any:
        """The memory plan for these arguments, without running anything."""
        with self.lock:
            return self.compiled_for(args, kwargs)[0].program.plan

    def compiled_for(self, args: Any, kwargs: Any) -> tuple[Variant, list[Tensor]]:
        """As :meth:`variant_for`; raises if the call runs eagerly."""
        variant, tensors = self.variant_for(args, kwargs)
        if variant is None:
            raise RuntimeError(
                "calls with these arguments run eagerly: they take sparse or ragged tensors, or "
                "the function uses tensors that are computed from others with gradients"
            )
        return variant, tensors

    def explain(self, *args: Any, passes: bool = False, **kwargs: Any) -> Any:
        """Report the compiled program for these arguments: its nodes, memory, guards and time; see
        :class:`~evergrad.compiler.explain.report.Explanation`. With ``passes`` also the graph after
        each compiler pass. Has no side effects."""
        from evergrad.compiler.explain.report import Explanation  # start-up: rarely used

        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        with self.lock:
            variant, tensors = self.compiled_for(args, kwargs)
            variant.lower()
            return Explanation(Call(variant, tensors), name, passes)


_steps: weakref.WeakSet[Compiled] = weakref.WeakSet()


def _unlock_steps() -> None:
    """Replace the step locks in a forked child: the threads that held them are gone."""
    for step in _steps:
        step.lock = threading.RLock()


fork.register("step locks", after_in_child=_unlock_steps)


def signature(leaves: list[Any], spec: Any) -> Any:
    """The static part of a call: structure and types of its arguments, and the modes."""
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
            f"an argument of a compiled function is a {type(leaf).__name__}, which is not hashable "
            "and cannot be part of the signature.\n"
            "  fix: pass a tensor, a number, a string or a tuple."
        ) from None
    return leaf.__class__, leaf
