"""What the adapters share: where a function is entered, how arguments meet, which axes are meant.

The standard's functions are the engine's under other argument names. Three rules differ, and they
live here: a 0-d array counts in promotion like any other, an empty tuple of axes folds nothing,
and arguments before a ``/`` have no name.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from evergrad.core import dtypes
from evergrad.core.bind import cast
from evergrad.core.shapes import Shape
from evergrad.core.tensor import Tensor
from evergrad.ops.surface.public import FUNCTIONS, expose

if TYPE_CHECKING:
    from evergrad.core.types import Leaves

Function = Callable[..., Any]
F = TypeVar("F", bound=Function)

# What ``evergrad.array_api`` offers, and its two extensions.
NAMESPACE: dict[str, Function] = {}
LINALG: dict[str, Function] = {}
FFT: dict[str, Function] = {}


def standard(*names: str, into: dict[str, Function] = NAMESPACE) -> Callable[[F], F]:
    """Make a function public in a namespace of the standard, under its own name or ``names``."""
    return expose(*names, method=False, out=False, into=into)


def enter(
    name: str, adapted: Function, source: Function, into: dict[str, Function] = NAMESPACE
) -> None:
    """Make an adapter public under the standard's name, explained as its source is."""
    adapted.__name__ = adapted.__qualname__ = name
    adapted.__doc__ = source.__doc__
    standard(into=into)(adapted)


def unary(
    names: str,
    source: dict[str, Function] = FUNCTIONS,
    into: dict[str, Function] = NAMESPACE,
) -> None:
    """Enter functions of one array, named in one string."""

    def adapter(function: Function) -> Function:
        def adapted(x: Tensor, /) -> Any:
            return function(x)

        return adapted

    for name in names.split():
        enter(name, adapter(source[name]), source[name], into)


def binary(
    names: str,
    source: dict[str, Function] = FUNCTIONS,
    into: dict[str, Function] = NAMESPACE,
) -> None:
    """Enter functions of two arrays (or an array and a Python number) that meet in one type."""

    def adapter(function: Function) -> Function:
        def adapted(x1: object, x2: object, /) -> Any:
            return function(*meeting(x1, x2))

        return adapted

    for name in names.split():
        enter(name, adapter(source[name]), source[name], into)


def meeting(*values: object) -> Leaves:
    """The values with all tensors in one element type, whatever their number of dimensions.

    A Python number is left to the engine, where it counts only by its kind.
    """
    found = [v.dtype for v in values if isinstance(v, Tensor)]
    if len(set(found)) < 2:
        return list(values)
    target = functools.reduce(dtypes.promote_types, found)
    return [cast(v, target) if isinstance(v, Tensor) else v for v in values]


def fold(function: Function, x: Tensor, axis: object, keepdims: bool, **options: object) -> Any:
    """Reduce the axes meant: all of them if ``None``, none at all if an empty tuple."""
    if axis is None:
        return function(x, tuple(range(x.ndim)), keepdim=keepdims, **options)
    if axis == ():
        return function(x[None], (0,), **options)
    return function(x, axis, keepdim=keepdims, **options)


def as_axes(axis: int | Iterable[int]) -> Shape:
    """One axis or several, as a tuple."""
    return (axis,) if isinstance(axis, int) else tuple(axis)
