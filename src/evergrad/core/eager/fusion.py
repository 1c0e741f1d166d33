"""Functions of several ops whose large calls run as one native kernel.

A :class:`Heavy` function is written in ops like any other. Called eagerly on tensors that are large
enough it is handed to :mod:`evergrad.compiler.eager.composites`, which makes one node of it. While
tracing, under autocast, for small tensors and for element types without kernels it is simply
called, so that transforms and the compiler of whole steps see its ops.

Owns the decision. The compiler is not imported before the first call that is worth it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from evergrad import config
from evergrad.core import dtypes
from evergrad.core.state import STATE
from evergrad.extension import ExtensionPoint

_call_native: ExtensionPoint[..., Any] = ExtensionPoint("native_composite")

Size = Callable[..., int]

# A function that has met so many structures, each of them in so few calls, gets no more kernels:
# shapes that never repeat would be planned again and again.
_MANY_STRUCTURES = 64
_FEW_CALLS = 3
# For how many different types a function remembers whether they are worth a kernel.
_MOST_ANSWERS = 1 << 12


class EagerComposite:
    """A function of tensors (or ``None``) and attributes that may run as one kernel.

    The attributes are structure, as those of a row: they are part of a key. A call is worth a
    kernel if ``size(*tensors)`` (by default the elements of the first) is at least ``least``
    (``None``: it never is).
    If ``keeps`` is set the kernels leave a few values for the derivative by so many first
    arguments, which otherwise computes everything again from the arguments.
    """

    def __init__(
        self, function: Callable[..., Any], least: int | None, size: Size | None, keeps: int
    ) -> None:
        self.function = function
        self.least = least
        self.size = size
        self.keeps = keeps
        self.name = function.__name__.strip("_")
        # What is known about calls of given types and attributes; owned by the compiler.
        self.specializations: dict[Any, Any] = {}
        self.calls = 0
        # Whether calls of given types are worth a kernel.
        self.worth: dict[Any, bool] = {}
        functools.update_wrapper(self, function)

    def __call__(self, *args: Any, **attrs: Any) -> Any:
        state = STATE.get()
        arrays = [a is None or a._value.__class__ is np.ndarray for a in args]
        if state.intercepted or not config.EAGER_KERNELS or not all(arrays):
            return self.function(*args, **attrs)
        types = tuple([None if a is None else a._type for a in args])
        key = types, config.EAGER_KERNEL_ELEMENTS
        worth = self.worth.get(key)
        if worth is None:
            if len(self.worth) >= _MOST_ANSWERS:
                self.worth.clear()
            worth = self.worth[key] = self.is_worth(args)
        if not worth:
            return self.function(*args, **attrs)
        return _call_native(self, state, args, types, attrs)

    @property
    def traced(self) -> Callable[..., Any]:
        """What is traced for its kernels."""
        return self.function

    def is_worth(self, args: tuple[Any, ...]) -> bool:
        """Whether a kernel gains anything for arguments of these types, and can take them."""
        if self.least is None or not config.EAGER_KERNELS:
            return False
        size = args[0]._type.numel if self.size is None else self.size(*args)
        if not is_large(size, self.least):
            return False
        return all(a is None or a._type.dtype in _KERNEL_TYPES for a in args)

    def meets_too_many(self) -> bool:
        """Whether the structures of its calls hardly ever repeat."""
        return (
            len(self.specializations) >= _MANY_STRUCTURES
            and self.calls < len(self.specializations) * _FEW_CALLS
        )

    def clear(self) -> None:
        """Let go of what is known about calls; what is in use is worked out again."""
        cleared, self.specializations, self.calls = self.specializations, {}, 0
        for specialization in cleared.values():
            specialization.vjp_programs = {}  # both know each other


def is_large(size: int, least: int) -> bool:
    """Whether a call of this size is worth a kernel, where that is from ``least`` on."""
    forced = config.EAGER_KERNEL_ELEMENTS
    return size >= (least if forced is None else max(forced, 1))


_KERNEL_TYPES = (dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_)

_COMPOSITES: list[EagerComposite] = []


def eager_composite(
    least: int, size: Size | None = None, keeps: int = 0
) -> Callable[[Callable[..., Any]], EagerComposite]:
    """Declare a function heavy from a size on: see :class:`Heavy`."""

    def declare(function: Callable[..., Any]) -> EagerComposite:
        made = EagerComposite(function, least, size, keeps)
        register(made)
        return made

    return declare


def register(function: EagerComposite) -> None:
    """Count a function among those whose kernels are kept and cleared together."""
    _COMPOSITES.append(function)


def specializations_kept() -> int:
    """How many structures all heavy functions know together."""
    return sum(len(function.specializations) for function in _COMPOSITES)


def clear_composite_kernels() -> None:
    """Let go of the kernels of all heavy functions; those in use are made again."""
    for function in _COMPOSITES:
        function.clear()


@contextmanager
def eager_kernels(enabled: bool = True, least: int | None = None) -> Iterator[None]:
    """Inside, eager calls use kernels or do not, for all threads; with ``least``, from so many
    elements on instead of where each function gains."""
    before = config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS
    config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS = enabled, least
    try:
        yield
    finally:
        config.EAGER_KERNELS, config.EAGER_KERNEL_ELEMENTS = before
