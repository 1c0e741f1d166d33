"""``evergrad.compile``: a Python function that runs as native code from its second look on."""

from __future__ import annotations

import functools
import threading
import warnings
import weakref
from collections.abc import Callable
from types import MethodType
from typing import Any

from evergrad.compiler.frontend.capture import Captured, InsideGraphError, capture
from evergrad.compiler.frontend.python_guards import Surroundings
from evergrad.compiler.frontend.variant import Call, Variant
from evergrad.compiler.runtime import call_path
from evergrad.compiler.runtime.call_path import UNSERVED, Serve, plain_call
from evergrad.compiler.runtime.gc_pause import uncollected
from evergrad.core import dtypes, fork
from evergrad.core.state import STATE
from evergrad.core.storage import NO_ARRAY
from evergrad.core.tensor import Tensor
from evergrad.core.tree import tree_flatten, tree_unflatten
from evergrad.extension import ExtensionPoint, provides

_optimized_module: ExtensionPoint[..., Any] = ExtensionPoint("optimized_module")

# So many programs for the same types, and so many fast paths, are kept.
_MANY = 8


def compile(
    model: Any = None, *, check_finite: bool = False, memory_limit: int | None = None,
    **options: Any,
) -> Any:  # fmt: skip
    """Compile a training step, a module or a function of tensors.

    The function is traced at its first call with arguments of given types, and the program made of
    the trace runs from then on. Tensors of the outside that it reads or writes (parameters,
    optimizer state) stay where they are; Python floats among its arguments and the options of
    optimizers are read at each call. What else decided the trace is checked at each call, and a
    new program is made where it has changed.

    A call that fails leaves tensors and random streams as they were before it. With
    ``check_finite`` a call that gives an infinity or a NaN fails, and its error names the op and
    the line they came from. With ``memory_limit`` values are computed again until what the program
    needs beside its arguments and results fits into so many bytes; if that cannot be, the first
    call raises ``MemoryLimitError`` before it runs anything.

    Other options of ``torch.compile`` are accepted; there is one way to compile here.
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
    """A function with the programs made of it so far."""

    def __init__(
        self, function: Callable[..., Any], check_finite: bool = False,
        memory_limit: int | None = None,
    ) -> None:  # fmt: skip
        self.function = function
        self.check_finite = check_finite
        self.memory_limit = memory_limit
        self.variants: dict[Any, list[Variant]] = {}
        # The fast paths of variants, the one that was found last first.
        self.plain: dict[Variant, Serve] = {}
        # Signatures whose calls stand inside a graph that is being recorded around them.
        self.inside_graphs: set[Any] = set()
        # Whoever uses the programs holds it.
        self.lock = threading.RLock()
        _steps.add(self)
        functools.update_wrapper(self, function, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = STATE.get()
        if state.trace is not None:
            return self.function(*args, **kwargs)  # part of a larger program
        with self.lock:
            if not kwargs:
                for serve in self.plain.values():
                    result = serve(args, state)
                    if result is not UNSERVED:
                        return result
            with uncollected():
                variant, tensors = self.variant_for(args, kwargs)
                if variant is not None and not variant.is_entangled(tensors):
                    result = variant.run(tensors)
                    if not kwargs:
                        self.note_plain(args, variant)
                    return result
        return self.function(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As a method, like the function itself."""
        return self if instance is None else MethodType(self, instance)

    def __reduce__(self) -> Any:
        """A copy has no programs yet."""
        return type(self), (self.function, self.check_finite, self.memory_limit)

    def note_plain(self, args: Any, variant: Variant) -> None:
        """Let further calls like this one, which a variant has served, take the fast path."""
        serve = plain_call(variant, args)
        if serve is not None:
            others = [pair for pair in self.plain.items() if pair[0] is not variant]
            self.plain = dict([(variant, serve), *others[: _MANY - 1]])

    def variant_for(self, args: Any, kwargs: Any) -> tuple[Variant | None, list[Tensor]]:
        """The variant that holds for these arguments, told of the floats among them (``None`` if
        they are to run eagerly); and the tensors among them."""
        leaves, spec = tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        numbers = [leaf for leaf in leaves if leaf.__class__ is float]
        if any(t._value is NO_ARRAY for t in tensors):  # sparse or ragged
            return None, tensors
        variant = self.find(signature(leaves, spec), leaves, spec, tensors, numbers)
        if variant is None:
            return None, tensors
        for container, index, _ in variant.captured.numbers:
            if isinstance(container, list):
                container[index] = numbers[index]
        return variant, tensors

    def find(
        self, key: Any, leaves: list[Any], spec: Any, tensors: Any, numbers: Any
    ) -> Variant | None:
        if key in self.inside_graphs:
            return None
        variant = self.holding(key)
        if variant is not None:
            return variant
        known = self.variants.setdefault(key, [])
        if len(known) >= _MANY:
            warnings.warn(
                f"{self.function} was compiled {len(known) + 1} times for the same types; what "
                f"changed: {known[-1].conditions.changed()}",
                RuntimeWarning,
                stacklevel=4,
            )
            known.clear()
            self.plain = {}
        try:
            captured = self.trace(leaves, spec, tensors, numbers)
        except InsideGraphError:
            self.inside_graphs.add(key)
            return None
        variant = Variant(captured, self.check_finite, self.memory_limit)
        if variant.captured.once is None:
            known.append(variant)
        return variant

    def holding(self, key: Any) -> Variant | None:
        """The variant for these types whose conditions hold, if there is one already."""
        known = self.variants.get(key, [])
        for variant in reversed(known):  # the one used last comes last
            if variant.conditions.hold():
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
        return capture(call, tensors, list(numbers), Surroundings(self.function, args, kwargs))

    def loop(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function for each row (the first dimension) of the tensors among its arguments,
        one after the other, and stack what it gives: ``loop(xs, ys)`` is
        ``stack([f(x, y) for x, y in zip(xs, ys)])``.

        Once there is a program that serves the rows, all of them are one native call, without
        Python in between: what small steps cost beside their kernels is gone, and threads that
        train models of their own do not wait for each other. Options of optimizers are read when
        the loop begins. A row that fails ends the loop; the rows before it are done, and the error
        tells which one it was. What is the same for all rows is given expanded, or as a number.
        """
        from evergrad.compiler.runtime.batched_calls import loop_of  # start-up: rarely used

        return loop_of(self, args, kwargs)

    def plan(self, *args: Any, **kwargs: Any) -> Any:
        """The memory plan for these arguments, without running anything."""
        with self.lock:
            return self.compiled_for(args, kwargs)[0].program.plan

    def compiled_for(self, args: Any, kwargs: Any) -> tuple[Variant, list[Tensor]]:
        """As :meth:`variant_for`, for questions about a program that must exist."""
        variant, tensors = self.variant_for(args, kwargs)
        if variant is None:
            raise RuntimeError(
                "calls with these arguments run eagerly: they take sparse or ragged tensors, or "
                "the function uses tensors that are computed from others with gradients"
            )
        return variant, tensors

    def explain(self, *args: Any, passes: bool = False, **kwargs: Any) -> Any:
        """What the program for these arguments is, needs and spends its time on; see
        :class:`~evergrad.compiler.explain.report.Explanation`. With ``passes`` also the graph after
        each compiler pass. Changes nothing outside."""
        from evergrad.compiler.explain.report import Explanation  # start-up: rarely used

        name = getattr(self.function, "__qualname__", type(self.function).__name__)
        with self.lock:
            variant, tensors = self.compiled_for(args, kwargs)
            variant.lower()
            return Explanation(Call(variant, tensors), name, passes)


_steps: weakref.WeakSet[Compiled] = weakref.WeakSet()


def _unlock_steps() -> None:
    """In a forked child the other threads are gone, and so is what they held."""
    for step in _steps:
        step.lock = threading.RLock()


fork.register("step locks", after_in_child=_unlock_steps)


def signature(leaves: list[Any], spec: Any) -> Any:
    """What a trace depends on: the form and the types of the arguments, and the modes."""
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
            f"an argument of a compiled function is a {type(leaf).__name__}, which cannot be told "
            "from others of its kind.\n  fix: give a tensor, a number, a string or a tuple."
        ) from None
    return leaf.__class__, leaf
