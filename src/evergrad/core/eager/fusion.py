"""Eager fusion: functions of several ops whose large eager calls run as one native kernel.

An :class:`EagerComposite` is written in ops like any other function. Called eagerly on tensors that
are large enough it is dispatched to :mod:`evergrad.compiler.eager.composites`, which records one
node for it. While tracing, under autocast, for small tensors and for element types without kernels
its ops are bound one by one, so that transforms and the compiler see them.

Owns the decision. The compiler is not imported before the first call that is large enough.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.row_facts import AtenName
from evergrad.core.shapes import TensorType
from evergrad.core.state import STATE, using
from evergrad.extension import ExtensionPoint

if TYPE_CHECKING:
    from evergrad.core.dtypes import dtype
    from evergrad.core.types import AnyFunction, Args, Attrs


_call_native: ExtensionPoint[..., object] = ExtensionPoint("native_composite")

Size = Callable[..., int]
# Calls a composite as one node: the composite, the state, arguments, their types, attributes.
NativeCall = Callable[..., Any]

# Batches that change their size would be planned over and over: so many shapes of one kind get
# kernels. A shape has one from its first call on or never, so that its results stay the same.
_MANY_SHAPES = 6
# The most shapes without kernels that a function keeps.
_MOST_SHAPES = 1 << 10
# The most kinds that are counted separately.
_MOST_KINDS = 256
# For how many combinations of types a function caches whether they use a kernel.
_MOST_DECISIONS = 1 << 12


class Uses:
    """How many kernels were made for shapes of one kind."""

    __slots__ = ("kernels",)

    def __init__(self) -> None:
        self.kernels: int = 0

    def are_many(self, limit: int = _MANY_SHAPES) -> bool:
        """Whether further shapes get no kernels."""
        return self.kernels >= limit


class AnyExtents:
    """What a composite runs on shapes without kernels, by types and attributes; and how the
    numbers of its graphs follow from extents, by structure. Owned by the compiler."""

    __slots__ = ("shapes", "structures")

    def __init__(self) -> None:
        self.shapes: dict[object, dict[int, Any]] = {}
        self.structures: dict[object, Any] = {}

    def of_shape(self, key: object) -> dict[int, object]:
        """An entry for another shape; at the limit the others are evicted."""
        if len(self.shapes) >= _MOST_SHAPES:
            self.clear()
        return self.shapes.setdefault(key, {})

    def clear(self) -> None:
        """Forget all shapes; what they run is made again, with the same results."""
        cleared, self.shapes = self.shapes, {}
        for of_shape in cleared.values():
            for specialization in of_shape.values():
                if specialization:
                    specialization.vjp_programs = {}  # breaks the reference cycle


class EagerComposite:
    """A function of tensors (or ``None``) and attributes that may run as one kernel.

    The attributes are structure, as those of a row: they are part of the cache key. A call uses a
    kernel if ``size(*tensors)`` (by default the elements of the first) is at least ``least``
    (``None``: never). If ``keeps`` is set the forward kernel saves residuals for the vjp by so many
    first arguments, which otherwise recomputes everything from the arguments. ``uncast`` is set for
    a function of which autocast changes nothing. If ``plans`` is false no shape has a kernel: all
    share the calls of :mod:`evergrad.compiler.eager.any_extents`. ``aten`` is PyTorch's operator.
    """

    random: bool = False

    def __init__(
        self, function: AnyFunction, least: int | None, size: Size | None, keeps: int,
        uncast: bool = False, plans: bool = True, aten: AtenName = "",
    ) -> None:  # fmt: skip
        self.function = function
        self.least = least
        self.size = size
        self.keeps = keeps
        self.uncast = uncast
        self.plans = plans
        self.aten: AtenName = aten
        self.name: str = function.__name__.strip("_")
        # By types and attributes; owned by the compiler.
        self.specializations: dict[object, Any] = {}
        self.any_extents = AnyExtents()
        # By kind: see :meth:`uses`.
        self.kinds: dict[object, Uses] = {}
        # Whether calls of given types use a kernel.
        self.profitable: dict[object, bool] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **attrs: object) -> Any:
        state = STATE.get()
        if state.trace is not None or not config.EAGER_KERNELS:
            return self.function(*args, **attrs)
        for arg in args:
            if arg is not None and arg._value.__class__ is not np.ndarray:
                return self.function(*args, **attrs)
        if state.interceptor is not None:
            return state.interceptor(self, args, lambda: self._uninterrupted(args, attrs))
        types = tuple([None if a is None else a._type for a in args])
        found = self.specializations.get((types, tuple(attrs.items())) if attrs else types)
        forced = config.EAGER_KERNEL_ELEMENTS
        if found is not None and found.is_usual and forced is None and not state.intercepted:
            return found.call(state, args)
        if state.autocast is not None and not self.keeps_precision(types, attrs):
            return self.function(*args, **attrs)
        key = types, forced
        profitable = self.profitable.get(key)
        if profitable is None:
            if len(self.profitable) >= _MOST_DECISIONS:
                self.profitable.clear()
            profitable = self.profitable[key] = self.is_profitable(args)
        if not profitable:
            return self.function(*args, **attrs)
        if state.recorder is not None:
            return state.recorder.note_composite(self, _call_native, args, types, attrs)
        return _call_native(self, state, args, types, attrs)

    def _uninterrupted(self, args: tuple[object, ...], attrs: dict[str, object]) -> object:
        """The call as one op: the interceptor is not called for the rows inside."""
        with using(interceptor=None):
            return self(*args, **attrs)

    @property
    def traced(self) -> AnyFunction:
        """The function that is traced for its kernels."""
        return self.function

    def keeps_precision(self, types: tuple[object, ...], attrs: dict[str, object]) -> bool:
        """Whether it is known that autocast changes the precision of nothing in it."""
        return self.uncast

    def is_profitable(self, args: Args) -> bool:
        """Whether arguments of these types are large enough for a kernel, and supported by it."""
        if self.least is None or not config.EAGER_KERNELS:
            return False
        size = args[0]._type.numel if self.size is None else self.size(*args)
        if not is_large(size, self.least):
            return False
        return all(a is None or a._type.dtype in _KERNEL_TYPES for a in args)

    def uses(self, args: Args, attrs: Attrs) -> Uses:
        """The counts for arguments of one kind: parameters of these types, and other tensors that
        have as many dimensions and, beside the first, the same last extent."""
        kind = (
            *[a if a is None else a._type if a._leaf is not None else _kind(a._type) for a in args],
            *attrs.items(),
        )
        if len(self.kinds) >= _MOST_KINDS:
            self.kinds.clear()
        return self.kinds.setdefault(kind, Uses())

    def clear(self) -> None:
        """Clear its kernels; those in use are made again."""
        cleared, self.specializations, self.kinds = self.specializations, {}, {}
        for specialization in cleared.values():
            specialization.vjp_programs = {}  # breaks the reference cycle
        self.any_extents.clear()
        self.any_extents.structures.clear()


def _kind(type: TensorType) -> tuple[dtype | int | tuple[int, ...], ...]:
    return type.dtype, len(type.shape), type.shape[1:][-1:]


def is_large(size: int, least: int) -> bool:
    """Whether a size reaches the threshold ``least``, or the one that tests set."""
    forced = config.EAGER_KERNEL_ELEMENTS
    return size >= (least if forced is None else max(forced, 1))


_KERNEL_TYPES = (
    dtypes.float32, dtypes.float64, dtypes.bfloat16, dtypes.float16, dtypes.int64, dtypes.bool_,
)  # fmt: skip

_COMPOSITES: list[EagerComposite] = []


def eager_composite(
    least: int, size: Size | None = None, keeps: int = 0, uncast: bool = False, plans: bool = True,
    aten: AtenName = "",
) -> Callable[[Callable[..., object]], EagerComposite]:  # fmt: skip
    """Declare a function an :class:`EagerComposite` from a size on."""

    def declare(function: Callable[..., object]) -> EagerComposite:
        made = EagerComposite(function, least, size, keeps, uncast, plans, aten)
        register(made)
        return made

    return declare


def register(function: EagerComposite) -> None:
    """Enter a function among those whose kernels are cleared together."""
    _COMPOSITES.append(function)


def specializations_kept() -> int:
    """The number of specializations over all composites."""
    return sum(len(function.specializations) for function in _COMPOSITES)


def clear_composite_kernels() -> None:
    """Clear the kernels of all composites; those in use are made again."""
    for function in _COMPOSITES:
        function.clear()
    for clear in _USERS:
        clear()


_USERS: list[Callable[[], None]] = []


def on_clear(clear: Callable[[], None]) -> Callable[[], None]:
    """Register a function that forgets kernels of composites, and specializations."""
    _USERS.append(clear)
    return clear


@contextmanager
def eager_kernels(enabled: bool = True, least: int | None = None) -> Iterator[None]:
    """Switch the kernels of eager calls on or off inside, for all threads; ``least`` replaces the
    thresholds of all functions."""
    before = config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS
    config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS = enabled, least
    try:
        yield
    finally:
        config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS = before
