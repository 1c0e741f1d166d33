"""Functions that make tensors, without dispatch for what they were called with before.

What they make depends on sizes, element types and numbers, the default element type and device,
and for ``*_like`` the type of a tensor. Calls with anything else, and under a trace, go the general
way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from evergrad.core import dtypes
from evergrad.core.device import CPU, context_device
from evergrad.core.dtypes import dtype
from evergrad.core.op import prepared_calls
from evergrad.core.prepared import prepared
from evergrad.core.shapes import Size, TensorType, tensor_type
from evergrad.core.state import STATE
from evergrad.core.tensor import Tensor, new_result
from evergrad.memory import pool

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction, Kwargs

F = TypeVar("F", bound=Callable[..., Any])

# Of arrays that are kept to be copied.
_MOST_KEPT_ELEMENTS = 1 << 10
_MOST_KEPT_ARRAYS = 1 << 8

_SEQUENCES = frozenset((tuple, Size, list))


def _named_like(function: AnyFunction, made: AnyFunction) -> object:
    """Reports of memory name the function that has allocated it by its code."""
    made.__code__ = made.__code__.replace(co_name=function.__name__)
    return made


def quick_constant(value: int) -> Callable[[F], F]:
    """For ``function(*size, dtype=...)``, which fills with one number."""

    def decorate(function: F) -> F:
        kept: dict[object, Any] = prepared_calls()

        @functools.wraps(function)
        def made(*size: object, **options: object) -> object:
            target = _dtype_of(options)
            state = STATE.get()
            if target is None or state.intercepted or context_device() is not None:
                return function(*size, **options)
            sizes = size[0] if len(size) == 1 and size[0].__class__ in _SEQUENCES else size
            for n in sizes:
                if n.__class__ is not int:
                    return function(*size, **options)
            key = (target, *sizes)
            found = kept.get(key)
            if found is None:
                result = function(*size, **options)
                kept[key] = _maker(result._type)
                return result
            array = found[0]()
            array.fill(value)
            return new_result(array, found[1], state.inference)

        return cast(F, _named_like(function, made))

    return decorate


def quick_constant_like(value: int) -> Callable[[F], F]:
    """For ``function(input, dtype=...)``."""

    def decorate(function: F) -> F:
        kept: dict[object, Any] = prepared_calls()

        @functools.wraps(function)
        def made(*args: object, **options: object) -> object:
            state = STATE.get()
            if options or len(args) != 1 or args[0].__class__ is not Tensor or state.intercepted:
                return function(*args, **options)
            type_ = args[0]._type
            found = kept.get(type_)
            if found is None:
                result = function(*args)
                if type_.__class__ is TensorType:
                    kept[type_] = _maker(result._type)
                return result
            array = found[0]()
            array.fill(value)
            return new_result(array, found[1], state.inference)

        return cast(F, _named_like(function, made))

    return decorate


def _dtype_of(options: Kwargs) -> dtype | None:
    """The element type that the options of a call say, if they say nothing else."""
    target = dtypes.get_default_dtype()
    for name, option in options.items():
        if name == "dtype" and option.__class__ is dtype:
            target = option
        elif name not in ("dtype", "device") or not (option is None or option is CPU):
            return None
    return target


def _maker(type_: TensorType) -> tuple[Callable[[], object], TensorType]:
    type_ = tensor_type(type_.shape, type_.dtype)
    return pool.allocator(type_.shape, type_.dtype.np), type_


def quick_array(function: F) -> F:
    """For functions of numbers and an element type that always give the same elements: small ones
    are copied."""
    kept: dict[object, Any] = prepared_calls()

    @functools.wraps(function)
    def made(*args: object, **options: object) -> object:
        target = _dtype_of(options)
        state = STATE.get()
        if target is None or state.intercepted or context_device() is not None:
            return function(*args, **options)
        key: list[Any] = [target, "dtype" in options]
        for a in args:
            if a.__class__ is not int and (a.__class__ is not float or not a):
                return function(*args, **options)
            key.append(a)
            key.append(a.__class__)
        found = kept.get(tuple(key))
        if found is None:
            result = function(*args, **options)
            if result._type.numel <= _MOST_KEPT_ELEMENTS:
                if len(kept) >= _MOST_KEPT_ARRAYS:
                    kept.clear()
                kept[tuple(key)] = result._value.copy(), result._type
            return result
        return new_result(found[0].copy(), found[1], state.inference)

    return cast(F, _named_like(function, made))


def quick_draw(function: F) -> F:
    """For functions of sizes and numbers that bind rows on these alone, at most with a contiguous
    tensor whose type they take."""
    plans = prepared(function)

    @functools.wraps(function)
    def made(*args: object, **options: object) -> object:
        is_usual = not options and dtypes.get_default_dtype() is dtypes.float32
        if is_usual and context_device() is None:
            for i, a in enumerate(args):
                if isinstance(a, Tensor) and (i or not _is_contiguous(a)):
                    break
            else:
                return plans(*args)
        return function(*args, **options)

    return cast(F, _named_like(function, made))


def _is_contiguous(x: Tensor) -> bool:
    return x._value.__class__ is np.ndarray and bool(x._value.flags.c_contiguous)
