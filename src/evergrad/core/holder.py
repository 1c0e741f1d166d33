"""Values that are made of one tensor and something that describes it.

The functions of autograd take such a value where they take a tensor, and give derivatives as values
of the same kind: :meth:`TensorHolder.rebuilt` makes one of other elements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from evergrad.core.tensor import Tensor

if TYPE_CHECKING:
    from evergrad.core.types import AnyFunction


class TensorHolder:
    """A value around one tensor."""

    __slots__ = ()

    @property
    def elements(self) -> Tensor:
        """The tensor."""
        raise NotImplementedError

    def rebuilt(self, elements: Tensor) -> Self:
        """A value of the same kind of other elements."""
        raise NotImplementedError


def held(value: object) -> Any:
    """The tensor of a value; anything else as it is."""
    return value.elements if isinstance(value, TensorHolder) else value


def as_held(like: object, found: Any) -> Any:
    """A derivative by ``like``: a value of its kind, if it holds a tensor."""
    return like.rebuilt(found) if isinstance(like, TensorHolder) and found is not None else found


def on_tensors(
    function: Callable[..., object], arguments: tuple[object, ...]
) -> tuple[AnyFunction, tuple[Any, ...]]:
    """A function of values as one of the tensors they hold, and these."""
    if not any(isinstance(a, TensorHolder) for a in arguments):
        return function, arguments

    def call(*tensors: Any) -> Any:
        given = [as_held(a, t) for a, t in zip(arguments, tensors, strict=False)]
        found = function(*given, *tensors[len(given) :])
        return tuple(map(held, found)) if isinstance(found, tuple | list) else held(found)

    return call, tuple(map(held, arguments))
